# SPDX-License-Identifier: Apache-2.0
"""Barriers that a warp comes to in parts: with `.aligned`, which `bar` implies, all its threads have to execute one and
the same instruction (PTX ISA 9.7.13.1, 9.7.13.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.barriers import is_aligned
from porter.sim.check.checker import Checker
from porter.sim.check.judge import Verdict
from porter.sim.check.rulings import Ruling
from porter.sim.observer import Observer
from porter.sim.progress import GONE

Array = npt.NDArray[Any]


class BarrierParts(Observer):
    def __init__(self, check: Checker) -> None:
        self.check = check
        # Of warps of which some threads have come to a barrier: by which instruction, and which threads.
        self._come: dict[Any, dict[int, list[tuple[int, Array]]]] = {}

    def joins_in_parts(self, key: Any, at: int, warps: Array, lanes: Array) -> None:
        here = self._come.get(key, {})
        for warp, mine in zip(warps.tolist(), lanes, strict=True):
            if not mine.any() or (warp not in here and not (self._live(warp) & ~mine).any()):
                continue
            parts = self._come.setdefault(key, {}).setdefault(warp, [])
            others = [other for other, _ in parts if other != at]
            parts.append((at, mine.copy()))
            if others and (self._aligned(at) or self._aligned(others[0])):
                self._report(_ONE, others[0], at, warp)

    def completes(self, key: Any) -> None:
        for warp, parts in self._come.pop(key, {}).items():
            come = np.logical_or.reduce([lanes for _, lanes in parts])
            if (self._live(warp) & ~come).any():
                self._report(_ALL, None, parts[-1][0], warp)

    def _aligned(self, at: int) -> bool:
        return is_aligned(self.check.machine.program.code[at])

    def _live(self, warp: int) -> Array:
        M = self.check.machine
        live: Array = M.exists[warp] & (M.lane_state[warp] != GONE)
        return live

    def _report(self, verdict: Verdict, first: int | None, second: int, warp: int) -> None:
        check = self.check
        old = None if first is None else check.generic("barrier", first, warp, True, 1, 4)
        new = check.generic("barrier", second, warp, True, 1, 4)
        check.report(verdict, old, new, "", int(check.machine.warp_cta[warp]))


_ONE = Verdict("B1", "one barrier instruction for all threads of the warp", "the barrier behind the branch, once",
               Ruling.ALIGNED_BARRIER)  # fmt: skip
_ALL = Verdict("B1", "the arrival of the warp's other threads", "the barrier by all threads of the warp")
