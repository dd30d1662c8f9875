# SPDX-License-Identifier: Apache-2.0
"""Arrivals at barriers of some of a block's threads that may come a phase too early (PTX ISA 9.7.13.1: "Care must be
taken to keep a warp from executing more barrier instructions than intended ... prior to the reset of the barrier").

Who arrives in a phase has to come after the phase before: it has waited there, or synchronized with one that has.
Otherwise it may be counted in that phase, in the place of another. A phase for which one warp is enough is complete as
soon as it begins: nobody else can be counted in it.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from porter.sim.check.clocks import EXEC
from porter.sim.check.judge import Verdict
from porter.sim.check.reports import Reports
from porter.sim.check.shadow import Access

Array = npt.NDArray[Any]


class BarrierPhases:
    """The named barriers of one wave, by block and number."""

    def __init__(self, check: Reports) -> None:
        self.check = check
        # Complete phases, and the last one of several warps with an arrival of it.
        self._complete: dict[Any, int] = {}
        self._shared: dict[Any, tuple[int, Access]] = {}
        # The arrivals of the phase under way.
        self._arrived: dict[Any, list[Access]] = {}

    def joins(self, key: Any, at: int, warp: int) -> None:
        """A warp comes to a barrier."""
        check = self.check
        new = check.generic("barrier", at, warp, True, 1, 4)
        if key in self._shared:
            phase, old = self._shared[key]
            if not check.clocks.knows(warp, EXEC, [(self._component(key), phase)]):
                check.report(_EARLY, old, new, f"barrier {key[2]}", key[1])
        self._arrived.setdefault(key, []).append(new)

    def completes(self, key: Any, message: Array) -> Array:
        """The message with the news that a phase is complete."""
        clocks, component = self.check.clocks, self._component(key)
        self._complete[key] = self._complete.get(key, 0) + 1
        arrived = self._arrived.pop(key, [])
        if len(arrived) > 1:
            self._shared[key] = self._complete[key], arrived[-1]
        news = clocks.merge(clocks.blank(), message)
        news[:, component] = self._complete[key]
        return news

    def _component(self, key: Any) -> int:
        _, cta, number = key
        return self.check.clocks.component(("barrier", int(self.check.machine.cta_rank[cta]), number))


_EARLY = Verdict(
    "B2",
    "synchronization of this warp with those that have passed the barrier's phase before",
    "a barrier number of its own, or a wait ahead of the arrival",
)
