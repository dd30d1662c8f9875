# SPDX-License-Identifier: Apache-2.0
"""Whether what a loop computes from its counters is the same in each period, and how far it moves there.

Where a value is known for each turn (`porter.sync.sequences`), that is looked at. Else steps are followed: a sum moves
by the sum of what its parts move by, whatever the parts are, so that of an address that threads have each their own
only the step counts. What is computed from one counter of an inner loop alone is looked at for each number that the
counter may be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from porter.facts.code import Loop
from porter.facts.flow import Flow
from porter.ptx import ast
from porter.ptx.bits import signed
from porter.sync.lines import Lines, NoLineError
from porter.sync.sequences import (
    ANYWHERE,
    WIDTHS,
    Counted,
    EachTurn,
    Held,
    Holding,
    Key,
    NoSequenceError,
    Numbers,
    Values,
    Ways,
    reaching,
)

_PART = 1 << 16
_MOST_TURNS = (1 << 26) + (1 << 10)
"""Turns that are looked at in some seconds."""
_DEEPEST = 40
_LONGEST_STEP = 1 << 12
"""Of a counter of an inner loop of which each number is looked at."""
_PURE = frozenset(
    ("mapa", "mov", "cvt", "cvta", "add", "sub", "and", "or", "xor", "shl", "shr", "mul", "mad", "selp", "min", "max",
     "neg", "not", "div", "rem", "lop3", "prmt", "bfe", "bfi", "shf")
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What executions show. `taken`: where branches lead. `steady`: heads of the loops that make as many turns a period
    later. `reached`: by register the greatest number that it had at the head of a loop, unsigned."""

    taken: Ways | None = None
    steady: frozenset[int] = frozenset()
    reached: Callable[[int], Mapping[str, int]] = lambda head: {}


_OPEN = 1 << 80
"""The step of what is under way, as long as nothing is known of it; none is so large."""


