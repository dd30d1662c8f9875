# SPDX-License-Identifier: Apache-2.0
"""From which turn on, and with which period, an execution comes to the same instructions for the same lanes, with
numbers that repeat or move evenly; and where its cuts are to be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from porter.equal.turning import Log, LoopOf, Stop, Stream, Turn
from porter.facts.code import is_test
from porter.facts.events import WarpName
from porter.facts.flow import Flow
from porter.facts.values import Value, of_lane
from porter.ptx.arch import WARP

Entered = tuple[WarpName, int, int, int]
"""A warp, the head of a loop, the lowest lane of those that go together, and the turns so far of the loops around it
when it is come to."""


class IrregularError(Exception):
    """Why turns cannot be cut, at an instruction."""

    def __init__(self, why: str, at: int | None = None) -> None:
        super().__init__(why)
        self.at = at


@dataclass(frozen=True)
class Growing:
    """The loops that make more turns for a larger size: by warp, head and round its turns, and `more`, how many of
    those come with `units` more of the size."""

    flow: Flow
    log: Log
    units: int
    turns: dict[Entered, list[Turn]]
    more: dict[Entered, int]

    @property
    def takes_data(self) -> set[int]:
        """The instructions that take numbers for data. A wait does not: which phase of which mbarrier it is for decides
        about order alone, which is proved by itself."""
        return {at for at in self.log.on_data if not is_test(self.flow.code.code[at])}

    def of_period(self, period: int) -> dict[Entered, int] | None:
        """Turns that come with so many units of the size; None if that is no whole number."""
        found = {key: divmod(more * period, self.units) for key, more in self.more.items()}
        return None if any(rest for _, rest in found.values()) else {key: turns for key, (turns, _) in found.items()}

    def ahead(self, period: int, units: int) -> tuple[dict[Entered, int], bool] | None:
        """The turns that stand ahead of each loop, where it makes fewer in an execution of so many units than a period
        of them for each, and whether nobody can tell that of some loop; those of others are all of them then."""
        turns = self.of_period(period)
        if turns is None:
            return None
        lack = {key: divmod(count * units, period) for key, count in turns.items()}
        ahead = {key: 0 if rest else count - len(self.turns[key]) for key, (count, rest) in lack.items()}
        return ahead, any(rest for _, rest in lack.values())

    def stops(
        self, period: int, first: int, cuts: int, ahead: Mapping[Entered, int] | None = None
    ) -> dict[Stop, int]:  # fmt: skip
        """So many cuts, a period apart, the first one after `first` units, in each loop that a warp comes to, one after
        another. Turns that stand `ahead` of one count.

        Raises:
            IrregularError: warps come to more or fewer of them.
        """
        turns, ahead_of_cut = self.of_period(period), self.of_period(first)
        assert turns is not None
        assert ahead_of_cut is not None
        by_warp: dict[tuple[WarpName, int], list[Entered]] = defaultdict(list)
        for key, of_loop in sorted(self.turns.items(), key=lambda item: sum(item[1][0].begins.values())):
            by_warp[key[0], key[2]].append(key)
            if len({turn.lanes for turn in of_loop}) > 1:
                raise IrregularError("lanes of a warp that go together in some turns alone", key[1])
        if len({len(keys) for keys in by_warp.values()}) > 1:
            raise IrregularError("warps that come to loops more often than others do")
        return {
            (*key, ahead_of_cut[key] + turns[key] * cut - (ahead[key] if ahead is not None else 0)): number * cuts + cut
            for keys in by_warp.values() for number, key in enumerate(keys) for cut in range(cuts)
        }  # fmt: skip


def growing(flow: Flow, shorter: Log, longer: Log, units: int) -> Growing:
    """The loops that make more turns in an execution whose size is so many units larger.

    Raises:
        IrregularError: there are none, or they are come to more often as well.
    """
    turns: dict[Entered, list[Turn]] = {}
    more: dict[Entered, int] = {}
    others: list[LoopOf] = []
    for key, of_loop in longer.turns.items():
        now, before = _rounds(of_loop), _rounds(shorter.turns.get(key, []))
        if now.keys() != before.keys():
            others.append(key)
            continue
        for around, of_round in now.items():
            if (count := len(of_round) - len(before[around])) > 0:
                turns[(*key, around)], more[(*key, around)] = of_round, count
            elif count:
                raise IrregularError("a loop that makes fewer turns for a larger size", key[1])
    heads = {(warp, head) for warp, head, *_ in turns}
    for warp, head, _ in others:
        if not any(w == warp and head in flow.inside[outer] for w, outer in heads):
            raise IrregularError("a loop that is come to more often for a larger size", head)
    for warp, head in heads:
        if any(w == warp and head in flow.inside[outer] for w, outer in heads):
            raise IrregularError("loops in each other that both make more turns", head)
    if not turns:
        raise IrregularError("no loop makes more turns for a larger size")
    return Growing(flow, longer, units, turns, more)


def _rounds(turns: Sequence[Turn]) -> dict[int, list[Turn]]:
    found: dict[int, list[Turn]] = defaultdict(list)
    for turn in turns:
        found[turn.around].append(turn)
    return found


# Periods ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regular:
    """What repeats with a period of the size: from `first` units on, up to `rest` units ahead of the end."""

    period: int
    first: int
    rest: int


def regular(found: Growing, period: int, units: int, least: int) -> Regular | None:
    """Whether all loops do the same in each period of an execution of so many units, over `least` units or more."""
    turns = found.of_period(period)
    if turns is None:
        return None
    first, rest = 1, 0
    for key, of_loop in found.turns.items():
        stretch = _longest(_bodies(found, key, of_loop), turns[key])
        if stretch is None:
            return None
        start, end = stretch
        first = max(first, -(-(start + 1) * period // turns[key]))
        rest = max(rest, -(-(len(of_loop) - end) * period // turns[key]))
    return Regular(period, first, rest) if units - rest - first >= least else None


def moved(found: Growing, key: Entered, window: Sequence[Turn], period: int) -> set[tuple[int, str]]:
    """Instructions with data, and registers of theirs whose numbers do not repeat in some turns."""
    streams, takes = found.log.streams[key[0]], found.takes_data
    bodies = [_body(streams, one, other, takes) for one, other in pairwise(window)]
    moving: set[tuple[int, str]] = set()
    for one, other in zip(bodies, bodies[period:], strict=False):
        for (at, before), (_, now) in zip(one[1], other[1], strict=True):
            if before != now:
                names = sorted(found.flow.uses[at])
                moving |= {(at, name) for name, a, b in zip(names, before, now, strict=True) if a != b}
    return moving


Body = tuple[object, list[tuple[int, tuple[Value, ...]]]]
"""What a turn comes to, and the numbers of it that have to do with data."""


def _bodies(found: Growing, key: Entered, turns: Sequence[Turn]) -> list[Body]:
    streams, takes = found.log.streams[key[0]], found.takes_data
    return [_body(streams, one, other, takes) for one, other in pairwise(turns)]


def _body(streams: dict[int, Stream], begins: Turn, ends: Turn, takes_data: set[int]) -> Body:
    """What the lanes of a turn come to, together and apart."""
    shape: list[object] = []
    numbers: list[tuple[int, tuple[Value, ...]]] = []
    for lane, stop in sorted(ends.begins.items()):
        if not ends.lanes >> lane & 1:
            continue
        part = streams[lane][begins.begins.get(lane, 0) : stop]
        shape.append((lane, tuple(entry for entry, _ in part)))
        numbers += [(entry[0], values) for entry, values in part if entry[0] in takes_data]
    return tuple(shape), numbers


def _longest(bodies: Sequence[Body], period: int) -> tuple[int, int] | None:
    """The turns, around the middle of all, in which bodies repeat and numbers move evenly with a period."""
    good = [one[0] == other[0] for one, other in zip(bodies, bodies[period:], strict=False)]
    moved = [_moved(one, other) if is_good else None
             for is_good, one, other in zip(good, bodies, bodies[period:], strict=False)]  # fmt: skip
    even = [one is not None and one == other for one, other in zip(moved, moved[period:], strict=False)]
    if not even or not even[len(even) // 2]:
        return None
    start = end = len(even) // 2
    while start and even[start - 1]:
        start -= 1
    while end < len(even) and even[end]:
        end += 1
    return start, end + 2 * period


def _moved(one: Body, other: Body) -> list[object]:
    return [
        _difference(a, b)
        for (_, before), (_, now) in zip(one[1], other[1], strict=True) for a, b in zip(before, now, strict=True)
    ]  # fmt: skip


def _difference(one: Value, other: Value) -> object:
    """How far a number lies from its counterpart, or the numbers of its lanes; data lie nowhere."""
    if one == other:
        return 0
    if isinstance(one, int) and isinstance(other, int):
        return other - one
    pairs = [(of_lane(one, lane), of_lane(other, lane)) for lane in range(WARP)]
    moved = [None if a is None or b is None else b - a for a, b in pairs]
    if any((a is None) is not (b is None) for a, b in pairs):
        # a number once and data once is no line
        return object()
    return moved[0] if moved.count(moved[0]) == WARP else tuple(moved)


def periods_of(units: int) -> list[int]:
    """The divisors of a period, the shortest first."""
    return [n for n in range(1, units + 1) if units % n == 0]


def are_alike(one: Log, other: Log) -> bool:
    """Whether two executions come to the same, with numbers of data operations that are always the same ones away from
    each other at an instruction."""
    if one.streams.keys() != other.streams.keys():
        return False
    for warp, streams in one.streams.items():
        others = other.streams[warp]
        if {k: len(v) for k, v in streams.items()} != {k: len(v) for k, v in others.items()}:
            return False
        for lane, stream in streams.items():
            away: dict[object, object] = {}
            for (entry, values), (entry_of_other, values_of_other) in zip(stream, others[lane], strict=True):
                if entry != entry_of_other:
                    return False
                if entry[0] not in one.on_data or not values:
                    continue
                found = [_difference(a, b) for a, b in zip(values, values_of_other, strict=True)]
                if away.setdefault(entry[0], found) != found:
                    return False
    return True
