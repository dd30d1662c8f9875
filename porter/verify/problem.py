# SPDX-License-Identifier: Apache-2.0
"""A case at one problem size: every expression evaluated and checked to fit together.

Shapes and strides are outermost dimension first, in elements, as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from porter.diagnostics import Code, PorterError
from porter.ptx.arch import Limits
from porter.ptx.tensormap import ENCODED_BYTES
from porter.verify.arguments import Argument, Inside, MapAddress, MapValue, Pointer, Raw, Scalar, Struct
from porter.verify.bound_maps import BoundMap, bound_map
from porter.verify.case import Case, Expr, TensorSpec, place
from porter.verify.dtypes import DTYPES, DType
from porter.verify.expr import ExpressionError, Number, evaluate, names_in
from porter.verify.scope import Scope
from porter.verify.tensor import Tensor

_MOST_BYTES = 1 << 33
"""Bytes of all tensors of a case, whatever the machine has."""
_MOST_ELEMENTS = 1 << 28
"""Elements of them: each is worked with as a number and as an index, of eight bytes each."""


@dataclass(frozen=True)
class LaunchValues:
    """Threads and blocks as (x, y, z); dynamic shared memory in bytes. `resident`: how many blocks run at a time, None
    for as many as the simulator lets."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    dynamic_smem: int = 0
    cooperative: bool = False
    resident: int | None = None


@dataclass(frozen=True)
class Problem:
    """One case at one size, ready to be given inputs and run."""

    case: Case
    sizes: Mapping[str, Number]
    names: Mapping[str, Number]
    tensors: Mapping[str, Tensor]
    tensor_maps: Mapping[str, BoundMap]
    launch: LaunchValues
    template: tuple[str, ...]
    defines: Mapping[str, str]
    arguments: tuple[Argument, ...]
    reduction: int
    tile: tuple[int, int] | None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors.values() if t.is_input)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors.values() if t.is_output)

    @property
    def operand(self) -> DType:
        """The format the tensor cores multiply: the case's `operand`, else the narrowest input's format."""
        if self.case.operand:
            return DTYPES[self.case.operand]
        candidates = [t for t in self.inputs if self.reduction_axis(t) is not None] or list(self.inputs)
        return min((t.dtype for t in candidates), key=lambda d: d.itemsize, default=DTYPES["f32"])

    def reduction_axis(self, tensor: Tensor) -> int | None:
        """The dimension of a tensor that the sum runs over: the one written like the case's `reduction`, or as
        a name in it (`K` where the reduction is `K + 1`)."""
        text = _spelling(self.case.reduction)
        names = names_in(text)
        for axis, dimension in enumerate(tensor.symbolic):
            if isinstance(dimension, str) and (_spelling(dimension) == text or dimension in names):
                return axis
        return None


def _spelling(expression: Expr) -> str:
    return str(expression).replace(" ", "")


def bind(case: Case, sizes: Mapping[str, Number] | None = None) -> Problem:
    """The case at `sizes` (names left out keep their default).

    Raises:
        PorterError: CASE_EXPRESSION, CASE_DOES_NOT_FIT, CASE_FIELD.
    """
    unknown = set(sizes or ()) - set(case.sizes)
    if unknown:
        problem = f"no size {', '.join(sorted(unknown))} (sizes: {', '.join(case.sizes)})"
        raise PorterError(Code.CASE_FIELD, place(case, "sizes"), field="sizes", problem=problem)
    chosen = {**case.sizes, **(sizes or {})}
    scope = Scope(case, dict(chosen))
    for name, expression in case.constants.items():
        scope.names[name] = scope.number(f"constants.{name}", expression)
    tensors = {name: _tensor(scope, spec) for name, spec in case.tensors.items()}
    for name, spec in case.tensors.items():
        found = _contained(scope, f"tensors.{name}.contains", spec.contains, tensors, tensors[name].nbytes)
        tensors[name] = replace(tensors[name], contains=found)
    total = sum(t.nbytes for t in tensors.values())
    if total > _MOST_BYTES:
        raise scope.error("tensors", f"{total} bytes in all; at most {_MOST_BYTES} are worked with")
    elements = sum(math.prod(t.shape) for t in tensors.values())
    if elements > _MOST_ELEMENTS:
        raise scope.error("tensors", f"{elements} elements in all; at most {_MOST_ELEMENTS} are worked with")
    maps = {name: bound_map(scope, spec, tensors[spec.tensor]) for name, spec in case.tensor_maps.items()}
    reduction = scope.integer("reduction", case.reduction, 1)
    tile = _tile(scope)
    return Problem(
        case=case,
        sizes=chosen,
        names=scope.names,
        tensors=tensors,
        tensor_maps=maps,
        launch=_launch(scope),
        template=tuple(_template_argument(scope, e) for e in case.template),
        defines={n: _template_argument(scope, e) for n, e in case.defines.items()},
        arguments=tuple(_argument(scope, f"params[{i}]", p, tensors) for i, p in enumerate(case.params)),
        reduction=reduction,
        tile=tile,
    )