@dataclass(eq=False)
class Repeating:
    """Which values of a loop are the same in each period, for all of the `most` turns that it can make.
    `follows` are the registers that follow a counter, `heads` what stands at the head, or is taken from the launch,
    `symbols` the addresses of shared variables, `uneven` what is taken from the launch and moves in no known way."""

    flow: Flow
    loop: Loop
    follows: Collection[str]
    heads: Mapping[Key, Counted]
    symbols: Mapping[str, int]
    period: int
    most: int
    seen: Seen = Seen()
    uneven: Collection[tuple[int, str]] = ()
    asked: set[Key] = field(default_factory=set)
    """What was asked for of what stands at the head, known or not."""
    _may_wrap: bool = False
    """Whether a number that wraps moves evenly, as modulo two to the power of its width it does."""
    _known: dict[int, int | None] = field(default_factory=dict)
    _supposed: dict[int, int | None] = field(default_factory=dict)
    """By instruction under way, which an inner loop comes to again, what it is taken to move by."""
    _used: set[int] = field(default_factory=set)
    """Those of them that something was concluded from."""

    def __call__(self, at: int, operand: ast.Operand) -> bool:
        """Whether an operand of the instruction at `at` is one of these; of a comparison whether it moves by one number
        in each period, which says together with what runs show when its sides change places."""
        is_compared = self.flow.code.code[at].parts[0] == "setp"
        self._ask(may_wrap=not is_compared)
        step = self._of_operand(at, operand, 0)
        return step == 0 or (is_compared and step is not None)

    def behind(self, at: int, name: str) -> int | None:
        """How far a register moves in each period behind an instruction, modulo two to the power of its width."""
        self._ask(may_wrap=True)
        return self._of_result(at, 0) if name in self.flow.writes[at] else self._of_register(at, name, 0)

    def as_said(self) -> Repeating:
        """The same, with what it is said that registers at the head move by where each turn goes on with that, as far
        as they follow a counter: others go on with each other as they did."""
        last = [at for at in self.flow.code.predecessors[self.loop.head] if at in self.loop.members]
        one = self
        while wrong := [
            name
            for name in one.heads.keys() & one.follows
            if any(one.behind(at, str(name)) != one.at_head(name) for at in last)
        ]:
            one = replace(one, heads={name: head for name, head in one.heads.items() if name not in wrong}, _known={})
        return one

    def after(self, times: int) -> Repeating:
        """The same for a period that is so many times as long."""
        return replace(self, period=self.period * times, _known={}, _supposed={}, _used=set())

    def moved_by(self, at: int, follows: Collection[str]) -> int | None:
        """The number by which what an instruction gives moves in each period, for all turns; None if none is known.
        `follows`: in place of those of the loop."""
        self.follows = follows
        self._known.clear()
        self._ask(may_wrap=False)
        step = self._of_result(at, 0)
        if step is not None:
            return step
        self._ask(may_wrap=True)
        return 0 if self._of_result(at, 0) == 0 else None

    def _ask(self, may_wrap: bool) -> None:
        if may_wrap != self._may_wrap:
            self._known.clear()
        self._may_wrap = may_wrap

    # Values that are known ------------------------------------------------------------------------------

    def _looked_at(self, place: int) -> int | None:
        """Of what an instruction gives, where its values are known for all turns; None if they move unevenly.

        Raises:
            NoSequenceError: they are not known, also for more turns than can be looked at.
        """
        if len(self.flow.writes[place]) != 1:
            raise NoSequenceError
        (name,) = self.flow.writes[place]

        def rows(values: Values[Any]) -> list[Any]:
            return values.given(place, name, 0)

        with suppress(NoLineError, NoSequenceError):
            lines = Lines(self.period, (self.most + self.period - 1) // self.period)
            if steps := {lines.step(row) for row in rows(self._values(lines))}:
                return _single(steps)
        if self.most > _MOST_TURNS:
            raise NoSequenceError
        if not rows(first := self._values(EachTurn(np.arange(1, dtype=np.uint64)))):
            raise NoSequenceError
        heads = tuple((key, self.heads[key]) for key in sorted(first.used, key=str))
        key = place, self.loop.head, self.most, self.period, heads, self.seen.taken
        known: dict[object, int | None] = self.flow.__dict__.setdefault("_repeating", {})
        if key not in known:
            known[key] = self._moved_in_all(rows)
        return known[key]

    def _moved_in_all(self, rows: Callable[[Values[Numbers]], list[Numbers]]) -> int | None:
        number: int | None = None
        for start in range(0, self.most, _PART):
            turns = np.arange(start, min(start + _PART, self.most) + self.period, dtype=np.uint64)
            for row in rows(self._values(EachTurn(turns))):
                moved = np.zeros(1, np.uint64) if row.size == 1 else row[self.period :] - row[: -self.period]
                number = int(moved[0]) if number is None else number
                if (moved != number).any():
                    return None
        return number

    def _values(self, kind: Holding[Held]) -> Values[Held]:
        return Values(self.flow, self.loop, self.heads, self.symbols, kind, self.seen.taken, self.asked)

    # Steps ----------------------------------------------------------------------------------------------

    def _of_operand(self, at: int, operand: ast.Operand, depth: int) -> int | None:
        match operand:
            case ast.Imm() | ast.Sym():
                return 0
            case ast.Mem(base):
                return self._of_operand(at, base, depth)
            case ast.SpecialReg(name):
                if (at, name) in self.heads:
                    return self.at_head((at, name))
                return None if (at, name) in self.uneven else 0
            case ast.Reg(name):
                return self._of_register(at, self.flow.code.renamed(at, name), depth)
            case ast.Vec(items):
                # what is put together moves by none of its parts' steps
                steps = {self._of_operand(at, item, depth) for item in items}
                return None if steps - {0, _OPEN} else max(step or 0 for step in steps)
        return None

    def _of_register(self, at: int, name: str, depth: int) -> int | None:
        """Of a register as an instruction finds it, by each way that may have given it."""
        if name not in self.follows:
            return 0
        if (ANYWHERE, name) in self.heads:
            return self.at_head((ANYWHERE, name))
        try:
            places = reaching(self.flow, self.loop, at, name, self.seen.taken)
        except NoSequenceError:
            return None
        steps = {self.at_head(name) if place is None else self._of_result(place, depth + 1) for place in places}
        if not steps:
            # nobody comes to it
            return 0
        return _single(steps - {_OPEN}) if steps != {_OPEN} else _OPEN

    def at_head(self, key: Key) -> int | None:
        """How far what stands at the head of the loop moves in each period."""
        self.asked.add(key)
        counted = self.heads.get(key)
        if counted is None:
            return None
        times, rest = divmod(self.period, len(counted.first) or self.period)
        return None if rest else signed(counted.step * times, 64)

    def _of_result(self, place: int, depth: int) -> int | None:
        """Of what an instruction gives. Where it computes that from itself, in an inner loop that makes the same turns
        in each period, what its other ways give holds for all of them, if it follows from itself."""
        if place in self._supposed:
            self._used.add(place)
            return self._supposed[place]
        if place in self._known:
            return self._known[place]
        if depth > _DEEPEST:
            return None
        outside, self._used = self._used, set()
        found = self._supposing(place, _OPEN, depth)
        if place in self._used:
            is_one = found is not None and found != _OPEN and self._is_steady(place)
            found = found if is_one and self._supposing(place, found, depth) == found else None
        self._used.discard(place)
        if not self._used:
            self._known[place] = found
        self._used |= outside
        return found

    def _supposing(self, place: int, step: int | None, depth: int) -> int | None:
        self._supposed[place] = step
        try:
            with suppress(NoSequenceError):
                found = self._looked_at(place)
                if found is not None or not self._may_wrap:
                    return None if found is None else signed(found, 64)
            found = self._by_steps(place, depth)
            return self._for_each_number(place, depth) if found is None else found
        finally:
            del self._supposed[place]

    def _is_steady(self, place: int) -> bool:
        size = len(self.loop.body)
        inner = [one.head for one in self.flow.code.loops if place in one.members and len(one.body) < size]
        return bool(inner) and self.seen.steady.issuperset(inner)

    def _by_steps(self, place: int, depth: int) -> int | None:
        ins = self.flow.code.code[place]
        if ins.parts[0] not in _PURE:
            return None
        steps = [self._of_operand(place, operand, depth) for operand in ins.operands[1:]]
        known = [step for step in steps if step is not None]
        if len(known) < len(steps):
            return None
        if not any(known):
            return 0
        if _OPEN in known:
            return _OPEN
        if ins.parts[0] in ("min", "max"):
            # the smaller one stays it, if neither wraps
            return known[0] if known[0] == known[1] and not self._may_wrap else None
        return _sum_of_steps(ins, known) if len(self.flow.writes[place]) == 1 else None

    def _for_each_number(self, place: int, depth: int) -> int | None:
        """Of what is computed from one register at the head of an inner loop alone, whatever number that is."""
        head = self.flow.innermost.get(place)
        if head is None or len(self.flow.heads[head].body) >= len(self.loop.body):
            return None
        for name, greatest in self.seen.reached(head).items():
            step = self._of_register(head, name, depth + 1)
            if step is None or not 0 < step <= _LONGEST_STEP:
                continue
            most = greatest + step * (self.most // self.period + 1)
            if most >= 1 << 31:
                continue
            of_any: dict[Key, Counted] = {name: Counted((0,), 1)}
            every = Repeating(self.flow, self.flow.heads[head], (), of_any, self.symbols, step, most, self.seen)
            with suppress(NoSequenceError):
                found = every._looked_at(place)
                if found is not None:
                    return signed(found, 64)
        return None


def _single(steps: Collection[int | None]) -> int | None:
    return next(iter(steps)) if len(steps) == 1 else None


def _sum_of_steps(ins: ast.Instruction, steps: Sequence[int]) -> int | None:
    """How far a result moves whose operands move by these, modulo two to the power of its width."""
    parts = ins.parts
    width = WIDTHS.get(parts[-1], 0)
    numbers = [int(o.value) if isinstance(o, ast.Imm) and not o.is_float else None for o in ins.operands[1:]]
    found: int | None = None
    match parts[:-1]:
        case ("mov",) | ("cvta", *_):
            found = steps[0]
        case ("add",):
            found = steps[0] + steps[1]
        case ("sub",):
            found = steps[0] - steps[1]
        case ("neg",) | ("not",):
            found = -steps[0]
        case ("cvt", to):
            width, wide = min(width, WIDTHS.get(to, 0)), WIDTHS.get(to, 0) > width
            found = None if wide else steps[0]
        case ("mul" | "mad", *how):
            width *= 1 + ("wide" in how)
            rest = steps[2] if parts[0] == "mad" else 0
            if not any(steps[:2]):
                found = rest
            elif "lo" in how:
                moved = [step * n for step, n in zip(steps, (numbers[1], numbers[0]), strict=False) if n is not None]
                found = moved[0] + rest if len(moved) == 1 else None
        case ("shl",):
            found = steps[0] << numbers[1] if numbers[1] is not None and 0 <= numbers[1] < width else None
        case ("selp",):
            found = steps[0] if steps[0] == steps[1] else None
        case ("and",):
            # low bits that no step reaches
            low = max((n for n in numbers if n is not None), default=-1)
            found = 0 if low >= 0 and not any(step % (1 << low.bit_length()) for step in steps) else None
    return None if found is None or not width else signed(found, min(width, 64))
