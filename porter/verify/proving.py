# SPDX-License-Identifier: Apache-2.0
"""A kernel of a case as one launch whose synchronization can be told from its PTX."""

from __future__ import annotations

import math

from porter.facts.launched import GLOBAL, Geometry, Launched
from porter.ptx import ast
from porter.ptx.tensormap import ENCODED_BYTES, TensorMap
from porter.verify.arguments import MapAddress, MapValue, Pointer
from porter.verify.params import argument_bytes
from porter.verify.problem import Problem

_APART = 1 << 34
"""Bytes between the addresses that tensors are given."""
_MAPS = GLOBAL + (1 << 42)
_MARK = b"\xd1PorterMap"


def box_bytes(tensor_map: TensorMap) -> int:
    """Bytes that a copy of a whole box moves."""
    return math.prod(tensor_map.box) * tensor_map.dtype.element_bits // 8


def launched_case(problem: Problem, module: ast.Module, entry: ast.Function) -> Launched:
    """The launch of a problem. Tensors lie at addresses of their own, which no instruction reads.

    Raises:
        PorterError: CASE_PARAMETERS if the arguments do not fit the kernel.
    """
    tensors = {name: GLOBAL + index * _APART for index, name in enumerate(problem.tensors)}
    maps = {name: _MAPS + index * ENCODED_BYTES for index, name in enumerate(problem.tensor_maps)}
    numbers = list(maps)

    def address(argument: Pointer | MapAddress) -> int:
        return tensors[argument.tensor] + argument.offset if isinstance(argument, Pointer) else maps[argument.tensor_map]

    def image(value: MapValue) -> bytes:
        return (_MARK + numbers.index(value.tensor_map).to_bytes(2, "little")).ljust(ENCODED_BYTES, b"\0")

    arguments = argument_bytes(problem, entry, address, image)
    parameters = {param.name: data for param, data in zip(entry.params, arguments, strict=True)}
    boxes: dict[tuple[str, int] | int, int] = {
        where: box_bytes(problem.tensor_maps[name].map) for name, where in maps.items()
    }
    for name, data in parameters.items():
        at = data.find(_MARK)
        while at >= 0:
            number = int.from_bytes(data[at + len(_MARK) : at + len(_MARK) + 2], "little")
            boxes[name, at] = box_bytes(problem.tensor_maps[numbers[number]].map)
            at = data.find(_MARK, at + 1)
    launch = problem.launch
    geometry = Geometry(launch.block, launch.grid, launch.cluster, launch.dynamic_smem)
    return Launched(module, entry, geometry, parameters, boxes)
