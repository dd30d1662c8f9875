# SPDX-License-Identifier: Apache-2.0
"""Waits on mbarriers whose failure a thread need not heed: it may come to its end although the phase is not complete.

`mbarrier.test_wait` does not wait, and `mbarrier.try_wait` only for a time that the system limits (PTX ISA
9.7.13.15.16). A loop around them that ends with the phase, or in a trap, makes a wait of them.
"""

from __future__ import annotations

from porter.facts.flow import Flow
from porter.facts.values import Value, apply
from porter.ptx import ast

_MOST_STATES = 4096


def is_unheeded(flow: Flow, wait: int) -> bool:
    """Whether a thread that the wait is told to have failed can come to its end without another try of it."""
    start = dict.fromkeys(flow.writes[wait], 0)
    work = [(t, start) for t in flow.code.successors[wait]]
    seen: set[tuple[int, frozenset[tuple[str, int]]]] = set()
    while work:
        at, facts = work.pop()
        if at == wait or at in flow.lost:
            continue
        if at >= len(flow.decoded) or len(seen) > _MOST_STATES:
            return True
        known = {name: value for name, value in facts.items() if name in flow.live[at]}
        state = at, frozenset(known.items())
        if state in seen:
            continue
        seen.add(state)
        if flow.code.ends(at) and _runs(flow, at, known) is not False:
            return True
        work += _go(flow, at, known)
    return False


def _go(flow: Flow, at: int, known: dict[str, int]) -> list[tuple[int, dict[str, int]]]:
    """Where a thread may go, and what is known there."""
    ins, after = flow.code.code[at], flow.code.successors[at]
    runs = _runs(flow, at, known)
    if ins.parts[0] == "bra" and len(after) == 2:
        ways = after if runs is None else (after[0] if runs else after[1],)
        return [(t, known) for t in ways]
    left = dict(known)
    if runs is not False:
        found = _result(flow, at, known) if runs else None
        for name in flow.writes[at]:
            left.pop(name, None)
            if found is not None and len(flow.writes[at]) == 1:
                left[name] = found
    return [(t, left) for t in after or (at + 1,)]


def _runs(flow: Flow, at: int, known: dict[str, int]) -> bool | None:
    guard = flow.code.code[at].guard
    if guard is None:
        return True
    value = _value(flow, at, guard.operand, known)
    return None if value is None else bool(value & 1) != guard.negated


def _value(flow: Flow, at: int, operand: ast.Operand, known: dict[str, int]) -> int | None:
    if isinstance(operand, ast.Reg):
        return known.get(flow.code.renamed(at, operand.name))
    if isinstance(operand, ast.Neg) and operand.op == "!":
        value = _value(flow, at, operand.operand, known)
        return None if value is None else 1 - (value & 1)
    return operand.value if isinstance(operand, ast.Imm) and isinstance(operand.value, int) else None


def _result(flow: Flow, at: int, known: dict[str, int]) -> int | None:
    """The value of an instruction's one result."""
    ins = flow.code.code[at]
    if known.keys().isdisjoint(flow.uses[at]):
        return None
    given: list[Value] = [_value(flow, at, o, known) for o in ins.operands[1:]]
    found = apply(ins.parts, given, 1)
    return found if isinstance(found, int) else None
