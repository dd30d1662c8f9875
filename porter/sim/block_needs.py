# SPDX-License-Identifier: Apache-2.0
"""What a block of a kernel needs of an SM, as far as its PTX says."""

from __future__ import annotations

from collections.abc import Mapping

from porter.ptx import ast, launch_bounds
from porter.ptx.table import Decoded
from porter.ptx.tmem import COLUMNS
from porter.sim.program import Program

_GRID_REGISTERS = frozenset(("envreg1", "envreg2"))
"""Where the grid barrier of cooperative groups has its memory from (cooperative_groups/details/driver_abi.h)."""


def threads_at_most(program: Program) -> int | None:
    """Threads of a block by the kernel's launch bounds; None if it has none."""
    return launch_bounds.threads_at_most(program.entry.directives)


def has_dynamic_shared(program: Program) -> bool:
    """Whether the kernel uses shared memory whose size its launch says."""
    return any(v.space == "shared" and v.decl is not None and v.decl.extern for v in program.variables.values())


def columns_held(program: Program) -> int | None:
    """The most columns of Tensor Memory that a block holds at a time, in the order of the text; None if its text does
    not say how many it asks for."""
    constants = _constants(program)
    held = most = largest = 0
    for ins in program.code:
        if ins.parts[:2] not in (("tcgen05", "alloc"), ("tcgen05", "dealloc")):
            continue
        columns = _value(ins.operands[-1], constants)
        if columns is None:
            return None
        held = max(held + (columns if ins.parts[1] == "alloc" else -columns), 0)
        most, largest = max(most, held), max(largest, columns)
    # Allocations of branches that exclude each other are no sum.
    return most if most <= COLUMNS else largest


def meets_as_a_grid(program: Program) -> bool:
    """Whether the kernel has the grid barrier of cooperative groups."""
    operands = (operand for ins in program.code for operand in ins.operands)
    return any(isinstance(o, ast.SpecialReg) and o.name in _GRID_REGISTERS for o in operands)


def _constants(program: Program) -> dict[str, int]:
    """Registers that are written once, with a number or such a register."""
    written: dict[str, list[Decoded]] = {}
    for ins in program.code:
        for name in ins.writes:
            written.setdefault(name, []).append(ins)
    found: dict[str, int] = {}
    for name, places in written.items():
        if len(places) == 1 and places[0].parts[0] == "mov" and places[0].guard is None:
            value = _value(places[0].operands[-1], found)
            if value is not None:
                found[name] = value
    return found


def _value(operand: ast.Operand, constants: Mapping[str, int]) -> int | None:
    if isinstance(operand, ast.Imm) and isinstance(operand.value, int):
        return operand.value
    return constants.get(operand.name) if isinstance(operand, ast.Reg) else None
