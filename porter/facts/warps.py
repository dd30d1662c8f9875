# SPDX-License-Identifier: Apache-2.0
"""Which instructions each warp of a block comes to, as far as branches go by the index of the thread and by parameters,
how many a pass of a loop takes it at most, and how often loops run. Nothing has to be known of a launch but that."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, reduce

from porter.facts.code import Code, Loop
from porter.facts.events import NotUnderstood
from porter.facts.flow import Flow
from porter.facts.instructions.registry import compiled, computes, lanes_where
from porter.facts.known_bits import Bits, known_bits
from porter.facts.launched import Geometry, Launched
from porter.facts.machine import Machine
from porter.facts.operands import reader
from porter.facts.state import Group
from porter.facts.values import ALL, Value
from porter.ptx import ast
from porter.ptx.arch import WARP

_Known = dict[str, Value]
"""Registers whose lanes are known at a place. Others may hold anything."""
_MOST_TURNS = 4096
"""Turns of a loop that are followed before nobody knows how often it runs."""
_DEEPEST = 64
"""Steps from one register's value to another's that are followed."""
_OF_THREADS = frozenset((*(f"{name}.{axis}" for name in ("tid", "ntid") for axis in "xyz"), "laneid"))
"""Special registers that all blocks have alike."""
_OF_ONE_THREAD = frozenset(("tid.x", "tid.y", "tid.z", "laneid"))


@dataclass
class _Walk:
    """`after`: what may follow each instruction that is come to. `known`: what is known on the edges to heads of loops,
    by both ends."""

    after: dict[int, tuple[int, ...]] = field(default_factory=dict)
    known: dict[tuple[int, int], _Known] = field(default_factory=dict)

    def into(self, loop: Loop, inside: bool) -> _Known | None:
        """What is known whenever the loop is come to, from inside of it or from outside; None if it never is."""
        found = [
            k for (source, head), k in self.known.items() if head == loop.head and (source in loop.members) is inside
        ]
        return reduce(_in_both, found) if found else None


class Warps:
    """The warps of a block of so many threads by axis; of one about whose threads nothing is known, one stands for
    all."""

    def __init__(self, code: Code, block: Sequence[int] | None) -> None:
        self.code = code
        self._flow = Flow(code)
        x, y, z = (*(block or (WARP,)), 1, 1)[:3]
        self.count = -(-math.prod((x, y, z)) // WARP)
        self._specials = _OF_THREADS if block is not None else frozenset(("laneid",))
        self._machine = Machine(Launched(self._flow, Geometry((x, y, z)), code.parameters))
        self._warps = self._machine.blocks[0].warps
        self._singles: dict[tuple[str, int | None], Value] = {}
        self._walked = cache(self._whole)
        self.path = cache(self._path)
        self.trips = cache(self._trips)

    def to(self, places: frozenset[int]) -> tuple[int, ...]:
        """The warps that come to one of these places."""
        return tuple(w for w in range(self.count) if places & self.reached(w).keys())

    def reached(self, warp: int) -> Mapping[int, tuple[int, ...]]:
        """The instructions that a warp comes to, each with those that may follow."""
        return self._walked(warp).after

    def _whole(self, warp: int) -> _Walk:
        return self._walk(warp, 0, {}) if self.code.code else _Walk()

    def _again(self, warp: int, loop: Loop) -> Mapping[int, tuple[int, ...]]:
        """The same of a loop, from its second pass on: what holds in its first alone is behind it. Of one that never
        has a third pass, of any."""
        whole = self._walked(warp)
        if loop.head not in whole.after:
            return {}
        first, later = (whole.into(loop, inside) for inside in (False, True))
        walk = self._walk(warp, loop.head, later or {}, loop)
        if later is not None and walk.into(loop, inside=True) is None:
            walk = self._walk(warp, loop.head, _in_both(first or {}, later), loop)
        return walk.after

    def _walk(self, warp: int, start: int, begun: _Known, within: Loop | None = None) -> _Walk:
        """What a warp comes to from a place on, or in one pass of a loop from its head on."""
        walk = _Walk()
        known: dict[int, _Known] = {start: begun}
        todo = [start]
        while todo:
            at = todo.pop()
            here = dict(known[at])
            while True:
                after = walk.after[at] = self._following(at, here, warp)
                self._write(at, here, warp)
                if len(after) != 1 or after[0] in self._blocks or after[0] in known:
                    break
                at = after[0]
            for target in after:
                if target in self._heads and not self._is_poll(at, target):
                    walk.known[at, target] = dict(here)
                if within is not None and (target == within.head or target not in within.members):
                    continue
                if target not in known:
                    known[target] = dict(here)
                    todo.append(target)
                elif len(both := _in_both(known[target], here)) < len(known[target]):
                    known[target] = both
                    todo.append(target)
        return walk

    @cached_property
    def _blocks(self) -> frozenset[int]:
        """Where instructions begin to which more than one leads, or one of several ways."""
        before: dict[int, int] = defaultdict(int)
        for after in self.code.successors:
            for target in after:
                before[target] += 1 if len(after) == 1 else 2
        return frozenset(at for at, ways in before.items() if ways > 1)

    def _is_poll(self, at: int, head: int) -> bool:
        """Whether a loop that begins with a wait goes back there only to look again."""
        return at >= head and self.code.is_wait(Loop(head, tuple(range(head, at + 1))))

    @cached_property
    def _writers(self) -> Mapping[str, list[int]]:
        """Where each register is written."""
        found: dict[str, list[int]] = defaultdict(list)
        for at in range(len(self.code.code)):
            for name in self._written(at):
                found[name].append(at)
        return found

    @cached_property
    def _asked(self) -> frozenset[str]:
        """The registers that branches depend on."""
        code = self.code
        found: set[str] = set()
        guards = [code.register(at, i.guard.operand) for at, i in enumerate(code.code)
                  if i.guard is not None and (len(code.successors[at]) > 1 or code.ends(at))]  # fmt: skip
        todo = [name for name in guards if name is not None]
        while todo:
            name = todo.pop()
            if name in found:
                continue
            found.add(name)
            for at in self._writers.get(name, ()):
                todo += self._flow.uses[at] if self._is_followed(at) else ()
        return frozenset(found)

    def _written(self, at: int) -> Iterable[str]:
        """Of an instruction that the table does not know, whatever it may write."""
        return self._flow.writes[at] if self._flow.decoded[at] is not None else self.code.writes(at)

    def _following(self, at: int, known: _Known, warp: int) -> tuple[int, ...]:
        after, lanes = self.code.successors[at], self._warps[warp].live
        guard = self.code.code[at].guard
        if guard is None or (len(after) < 2 and not self.code.ends(at)):
            return after
        name = self.code.register(at, guard.operand)
        taken = lanes_where(known.get(name) if name is not None else None, lanes, int(guard.negated))
        if self.code.ends(at):
            return () if taken == lanes else after
        # the target stands first, what follows second
        return (after[0],) if taken == lanes else (after[1],) if taken == 0 else after

    def _is_followed(self, at: int) -> bool:
        """Whether what an instruction writes follows from registers, from parameters and from the index of the
        thread."""
        ins = self._flow.decoded[at]
        if ins is None or any(isinstance(o, ast.SpecialReg) and o.name not in self._specials for o in ins.operands):
            return False
        return computes(ins) or ins.parts[0] == "shfl" or ins.parts[:2] == ("ld", "param")

    def _write(self, at: int, known: _Known, warp: int) -> None:
        names = [name for name in self._written(at) if name in self._asked]
        if not names:
            return
        self._compute(at, known, warp)
        for name in names:
            if known.get(name) is None:
                known.pop(name, None)

    def _compute(self, at: int, known: _Known, warp: int | None) -> None:
        """Execute an instruction of a whole warp, or of any, for what it writes."""
        try:
            if not self._is_followed(at) or (warp is None and self._is_of_one(at)):
                raise NotUnderstood(self.code.code[at].opcode, at)
            compiled(self._flow, at)(self._machine, self._warps[warp or 0], Group(at, ALL, known))
        except (NotUnderstood, ValueError):
            known.update(dict.fromkeys(self._written(at)))

    def _is_of_one(self, at: int) -> bool:
        """Whether an instruction takes an address, or what only one thread has."""
        return any(isinstance(o, ast.Sym) or (isinstance(o, ast.SpecialReg) and o.name in _OF_ONE_THREAD)
                   for o in self.code.code[at].operands)  # fmt: skip

    # Values -------------------------------------------------------------------------------------------

    def number(self, at: int, operand: ast.Operand | None) -> int | None:
        """The number that an operand of the instruction at `at` is in all threads and in any run, or None; an address
        is none."""
        if isinstance(operand, ast.Imm):
            return None if operand.is_float else int(operand.value)
        name = self.code.register(at, operand) if operand is not None else None
        found = self._single(name, None, 0) if name is not None else None
        return found if isinstance(found, int) else None

    def bits(self, at: int, operand: ast.Operand) -> Bits:
        """The bits of a 32-bit operand that are the same in all threads and in any run."""
        return known_bits(self.code, self.number, at, operand)

    def address(self, at: int, place: ast.Mem) -> Value:
        """The address that an instruction accesses in the lanes of the first warp that comes to it; None where it
        follows from more than single values of registers."""
        warp = next(iter(self.to(frozenset((at,)))), 0)
        base = self.code.register(at, place.base)
        known = {} if base is None else {base: self._single(base, warp, 0)}
        return reader(self.code, at, place)(self._machine, self._warps[warp], Group(at, ALL, known))

    def _single(self, name: str, warp: int | None, depth: int) -> Value:
        """What a register holds in a warp, or in any, if it is the same wherever it is written."""
        if (name, warp) in self._singles:
            return self._singles[name, warp]
        self._singles[name, warp] = None
        places = self._writers.get(name, ())
        found = {self._made(name, at, warp, depth + 1) for at in places} if depth < _DEEPEST else set()
        self._singles[name, warp] = found.pop() if len(found) == 1 else None
        return self._singles[name, warp]

    def _made(self, name: str, at: int, warp: int | None, depth: int) -> Value:
        known = {used: self._single(used, warp, depth) for used in self._flow.uses[at]}
        self._compute(at, known, warp)
        return known.get(name)

    # Turns --------------------------------------------------------------------------------------------

    def _trips(self, loop: Loop) -> int | None:
        """How often a loop runs each time that it is come to, if that follows and is the same in all warps that come
        to it."""
        found = {self._turns(warp, loop) for warp in range(self.count) if loop.head in self.reached(warp)}
        return found.pop() if len(found) == 1 else None

    def _turns(self, warp: int, loop: Loop) -> int | None:
        known = self._walked(warp).into(loop, inside=False)
        for turn in range(1, _MOST_TURNS):
            if known is None:
                break
            walk = self._walk(warp, loop.head, known, loop)
            again = walk.into(loop, inside=True)
            leaves = any(t not in loop.members and t not in self._flow.lost for a in walk.after.values() for t in a)
            if again is None:
                return turn
            known = again if not leaves and again != known else None
        return None

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
            times *= self.trips(inner) or 1
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
