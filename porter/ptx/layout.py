# SPDX-License-Identifier: Apache-2.0
"""Where the variables of a kernel lie within shared memory and within a thread's local memory: as ptxas 13.0 has them,
whose `-v` tells the bytes of each order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from porter.ptx import ast

DYNAMIC_ALIGNMENT = 16
"""Alignment of dynamic shared memory for which none is declared."""


class Variable(NamedTuple):
    """`size`, `align` in bytes; `of_module`: declared outside of the kernel; `dynamic`: as much as a launch gives."""

    name: str
    size: int
    align: int
    of_module: bool = False
    dynamic: bool = False


class Layout(NamedTuple):
    """`offsets` by name, `size` of all that has a size, `behind`: where dynamic shared memory begins."""

    offsets: dict[str, int]
    size: int
    behind: int


def lay_out(variables: Iterable[Variable], moved: int = 0) -> Layout:
    """Variables as they are declared, a kernel's own first, and those of dynamic size at one place behind the others,
    which is `moved` upwards by so many bytes."""
    offsets: dict[str, int] = {}
    size, alignment = 0, DYNAMIC_ALIGNMENT
    behind: list[str] = []
    for variable in sorted(variables, key=lambda v: v.of_module):
        if variable.dynamic:
            behind.append(variable.name)
            alignment = max(alignment, variable.align)
        else:
            offsets[variable.name] = _up(size, variable.align)
            size = offsets[variable.name] + variable.size
    dynamic = _up(size, alignment) + moved
    return Layout(offsets | dict.fromkeys(behind, dynamic), size, dynamic)


def _up(at: int, alignment: int) -> int:
    return -(-at // max(alignment, 1)) * max(alignment, 1)


def named_in(instructions: Iterable[ast.Instruction]) -> set[str]:
    """The symbols that operands name: shared variables of module scope count for a kernel only if it names them."""
    return {name for ins in instructions for operand in ins.operands for name in _symbols(operand)}


def _symbols(operand: ast.Operand) -> Iterator[str]:
    match operand:
        case ast.Sym(name):
            yield name
        case ast.Mem(base):
            yield from _symbols(base)
        case ast.Vec(items):
            for item in items:
                yield from _symbols(item)
