# SPDX-License-Identifier: Apache-2.0
"""Waits on mbarriers whose result a thread need not heed: it may go on to its end although the phase is not complete.

`mbarrier.test_wait` does not wait, and `mbarrier.try_wait` only for a time that the system limits (PTX ISA
9.7.13.15.16). A loop around them that ends with the phase, or in a trap, makes a wait of them; code that tries once, or
a number of times and then goes on, has not waited.
"""

from __future__ import annotations

from collections.abc import Iterator

from porter.ptx import ast
from porter.ptx.table import Decoded
from porter.sim.program import EXIT, BasicBlock, Program

Facts = dict[str, int]
"""Registers whose values follow from the wait's result."""
_MOST_STATES = 4096


def is_unheeded(program: Program, wait: int) -> bool:
    """Whether a thread that the wait of this index tells that the phase is not complete can come to its end without
    another try."""
    home = next(b for b in program.blocks if b.start <= wait < b.end)
    facts = dict.fromkeys(program.code[wait].registers("done"), 0)
    work = [(home, wait + 1, facts)]
    seen: set[tuple[int, frozenset[tuple[str, int]]]] = set()
    while work:
        block, start, facts = work.pop()
        for number, left in _leave(program, block, start, wait, facts):
            if number == EXIT:
                return True
            following = program.blocks[number]
            live = set(program.registers(following.live_in)) if left else ()
            kept = {name: value for name, value in left.items() if name in live}
            state = number, frozenset(kept.items())
            if state not in seen:
                seen.add(state)
                work.append((following, following.start, kept))
        if len(seen) > _MOST_STATES:
            return True
    return False


def _leave(program: Program, block: BasicBlock, start: int, wait: int, facts: Facts) -> Iterator[tuple[int, Facts]]:
    """The blocks that a thread may go to from an instruction on, with what is known there."""
    facts = dict(facts)
    for at in range(start, block.end):
        if at == wait:
            return
        ins = program.code[at]
        runs = _guard(ins, facts)
        if runs is False:
            continue
        if ins.parts[0] in ("trap", "brkpt") and runs:
            return
        if at == block.end - 1 and ins.parts[0] in ("bra", "brx", "ret", "exit"):
            taken = block.succ if ins.guard is None or runs is None else block.succ[:-1]
            yield from ((number, facts) for number in taken)
            return
        found = _result(ins, facts) if runs and facts else None
        for name in ins.writes:
            facts.pop(name, None)
        if found is not None and len(ins.writes) == 1:
            facts[ins.writes[0]] = found
    last = program.code[block.end - 1]
    traps = last.parts[0] in ("trap", "brkpt")
    branches = last.guard is not None and last.parts[0] in ("bra", "brx", "ret", "exit")
    yield from ((number, facts) for number in (block.succ[-1:] if traps or branches else block.succ))


def _guard(ins: Decoded, facts: Facts) -> bool | None:
    """Whether an instruction is executed; None if that is not known."""
    if ins.guard is None:
        return True
    value = _value(ins.guard.operand, facts)
    return None if value is None else bool(value) != ins.guard.negated


def _value(operand: ast.Operand, facts: Facts) -> int | None:
    if isinstance(operand, ast.Reg):
        return facts.get(operand.name)
    if isinstance(operand, ast.Neg) and operand.op == "!":
        value = _value(operand.operand, facts)
        return None if value is None else int(not value)
    return operand.value if isinstance(operand, ast.Imm) and isinstance(operand.value, int) else None


def _result(ins: Decoded, facts: Facts) -> int | None:
    """The value of an instruction's one result, of those that compilers carry a predicate on with."""
    if facts.keys().isdisjoint(ins.uses):
        return None
    head, values = ins.parts[0], [_value(o, facts) for o in ins.operands[1:]]
    if head in ("mov", "cvt"):
        return values[0]
    if head == "selp":
        return None if values[2] is None else values[0 if values[2] else 1]
    if head == "and" and 0 in values:
        return 0
    if head == "or" and "pred" in ins.parts and 1 in values:
        return 1
    if len(values) > 2 or any(v is None for v in values):
        return None
    known = [v for v in values if v is not None]
    if head == "not":
        return int(not known[0]) if "pred" in ins.parts else None
    if head == "setp":
        return {"eq": int(known[0] == known[-1]), "ne": int(known[0] != known[-1])}.get(ins.parts[1])
    if head in ("and", "or", "xor"):
        a, b = known
        return {"and": a & b, "or": a | b, "xor": a ^ b}[head]
    return None
