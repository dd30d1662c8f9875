# SPDX-License-Identifier: Apache-2.0
"""Waits on mbarriers that may be lapped: a thread can tell only the last complete phase from the one before (PTX ISA
9.7.13.15.16), so no phase may end before all who wait for the last one have seen its end. Who comes later takes the end
of the one for the other, and waits for good where no further phase ends. So who waits for a phase has to know
that the one before is over: else the phase ahead of that satisfies the wait as well, whichever it came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from porter.ptx.arch import WARP
from porter.ptx.barriers import MBARRIER_BYTES
from porter.ptx.table import Completion
from porter.ptx.wgmma import THREADS
from porter.sim.check.clocks import EXEC, PAST
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
        # What ends the phase that goes on and the last two complete ones: events of threads that arrive and of commits,
        # and None for any other operation.
        self._arrived: dict[Place, list[tuple[int, int] | None]] = {}
        self._ended: dict[Place, list[list[tuple[int, int] | None]]] = {}
        # The four warps of a wgmma meet at it, though no instruction says so to the others.
        self._wgmma = any(ins.form.completion is Completion.WGMMA_GROUP for ins in self.machine.program.code)

    def passed(self, place: Place, at: int, warp: int, component: int) -> None:
        """A warp's wait has succeeded. `component`: what counts the mbarrier's phases in the clocks, which do not have
        what the wait tells yet."""
        phases = int(self.machine.mbar.phase[place])
        if phases > 1 and self._by_parity(at) and not self._knows_one_before(place, warp, component, phases):
            wait = self.check.generic("wait", at, warp, False, 1, MBARRIER_BYTES)
            self.check.report(_AMBIGUOUS, None, wait, self._where(place), place[1])
        self._seen.setdefault(place, {})[warp] = _Seen(phases, self.check.clocks.now(warp), at)

    def arrives(self, place: Place, at: int, warp: int) -> None:
        """A thread arrives."""
        is_all = "expect_tx" not in self.machine.program.code[at].parts
        self._arrived.setdefault(place, []).append(self.check.clocks.now(warp) if is_all else None)

    def is_signalled(self, place: Place, over: tuple[int, int] | None = None) -> None:
        """An operation is part of the phase, of which `over` tells that it has ended, or arrivals are of which some
        count in the next one."""
        self._arrived.setdefault(place, []).append(over)

    def completed(self, place: Place, arrivals: Array) -> None:
        """A phase ends, with what its arrivals tell."""
        self._ended[place] = [*self._ended.get(place, [[None]])[-1:], self._arrived.pop(place, [None])]
        known = arrivals[PAST]
        phases = int(self.machine.mbar.phase[place])
        last = {warp: seen for warp, seen in self._seen.get(place, {}).items() if seen.phases == phases - 1}
        for warp, seen in last.items():
            if not self._knows(known, warp, last):
                wait = self.check.generic("wait", seen.at, warp, False, 1, MBARRIER_BYTES)
                self.check.report(_LAPPED, None, wait, self._where(place), place[1])

    def forget(self, place: Place) -> None:
        """The mbarrier begins anew."""
        for table in (self._seen, self._arrived, self._ended):
            table.pop(place, None)

    def _knows_one_before(self, place: Place, warp: int, component: int, phases: int) -> bool:
        """Whether the phase before the last complete one is known to be over: its end, or all that it waited for."""
        clocks, before = self.check.clocks, self._ended[place][0]
        return clocks.knows(warp, EXEC, ((component, phases - 1),)) or all(
            event is not None and clocks.knows(warp, EXEC, (event,)) for event in before
        )

    def _where(self, place: Place) -> str:
        return f"mbarrier {self.machine.mbar.offsets[place[0]]:#x}"

    def _by_parity(self, at: int) -> bool:
        return "parity" in self.machine.program.code[at].parts

    def _knows(self, known: Array, warp: int, last: dict[int, _Seen]) -> bool:
        in_group = warp % self.machine.warps_per_cta % WARPGROUP
        first, count = (warp - in_group, WARPGROUP) if self._wgmma else (warp, 1)
        events = [last[w].event for w in range(first, first + count) if w in last]
        return any(known[component] >= epoch for component, epoch in events)


_AMBIGUOUS = Verdict(
    "H33",
    "an order of the end of the phase before ahead of this wait, which is satisfied by the phase ahead of that as well",
    "a wait for each phase, or synchronization with a thread that has waited for the one before",
)
_LAPPED = Verdict(
    "H33",
    "an order of this wait ahead of the end of the next phase",
    "an arrival of this warp in the next phase, or a barrier with a thread that arrives there",
    Ruling.LAPPED_WAIT,
)
