# SPDX-License-Identifier: Apache-2.0
"""Waits on mbarriers that may be lapped: a thread can tell only the last complete phase from the one before (PTX ISA
9.7.13.15.16), so no phase may end before all who wait for the last one have seen its end. Who comes later takes the end
of the one for the other, and waits for good where no further phase ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from porter.ptx.arch import WARP
from porter.ptx.table import Completion
from porter.ptx.wgmma import THREADS
from porter.sim.check.clocks import PAST
from porter.sim.check.judge import Verdict
from porter.sim.check.reports import Reports
from porter.sim.check.rulings import Ruling
from porter.sim.effects import Place

Array = npt.NDArray[Any]
WARPGROUP = THREADS // WARP
"""Warps."""


@dataclass(frozen=True)
class _Seen:
    """A warp's last look at an mbarrier: how many phases were complete, and the event that it came so far."""

    phases: int
    event: tuple[int, int]
    at: int


class Laps:
    """Of one wave."""

    def __init__(self, check: Reports) -> None:
        self.check = check
        self.machine = check.machine
        self._seen: dict[Place, dict[int, _Seen]] = {}
        # The four warps of a wgmma meet at it, though no instruction says so to the others.
        self._wgmma = any(ins.form.completion is Completion.WGMMA_GROUP for ins in self.machine.program.code)

    def passed(self, place: Place, at: int, warp: int) -> None:
        """A warp's wait has succeeded."""
        phases = int(self.machine.mbar.phase[place])
        self._seen.setdefault(place, {})[warp] = _Seen(phases, self.check.clocks.now(warp), at)

    def completed(self, place: Place, arrivals: Array) -> None:
        """A phase ends, with what its arrivals tell."""
        known = arrivals[PAST]
        phases = int(self.machine.mbar.phase[place])
        last = {warp: seen for warp, seen in self._seen.get(place, {}).items() if seen.phases == phases - 1}
        for warp, seen in last.items():
            if not self._knows(known, warp, last):
                wait = self.check.generic("wait", seen.at, warp, False, 1, 8)
                where = f"mbarrier {self.machine.mbar.offsets[place[0]]:#x}"
                self.check.report(_LAPPED, None, wait, where, place[1])

    def forget(self, place: Place) -> None:
        """The mbarrier begins anew."""
        self._seen.pop(place, None)

    def _knows(self, known: Array, warp: int, last: dict[int, _Seen]) -> bool:
        in_group = warp % self.machine.warps_per_cta % WARPGROUP
        first, count = (warp - in_group, WARPGROUP) if self._wgmma else (warp, 1)
        events = [last[w].event for w in range(first, first + count) if w in last]
        return any(known[component] >= epoch for component, epoch in events)


_LAPPED = Verdict(
    "H33",
    "an order of this wait ahead of the end of the next phase",
    "an arrival of this warp in the next phase, or a barrier with a thread that arrives there",
    Ruling.LAPPED_WAIT,
)
