# SPDX-License-Identifier: Apache-2.0
"""Races between the lanes of one warp over global memory, by stamps as of shared memory (`lanes`), and what two lanes
store to one place with one instruction.

Strong accesses do not race with each other, so ordinary ones alone are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.sim.check.global_shadow import GlobalAccess, GlobalShadow, GlobalState
from porter.sim.check.judge import Verdict
from porter.sim.check.lanes import Lanes, Stamps, Touch, lane_of, same_interval
from porter.sim.check.rulings import Ruling

Array = npt.NDArray[Any]
Values = Callable[[], Array]
"""What threads store, [threads, bytes]."""
Found = Callable[[Verdict, GlobalAccess, GlobalAccess, GlobalShadow, int], None]
_WAITING = 1 << 18
"""Places of loads that are kept before it is first looked which are still of use."""


class _Memory:
    """Of one allocation. Loads get their stamps when somebody stores there, so that what is only read costs little."""

    def __init__(self, shadow: GlobalShadow, warps: int) -> None:
        self.granule = shadow.granule
        self.stamps = Stamps(shadow.writer.size, warps)
        self.loads: list[Touch] = []
        self.waiting = 0

    def fit(self, granule: int) -> None:
        if granule == self.granule:
            return
        self.settle()
        self.stamps.repeat(self.granule // granule)
        self.granule = granule

    def load(self, touch: Touch, interval: Array) -> None:
        self.loads.append(touch)
        self.waiting += touch.place.size
        if self.waiting > _WAITING:
            self.loads = [t for t in self.loads if (t.now == interval[t.warps]).any()]
            self.waiting = sum(t.place.size for t in self.loads)
            if self.waiting > _WAITING // 2:
                self.settle()

    def settle(self) -> None:
        for touch in self.loads:
            self.stamps.stamp(touch)
        self.loads, self.waiting = [], 0


class GlobalLanes:
    """Of one wave. `found` is told of both accesses and of the granule."""

    def __init__(self, lanes: Lanes, warps: int, found: Found) -> None:
        self._lanes = lanes
        self._warps = warps
        self._found = found
        self._memories: dict[int, _Memory] = {}

    def accessed(
        self, state: GlobalState, shadow: GlobalShadow, place: Array, numbers: Array,
        warps: Array, lanes: Array, values: Values | None,
    ) -> None:  # fmt: skip
        """Threads are about to access granules `place` [threads, granules], by access numbers, warps and lanes
        [threads]; `values` of a store."""
        memory = self._memories.get(shadow.allocation.start)
        if memory is None:
            memory = self._memories[shadow.allocation.start] = _Memory(shadow, self._warps)
        memory.fit(shadow.granule)
        touch = self._lanes.of_threads(warps, lanes, place, values is not None)
        if values is None:
            memory.load(touch, self._lanes.interval)
        else:
            memory.settle()
        seen: set[int] = set()
        for row, lane, granule, other, wrote in memory.stamps.races(touch):
            new = state.access(int(numbers[row]))
            if new.warp not in seen:
                seen.add(new.warp)
                old = self._earlier(state, shadow, granule, new, wrote)
                first = replace(old, lane=lane_of(other))
                self._found(_ORDER, first, replace(new, lane=lane), shadow, granule)
        if values is not None:
            memory.stamps.stamp(touch)
            for one, two, granule in self._differing(memory.stamps, touch, values, shadow.granule):
                new = state.access(int(numbers[two]))
                first, second = (replace(new, lane=int(lanes[i])) for i in (one, two))
                self._found(_ONE_PLACE, first, second, shadow, granule)

    @staticmethod
    def _earlier(
        state: GlobalState, shadow: GlobalShadow, granule: int, new: GlobalAccess, wrote: bool
    ) -> GlobalAccess:
        """The warp's own access that a stamp stands for; of several the last."""
        numbers = [int(shadow.writer[granule])] if wrote else state.members([int(shadow.others[granule])], False)
        mine = [a for a in map(state.access, numbers) if a.actor == new.actor and a.write == wrote]
        return mine[-1] if mine else replace(new, kind="write" if wrote else "load", write=wrote)

    @staticmethod
    def _differing(stamps: Stamps, touch: Touch, values: Values, granule: int) -> Iterator[tuple[int, int, int]]:
        """(thread, thread, granule) of a warp whose lanes have just stored different bytes to one place: for each warp
        one such pair."""
        place, column = touch.place[:, 0], touch.column[:, 0]
        kept = stamps.writers[place]
        lost = kept != column
        if not lost.any():
            return
        lost &= same_interval(kept, column)
        order = np.argsort(column[:, 0], kind="stable")
        stored = values().reshape(*place.shape, granule)
        seen: set[int] = set()
        rows, parts = np.nonzero(lost)
        winners = order[np.searchsorted(column[order, 0], kept[rows, parts])]
        at = place[rows, parts] - place[winners, 0]
        differ = (stored[rows, parts] != stored[winners, at]).any(axis=1)
        for row, winner, spot in zip(rows[differ], winners[differ], place[rows, parts][differ], strict=True):
            if int(touch.warps[row]) not in seen:
                seen.add(int(touch.warps[row]))
                yield int(winner), int(row), int(spot)


_ORDER = Verdict("G10", "synchronization between the lanes of the warp", "bar.warp.sync", Ruling.LOCKSTEP)
_ONE_PLACE = Verdict("G10", "one lane that stores, or a place for each", "elect.sync", Ruling.LOCKSTEP)
