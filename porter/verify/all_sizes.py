# SPDX-License-Identifier: Apache-2.0
"""Whether an original and its port leave the same for all numbers of turns of their loops (docs/equality.md)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from porter.diagnostics import PorterError
from porter.equal.induction import classes, hold, parted, refined
from porter.equal.outcome import difference
from porter.equal.periods import Growing, IrregularError, Regular, are_alike, growing, periods_of, regular
from porter.equal.places import Behind, LoopLines, Room, given_as_lines, loops_of_lines
from porter.equal.turning import Log, State, Stop, TurnFollower
from porter.equal.words import Words
from porter.facts.events import NotUnderstood
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.launched import Launched, Triple
from porter.facts.machine import Machine
from porter.sync.sequences import LARGEST_SIZE
from porter.sync.sizes import given_by
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel
from porter.verify.case_program import Program
from porter.verify.equality import Place, SizeCompared
from porter.verify.expr import Number
from porter.verify.problem import Problem
from porter.verify.proving import Count, Proof, Sizes, firsts, launched_case

_STEPS = 3
"""Periods between the first and the last cut of a proof."""
_LEAST = 24
"""Units of a size behind the first ones that are looked at for what repeats: loops that are unrolled make few turns."""
_MOST_CLASSES = 6
"""How often classes are made smaller."""


class _NotAllError(Exception):
    """Why it is not known for all, and where."""

    def __init__(self, why: str, place: Place | None = None) -> None:
        super().__init__(why)
        self.place = place


class OtherError(Exception):
    """Sizes at which something else is left."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__("")
        self.sizes = sizes


