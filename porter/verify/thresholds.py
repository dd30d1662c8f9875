# SPDX-License-Identifier: Apache-2.0
"""Sizes at which a program does what it does at none of those that are looked at: a comparison that comes to one result
at these has the other one for more turns, or more blocks, or a comparison of one program has it between two of them
where the other program has none."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from porter.diagnostics import PorterError
from porter.facts.code import Code
from porter.facts.events import NotUnderstood, WarpName
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.machine import Machine
from porter.facts.state import Warp
from porter.ptx import ast
from porter.sync.sequences import LARGEST_SIZE
from porter.sync.turns import numbers
from porter.verify.case_program import Program
from porter.verify.combinations import Combinations, Feature, Seen
from porter.verify.originals import SMALL, made_of, once
from porter.verify.problem import Problem
from porter.verify.proving import Sizes, clusters_looked_at, listed

_TILES = 768
"""A multiple of the usual tiles, so that a size which is larger by some of these has the same edges."""
_ROUNDS = 3
"""How often a size is looked for that is farther away than it seemed."""

Place = tuple[int, WarpName, int]
"""Cluster, warp, and instruction."""


class UnreachedError(Exception):
    """Why a size is not looked at."""


class _Sides:
    """What each comparison of one execution came to, and by lane how far its sides were from the other result where
    they came nearest to it."""

    def __init__(self) -> None:
        self.held: dict[Place, set[bool]] = defaultdict(set)
        self.apart: dict[tuple[Place, int], int] = {}
        self.came: dict[int, set[tuple[int, frozenset[bool]]]] = defaultdict(set)
        """By cluster, what comparisons came to: in all lanes the same, or not."""
        self.seconds = 0.0

    def note(self, flow: Flow, cluster: int, warp: WarpName, at: int, sides: Sequence[tuple[int, int]]) -> None:
        parts, place = flow.code.code[at].parts, (cluster, warp, at)
        results = _results(sides, parts[1], parts[-1])
        self.came[cluster].add((at, frozenset(holds for holds, _ in results)))
        for lane, (holds, apart) in enumerate(results):
            self.held[place].add(holds)
            self.apart[place, lane] = min(apart, self.apart.get((place, lane), apart))


@lru_cache(maxsize=1 << 14)
def _results(sides: Sequence[tuple[int, int]], operator: str, kind: str) -> list[tuple[bool, int]]:
    """By lane."""
    return [_result(operator, left - right) for left, right in numbers(sides, kind)]


def _result(operator: str, difference: int) -> tuple[bool, int]:
    """What a comparison of two sides comes to, and how much they have to change for the other result."""
    if operator in ("eq", "ne"):
        return (difference == 0) is (operator == "eq"), abs(difference) or 1
    if operator in ("le", "ls", "gt", "hi"):
        difference -= 1
    below = difference < 0
    return below is (operator in ("lt", "lo", "le", "ls")), -difference if below else difference + 1


@dataclass
class Thresholds:
    """Those of one program of a case, by the sizes that are looked at anyway, in so many `seconds` of processor
    time. `renumbered`: the blocks of a number do something else than those of the other program."""

    program: Program
    chosen: Sequence[Sizes]
    seconds: float
    renumbered: bool = False

    def __post_init__(self) -> None:
        self._began = time.process_time()
        self._known: dict[str, _Sides | None] = {}
        self._texts: dict[int, object] = {}
        self._copies: dict[object, list[set[str]]] = defaultdict(list)
        self._met: dict[str, tuple[Sizes, Sizes]] = {}
        self._kernel = self.program.at(self.chosen[0])[0]
        assert self._kernel.function is not None
        self._flow = Flow(Code(self._kernel.module, self._kernel.function))

    def sizes(self) -> Iterator[Sizes]:
        """One behind each, the nearest for each size.

        Raises:
            UnreachedError: there is no time for one, or it is not found.
        """
        held: dict[Place, set[bool]] = defaultdict(set)
        for sides in map(self._at, self.chosen):
            for place, results in sides.held.items() if sides is not None else ():
                held[place] |= results
        for name in self.chosen[0]:
            values = [sizes[name] for sizes in self.chosen]
            numbers_of = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
            if len(numbers_of) == len(values) and (unit := math.gcd(*numbers_of)):
                yield from self._of(name, math.lcm(unit, _TILES), held)
                if self.renumbered:
                    self._meet_at(name, unit, math.lcm(unit, _TILES))

    def _meet_at(self, name: str, unit: int, step: int) -> None:
        """Note sizes, behind those that are looked at, at which the last block is that of a number, or turns are as
        many: the step to a size that has the same edges passes by."""
        sizes = max(self.chosen, key=lambda chosen: int(chosen[name]))
        first = int(sizes[name])
        steps = -(-first // step) * step
        before, behind = self._at(sizes), self._at({**sizes, name: first + steps})
        if before is None or behind is None:
            return
        lanes: dict[Place, set[tuple[int, int | None]]] = defaultdict(set)
        for (place, lane), apart in before.apart.items():
            if self._flow.code.code[place[2]].parts[1] in ("eq", "ne"):
                lanes[place].add((apart, behind.apart.get((place, lane))))
        for apart, then in (pair for pairs in lanes.values() if len(pairs) == 1 for pair in pairs):
            for nearer in (apart - then, apart + then) if then is not None else ():
                on, rest = divmod(apart * steps, nearer) if nearer > 0 else (0, 0)
                if not rest and on > 0 and on % unit == 0 and first + on <= LARGEST_SIZE:
                    there = {**sizes, name: first + on}
                    self._met[listed(there)] = {**sizes, name: first + on - unit}, there

    def flips(self) -> Iterator[tuple[Sizes, Sizes]]:
        """Where, between two sizes that are looked at, a comparison comes to its other result: the last size ahead of
        that and the first one with it, as if its sides went by the size. Behind `sizes` alone, also larger sizes."""
        yield from self._met.values()
        for name in self.chosen[0]:
            alike: dict[str, list[Sizes]] = defaultdict(list)
            for sizes in self.chosen:
                if isinstance(sizes[name], int) and not isinstance(sizes[name], bool):
                    alike[listed({n: v for n, v in sizes.items() if n != name})].append(sizes)
            unit = math.gcd(*(int(sizes[name]) for group in alike.values() for sizes in group))
            for group in alike.values():
                ordered = sorted(group, key=lambda sizes: int(sizes[name]))
                numbers_of = [int(sizes[name]) // (unit or 1) for sizes in ordered]
                for index, (one, other) in enumerate(pairwise(ordered)):
                    before = self._slopes(ordered[index - 1], one, numbers_of[index] - numbers_of[index - 1], 0)
                    found = before if index else set[int]()
                    found |= self._slopes(one, other, numbers_of[index + 1] - numbers_of[index], 1)
                    for steps in (n for n in found if n <= numbers_of[index + 1] - numbers_of[index]):
                        first = (numbers_of[index] + steps) * unit
                        yield {**one, name: first - unit}, {**one, name: first}

    def _slopes(self, one: Sizes, other: Sizes, steps: int, within: int) -> set[int]:
        """After how many steps behind the second of two sizes sides meet that came nearer to each other; `within`: how
        many behind the first one they met that have met at the second one."""
        before, behind = self._at(one), self._at(other)
        if before is None or behind is None:
            return set()
        found = set()
        for (place, lane), apart in before.apart.items():
            then = behind.apart.get((place, lane))
            if then is None or len(before.held[place]) != 1:
                continue
            if within and behind.held[place].isdisjoint(before.held[place]):
                found.add(-(-apart * steps // (apart + then - 1)))
            elif not within and then < apart and len(behind.held[place]) == 1:
                found.add(-(-then * steps // (apart - then)))
        return found

    def _of(self, name: str, unit: int, held: Mapping[Place, set[bool]]) -> Iterator[Sizes]:
        sizes = max(self.chosen, key=lambda chosen: int(chosen[name]))
        first = int(sizes[name])
        step = steps = -(-first // unit) * unit
        before, seconds = self._at(sizes), 0.0
        for index in range(2 + _ROUNDS):
            sizes = {**sizes, name: int(sizes[name]) + steps}
            if before is None or int(sizes[name]) > LARGEST_SIZE:
                return
            if before.seconds + seconds * steps > self.seconds - (time.process_time() - self._began):
                raise UnreachedError(f"no time for {listed(sizes)}, where comparisons may have another result")
            one = self._at(sizes)
            if one is None:
                return
            if _differ(one, held):
                yield sizes
                return
            seconds = max(0.0, one.seconds - before.seconds) / steps
            # of the first two steps both are made: what repeats moves to and fro
            steps, before = step if index == 0 else step * _meet(before, one, held), one
            if not steps:
                return
        raise UnreachedError(f"a comparison that may have another result for more {name} than {listed(sizes)}")

    def seen_at(self, sizes: Sizes) -> Seen | None:
        """What comparisons came to in the first cluster and in the last one, those of one place of the text together;
        None as for `_at`, or where nothing is compared."""
        sides = self._at(sizes)
        if sides is None or not sides.came:
            return None
        blocks = [frozenset((self._text_of(at), came) for at, came in one) for _, one in sorted(sides.came.items())]
        near: dict[object, int] = {}
        for ((_, _, at), _), apart in sides.apart.items():
            text = self._text_of(at)
            near[text] = min(apart, near.get(text, apart))
        return Seen(blocks[0], blocks[-1], near)

    def _text_of(self, at: int) -> object:
        """What stands for a comparison and its copies, as a loop that is written out has them: those of one place of
        the text with a register in common."""
        if at not in self._texts:
            ins = self._flow.code.code[at]
            places = tuple(replace(place, inlined_at=None) for place in self._flow.places(at)) or at
            sides = {o.name for o in ins.operands[1:3] if isinstance(o, ast.Reg)}
            alike = self._copies[places, ins.parts]
            number = next((i for i, others in enumerate(alike) if others & sides), len(alike))
            alike += [set[str]()] if number == len(alike) else []
            alike[number] |= sides
            self._texts[at] = self.program.plan is None, places, ins.parts, number
        return self._texts[at]

    def _at(self, sizes: Sizes) -> _Sides | None:
        """An execution of the first cluster and of the last one; None where the program does not take these sizes, or
        what it does there is not understood."""
        key = listed(sizes)
        if key not in self._known:
            self._known[key] = self._executed(sizes)
        return self._known[key]

    def _executed(self, sizes: Sizes) -> _Sides | None:
        try:
            kernel, problem = self.program.at(sizes)
            if kernel.ptx != self._kernel.ptx:
                return None
            if self.program.plan is not None:
                return self._ran(problem)
            key = "sides", made_of((kernel, problem))
            return once(key, lambda: self._ran(problem), lambda one: SMALL, lambda one: True)
        except (PorterError, NotUnderstood):
            return None

    def _ran(self, problem: Problem) -> _Sides:
        """Raises NotUnderstood."""
        began, found, flow = time.process_time(), _Sides(), self._flow
        for cluster, launched in enumerate(clusters_looked_at(problem, flow)):
            machine = Machine(replace(launched, areas=()))
            # a comparison may choose what is stored, or where
            machine.is_whole = True
            machine.on_comparison = _told(found, flow, cluster)
            run(machine)
        found.seconds = time.process_time() - began
        return found


def _differ(sides: _Sides, held: Mapping[Place, set[bool]]) -> bool:
    """Whether a comparison has a result that it has in none of the executions which `held` is of."""
    return any(place in held and not results <= held[place] for place, results in sides.held.items())


def _meet(one: _Sides, other: _Sides, held: Mapping[Place, set[bool]]) -> int:
    """After how many times the way from one execution to the other some comparison has its other result at the soonest;
    0 where none comes nearer to it."""
    found = []
    for (place, lane), apart in other.apart.items():
        before = one.apart.get((place, lane), apart)
        if apart < before and len(held.get(place, ())) == 1:
            found.append(-(-apart // (before - apart)))
    return min(found, default=0)


def _told(found: _Sides, flow: Flow, cluster: int) -> Callable[[Warp, int, tuple[tuple[int, int], ...]], None]:
    return lambda warp, at, sides: found.note(flow, cluster, warp.name, at, sides)


def sizes_beyond(
    programs: Mapping[str, Program], chosen: Sequence[Sizes], seconds: float, constants: bool = False,
    renumbered: bool = False,
) -> list[Sizes]:  # fmt: skip
    """The sizes at which some program does what it does at none of those that are chosen, or at which conditions of
    both come together as they do at none. Where their `constants` are others, or blocks are `renumbered`, also those at
    which one of them begins to do what the other one does not begin to do there.

    Raises:
        UnreachedError: one of them is not looked at.
    """
    found: list[Sizes] = []
    flips: list[dict[str, tuple[Sizes, Sizes]]] = []
    every = {name: Thresholds(program, chosen, seconds, renumbered) for name, program in programs.items()}
    for name, thresholds in every.items():
        try:
            found += [s for s in thresholds.sizes() if s not in found]
        except UnreachedError as error:
            raise UnreachedError(f"the {name} has {error}") from error
        if constants:
            flips.append({listed(there): (ahead, there) for ahead, there in thresholds.flips()})
    alone = [flip for mine in flips for key, flip in mine.items() if not all(key in theirs for theirs in flips)]
    for sizes in (s for flip in alone for s in flip):
        found += [sizes] if sizes not in chosen and sizes not in found else []
    began = time.process_time()

    def seen_at(sizes: Sizes) -> Seen | None:
        if time.process_time() - began > seconds:
            raise UnreachedError("no time for sizes at which conditions come together")
        both = [thresholds.seen_at(sizes) for thresholds in every.values()]
        seen = [one for one in both if one is not None]
        if len(seen) < len(both):
            return None
        first, last = [one.first for one in seen], [one.last for one in seen]
        near = {place: apart for one in seen for place, apart in one.near.items()}
        return Seen(frozenset[Feature]().union(*first), frozenset[Feature]().union(*last), near)

    return found + Combinations(list(programs.values()), seen_at, [*chosen, *found], 1 + renumbered).sizes()
