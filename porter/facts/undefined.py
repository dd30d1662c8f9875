# SPDX-License-Identifier: Apache-2.0
"""Registers that hold what nobody has written: themselves, or shared memory that they were loaded from.

Most of them decide nothing. Where one decides what an instruction does that others wait for, it is an error in the
order that was executed, and no order that another mistake leads to is needed to see it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from porter.facts.values import is_known
from porter.ptx import ast

if TYPE_CHECKING:
    from porter.facts.flow import Flow
    from porter.facts.machine import Machine
    from porter.facts.state import Group


class Undefined(NamedTuple):
    """Why a register holds what nobody knows. `load`: the instruction that found unwritten shared memory; None if
    nothing has written the register."""

    load: int | None = None


_CARRIES = frozenset(
    ("mov", "cvt", "cvta", "add", "sub", "mul", "mad", "neg", "not", "xor", "shl", "shr", "or", "bfe", "shfl", "prmt",
     "setp")
)  # fmt: skip
"""Instructions whose result nobody knows if an operand is undefined, whatever the other operands are."""


def at_start(flow: Flow) -> dict[str, Undefined]:
    """The registers that something may read ahead of their first write."""
    return dict.fromkeys(flow.live[0], Undefined()) if flow.live else {}


def carry(flow: Flow, group: Group, at: int) -> None:
    """Note what an instruction does to undefined registers, ahead of it."""
    known, ins = group.undefined, flow.code.code[at]
    if known.keys().isdisjoint(flow.uses[at] | flow.writes[at]):
        return
    used = [name for name in flow.uses[at] if not is_known(group.registers.get(name), group.lanes)]
    origin = next((known[name] for name in used if name in known), None)
    carries = ins.parts[0] in _CARRIES and ins.guard is None and all(name in known for name in used)
    for name in flow.writes[at]:
        if carries and origin is not None:
            known[name] = origin
        elif _may_run(flow, group, at):
            known.pop(name, None)


def _may_run(flow: Flow, group: Group, at: int) -> bool:
    """Whether the guard of an instruction does not keep all lanes from it."""
    guard = flow.code.code[at].guard
    name = None if guard is None else flow.code.register(at, guard.operand)
    value = None if name is None else group.registers.get(name)
    return guard is None or not isinstance(value, int) or bool(value & 1) is not guard.negated


def met(one: Group, other: Group) -> dict[str, Undefined]:
    """Registers that are undefined in both groups."""
    return {name: why for name, why in one.undefined.items() if name in other.undefined}


def blame(machine: Machine, group: Group, at: int) -> None:
    """Tell of an instruction that is not understood that what decides it is undefined, if that is why."""
    for name in sorted(_decides(machine.flow, group, at)):
        why = group.undefined.get(name)
        if why is None or is_known(group.registers.get(name), group.lanes):
            continue
        opcode = machine.code.code[at].opcode
        if why.load is None:
            machine.problem("register", f"{opcode} needs a register that nothing has written", at)
        else:
            what = f"{opcode} needs what was loaded from shared memory that nothing had written"
            machine.problem("U1", what, at, other=why.load)
        return


def _decides(flow: Flow, group: Group, at: int) -> Iterable[str]:
    """The registers that decide what an instruction does: not values that are stored."""
    ins = flow.code.code[at]
    guard = None if ins.guard is None else flow.code.register(at, ins.guard.operand)
    if guard is not None and not is_known(group.registers.get(guard), group.lanes):
        return (guard,)
    if ins.parts[0] in ("ld", "st", "atom", "red"):
        bases = (o.base for o in ins.operands if isinstance(o, ast.Mem))
        return {name for base in bases if (name := flow.code.register(at, base)) is not None}
    return flow.uses[at]
