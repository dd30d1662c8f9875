# SPDX-License-Identifier: Apache-2.0
"""Registers that hold what nobody has written: themselves, shared memory that they were loaded from, or what a lane
has that no shuffle reads.

Most of them decide nothing. Where one decides what an instruction does that others wait for, it is an error in the
order that was executed, and no order that another mistake leads to is needed to see it.
"""

from __future__ import annotations

from collections.abc import Iterable

from porter.facts.flow import Flow
from porter.facts.instructions.registry import lanes_where
from porter.facts.machine import Machine
from porter.facts.state import Group, Undefined
from porter.facts.values import Value, bits
from porter.ptx import ast

_CARRIES = frozenset(
    ("mov", "cvt", "cvta", "add", "sub", "neg", "not", "xor", "shl", "shr", "or", "bfe", "prmt", "setp", "mul", "mad",
     "and")
)  # fmt: skip
"""Instructions whose result nobody knows if an operand is undefined."""
_UNLESS_ZERO = frozenset(("mul", "mad", "and"))
"""Those of them in which a zero decides."""


def carry(flow: Flow, group: Group, at: int) -> None:
    """Note what an instruction does to undefined registers, ahead of it."""
    known = group.undefined
    some, data, origin = 0, 0, None
    for name in flow.uses[at]:
        unknown = _unknown(group.registers.get(name), group.lanes)
        if name in known:
            some |= known[name].lanes & unknown
            data |= unknown & ~known[name].lanes
            origin = origin or known[name]
        else:
            data |= unknown
    ins = flow.code.code[at]
    taken = _taken(flow, group, at)
    carries = ins.parts[0] in _CARRIES and ins.guard is None
    if ins.parts[0] in _UNLESS_ZERO:
        carries &= not any(_may_be_zero(flow, group, at, operand) for operand in ins.operands[1:])
    carried = some & ~data & taken if carries else 0
    for name in flow.writes[at]:
        left = known.pop(name, None)
        kept = left.lanes & ~taken if left is not None else 0
        why = origin if carried else left
        if why is not None and carried | kept:
            known[name] = Undefined(carried | kept, why.origin)


def _may_be_zero(flow: Flow, group: Group, at: int, operand: ast.Operand) -> bool:
    if isinstance(operand, ast.Imm):
        return not operand.value
    name = flow.code.register(at, operand)
    value = None if name is None else group.registers.get(name)
    return 0 in value if isinstance(value, tuple) else value == 0


def _unknown(value: Value, lanes: int) -> int:
    if isinstance(value, tuple):
        return sum(1 << lane for lane in bits(lanes) if value[lane] is None)
    return lanes if value is None else 0


def _taken(flow: Flow, group: Group, at: int) -> int:
    """The lanes that an instruction may be executed for."""
    guard = flow.code.code[at].guard
    name = None if guard is None else flow.code.register(at, guard.operand)
    if guard is None or name is None:
        return group.lanes
    found = lanes_where(group.registers.get(name), group.lanes, int(guard.negated))
    return group.lanes if found is None else found


def blame(machine: Machine, group: Group, at: int) -> None:
    """Tell of an instruction that is not understood that what decides it is undefined, if that is why."""
    for name in sorted(_decides(machine.flow, group, at)):
        why = group.undefined.get(name)
        if why is None or not why.lanes & _unknown(group.registers.get(name), group.lanes):
            continue
        opcode = machine.code.code[at].opcode
        if why.origin is None:
            machine.problem("register", f"{opcode} needs a register that nothing has written", at)
        elif machine.code.code[why.origin].parts[0] == "shfl":
            what = f"{opcode} needs what shfl has from a lane that does not execute it or is not in its mask"
            machine.problem("mask", what, at, other=why.origin)
        else:
            what = f"{opcode} needs what was loaded from shared memory that nothing had written"
            machine.problem("U1", what, at, other=why.origin)
        return


def _decides(flow: Flow, group: Group, at: int) -> Iterable[str]:
    """The registers that decide what an instruction does: not values that are stored."""
    ins = flow.code.code[at]
    guard = None if ins.guard is None else flow.code.register(at, ins.guard.operand)
    if guard is not None and _unknown(group.registers.get(guard), group.lanes):
        return (guard,)
    if ins.parts[0] in ("ld", "st", "atom", "red"):
        bases = (o.base for o in ins.operands if isinstance(o, ast.Mem))
        return {name for base in bases if (name := flow.code.register(at, base)) is not None}
    return flow.uses[at]