def _tensor(scope: Scope, spec: TensorSpec) -> Tensor:
    where = f"tensors.{spec.name}"
    shape = scope.integers(f"{where}.shape", spec.shape, 1)
    if spec.strides is None:
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    else:
        strides = scope.integers(f"{where}.strides", spec.strides)
        if len(strides) != len(shape):
            raise scope.error(f"{where}.strides", f"{len(strides)} strides for {len(shape)} dimensions")
        _check_overlap(scope, where, shape, strides, spec)
    field = "fill" if scope.case.recorded is None else "init"
    fill = _fill(scope, f"{where}.{field}", spec.fill, math.prod(shape))
    align = scope.integer(f"{where}.align", spec.align, 1)
    if align & (align - 1):
        raise scope.error(f"{where}.align", f"{align} is no power of two")
    return Tensor(
        spec.name, DTYPES[spec.dtype], shape, strides, spec.role, fill, align, spec.shape, spec.before, spec.after,
        spec.init,
    )  # fmt: skip


def _fill(
    scope: Scope, where: str, spec: Expr | tuple[Expr, ...] | None, count: int
) -> float | tuple[float, ...] | None:
    """One number for all elements, or one for each."""
    if not isinstance(spec, tuple):
        return None if spec is None else float(scope.number(where, spec))
    if len(spec) != count:
        raise scope.error(where, f"{len(spec)} numbers for {count} elements")
    return tuple(float(scope.number(f"{where}[{i}]", item)) for i, item in enumerate(spec))


def _check_overlap(scope: Scope, where: str, shape: Sequence[int], strides: Sequence[int], spec: TensorSpec) -> None:
    reach = 0
    for stride, size in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride <= reach:
            raise scope.error(f"{where}.strides", f"stride {stride} makes elements of {spec.name} overlap")
        reach += stride * (size - 1)


def _launch(scope: Scope) -> LaunchValues:
    spec = scope.case.launch

    def triple(name: str, values: Sequence[Expr]) -> tuple[int, int, int]:
        numbers = (*scope.integers(f"launch.{name}", values, 1), 1, 1)
        return numbers[0], numbers[1], numbers[2]

    grid, block = triple("grid", spec.grid), triple("block", spec.block)
    cluster = triple("cluster", spec.cluster)
    if math.prod(block) > Limits.threads_per_block:
        raise scope.error("launch.block", f"{math.prod(block)} threads; a block has at most {Limits.threads_per_block}")
    for axis, (g, c) in enumerate(zip(grid, cluster, strict=True)):
        if g % c:
            raise scope.error("launch.cluster", f"grid extent {g} is not a multiple of cluster extent {c}"
                              f" in {'xyz'[axis]}")  # fmt: skip
    smem = scope.integer("launch.dynamic_smem", spec.dynamic_smem)
    resident = None if spec.resident is None else scope.integer("launch.resident", spec.resident, 1)
    return LaunchValues(grid, block, cluster, smem, spec.cooperative, resident)


def _template_argument(scope: Scope, expression: Expr) -> str:
    """C++ text: the value of an expression over known names, anything else as it stands."""
    try:
        if isinstance(expression, str) and not names_in(expression) <= scope.names.keys():
            return expression
        value = evaluate(expression, scope.names)
    except ExpressionError:
        return str(expression)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _contained(
    scope: Scope, where: str, items: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor], size: int
) -> tuple[Inside, ...]:
    """What recorded bytes contain, checked to lie inside of them."""
    result: list[Inside] = []
    for i, item in enumerate(items):
        name = item.get("address_of", item.get("tensor_map"))
        known: Mapping[str, Any] = tensors if "address_of" in item else scope.case.tensor_maps
        if name not in known:
            raise scope.error(f"{where}[{i}]", f"no tensor or tensor map {name}")
        length = 8 if "address_of" in item else ENCODED_BYTES
        if item["at"] + length > size:
            raise scope.error(f"{where}[{i}].at", f"{length} bytes from byte {item['at']} on; there are {size}")
        what = Pointer(name, item.get("byte_offset", 0)) if "address_of" in item else MapValue(name)
        result.append((item["at"], what))
    return tuple(result)


def _argument(scope: Scope, where: str, param: Any, tensors: Mapping[str, Tensor]) -> Argument:
    if isinstance(param, dict):
        if "struct" in param:
            members = (_argument(scope, f"{where}.struct[{i}]", m, tensors) for i, m in enumerate(param["struct"]))
            return Struct(tuple(members))
        if "bytes" in param:
            data = bytes.fromhex(param["bytes"])
            found = _contained(scope, f"{where}.contains", param.get("contains", ()), tensors, len(data))
            return Raw(data, found)
        if "value" in param:
            return Scalar(scope.number(f"{where}.value", param["value"]), param.get("type"))
        name = param["address_of"]
        if name in scope.case.tensor_maps:
            return MapAddress(name)
        if name not in tensors:
            raise scope.error(f"{where}.address_of", f"no tensor or tensor map {name}")
        offset = scope.integer(f"{where}.offset", param.get("offset", 0))
        return Pointer(name, offset * tensors[name].dtype.itemsize)
    if isinstance(param, str) and param in tensors:
        return Pointer(param)
    if isinstance(param, str) and param in scope.case.tensor_maps:
        return MapValue(param)
    if isinstance(param, str) and param.isidentifier() and param not in scope.names:
        known = ", ".join([*tensors, *scope.case.tensor_maps, *sorted(scope.names)])
        raise scope.error(where, f"no tensor, tensor map, size or constant {param} (known: {known})")
    return Scalar(scope.number(where, param))


def _tile(scope: Scope) -> tuple[int, int] | None:
    if scope.case.tile is not None:
        rows, columns = scope.integers("tile", scope.case.tile, 1)
        return rows, columns
    rows_named, columns_named = scope.names.get("BM"), scope.names.get("BN")
    if isinstance(rows_named, int) and isinstance(columns_named, int):
        return rows_named, columns_named
    return None
