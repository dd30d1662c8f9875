# SPDX-License-Identifier: Apache-2.0
"""Waits on mbarriers whose failure a thread need not heed: it may come to its end although the phase is not complete.

`mbarrier.test_wait` does not wait, and `mbarrier.try_wait` only for a time that the system limits (PTX ISA
9.7.13.15.16). A loop around them that ends with the phase, or in a trap, makes a wait of them; code that tries once, or
a number of times and then goes on, has not waited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from porter.ptx import ast

Facts = dict[str, int]
"""Registers whose values follow from the wait's result."""
_MOST_STATES = 4096
_JUMPS = ("bra", "brx", "ret", "exit")
_TRAPS = ("trap", "brkpt")


@dataclass(frozen=True)
class Ways:
    """The ways through a kernel, by the numbers of its instructions. `following`: what may follow each, where a jump
    under a guard goes if it is not taken last; the number of all where the thread ends. `live`: registers that are
    asked for at a place that jumps lead to. `named`: a register's name in the whole kernel. `is_lost`: whether every
    way from a place leads to a trap."""

    instructions: Sequence[ast.Instruction]
    following: Callable[[int], Sequence[int]]
    uses: Callable[[int], Collection[str]]
    writes: Callable[[int], Collection[str]]
    live: Callable[[int], Collection[str]]
    named: Callable[[int, str], str]
    is_lost: Callable[[int], bool] = lambda at: False

    def is_unheeded(self, wait: int) -> bool:
        """Whether a thread that the wait is told to have failed can come to its end without another try of it."""
        work = [(wait + 1, dict.fromkeys(self.writes(wait), 0))]
        seen: set[tuple[int, frozenset[tuple[str, int]]]] = set()
        while work:
            for at, facts in self._in_a_row(*work.pop(), wait):
                if at >= len(self.instructions):
                    return True
                live = self.live(at) if facts else ()
                kept = {name: value for name, value in facts.items() if name in live}
                state = at, frozenset(kept.items())
                if state not in seen:
                    seen.add(state)
                    work.append((at, kept))
            if len(seen) > _MOST_STATES:
                return True
        return False

    def _in_a_row(self, at: int, facts: Facts, wait: int) -> Iterator[tuple[int, Facts]]:
        """Where a thread may go, and what is known there, from the next instruction behind which there is a choice."""
        facts = dict(facts)
        while at != wait and not (at < len(self.instructions) and self.is_lost(at)):
            if at >= len(self.instructions):
                yield at, facts
                return
            ins, after = self.instructions[at], self.following(at)
            runs = self._runs(at, facts)
            if ins.parts[0] in _TRAPS and runs:
                return
            if ins.parts[0] in _JUMPS and runs is not False:
                taken = after if ins.guard is None or runs is None else after[:-1]
                yield from ((target, facts) for target in taken)
                return
            if runs is not False:
                self._write(at, facts, bool(runs))
            at = after[-1] if after else len(self.instructions)

    def _write(self, at: int, facts: Facts, surely: bool) -> None:
        written = self.writes(at)
        found = self._result(at, facts) if surely and facts else None
        for name in written:
            facts.pop(name, None)
        if found is not None and len(written) == 1:
            facts[next(iter(written))] = found

    def _runs(self, at: int, facts: Facts) -> bool | None:
        """Whether an instruction is executed; None if that is not known."""
        guard = self.instructions[at].guard
        if guard is None:
            return True
        value = self._value(at, guard.operand, facts)
        return None if value is None else bool(value) != guard.negated

    def _value(self, at: int, operand: ast.Operand, facts: Facts) -> int | None:
        if isinstance(operand, ast.Reg):
            return facts.get(self.named(at, operand.name))
        if isinstance(operand, ast.Neg) and operand.op == "!":
            value = self._value(at, operand.operand, facts)
            return None if value is None else int(not value)
        return operand.value if isinstance(operand, ast.Imm) and isinstance(operand.value, int) else None

    def _result(self, at: int, facts: Facts) -> int | None:
        """The value of an instruction's one result, of those that compilers carry a predicate on with."""
        if facts.keys().isdisjoint(self.uses(at)):
            return None
        parts = self.instructions[at].parts
        values = [self._value(at, o, facts) for o in self.instructions[at].operands[1:]]
        match parts[0]:
            case "mov" | "cvt":
                return values[0]
            case "selp":
                return None if values[2] is None else values[0 if values[2] else 1]
            case "and" if 0 in values:
                return 0
            case "or" if "pred" in parts and 1 in values:
                return 1
        known = [v for v in values if v is not None]
        if len(known) < len(values) or len(values) > 2:
            return None
        match parts[0]:
            case "not":
                return int(not known[0]) if "pred" in parts else None
            case "setp":
                return {"eq": int(known[0] == known[-1]), "ne": int(known[0] != known[-1])}.get(parts[1])
            case "and":
                return known[0] & known[1]
            case "or":
                return known[0] | known[1]
            case "xor":
                return known[0] ^ known[1]
        return None
