# SPDX-License-Identifier: Apache-2.0
"""Cases whose kernel is written in CuTe DSL: the launch is the one that the kernel's own host code makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porter.build.dsl import DslCompiled, DslRequest, compile_dsl
from porter.diagnostics import Code, PorterError
from porter.verify.arguments import Argument, Raw
from porter.verify.bound_maps import BoundMap
from porter.verify.case import place
from porter.verify.expr import ExpressionError, evaluate, names_in
from porter.verify.layout import Area, Layout
from porter.verify.problem import LaunchValues, Problem
from porter.verify.tensor import Tensor

CLASSES = {
    "f64": "Float64", "f32": "Float32", "tf32": "TFloat32", "f16": "Float16", "bf16": "BFloat16",
    "f8e4m3": "Float8E4M3FN", "f8e5m2": "Float8E5M2", "s8": "Int8", "u8": "Uint8", "s16": "Int16",
    "u16": "Uint16", "s32": "Int32", "u32": "Uint32", "s64": "Int64", "u64": "Uint64",
}  # fmt: skip
"""Element types of cases as classes of the cutlass package."""

_FIRST = 0x1_D5A5 << 32
"""The first tensor's made-up device address. Two 32-bit numbers side by side, as shapes and strides lie in a
parameter, are not taken for an address near it."""

_STEP = 1 << 46
"""Bytes from one tensor's made-up device address to the next."""

_REACH = _STEP - (1 << 40)
"""How far in front of a tensor a tensor map of it may start."""


@dataclass(frozen=True)
class RecordedLaunch:
    """What the host code launched: arguments in the kernel's order, and the tensor maps that it made."""

    kernel: str
    launch: LaunchValues
    arguments: tuple[Argument, ...]
    tensor_maps: Mapping[str, BoundMap]


def made_up_addresses(problem: Problem) -> dict[str, int]:
    """Of each tensor, the device address that the host code is called with."""
    return {name: _FIRST + i * _STEP for i, name in enumerate(problem.tensors)}


def compile_case(problem: Problem, source: Path, arch: str) -> tuple[DslCompiled, RecordedLaunch]:
    """Compile the kernel of a problem from `source` and record its launch.

    Raises:
        PorterError: CASE_FIELD, CASE_EXPRESSION, CASE_PARAMETERS; what `porter.build.dsl.compile_dsl` raises.
    """
    case, addresses = problem.case, made_up_addresses(problem)
    compiled = compile_dsl(_request(problem, source, arch))
    if len(compiled.launches) != 1:
        what = f"the host function launches {len(compiled.launches)} kernels; one can be compared"
        raise PorterError(Code.CASE_PARAMETERS, place(case, "entry"), problem=what)
    found = compiled.launches[0]
    launch = LaunchValues(found.grid, found.block, found.cluster, found.dynamic_smem)
    areas = [Area(name, address, problem.tensors[name].nbytes) for name, address in addresses.items()]
    layout = Layout(areas, lambda number: f"launch.tensor_map[{number}]", _REACH)
    arguments = tuple(Raw(p, layout.contents(p)) for p in found.params)
    maps = {name: BoundMap(name, tensor, map_) for name, (tensor, map_) in layout.maps.items()}
    return compiled, RecordedLaunch(found.kernel, launch, arguments, maps)


def calls_of(problem: Problem, arch: str, names: Sequence[str]) -> DslCompiled:
    """A case's kernel with the calls of functions of the DSL that it makes while it is traced.

    Raises:
        PorterError: as `compile_case`.
    """
    return compile_dsl(_request(problem, problem.case.kernel, arch, names))


def _request(problem: Problem, source: Path, arch: str, observe: Sequence[str] = ()) -> DslRequest:
    case, addresses = problem.case, made_up_addresses(problem)
    assert case.dsl is not None
    return DslRequest(
        source=source,
        entry=case.entry,
        arch=arch,
        init=constructor(problem),
        call=[_argument(problem, f"dsl.call[{i}]", v, addresses) for i, v in enumerate(case.dsl.call)],
        keywords={k: _argument(problem, f"dsl.keywords.{k}", v, addresses) for k, v in case.dsl.keywords.items()},
        search=(case.kernel.parent, *case.include_dirs),
        observe=observe,
    )


def is_compiled_in(problem: Problem, name: str) -> bool:
    """Whether a kernel is compiled anew for each number of a size, which shapes of its tensors are made of: they are
    compile-time values where the case does not say `dynamic`."""
    dsl = problem.case.dsl
    if dsl is None or dsl.dynamic:
        return False
    return any(name in names_in(str(extent)) for tensor in problem.tensors.values() for extent in tensor.symbolic)


def constructor(problem: Problem) -> dict[str, Any]:
    """The constructor's keyword arguments, as the worker takes them.

    Raises:
        PorterError: CASE_FIELD.
    """
    assert problem.case.dsl is not None
    return {k: _value(problem, f"dsl.init.{k}", v) for k, v in problem.case.dsl.init.items()}


def _argument(problem: Problem, where: str, item: Any, addresses: Mapping[str, int]) -> dict[str, Any]:
    if isinstance(item, str) and item in problem.tensors:
        tensor = problem.tensors[item]
        leading = _leading(problem, where, tensor)
        return {
            "kind": "tensor",
            "dtype": CLASSES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "strides": list(tensor.strides),
            "align": min(tensor.align, 16),
            "address": addresses[item],
            "dynamic": leading is not None,
            "leading": leading,
        }
    if item == "stream":
        return {"kind": "stream"}
    if isinstance(item, dict) and "runtime" in item:
        kind = CLASSES.get(str(item.get("type", "s32")))
        if kind is None:
            raise _error(problem, where, f"no type {item['type']} (there are: {', '.join(CLASSES)})")
        return {"kind": "runtime", "dtype": kind, "value": _value(problem, where, item["runtime"])}
    if isinstance(item, list):
        parts = [_argument(problem, f"{where}[{i}]", v, addresses) for i, v in enumerate(item)]
        if any(part["kind"] != "value" for part in parts):
            return {"kind": "tuple", "items": parts}
    return {"kind": "value", "value": _value(problem, where, item)}


def _leading(problem: Problem, where: str, tensor: Tensor) -> int | None:
    """The mode of a tensor that is contiguous, if its shape and its other strides are known at run time only: the one
    whose stride the case gives as 1, as others may be 1 at some sizes."""
    case = problem.case
    if case.dsl is None or not case.dsl.dynamic:
        return None
    if 1 not in tensor.strides:
        raise _error(problem, where, f"{tensor.name} has no contiguous dimension, so its strides cannot be dynamic")
    given = case.tensors[tensor.name].strides
    always = [i for i, stride in enumerate(given) if stride in (1, "1")] if given else [len(tensor.strides) - 1]
    return always[0] if always else tensor.strides.index(1)


def _value(problem: Problem, where: str, item: Any) -> Any:
    """A value of the case as the worker takes it: names of the package, numbers, strings, lists."""
    if isinstance(item, list):
        return [_value(problem, where, i) for i in item]
    if isinstance(item, str):
        if item.startswith("cutlass."):
            return {"cutlass": item.removeprefix("cutlass.")}
        try:
            return evaluate(item, problem.names)
        except ExpressionError:
            return item
    if item is None or isinstance(item, (bool, int, float)):
        return item
    raise _error(problem, where, f"`{item}` is no number, expression, list or name of the cutlass package")


def _error(problem: Problem, where: str, what: str) -> PorterError:
    return PorterError(Code.CASE_FIELD, place(problem.case, where), field=where, problem=what)
