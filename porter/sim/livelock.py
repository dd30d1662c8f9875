# SPDX-License-Identifier: Apache-2.0
"""Finds threads that poll memory for ever: the same state again, with nothing left that could change it."""

from __future__ import annotations

import numpy as np

from porter.diagnostics import Code
from porter.sim.column_waits import column_deadlock
from porter.sim.machine import Machine
from porter.sim.progress import NONE
from porter.sim.results import Stop

_QUIET_CHECKS = 8
_WINDOW = 256


class LivelockWatch:
    """Called now and then (`check`) and, while it suspects a livelock, after every step (`step`).

    No store, arrival or landing for a long time makes it suspicious. It then takes the state of all runnable
    threads, and if that comes back after every one of them has run, they will go round for ever.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.window = 0
        self._quiet = 0
        self._seen = (-1, -1)
        self._reference = 0
        self._ran = np.zeros(0, np.int64)

    def check(self) -> None:
        M = self.machine
        now = M.activity, M.stores
        self._quiet = self._quiet + 1 if now == self._seen and not M.engine.pending else 0
        self._seen = now
        # Those who poll may be the ones who hold the Tensor Memory that somebody waits for.
        if self._quiet >= (1 if M.tmem.requests else _QUIET_CHECKS):
            self._quiet = 0
            self.window = _WINDOW
            self._reference = self._state()
            self._ran = M.steps_run.copy()

    def step(self) -> None:
        M = self.machine
        self.window -= 1
        if (M.activity, M.stores) != self._seen:
            self.window = 0
            return
        runnable = np.flatnonzero(M.warp_next < NONE)
        if (M.steps_run[runnable] > self._ran[runnable]).all() and self._state() == self._reference:
            if (waiting := column_deadlock(M)) is not None:
                raise waiting
            w = int(runnable[0])
            block = M.program.blocks[int(M.warp_next[w])]
            more = f" and {runnable.size - 1} more" if runnable.size > 1 else ""
            raise Stop(
                Code.SIM_DEADLOCK,
                f"warp {int(M.warp_rank[w])}{more} poll memory that nothing will change any more",
                block.start,
                w,
            )

    def _state(self) -> int:
        M = self.machine
        runnable = M.warp_next < NONE
        parts = [M.warp_next.tobytes(), M.lane_pc[runnable].tobytes(), M.lane_state[runnable].tobytes()]
        parts += [bank[:, runnable].tobytes() for bank in M.banks.values()]
        return hash(tuple(parts))
