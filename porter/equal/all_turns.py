# SPDX-License-Identifier: Apache-2.0
"""Whether two programs leave the same for all numbers of turns of their loops.

Executions for some numbers of turns are compared; what comes behind is an induction from cut to cut
(`porter.equal.induction`), whose step and whose ends are executed as well, each from unknown words. That each of them
stands for all is what `porter.equal.periods` and `porter.equal.places` require.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import NamedTuple

from porter.diagnostics import PorterError
from porter.equal.forms import Forms, Noted
from porter.equal.induction import Classes, classes
from porter.equal.outcome import difference
from porter.equal.periods import Entered, Growing, IrregularError, Regular, are_alike, growing, periods_of, regular
from porter.equal.places import Behind, Fixed, LoopLines, Room, given_as_lines, loops_of_lines
from porter.equal.tails import Marks, marks_of
from porter.equal.turning import Log, ReachedError, State, Stop, TurnFollower
from porter.facts.events import NotUnderstood
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.launched import Launched
from porter.facts.machine import Machine
from porter.sync.lines import Lines
from porter.sync.sequences import LARGEST_SIZE, Counted, Key
from porter.sync.sizes import given_by, given_to_warps
from porter.sync.turns import Recorder, comparisons, moved_apart

_STEPS = 3
"""Periods between the first and the last cut of a proof: of three turns two have operands that commute in one order,
and lines that two turns share are one."""
_PERIODS = (2, 3, 4)
"""Of synchronization, behind the first turns, in which it is looked for what repeats; that of data may be shorter."""
_LEAST = (8, 24)
"""Units of a size that are at least looked at for that, and in the end: loops that are unrolled make few turns."""
_MOST_CLASSES = 6
"""How often classes are made smaller."""


class NotAllError(Exception):
    """Why it is not known for all, and in which program and at which instruction."""

    def __init__(self, why: str, program: str = "", at: int | None = None) -> None:
        super().__init__(why)
        self.program, self.at = program, at


class _NoPeriodError(NotAllError):
    """What was executed shows no period."""


class _MoreAskedError(NotAllError):
    """Behind their loops programs ask for more than marks tell."""


class OtherError(Exception):
    """A number of units of the size for which something else is left."""

    def __init__(self, units: int) -> None:
        super().__init__(f"something else is left for {units} units")
        self.units = units


@dataclass
class Side:
    """One of the two programs, as one of its clusters sees it. `launched` gives the launch for some units of the size,
    of `step` each, `reach` how far the tensors go that copies load from, however large their boxes are: whether a box
    passes the end of one is to be the same in both programs for all sizes. With `forms` some sizes are symbols, and
    what is asked of their sums is `noted`."""

    name: str
    flow: Flow
    step: int
    launched: Callable[[int], Launched]
    reach: Callable[[int], object] = lambda units: None
    on_data: set[int] = field(default_factory=set)
    gives_numbers: set[int] = field(default_factory=set)
    data_alone: dict[int, set[str]] = field(default_factory=dict)
    forms: Forms | None = None
    noted: Noted = field(default_factory=lambda: Noted(steady={}))

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Have what is not regular tell its place."""
        try:
            yield
        except (IrregularError, NotUnderstood) as error:
            raise NotAllError(str(error), self.name, error.at) from error

    def given(self, period: int) -> tuple[set[int], list[dict[Key, Counted]]]:
        """The instructions that take from the launch what moves with the size, and what it gives each block.

        Raises:
            IrregularError: it does not move evenly.
        """
        some = [(units, self.launched(units)) for units in range(1, 2 * max(period, 2) + 1)]
        of_units = {units: given_by(Machine(launched)) for units, launched in [*some, self._largest()]}
        found = [
            given_as_lines({units: blocks[rank] for units, blocks in of_units.items()}, period)
            for rank in range(len(of_units[1]))
        ]  # fmt: skip
        return set[int]().union(*(moving for moving, _ in found)), [numbers for _, numbers in found]

    def _largest(self) -> tuple[int, Launched]:
        """The largest size for which there is a launch: tensors have to fit in memory."""
        units = LARGEST_SIZE // self.step
        while True:
            try:
                return units, self.launched(units)
            except PorterError:
                if units == 1:
                    raise
                units //= 2

    @cached_property
    def fixed(self) -> Fixed:
        """What the launch gives each warp, where it is the same for two sizes, and so is no line but a number."""
        one, other = (given_to_warps(Machine(self.launched(units))) for units in (1, 2))
        return {
            warp: {key: value for key, value in given.items() if value is not None and value == other[warp][key]}
            for warp, given in one.items()
        }  # fmt: skip

    @property
    def symbols(self) -> Mapping[str, int]:
        return self.launched(1).shared_offsets

    def run(
        self, units: int, stops: Mapping[Stop, int], given: Mapping[int, State], records: bool = True,
        marks: Marks | None = None, ends: bool = False,
    ) -> TurnFollower:  # fmt: skip
        """Raises NotAllError."""
        if self.flow.changes_maps:
            raise NotAllError("tensor maps that are changed", self.name)
        machine = Machine(self.launched(units))
        follower = TurnFollower(machine, stops, given, self.forms, records, marks, ends)
        if self.forms is not None and not given:
            # sums with what classes stand for are none of symbols alone
            follower.contents.noted = self.noted
        with self.placed(), suppress(ReachedError):
            run(machine)
        if blocked := machine.history.blocked:
            raise NotAllError("a deadlock", self.name, blocked[0].at)
        if follower.contents.loads_what_it_stores:
            raise NotAllError(f"the {self.name} loads what it has stored")
        follower.log.gives_numbers.update(*machine.of_numbers)
        follower.log.data_alone.update((at, set()) for places in machine.of_numbers for at in places)
        self.on_data |= follower.log.on_data
        self.gives_numbers |= follower.log.gives_numbers
        for at, names in follower.log.data_alone.items():
            self.data_alone[at] = self.data_alone.get(at, names) & names
        return follower