@dataclass
class _Side:
    """One of the two programs, as one of its clusters sees it for any size."""

    name: str
    program: Program
    flow_of: Callable[[BuiltKernel], Flow]
    base: Mapping[str, Number]
    size: str
    step: int
    first: Triple
    """The first block of the cluster."""

    def __post_init__(self) -> None:
        self.kernel, problem = self.program.at(self.base)
        self.base = problem.sizes
        self.flow = self.flow_of(self.kernel)
        self.grid = problem.launch.grid, problem.launch.cluster
        self.on_data: set[int] = set()
        self.gives_numbers: set[int] = set()
        self.symbols: Mapping[str, int] = {}
        self.reach: dict[int, object] = {}

    def problem(self, units: int) -> Problem:
        kernel, problem = self.program.at({**self.base, self.size: units * self.step})
        if kernel.ptx != self.kernel.ptx:
            raise _NotAllError("another kernel is compiled for each")
        if (problem.launch.grid, problem.launch.cluster) != self.grid:
            raise _NotAllError("another grid is launched for each")
        return problem

    def _launched(self, units: int) -> Launched:
        problem = self.problem(units)
        self.reach[units] = _reach(problem)
        return replace(launched_case(problem, self.flow, self.first), areas=())

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Have what is not regular tell its place."""
        try:
            yield
        except (IrregularError, NotUnderstood) as error:
            raise _NotAllError(str(error), Place(self.name, self.flow, error.at)) from error

    def given(self) -> set[int]:
        """The instructions that take from the launch what moves with the size.

        Raises:
            IrregularError: it does not move evenly.
        """
        by_run = [given_by(Machine(self._launched(units))) for units in (1, 2, 3, 4)]
        return set[int]().union(*(given_as_lines(of_block) for of_block in zip(*by_run, strict=True)))

    def run(self, units: int, stops: Mapping[Stop, int] | None = None,
            given: Mapping[int, State] | None = None) -> TurnFollower:  # fmt: skip
        """Raises _NotAllError."""
        launched = self._launched(units)
        machine = Machine(launched)
        self.symbols = launched.shared_offsets
        follower = TurnFollower(machine, stops, given)
        with self.placed():
            history = run(machine)
        if history.blocked:
            raise _NotAllError("a deadlock", Place(self.name, self.flow, history.blocked[0].at))
        if follower.contents.loads_what_it_stores:
            raise _NotAllError(f"the {self.name} loads what it has stored")
        self.on_data |= follower.log.on_data
        self.gives_numbers |= follower.log.gives_numbers
        return follower


def _reach(problem: Problem) -> object:
    """How far the tensors go that copies load from, however large their boxes are: whether a box passes the end of one
    is to be the same in both programs for all sizes."""
    outputs = {tensor.name for tensor in problem.outputs}
    return {
        (bound.tensor, bound.map.address, bound.map.sizes, bound.map.strides, bound.map.dtype.element_bits)
        for bound in problem.tensor_maps.values() if bound.tensor not in outputs
    }  # fmt: skip


@dataclass
class AllSizes:
    """A case's original and port, for all numbers of turns of one size."""

    original: Program
    port: Program
    flow_of: Callable[[BuiltKernel], Flow]
    base: Mapping[str, Number]
    budget: Budget
    seconds: float = 0.0

    @staticmethod
    def names(original: Proof, port: Proof) -> list[str]:
        """The sizes that turns of both programs follow."""
        followed = {count.name for count in port.counts if count.step}
        return [count.name for count in original.counts if count.step and count.name in followed]

    def compared(self, name: str, original: Proof, port: Proof) -> SizeCompared:
        """Whether both leave the same for all of a size, given what is known of their synchronization.

        Raises:
            OtherError: they do not for some.
        """
        began = time.perf_counter()
        try:
            return self._compared(*(next(c for c in proof.counts if c.name == name) for proof in (original, port)))
        finally:
            self.seconds += time.perf_counter() - began

    def _compared(self, ours: Count, theirs: Count) -> SizeCompared:
        for program, count in (("original", ours), ("port", theirs)):
            if not count.is_all:
                return SizeCompared(ours.name, why=f"the synchronization of the {program} is not proved for all")
        assert ours.lasso is not None
        assert theirs.lasso is not None
        step = math.lcm(ours.step, theirs.step)
        units = math.lcm(ours.lasso.period * ours.step, theirs.lasso.period * theirs.step, step) // step
        start = max(-(-count.lasso.start * count.step // step) for count in (ours, theirs) if count.lasso is not None)
        try:
            problem = self.original.at(self.base)[1]
            launch = problem.launch
            *others, last = (
                _Induction(self._sides(ours.name, step, first), units, start, self.budget)
                for first in firsts(launch.grid, launch.cluster)
            )
            period = last.period()
            for other in others:
                if not other.is_like(last):
                    period = math.lcm(period, other.period())
        except _NotAllError as error:
            return SizeCompared(ours.name, step, why=str(error), place=error.place)
        except PorterError as error:
            return SizeCompared(ours.name, step, why=error.diagnostic.message)
        return SizeCompared(ours.name, step, period)

    def _sides(self, size: str, step: int, first: Triple) -> list[_Side]:
        programs = ("original", self.original), ("port", self.port)
        return [_Side(name, program, self.flow_of, self.base, size, step, first) for name, program in programs]


@dataclass
class _Induction:
    sides: Sequence[_Side]
    units: int
    start: int
    budget: Budget

    def __post_init__(self) -> None:
        self.most = self.start + max(4 * self.units, _LEAST) + 2
        """Units of the longest execution."""
        self.longest: list[TurnFollower] = []

    def period(self) -> int:
        """The period with which both programs leave the same, for all numbers of units.

        Raises:
            _NotAllError, OtherError: that is not known, or they do not.
        """
        ours, theirs = self.sides
        if ours.grid != theirs.grid:
            raise _NotAllError("work is shared out in another way")
        began = time.monotonic()
        shorter, self.longest = self._run(self.most - self.units), self._run(self.most)
        of_unit = (time.monotonic() - began) / (2 * self.most - self.units)
        found: list[Growing] = []
        for side, before, now in zip(self.sides, shorter, self.longest, strict=True):
            with side.placed():
                found.append(growing(side.flow, before.log, now.log, self.units))
        repeats = self._regular(found)
        self._require_time(repeats, of_unit)
        lines: list[list[LoopLines]] = []
        for side, one in zip(self.sides, found, strict=True):
            with side.placed():
                lines.append(loops_of_lines(one, repeats.period, repeats.first, side.symbols, side.step))
        logs = [follower.log for follower in shorter]
        self._require_lines(found, logs, lines)
        self._ends(found, repeats, self._classes(found, repeats))
        self._require_lines(found, logs, lines)
        return repeats.period

    def _require_lines(
        self, found: Sequence[Growing], shorter: Sequence[Log], lines: Sequence[Sequence[LoopLines]]
    ) -> None:
        """That numbers are lines for all that has to do with data in the executions so far."""
        for side, one, before, loops in zip(self.sides, found, shorter, lines, strict=True):
            one.log.on_data |= side.on_data
            one.log.gives_numbers |= side.gives_numbers
            with side.placed():
                for loop in loops:
                    loop.require()
                room = Room(side.flow, before, one.log, LARGEST_SIZE // (side.step * self.units) + 1)
                Behind(side.flow, one.log, loops, side.given(), room).require()

    def _require_time(self, repeats: Regular, of_unit: float) -> None:
        """Raises _NotAllError: there is none for as many executions as have to be made."""
        most = (repeats.first + 2) * repeats.period + repeats.rest
        seconds = of_unit * (most * most // 2 + 3 * (most + repeats.period))
        if self.budget.seconds is not None and self.budget.seconds - time.monotonic() + self.budget.began < seconds:
            raise _NotAllError(f"no time for all turns up to {most}")

    def is_like(self, other: _Induction) -> bool:
        """Whether a cluster does what another one does, but for numbers that are the same ones away in each turn, so
        that what one execution shows of it holds for all that are alike.

        Raises:
            _NotAllError, OtherError: both programs leave something else.
        """
        self.longest = self._run(other.most)
        return all(are_alike(one.log, two.log) for one, two in zip(self.longest, other.longest, strict=True))

    def _regular(self, found: Sequence[Growing]) -> Regular:
        for period in periods_of(self.units):
            both = [regular(one, period, self.most, self.units + period) for one in found]
            if (one := both[0]) is not None and (other := both[1]) is not None:
                return Regular(period, max(one.first, other.first), max(one.rest, other.rest))
        raise _NotAllError("no period shows within so many turns")

    # Induction ----------------------------------------------------------------------------------------

    def _classes(self, found: Sequence[Growing], repeats: Regular) -> _Known:
        """What both programs hold at each cut of each loop, which is shown to follow from what they hold at the one
        before.

        Raises:
            _NotAllError: it does not.
        """
        units, cuts = (repeats.first + _STEPS) * repeats.period + repeats.rest, _STEPS + 1
        stops = [one.stops(repeats.period, repeats.first, cuts) for one in found]
        seen = self._run(units, stops)
        loops = range(0, len(set(stops[0].values())), cuts)
        at = [[[one.states[loop + cut] for one in seen] for cut in (0, 1)] for loop in loops]
        known = _Known([first for first, _ in at], [classes(first, second) for first, second in at])
        for _ in range(_MOST_CLASSES):
            followed = self._run(units, stops, known.given(cuts, (1, 2)))
            smaller = [
                self._followed(words, [[one.states[loop + cut] for one in followed] for cut in (1, 2, 3)])
                for words, loop in zip(known.words, loops, strict=True)
            ]  # fmt: skip
            if all(new is old for new, old in zip(smaller, known.words, strict=True)):
                return known
            known = _Known(known.states, smaller)
        raise _NotAllError("what is held after a period does not follow from what was held before it")

    @staticmethod
    def _followed(known: Words, cuts: Sequence[Sequence[State]]) -> Words:
        """The classes if they hold at these cuts, else smaller ones."""
        for states in cuts:
            if not hold(known, states):
                known = refined(known, states)
        return known

    def _ends(self, found: Sequence[Growing], repeats: Regular, known: _Known) -> None:
        """Whether both leave the same for fewer units, and from the first cut on for all that come to the same end.

        Raises:
            _NotAllError, OtherError: they do not.
        """
        most = (repeats.first + 1) * repeats.period + repeats.rest
        stops = [one.stops(repeats.period, repeats.first, 1) for one in found]
        for units in range(1, most):
            self._run(units)
        for units in range(most, most + repeats.period):
            followed = self._run(units, stops, known.given(1, (0,)))
            for loop, words in enumerate(known.words):
                if not hold(words, [one.states[loop] for one in followed]):
                    raise _NotAllError("what is held at the first cut depends on the size")

    def _run(
        self, units: int, stops: Sequence[Mapping[Stop, int]] = ({}, {}),
        given: Sequence[Mapping[int, State]] = ({}, {}),
    ) -> list[TurnFollower]:  # fmt: skip
        """Both programs, which leave the same between all of their cuts.

        Raises:
            _NotAllError, OtherError: they do not, or there is no time.
        """
        if self.budget.is_spent:
            raise _NotAllError("no time for as many turns as are needed")
        ran = [side.run(units, some, words) for side, some, words in zip(self.sides, stops, given, strict=True)]
        ours, theirs = (follower.outcomes for follower in ran)
        if [len(one.states) for one in ran] != [len(set(some.values())) for some in stops] or len(ours) != len(theirs):
            raise _NotAllError("loops that are not come to as often")
        if self.sides[0].reach[units] != self.sides[1].reach[units]:
            raise _NotAllError("tensor maps of other tensors")
        if any(difference(one, other) is not None for one, other in zip(ours, theirs, strict=True)):
            side = self.sides[0]
            if not any(given):
                raise OtherError({**side.base, side.size: units * side.step})
            raise _NotAllError("what is left does not follow from what was held before the last turns")
        return ran


@dataclass(frozen=True)
class _Known:
    """By loop: what both programs hold at a cut, for its shape, and the classes of its bytes."""

    states: Sequence[Sequence[State]]
    words: Sequence[Words]

    def given(self, cuts: int, places: Sequence[int]) -> list[dict[int, State]]:
        """By program the classes as what is held at some of each loop's cuts."""
        found: list[dict[int, State]] = [{}, {}]
        for loop, (states, words) in enumerate(zip(self.states, self.words, strict=True)):
            for of_side, state in zip(found, parted(words, states), strict=True):
                of_side.update({loop * cuts + place: state for place in places})
        return found
