# SPDX-License-Identifier: Apache-2.0
"""Two sizes together: whether what holds for all of each by itself holds for every pair of them.

A column is the executions for 1, 2, … turns of the second size at one number of turns of the first. Each of the first
prefix + 3P columns holds for all turns of the second size, by a lasso of its own; and at each number of these turns a
column is that of a period less with one block put in, wherever its loops are come to. So columns are to all pairs what
executions are to one size, and the conditions are the same ones, asked of the longest execution of each.

One condition is added. What moves with the first size at the second's first turn and with the second at the first's is
known to move on; what moves with their product is not: that may stay what it is in each column and in each row, and
change where both are larger than any that was looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from porter.facts.events import WarpName
from porter.facts.values import Value, of_lane
from porter.ptx.arch import WARP
from porter.ptx.bits import signed
from porter.sync.turns import Lasso, Recorder, Trace, broken, ends, has_grown, numbers

Traces = Mapping[WarpName, Trace]
Corners = tuple[Recorder, Recorder, Recorder, Recorder]
"""Two columns that lie a period apart, at two numbers of turns of the second size that do: the longest execution of the
longer one, of the shorter one, and a period less of each."""


class Columns:
    """The columns so far. `lasso`: that of the first size, which grows by `unit` with each turn."""

    def __init__(self, lasso: Lasso, unit: int) -> None:
        self._lasso, self._unit = lasso, unit
        self._traces: list[Sequence[Traces]] = []
        """By column, and there by turns; empty for those that no later one is compared with."""
        self._longest: list[tuple[Recorder, Recorder]] = []
        """The longest execution of each column, and that which is a period of the second size shorter."""
        self._entries: dict[tuple[object, ...], tuple[object, ...]] = {}

    @property
    def is_complete(self) -> bool:
        return len(self._longest) == self._lasso.needed

    @property
    def least(self) -> int:
        """Executions that the next column needs, to be compared with that of a period less."""
        before = len(self._traces) - self._lasso.period
        return len(self._traces[before]) if before >= 0 else 1

    def add(self, runs: Sequence[Recorder], period: int) -> str:
        """Add the next column, which repeats with a period of its own; gives why other pairs do not follow from the
        columns, if they do not."""
        turns, back = len(self._longest) + 1, self._lasso.period
        traces = [{warp: list(map(self._entry, trace)) for warp, trace in run.traces.items()} for run in runs]
        self._traces.append(traces)
        self._longest.append((runs[-1], runs[-1 - period]))
        if turns <= self._lasso.needed - 2 * back:
            for run in self._longest[-1]:
                run.forget()
        before = turns - back
        if before >= self._lasso.start:
            shorter = self._traces[before - 1]
            if len(shorter) != len(traces):
                return "the second size repeats otherwise for other numbers of turns of the first"
            must_repeat = before >= self._lasso.start + back
            if not all(_has_grown(one, other, must_repeat) for one, other in zip(shorter, traces, strict=True)):
                return "the first size repeats otherwise for other numbers of turns of the second"
            self._traces[before - 1] = []
        return self._beyond() if self.is_complete else ""

    def _entry(self, entry: tuple[object, ...]) -> tuple[object, ...]:
        """One object for equal ones: there are many."""
        return self._entries.setdefault(entry, entry)

    def _beyond(self) -> str:
        back = self._lasso.period
        for shorter, longer in zip(self._longest[-2 * back : -back], self._longest[-back:], strict=True):
            for why in _products((longer[0], shorter[0], longer[1], shorter[1])):
                return why
        return broken([longest for longest, _ in self._longest], back, self._unit)[0]


def _has_grown(shorter: Traces, longer: Traces, must_repeat: bool) -> bool:
    return all(has_grown(shorter.get(w, []), longer.get(w, []), must_repeat) for w in shorter.keys() | longer.keys())


def _products(corners: Corners) -> Iterator[str]:
    """What moves with the product of both sizes."""
    code = corners[0].flow.code.code
    for place in set().union(*(run.comparisons for run in corners)):
        warp, at = place
        sides = [numbers(ends(run.comparisons.get(place, ())), code[at].parts[-1]) for run in corners]
        if not all(sides) or any(map(_moves_with_both, *([left - right for left, right in pairs] for pairs in sides))):
            yield f"a comparison of {warp} follows the product of both sizes"
    for place in set().union(*(run.states for run in corners)):
        states = [ends(run.states.get(place, ())) for run in corners]
        if not all(states) or any(
            _is_product([state.get(name) for state in of_runs])
            for of_runs in zip(*states, strict=True)
            for name in set().union(*of_runs)
        ):
            yield f"a register of {place[0]} follows the product of both sizes"


def _moves_with_both(one: int, other: int, third: int, fourth: int) -> bool:
    return one - other != third - fourth


def _is_product(values: Sequence[Value]) -> bool:
    for lane in range(WARP if any(isinstance(value, tuple) for value in values) else 1):
        known = [signed(number, 32) for value in values if (number := of_lane(value, lane)) is not None]
        if known and (len(known) < len(values) or _moves_with_both(*known)):
            return True
    return False