@dataclass
class AllTurns:
    """Both programs, of which turns and synchronization are known to repeat with a period of `units` of the size, from
    `start` on. `seconds_left`: for all of it. `known_seconds`: those of executions with turns of another size."""

    sides: Sequence[Side]
    units: int
    start: int
    seconds_left: Callable[[], float] = lambda: inf
    known_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.most = 0
        """Units of the longest execution."""
        self.longest: list[TurnFollower] = []
        self._slowest = self.known_seconds, inf
        """Seconds of the execution that took longest, and its units: what takes as long, or longer by its units, is not
        begun with less time left."""
        self._known: dict[int, list[TurnFollower]] = {}
        """By units executions with what they come to."""
        self._met = -self.units
        """Units at which the sides of all comparisons have met, those of whole periods."""
        self._compared: set[int] = set()
        """Units for which both leave the same."""

    def period(self) -> int:
        """The period with which both programs leave the same, for all numbers of units.

        Raises:
            NotAllError, OtherError: that is not known, or they do not.
        """
        (few, some, many), (least, more) = _PERIODS, _LEAST
        first = max(few * self.units, least)
        # little more than what has shown nothing shows nothing either
        second = [some * self.units] if 2 * some * self.units >= 3 * first else []
        *shorter, most = (self.start + count + 2 for count in (first, *second, max(many * self.units, more)))
        for units in shorter:
            with suppress(_NoPeriodError):
                return self._proved(*self._repeating(units))
        return self._proved(*self._repeating(most))

    def _repeating(self, most: int) -> tuple[Sequence[Growing], Sequence[Log], Regular, Sequence[Sequence[LoopLines]]]:
        """What an execution of so many units and one that is a period shorter show of loops and of what repeats.

        Raises:
            NotAllError, OtherError: nothing, or what is no line, or both programs leave something else.
        """
        self.most = most
        shorter, self.longest = (self._recorded(units) for units in (most - self.units, most))
        self._met = -self.units
        found: list[Growing] = []
        for side, before, now in zip(self.sides, shorter, self.longest, strict=True):
            try:
                found.append(growing(side.flow, before.log, now.log, self.units))
                more = (LARGEST_SIZE // side.step - self.most) // self.units
                for why, at in comparisons(before.recorder, now.recorder, more):
                    raise IrregularError(why, at)
            except IrregularError as error:
                raise _NoPeriodError(str(error), side.name, error.at) from error
            self._settle(before.recorder, now.recorder)
        logs = [follower.log for follower in shorter]
        return found, logs, *self._regular(found, logs)

    def _recorded(self, units: int) -> list[TurnFollower]:
        if units not in self._known:
            self._known[units] = self._run(units, records=True)
        return self._known[units]

    def _proved(
        self, found: Sequence[Growing], shorter: Sequence[Log], repeats: Regular, lines: Sequence[Sequence[LoopLines]]
    ) -> int:  # fmt: skip
        before = self._noted(found)
        self._induction(found, repeats)
        if self._noted(found) != before:
            # other executions have more to do with data
            for side, loops in zip(self.sides, lines, strict=True):
                with side.placed():
                    for loop in loops:
                        loop.require()
            self._require_behind(found, shorter, lines, repeats.period)
        return repeats.period

    @property
    def slowest(self) -> float:
        """Seconds of the execution that took longest."""
        return self._slowest[0]

    def _settle(self, shorter: Recorder, longer: Recorder) -> None:
        """Note at which number of units the sides of comparisons meet, of which they have the results behind it that
        they have for the most."""
        for apart, more in moved_apart(shorter, longer):
            self._met = max(self._met, self.most - self.units - self.units * apart // more)

    def _settled(self, period: int) -> int:
        """Units from which on comparisons have one result: sides that are lines for each place in a period have met
        a period later at the latest."""
        return self._met + period

    def _least(self, repeats: Regular) -> int:
        """The least number of units that goes from the first cut of its loops to one of the ends."""
        return max(repeats.first + repeats.rest, self._settled(repeats.period))

    def _noted(self, found: Sequence[Growing]) -> list[object]:
        """What has to do with data in all executions so far, which what is known of turns is told."""
        for side, one in zip(self.sides, found, strict=True):
            one.log.on_data |= side.on_data
            one.log.gives_numbers |= side.gives_numbers
            one.log.data_alone = side.data_alone
        return [(set(side.on_data), set(side.gives_numbers), dict(side.data_alone)) for side in self.sides]

    def _require_behind(
        self, found: Sequence[Growing], shorter: Sequence[Log], lines: Sequence[Sequence[LoopLines]], period: int
    ) -> None:
        """That numbers outside of loops, and by the size, are sums or lines."""
        for side, one, before, loops in zip(self.sides, found, shorter, lines, strict=True):
            with side.placed():
                room = Room(side.flow, before, one.log, LARGEST_SIZE // (side.step * self.units) + 1)
                given, blocks = side.given(period)
                in_size = Lines(period, LARGEST_SIZE // (side.step * period) + 1)
                Behind(side.flow, one.log, loops, given, room, blocks, side.symbols, in_size).require()

    def is_like(self, other: AllTurns) -> bool:
        """Whether a cluster does what another one does, but for numbers that are the same ones away in each turn, so
        that what one execution shows of it holds for all that are alike.

        Raises:
            NotAllError, OtherError: both programs leave something else.
        """
        self.longest = self._run(other.most, records=True)
        return all(are_alike(one.log, two.log) for one, two in zip(self.longest, other.longest, strict=True))

    def _regular(
        self, found: Sequence[Growing], shorter: Sequence[Log]
    ) -> tuple[Regular, Sequence[Sequence[LoopLines]]]:
        """The shortest period with which both do the same, with what is known of numbers in their loops.

        Raises:
            NotAllError: there is none.
        """
        why: NotAllError = _NoPeriodError("no period shows within so many turns")
        for period in periods_of(self.units):
            both = [regular(one, period, self.most, self.units + period) for one in found]
            if (one := both[0]) is None or (other := both[1]) is None:
                continue
            repeats = Regular(period, _whole_turns(found, max(one.first, other.first)), max(one.rest, other.rest))
            try:
                self._noted(found)
                lines = [self._lines(side, of_side, repeats) for side, of_side in zip(self.sides, found, strict=True)]
                self._require_behind(found, shorter, lines, period)
            except NotAllError as error:
                why = error
                continue
            return repeats, lines
        raise why

    @staticmethod
    def _lines(side: Side, found: Growing, repeats: Regular) -> list[LoopLines]:
        with side.placed():
            return loops_of_lines(found, repeats.period, repeats.first, side.symbols, side.step, side.fixed)

    # Induction ----------------------------------------------------------------------------------------

    def _induction(self, found: Sequence[Growing], repeats: Regular) -> None:
        """Raises NotAllError, OtherError: from one of the cuts to the next it does not hold."""
        if ahead := _ahead(found, repeats.period, self.most):
            # the compiler may have put a turn of one of both ahead of its loop
            later = replace(repeats, first=repeats.first + repeats.period)
            with suppress(NotAllError):
                self._cut([_Cuts(one, later, more) for one, more in zip(found, ahead, strict=True)], later, False)
                return
        self._cut([_Cuts(one, repeats) for one in found], repeats)

    def _cut(self, cuts: Sequence[_Cuts], repeats: Regular, is_last: bool = True) -> None:
        self._ends(cuts, repeats, self._classes(cuts, repeats), is_last)

    def _classes(self, found: Sequence[_Cuts], repeats: Regular) -> _Known:
        """What both programs hold at each cut of each loop, which is shown to follow from what they hold at the one
        before.

        Raises:
            NotAllError: it does not.
        """
        # all of its comparisons have the results that they have for larger sizes
        units = max(repeats.first + _STEPS * repeats.period + repeats.rest, self._settled(repeats.period))
        cuts = _STEPS + 1
        stops = self._stops(found, cuts)
        seen = self._run(units, stops, ends=True)
        loops = range(0, len(set(stops[0].values())), cuts)
        at = [[[one.states[loop + cut] for one in seen] for cut in range(cuts)] for loop in loops]
        known = _Known([first for first, *_ in at], [classes(*states) for states in at])
        for _ in range(_MOST_CLASSES):
            followed = self._run(units, stops, known.given(cuts, (1, 2)), ends=True)
            smaller = [
                self._followed(words, [
                    [[one.states[loop + cut] for one in ran] for ran in (followed, seen)] for cut in (1, 2, 3)
                ])
                for words, loop in zip(known.classes, loops, strict=True)
            ]  # fmt: skip
            if all(new is old for new, old in zip(smaller, known.classes, strict=True)):
                return known
            known = _Known(known.states, smaller)
        raise NotAllError("what is held after a period does not follow from what was held before it")

    def _stops(self, found: Sequence[_Cuts], count: int) -> list[dict[Stop, int]]:
        """So many cuts of each program.

        Raises:
            NotAllError: turns cannot be cut.
        """
        made = []
        for side, one in zip(self.sides, found, strict=True):
            with side.placed():
                made.append(one.stops(count))
        return made

    @staticmethod
    def _followed(known: Classes, cuts: Sequence[Sequence[Sequence[State]]]) -> Classes:
        """The classes if they hold at these cuts, where sums were seen as well, else smaller ones."""
        for states, seen in cuts:
            if not known.hold(states, seen):
                known = known.refined(states, seen)
        return known

    def _ends(self, found: Sequence[_Cuts], repeats: Regular, known: _Known, is_last: bool) -> None:
        """Whether both leave the same for fewer units, and from the first cut on for all that come to the same end.

        Raises:
            NotAllError, OtherError: they do not; if `is_last`, also at which units both leave something else.
        """
        most, stops = self._least(repeats), self._stops(found, 1)
        ends = [_End(units) for units in range(1, most) if units not in self._compared]
        ends += [_End(units, stops, known.given(1, (0,))) for units in range(most, most + repeats.period)]
        marks = [self._marks(side, one.loops, repeats.period) for side, one in zip(self.sides, found, strict=True)]
        alike = self._alike(ends, known, marks)
        left = [end for end in ends if end.units not in alike]
        # what is given is the first that does not hold
        for end in sorted(left, key=lambda end: not any(end.stops)):
            try:
                self._require_held(known, self._run(end.units, end.stops, end.given), end)
            except NotAllError:
                # or is it another one for this size, or for fewer?
                for units in [end.units, *(other.units for other in left if not any(other.stops))] if is_last else ():
                    self._run(units)
                raise

    @staticmethod
    def _require_held(known: _Known, followed: Sequence[TurnFollower], end: _End) -> None:
        """Raises NotAllError: what is given is not held."""
        for loop, of_loop in enumerate(known.classes) if any(end.given) else ():
            if not of_loop.hold([one.states[loop] for one in followed]):
                raise NotAllError("what is held at the first cut depends on the size")

    @staticmethod
    def _marks(side: Side, found: Growing, period: int) -> Marks:
        with side.placed():
            return marks_of(found, side.given(period)[0])

    def _alike(self, ends: Sequence[_End], known: _Known, marks: Sequence[Marks]) -> set[int]:
        """The units of those of which one execution behind the loops of both programs shows what all leave, and which
        leave the same. Raises OtherError: both programs do not."""
        tails: list[_Tail] = []
        for end in ends if all(one.places for one in marks) else ():
            try:
                ran = self._run(end.units, end.stops, end.given, marks=marks, ends=True)
                self._require_held(known, ran, end)
            except _MoreAskedError:
                # so they do at the others, nearly always
                return set()
            except NotAllError:
                continue
            if not any(tail.takes(end, ran) for tail in tails):
                tails.append(_Tail([end], ran, classes([one.states[-1] for one in ran])))
        return {end.units for tail in tails if self._holds_behind(tail, marks) for end in tail.ends}

    def _holds_behind(self, tail: _Tail, marks: Sequence[Marks]) -> bool:
        """Whether both leave the same from what is held behind their loops."""
        one = tail.ends[0]
        cut = len(tail.ran[0].states) - 1
        held = tail.held.parted([follower.states[cut] for follower in tail.ran])
        given = [{**of_side, cut: state} for of_side, state in zip(one.given, held, strict=True)]
        try:
            ran = self._run(one.units, one.stops, given, marks=marks)
        except NotAllError:
            return False
        for side, of_side, follower in zip(self.sides, marks, ran, strict=True):
            maps = follower.maps
            first, *rest = (of_side.given(Machine(side.launched(end.units)), maps) for end in tail.ends)
            if follower.loads_far or any(given != first for given in rest):
                return False
        return True

    def _run(
        self, units: int, stops: Sequence[Mapping[Stop, int]] = ({}, {}),
        given: Sequence[Mapping[int, State]] = ({}, {}), records: bool = False,
        marks: Sequence[Marks | None] = (None, None), ends: bool = False,
    ) -> list[TurnFollower]:  # fmt: skip
        """Both programs, which leave the same between all of their cuts. `records`: what they come to; with `marks`
        there is a cut behind their loops, and with `ends` nothing behind the last one.

        Raises:
            NotAllError, OtherError: they do not, or there is no time.
        """
        left, (slowest, of_units) = self.seconds_left(), self._slowest
        if left < slowest * max(1, units / of_units):
            raise NotAllError("no time for as many turns as are needed")
        ran = [
            side.run(units, some, words, records, behind, ends)
            for side, some, words, behind in zip(self.sides, stops, given, marks, strict=True)
        ]
        if left < inf:
            self._slowest = max(self._slowest, (left - self.seconds_left(), units))
        ours, theirs = (follower.outcomes for follower in ran)
        cuts = [len(set(some.values())) + (behind is not None) for some, behind in zip(stops, marks, strict=True)]
        if [len(one.states) for one in ran] != cuts or len(ours) != len(theirs):
            raise NotAllError("loops that are not come to as often")
        if any(behind is not None and one.control is None for behind, one in zip(marks, ran, strict=True)):
            raise _MoreAskedError("behind the loops more is asked for than numbers that are compared")
        if self.sides[0].reach(units) != self.sides[1].reach(units):
            raise NotAllError("tensor maps of other tensors")
        if any(difference(one, other) is not None for one, other in zip(ours, theirs, strict=True)):
            if not any(given):
                raise OtherError(units)
            raise NotAllError("what is left does not follow from what was held before the last turns")
        if not any(given) and not ends:
            self._compared.add(units)
        return ran


def _whole_turns(found: Sequence[Growing], units: int) -> int:
    """So many units or a few more, with which whole turns come in each loop of both programs."""
    while any(one.of_period(units) is None for one in found):
        units += 1
    return units


def _ahead(found: Sequence[Growing], period: int, units: int) -> list[dict[Entered, int]]:
    """Turns that stand ahead of the loops of both programs, more than ahead of the one with the fewest, or than ahead
    of one of which nobody can tell; none where they are as many everywhere, or more than a period."""
    known = [ahead for one in found if (ahead := one.ahead(period, units)) is not None]
    all_of_them = [count for counts, _ in known for count in counts.values()]
    least = 0 if any(is_open for _, is_open in known) else min(all_of_them, default=0)
    more = [{key: count - least for key, count in counts.items()} for counts, _ in known]
    turns = [one.of_period(period) or {} for one in found]
    fits = all(0 <= n <= of_one[key] for counts, of_one in zip(more, turns, strict=False) for key, n in counts.items())
    return more if len(known) == len(found) and fits and any(any(counts.values()) for counts in more) else []


class _End(NamedTuple):
    """An execution for so many units, which goes from its `stops` on with what is `given`, if anything is."""

    units: int
    stops: Sequence[Mapping[Stop, int]] = ({}, {})
    given: Sequence[Mapping[int, State]] = ({}, {})


@dataclass
class _Tail:
    """Executions that hold the same numbers behind their loops, what one of them `ran`, and what both programs hold
    there in all of them."""

    ends: list[_End]
    ran: Sequence[TurnFollower]
    held: Classes

    def takes(self, end: _End, ran: Sequence[TurnFollower]) -> bool:
        """Add an execution, if it is like that."""
        states, first = ([one.states[-1] for one in some] for some in (ran, self.ran))
        if [(one.control, state.shape) for one, state in zip(ran, states, strict=True)] != [
            (one.control, state.shape) for one, state in zip(self.ran, first, strict=True)
        ] or not self.held.hold_sums(states):
            return False
        self.ends.append(end)
        self.held = self.held.refined(states, first)
        return True


@dataclass(frozen=True)
class _Cuts:
    """Where the cuts of a program are, with the turns that stand `ahead` of its loops."""

    loops: Growing
    repeats: Regular
    ahead: Mapping[Entered, int] | None = None

    def stops(self, count: int) -> dict[Stop, int]:
        return self.loops.stops(self.repeats.period, self.repeats.first, count, self.ahead)


@dataclass(frozen=True)
class _Known:
    """By loop: what both programs hold at a cut, for its shape, and the classes of its bytes."""

    states: Sequence[Sequence[State]]
    classes: Sequence[Classes]

    def given(self, cuts: int, places: Sequence[int]) -> list[dict[int, State]]:
        """By program the classes as what is held at some of each loop's cuts."""
        found: list[dict[int, State]] = [{}, {}]
        for loop, (states, of_loop) in enumerate(zip(self.states, self.classes, strict=True)):
            for of_side, state in zip(found, of_loop.parted(states), strict=True):
                of_side.update({loop * cuts + place: state for place in places})
        return found
