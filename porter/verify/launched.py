# SPDX-License-Identifier: Apache-2.0
"""What a launch says of a kernel, for whoever reads the kernel's text: threads, shared memory, arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from porter.ptx import ast
from porter.ptx.tensormap import ENCODED_BYTES, TensorMap, maps_in
from porter.verify.builder import BuiltKernel
from porter.verify.params import argument_bytes
from porter.verify.problem import LaunchValues, Problem
from porter.verify.program.device import LaunchRecord


def launched(kernel: BuiltKernel, problem: Problem, launch: LaunchValues) -> dict[str, Any]:
    """Threads of a block, in all and by axis, bytes of dynamic shared memory, blocks of a cluster, bytes of the
    parameters by name, and the narrowest row of the boxes that inputs are loaded in.

    Raises:
        PorterError: what `argument_bytes` raises.
    """
    function = kernel.function
    bound = kernel.bound(problem)
    given = argument_bytes(bound, function, lambda _: 0, lambda _: bytes(ENCODED_BYTES))
    inputs = {t.name for t in bound.tensors.values() if t.is_input}
    rows = [m.map.inner_bytes for m in bound.tensor_maps.values() if m.tensor in inputs]
    return _facts(function, given, launch.block, launch.dynamic_smem, math.prod(launch.cluster),
                  min(rows, default=None))  # fmt: skip


def launched_record(record: LaunchRecord, function: ast.Function) -> dict[str, Any]:
    """The same of a launch that a program made; boxes are those of all tensor maps among its parameters."""
    rows = [TensorMap.decode(found).inner_bytes for data in record.params for found in maps_in(data).values()]
    return _facts(function, record.params, record.block, record.dynamic_smem, math.prod(record.cluster),
                  min(rows, default=None))  # fmt: skip


def _facts(
    function: ast.Function | None, given: Any, block: Sequence[int], smem: int, cluster: int, row_bytes: int | None
) -> dict[str, Any]:
    names = [p.name for p in function.params] if function is not None else []
    parameters: Mapping[str, bytes] = dict(zip(names, given, strict=False))
    return {
        "threads": math.prod(block),
        "block": tuple(block),
        "smem": smem,
        "cluster": cluster,
        "row_bytes": row_bytes,
        "parameters": parameters,
    }
