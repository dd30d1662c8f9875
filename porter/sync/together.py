# SPDX-License-Identifier: Apache-2.0
"""Two sizes together: whether what holds for all of each by itself holds for every pair of them.

A column is the executions for 1, 2, … turns of the second size at one number of turns of the first. Each of the first
prefix + 3P columns holds for all turns of the second size, by a lasso of its own; and at each number of these turns a
column is that of a period less with one block put in, wherever its loops are come to. So columns are to all pairs what
executions are to one size, and the conditions are the same ones, asked of the longest execution of each.

One condition is added. What moves evenly along each row and each column may still move by the product of both, as what
counts turns over all tiles does: where both are larger than any that was looked at it can be anything. So of that
low bits alone may be taken, and in a comparison it has to lead away from the other side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from porter.facts.code import Loop
from porter.facts.events import WarpName
from porter.facts.values import Value, of_lane
from porter.ptx.arch import WARP
from porter.ptx.bits import signed
from porter.sync.following import Following, Shape, that_must_repeat
from porter.sync.repeating import Seen
from porter.sync.sizes import End, Sizes
from porter.sync.turns import Lasso, Recorder, Trace, broken, ends, has_grown, largest, numbers

MOST_TURNS = 1 << 26
"""That a block makes in all: what is known of two sizes together assumes that there are no more."""

_SEEN = 2
"""Such periods that the longest execution shows, and more."""

Traces = Mapping[WarpName, Trace]
Corners = tuple[Recorder, Recorder, Recorder, Recorder]
"""Two columns that lie a period apart, at two numbers of turns of the second size that do: the longest execution of the
longer one, of the shorter one, and a period less of each."""


@dataclass(frozen=True)
class _Column:
    """`traces`: of each execution. `period`: with which the second size repeats. `shorter`: the execution that is a
    period of it less than the longest one."""

    traces: Sequence[Traces]
    period: int
    longest: Recorder
    shorter: Recorder


class Columns:
    """The columns so far. `lasso`: that of the first size, which grows by `unit` with each turn."""

    def __init__(self, lasso: Lasso, unit: int) -> None:
        self._lasso, self._unit = lasso, unit
        self._columns: list[_Column] = []
        self._entries: dict[tuple[object, ...], tuple[object, ...]] = {}

    @property
    def is_complete(self) -> bool:
        return len(self._columns) == self._lasso.needed

    @property
    def least(self) -> int:
        """Executions that the next column needs, to be compared with that of a period less."""
        before = len(self._columns) - self._lasso.period
        return len(self._columns[before].traces) if before >= 0 else 1

    def add(self, runs: Sequence[Recorder], period: int) -> str:
        """Add the next column, which repeats with a period of its own; gives why other pairs do not follow from the
        columns, if they do not."""
        traces = [{warp: list(map(self._entry, trace)) for warp, trace in run.traces.items()} for run in runs]
        column = _Column(traces, period, runs[-1], runs[-1 - period])
        self._columns.append(column)
        turns, back = len(self._columns), self._lasso.period
        if turns <= self._lasso.needed - 2 * back:
            column.longest.forget()
            column.shorter.forget()
        if turns - back >= self._lasso.start:
            before = self._columns[turns - back - 1]
            if len(before.traces) != len(traces):
                return "the second size repeats otherwise for other numbers of turns of the first"
            must_repeat = turns - back >= self._lasso.start + back
            if not all(_has_grown(one, other, must_repeat) for one, other in zip(before.traces, traces, strict=True)):
                return "the first size repeats otherwise for other numbers of turns of the second"
        return self._beyond() if self.is_complete else ""

    def _entry(self, entry: tuple[object, ...]) -> tuple[object, ...]:
        """One object for equal ones: there are many."""
        return self._entries.setdefault(entry, entry)

    def _beyond(self) -> str:
        back = self._lasso.period
        for short, long in zip(self._columns[-2 * back : -back], self._columns[-back:], strict=True):
            corners = long.longest, short.longest, long.shorter, short.shorter
            for why in _products(corners, back * long.period):
                return why
        return broken([column.longest for column in self._columns], back, self._unit)[0]


def _has_grown(shorter: Traces, longer: Traces, must_repeat: bool) -> bool:
    return all(has_grown(shorter.get(w, []), longer.get(w, []), must_repeat) for w in shorter.keys() | longer.keys())


def _products(corners: Corners, area: int) -> Iterator[str]:
    """What may change by the product of both sizes where both are large. `area`: turns in a period of both."""
    longest, code = corners[0], corners[0].flow.code.code
    for place in set().union(*(run.comparisons for run in corners)):
        warp, at = place
        kind = code[at].parts[-1]
        sides = [numbers(ends(run.comparisons.get(place, ())), kind) for run in corners]
        if not all(sides) or not all(_parts(pairs, kind, area) for pairs in zip(*sides, strict=True)):
            yield f"a comparison of {warp} follows the product of both sizes"
    for place in set().union(*(run.states for run in corners)):
        warp, head = place
        states = [ends(run.states.get(place, ())) for run in corners]
        if not all(states):
            yield f"a loop of {warp} is not come to each time"
            continue
        if not _takes_low_bits(longest, longest.flow.heads[head], _counters(zip(*states, strict=True))):
            yield f"an operand of {warp} follows the product of both sizes"


def _takes_low_bits(run: Recorder, loop: Loop, counters: Mapping[str, End | None]) -> bool:
    """Whether nothing synchronizes by what counts turns of both, in a loop and behind it, but by what repeats with it
    for all numbers."""
    if not counters:
        return True
    sizes = Sizes(run.flow, [run.given] * _SEEN, run.symbols, 1, 1, Seen())
    kinds = {name: sizes.moved(end.step if end is not None else 0) for name, end in counters.items()}
    following = Following(run.flow, loop.body, kinds)
    if any(True for at in loop.body for _ in that_must_repeat(run.flow, at, following)):
        return False
    most = max((end for end in counters.values() if end is not None), key=lambda end: end.last, default=None)
    even = {
        name: most if kind.shift == 0 else None for name, kind in following.kinds.items() if kind.shape is Shape.EVEN
    }
    return not any(True for _ in sizes.behind(loop, {**even, **counters}, {}, following.kinds.keys() - even))


def _parts(pairs: Sequence[tuple[int, int]], kind: str, area: int) -> bool:
    """Whether the sides of a comparison come no nearer to each other by the product of both sizes, and have room."""
    by_product = _by_product([left - right for left, right in pairs])
    most = largest(kind) * area
    has_room = all(abs(_by_product(side)) * MOST_TURNS <= most for side in zip(*pairs, strict=True))
    away = [left - right for left, right in pairs]
    return has_room and (not by_product or all(by_product * difference > 0 for difference in away))


def _counters(of_corners: Iterable[Sequence[Mapping[str, Value]]]) -> dict[str, End | None]:
    """Registers that count turns of both: how far they move by the product of a period of each, and the greatest number
    that was seen; None if lanes differ in that."""
    found: dict[str, End | None] = {}
    for states in of_corners:
        for name in set[str]().union(*states):
            values = [state.get(name) for state in states]
            lanes = range(WARP if any(isinstance(value, tuple) for value in values) else 1)
            known = [[of_lane(value, lane) for value in values] for lane in lanes]
            moved = {
                None if None in of else _by_product([signed(n or 0, 32) for n in of])
                for of in known
                if of.count(None) < len(of)
            }
            if moved <= {0}:
                continue
            step = moved.pop() if len(moved) == 1 else None
            found[name] = None if step is None else End(step, max(signed(of[0] or 0, 32) for of in known))
    return found


def _by_product(corners: Sequence[int]) -> int:
    """How far the longer of two columns moves more than the other one with a period of the second size."""
    one, other, third, fourth = corners
    return one - other - third + fourth
