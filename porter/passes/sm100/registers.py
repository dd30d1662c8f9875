# SPDX-License-Identifier: Apache-2.0
"""Registers that a warp has at a place: what `setmaxnreg` last said on the way there, else what the launch gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from porter.passes.sm100.findings import Budget
from porter.ptx.ast import Imm, Instruction, Label, Statement, Sym

_LEAVES = ("ret", "exit", "brx")


def asked_of(instruction: Instruction) -> Budget | None:
    """What a setmaxnreg gives, if it is a number."""
    if instruction.parts[0] != "setmaxnreg":
        return None
    values = [o.value for o in instruction.operands if isinstance(o, Imm) and isinstance(o.value, int)]
    return Budget(values[0], f"{'.'.join(instruction.parts[:2])} {values[0]}") if values else None


def budgets(body: Sequence[Statement], at_entry: Budget | None) -> Mapping[int, Budget | None]:
    """What each instruction's warp has, by the instruction's place in `body` (scopes flattened): the most of all ways
    there. None where one way leaves it open."""
    labels = {s.name: i for i, s in enumerate(body) if isinstance(s, Label)}
    found: dict[int, Budget | None] = {}
    pending: list[tuple[int, Budget | None]] = [(0, at_entry)]
    while pending:
        at, has = pending.pop()
        while at < len(body):
            if at in found:
                has = _more(found[at], has)
                if has == found[at]:
                    break
            found[at] = has
            statement = body[at]
            if isinstance(statement, Instruction):
                has = asked_of(statement) or has
                if statement.parts[0] == "bra":
                    targets = (o.name for o in statement.operands if isinstance(o, Sym))
                    pending += [(labels[name], has) for name in targets if name in labels]
                if statement.guard is None and statement.parts[0] in ("bra", *_LEAVES):
                    break
            at += 1
    return found


def _more(one: Budget | None, other: Budget | None) -> Budget | None:
    if one is None or other is None:
        return None
    return max(one, other, key=lambda budget: budget.registers)
