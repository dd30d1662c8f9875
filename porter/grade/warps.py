# SPDX-License-Identifier: Apache-2.0
"""Which instructions each warp of a block comes to, as far as branches go by the index of the thread, and how many a
pass of a loop takes it at most."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property, reduce

from porter.facts.code import Code, Loop
from porter.facts.integers import Lanes, computed, every
from porter.ptx import ast
from porter.ptx.arch import WARP

_Known = dict[str, Lanes]
"""Registers whose lanes are known at a place. Others may hold anything."""


class Warps:
    """The warps of a block of so many threads by axis."""

    def __init__(self, code: Code, block: Sequence[int]) -> None:
        self.code = code
        self.count = -(-math.prod(block) // WARP)
        self._block = (*block, 1, 1)[:3]
        self.reached = cache(self._reached)
        self.path = cache(self._path)

    def to(self, places: frozenset[int]) -> tuple[int, ...]:
        """The warps that come to one of these places."""
        return tuple(w for w in range(self.count) if places & self.reached(w).keys())

    def _reached(self, warp: int) -> Mapping[int, tuple[int, ...]]:
        """The instructions that a warp comes to, each with those that may follow."""
        return self._walk(warp, 0, {})[0] if self.code.code else {}

    def _again(self, warp: int, loop: Loop) -> Mapping[int, tuple[int, ...]]:
        """The same of a loop, from its second pass on: what holds in its first alone is behind it."""
        if loop.head not in self.reached(warp):
            return {}
        known = self._walk(warp, 0, {}, loop)[1]
        return self._walk(warp, loop.head, known or {})[0]

    def _walk(
        self, warp: int, start: int, begun: _Known, watched: Loop | None = None
    ) -> tuple[dict[int, tuple[int, ...]], _Known | None]:
        """What a warp comes to from a place on; and what is known at each end of the passes of a loop."""
        found: dict[int, tuple[int, ...]] = {}
        ends: dict[int, _Known] = {}
        known: dict[int, _Known] = {start: begun}
        todo = [start]
        while todo:
            at = todo.pop()
            here = dict(known[at])
            while True:
                after = self._following(at, here, warp)
                found[at] = after
                self._write(at, here, warp)
                if watched is not None and watched.head in after and at in watched.members:
                    ends[at] = dict(here)
                if len(after) != 1 or after[0] in self._blocks or after[0] in known:
                    break
                at = after[0]
            for target in after:
                if target not in known:
                    known[target] = dict(here)
                    todo.append(target)
                elif len(both := _in_both(known[target], here)) < len(known[target]):
                    known[target] = both
                    todo.append(target)
        return found, reduce(_in_both, ends.values()) if ends else None

    @cached_property
    def _blocks(self) -> frozenset[int]:
        """Where instructions begin to which more than one leads, or one of several ways."""
        before: dict[int, int] = defaultdict(int)
        for after in self.code.successors:
            for target in after:
                before[target] += 1 if len(after) == 1 else 2
        return frozenset(at for at, ways in before.items() if ways > 1)

    @cached_property
    def _asked(self) -> frozenset[str]:
        """The registers that branches depend on."""
        found: set[str] = set()
        todo = [self.code.register(at, i.guard.operand) for at, i in enumerate(self.code.code) if i.guard is not None]
        writers = self.code.written
        while todo:
            name = todo.pop()
            if name is None or name in found:
                continue
            found.add(name)
            for at in writers.get(name, ()):
                ins = self.code.code[at]
                todo += [self.code.register(at, o) for o in ins.operands[1:]]
                todo += [self.code.register(at, ins.guard.operand)] if ins.guard is not None else []
        return frozenset(found)

    def _following(self, at: int, known: _Known, warp: int) -> tuple[int, ...]:
        after = self.code.successors[at]
        guard = self.code.code[at].guard
        if guard is None or not (taken := self._holds(at, guard, known, warp)):
            return after
        if len(after) == 2:
            # the target stands first, what follows second
            return after if len(taken) == 2 else (after[0],) if True in taken else (after[1],)
        if self.code.ends(at) and taken == {True}:
            return ()
        return after

    def _holds(self, at: int, guard: ast.Guard, known: _Known, warp: int) -> set[bool]:
        """What a guard may be in the lanes; empty where nobody knows."""
        value = self._value(at, guard.operand, known, warp)
        return set() if value is None else {bool(v) != guard.negated for v in value}

    def _value(self, at: int, operand: ast.Operand, known: _Known, warp: int) -> Lanes | None:
        if isinstance(operand, ast.Imm):
            return None if operand.is_float else every(int(operand.value))
        if isinstance(operand, ast.SpecialReg):
            return self._special(operand.name, warp)
        name = self.code.register(at, operand)
        return known.get(name) if name is not None else None

    def _special(self, name: str, warp: int) -> Lanes | None:
        wide, high, _ = self._block
        ranks = range(warp * WARP, (warp + 1) * WARP)
        match name:
            case "tid.x":
                return tuple(rank % wide for rank in ranks)
            case "tid.y":
                return tuple(rank // wide % high for rank in ranks)
            case "tid.z":
                return tuple(rank // wide // high for rank in ranks)
            case "ntid.x" | "ntid.y" | "ntid.z":
                return every(self._block["xyz".index(name[-1])])
            case "laneid":
                return tuple(range(WARP))
        return None

    def _write(self, at: int, known: _Known, warp: int) -> None:
        ins = self.code.code[at]
        names = [n for n in self.code.writes(at) if n in self._asked]
        if not names:
            return
        value = self._result(at, ins, known, warp)
        for name in names:
            if value is None or len(names) > 1:
                known.pop(name, None)
            else:
                known[name] = value

    def _result(self, at: int, ins: ast.Instruction, known: _Known, warp: int) -> Lanes | None:
        if ins.parts[:2] == ("ld", "param"):
            number = self.code.given(ins)
            return every(number) if number is not None else None
        given = [self._value(at, o, known, warp) for o in ins.operands[1:]]
        if not given or given[0] is None:
            return None
        if ins.parts[:3] == ("shfl", "sync", "idx"):
            return self._shuffled(ins, given)
        values = [v for v in given if v is not None]
        if len(values) < len(given):
            return None
        result = computed(ins.parts, values)
        if ins.guard is None or result is None:
            return result
        holds = self._value(at, ins.guard.operand, known, warp)
        before = known.get(self.code.register(at, ins.operands[0]) or "")
        if holds is None or before is None:
            return None
        taken = [bool(h) != ins.guard.negated for h in holds]
        return tuple(new if t else old for t, new, old in zip(taken, result, before, strict=True))

    @staticmethod
    def _shuffled(ins: ast.Instruction, given: list[Lanes | None]) -> Lanes | None:
        """One lane's value in all of a whole warp."""
        value, lane, clamp = given[0], given[1], given[2]
        if value is None or lane is None or clamp is None or ins.guard is not None:
            return None
        if len(set(lane)) > 1 or set(clamp) != {WARP - 1}:
            return None
        return every(value[int(lane[0]) % WARP])

    # Paths --------------------------------------------------------------------------------------------

    def _path(self, warp: int, loop: Loop) -> tuple[int, ...]:
        """The instructions of one pass of a loop that a warp comes to, by the longest way through it. Loops inside
        count as often as they run, where the text says it."""
        reached = self._again(warp, loop)
        if not reached:
            return ()
        after = {at: self._onwards(at, loop, reached[at]) for at in loop.body if at in reached}
        longest: dict[int, tuple[int, int | None]] = {}
        for at in _last_first(loop.head, after):
            ways = [(longest[target][0], target) for target in after[at] if target in longest]
            if ways or loop.head in after[at]:
                length, then = max(ways, default=(0, None))
                longest[at] = length + self._times(at, loop), then
        found: list[int] = []
        here: int | None = loop.head if loop.head in longest else None
        while here is not None:
            found += [here] * self._times(here, loop)
            here = longest[here][1]
        return tuple(found)

    def _onwards(self, at: int, loop: Loop, after: tuple[int, ...]) -> tuple[int, ...]:
        """What follows in the same pass: behind the last instruction of an inner loop, what is behind that loop."""
        found: list[int] = []
        for target in after:
            inner = self._heads.get(target)
            if inner is None or inner is loop or at not in inner.members:
                found.append(target)
            elif not self.code.is_wait(inner):
                found += [t for one in inner.body for t in self.code.successors[one] if t not in inner.members]
        return tuple(dict.fromkeys(t for t in found if t in loop.members))

    @cached_property
    def _heads(self) -> Mapping[int, Loop]:
        return {loop.head: loop for loop in self.code.loops}

    def _times(self, at: int, loop: Loop) -> int:
        times = 1
        for inner in self.code.around(at):
            if inner is loop:
                break
            times *= self.code.trips(inner) or 1
        return times


def _in_both(one: _Known, other: _Known) -> _Known:
    return {n: v for n, v in one.items() if other.get(n) == v}


def _last_first(head: int, after: Mapping[int, tuple[int, ...]]) -> list[int]:
    """The instructions of a loop that are come to, each behind those that follow it in the same pass."""
    seen = {head}
    found: list[int] = []
    stack: list[tuple[int, Iterator[int]]] = [(head, iter(after[head]))]
    while stack:
        at, rest = stack[-1]
        target = next(rest, None)
        if target is None:
            stack.pop()
            found.append(at)
        elif target in after and target not in seen:
            seen.add(target)
            stack.append((target, iter(after[target])))
    return found
