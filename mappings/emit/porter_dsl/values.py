# SPDX-License-Identifier: Apache-2.0
"""Values of a traced program, and layouts."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

import cutlass.cute as cute
from cutlass._mlir import ir
from cutlass.cute.tensor import _Tensor

# --- values and layouts


def _raw(value: Any) -> ir.Value:
    """A value itself: the bindings hand out objects of the DSL for it."""
    while not isinstance(value, ir.Value):
        value = value.value
    return ir.Value(value) if type(value) is not ir.Value else value


@contextlib.contextmanager
def _scratch() -> Iterator[None]:
    """Where the bindings may put the operations that they make whenever a value is looked at."""
    module = ir.Module.create(ir.Location.unknown())
    _operands.cache_clear()
    with ir.InsertionPoint(module.body):
        yield
    _operands.cache_clear()
    for op in reversed(list(module.body.operations)):
        op.operation.erase()


@functools.cache
def _operands(op: ir.Operation) -> list[ir.Value]:
    return [_raw(v) for v in op.operands]


def _owner(value: ir.Value) -> ir.Operation | None:
    """The operation that makes a value; None for an argument of a block."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _bits(value: ir.Value) -> int | None:
    """Bits of an element, if a value is a tensor or a pointer in registers."""
    found = re.match(r'!cute\.(?:memref|ptr)<"?([A-Za-z]+)(\d+)[^,]*,\s*rmem\b', str(value.type))
    return None if found is None else 8 if found[1] + found[2] == "i1" else int(found[2])


def _registers(value: ir.Value) -> Any:
    """The tensor in registers that a value is; None for other values."""
    return _Tensor(value) if _bits(value) and str(value.type).startswith("!cute.memref") else None


def _static(number: Any) -> int | None:
    return number if isinstance(number, int) else None


def _rest(tensor: Any) -> dict[tuple[int, int], int | None]:
    """The coordinates of an operand's modes behind the first, each with its distance in elements."""
    rank = cute.rank(tensor.layout)
    rows, columns = (_static(cute.size(tensor.layout, mode=[m])) or 0 if m < rank else 1 for m in (1, 2))
    coordinates = [(0, i, j) for j in range(columns) for i in range(rows)]
    return {c[1:]: _static(cute.crd2idx(c[:rank] if rank > 1 else 0, tensor.layout)) for c in coordinates}
