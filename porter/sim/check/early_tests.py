# SPDX-License-Identifier: Apache-2.0
"""Tests of mbarriers that come too early: a wait whose result code need not heed returns false for a while."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.sim.check.checker import Checker
from porter.sim.check.clocks import EXEC
from porter.sim.effects import Place
from porter.sim.observer import Named, Observer

Array = npt.NDArray[Any]

_TRIES, _RUNS = 256, 8
"""How often one wait fails in each warp, and in how many runs of failures: code that tries more often has waited."""


class EarlyTests(Observer):
    """Of one wave."""

    def __init__(self, check: Checker) -> None:
        self.check = check
        self.machine = check.machine
        # By warp and instruction; the instructions that fail on and on, by warp.
        self._tries: dict[tuple[int, int], int] = {}
        self._runs: dict[tuple[int, int], int] = {}
        self._failing: dict[int, set[int]] = {}

    def tests(self, at: int, named: Named, complete: Array) -> Array | None:
        fails = np.zeros(complete.shape, bool)
        for place, threads in named.by_place().items():
            for warp, lanes in threads:
                row = int(np.argmax(named.warps == warp))
                early = lanes & ~(complete[row] & self._knows(warp, place))
                if early.any() and self._try(warp, at):
                    fails[row] |= early
        if not fails.any():
            return None
        self.check.mbarriers.used(at, named.among(fails))
        return fails

    def _knows(self, warp: int, place: Place) -> bool:
        """Whether the last complete phase came before, in whatever way: then it cannot have been tested earlier."""
        phase = int(self.machine.mbar.phase[place])
        if phase == 0:
            return True
        component = self.check.mbarriers.component(*place)
        return self.check.clocks.knows(warp, EXEC, ((component, phase),))

    def _try(self, warp: int, at: int) -> bool:
        key, failing = (warp, at), self._failing.setdefault(warp, set())
        if at not in failing:
            self._runs[key] = self._runs.get(key, 0) + 1
            failing.add(at)
        self._tries[key] = self._tries.get(key, 0) + 1
        return self._tries[key] <= _TRIES and self._runs[key] <= _RUNS

    def passed(self, at: int, named: Named) -> None:
        if self._failing:
            for warp, _, _ in named.by_warp():
                self._failing.pop(warp, None)
