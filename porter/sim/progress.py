# SPDX-License-Identifier: Apache-2.0
"""Where the threads of the warps are: which block of code each is at, which wait for what, which have ended.

A warp is converged while all of its 32 threads run at one block; only of others the lanes are kept one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.sim.geometry import Geometry
from porter.sim.observer import Observer
from porter.sim.program import EXIT
from porter.sim.results import Launch

Array = npt.NDArray[Any]

RUN, PARKED, GONE = 0, 1, 2
NONE = 1 << 23
IDLE = 1 << 62
"""The key of a warp none of whose threads can run."""


class Progress(Geometry):
    """`alive` counts the threads of each block that have not ended."""

    observer: Observer | None = None

    def __init__(self, launch: Launch, ctas: range) -> None:
        super().__init__(launch, ctas)
        W, exists = self.W, self.exists
        self.alive = np.full(self.n_cta, self.threads, np.int64)
        self.lane_pc = np.zeros((W, 32), np.int64)
        self.lane_state = np.where(exists, RUN, GONE).astype(np.int8)
        self.converged: Array = np.asarray(exists.all(axis=1))
        self.warp_next = np.zeros(W, np.int64)
        self.epoch = np.zeros(W, np.int64)
        self.key = np.zeros(W, np.int64)
        self.steps_run = np.zeros(W, np.int64)
        self.streak = np.zeros(W, np.int64)
        self.lane_stamp = np.zeros((W, 32), np.int64)
        self.current_epoch = 0
        self.activity = 0
        self._woken: dict[int, Array] = {}
        self._waking_later = False
        self.parked: dict[Any, list[tuple[int, Array]]] = {}
        self.timed_out = np.zeros((W, 32), bool)

    def _settle(self, warps: Array) -> None:
        """Recompute `warp_next`, `converged` and `key` of warps from their lanes."""
        pc, state = self.lane_pc[warps], self.lane_state[warps]
        running = np.where(state == RUN, pc, NONE)
        low = running.min(axis=1)
        self.warp_next[warps] = low
        self.converged[warps] = (running == low[:, None]).all(axis=1) & (low != NONE)
        self.key[warps] = np.where(low == NONE, IDLE, low + self.epoch[warps])

    def _spread(self, warps: Array) -> None:
        """Write out per-lane state of warps that were converged."""
        c = warps[self.converged[warps]]
        if c.size:
            self.lane_pc[c] = self.warp_next[c][:, None]
            self.lane_state[c] = RUN
            self.converged[c] = False

    def goto(self, idx: Any, n: int, mask: Any, target: Any) -> None:
        """Move threads to a block: an int, or an array broadcasting to [n, 32]."""
        warps = self.warps(idx)
        if mask is None and isinstance(target, int) and target != EXIT:
            self.warp_next[idx] = target
            self.key[idx] = self.epoch[idx] + target
            return
        self._spread(warps)
        active = np.broadcast_to(True if mask is None else mask, (n, 32))
        pc = np.where(active, target, self.lane_pc[warps])
        self.lane_pc[warps] = pc
        gone = active & (pc == EXIT)
        if gone.any():
            self._exit(warps, gone)
        self._settle(warps)

    def _exit(self, warps: Array, gone: Array) -> None:
        """Threads end."""
        state = self.lane_state[warps]
        state[gone] = GONE
        self.lane_state[warps] = state
        self.activity += 1
        counts = gone.sum(axis=1)
        np.subtract.at(self.alive, self.warp_cta[warps], counts)

    def branch(self, idx: Any, n: int, mask: Any, predicate: Any, yes: int, no: int) -> None:
        """Threads go to `yes` where the predicate holds, to `no` elsewhere."""
        p = np.asarray(predicate)
        if p.ndim == 0:
            self.goto(idx, n, mask, yes if p else no)
            return
        if mask is None and EXIT not in (yes, no):
            if p.shape[0] != n:
                p = np.broadcast_to(p, (n, p.shape[-1]))
            every, some = p.all(axis=1), p.any(axis=1)
            if every.all():
                self.goto(idx, n, None, yes)
                return
            if not some.any():
                self.goto(idx, n, None, no)
                return
            split = some & ~every
            warps = self.warps(idx)
            if not split.any():
                target = np.where(every, yes, no)
                self.warp_next[warps] = target
                self.key[warps] = self.epoch[warps] + target
                return
        self.goto(idx, n, mask, np.where(p, yes, no))

    def park(self, idx: Any, n: int, lanes: Array, keys: Any) -> None:
        """Stop threads where they are until `wake(key)`. `keys`: one for all, or a list with one per row."""
        warps = self.warps(idx)
        self._spread(warps)
        state = self.lane_state[warps]
        state[lanes] = PARKED
        self.lane_state[warps] = state
        for row in np.flatnonzero(lanes.any(axis=1)).tolist():
            key = keys[row] if isinstance(keys, list) else keys
            self.parked.setdefault(key, []).append((int(warps[row]), lanes[row].copy()))
        self._settle(warps)
        if self.observer is not None:
            self.observer.parked(warps, lanes, keys)

    def wake(self, *keys: Any) -> bool:
        """Let the threads parked under some keys run again."""
        if self.observer is not None:
            self.observer.woken(keys)
        woken = self._woken
        for key in keys:
            for w, lanes in self.parked.pop(key, ()):
                woken[w] = woken[w] | lanes if w in woken else lanes
        if self._waking_later:
            return bool(woken)
        return self._run_woken()

    @contextmanager
    def waking_together(self) -> Iterator[None]:
        """Threads that are woken meanwhile begin to run at the end, all at once."""
        self._waking_later = True
        try:
            yield
        finally:
            self._waking_later = False
            self._run_woken()

    def _run_woken(self) -> bool:
        woken, self._woken = self._woken, {}
        if not woken:
            return False
        warps = np.fromiter(woken, np.int64, len(woken))
        lanes = np.stack(list(woken.values()))
        state = self.lane_state[warps]
        state[lanes & (state == PARKED)] = RUN
        self.lane_state[warps] = state
        self.epoch[warps] = np.maximum(self.epoch[warps], self.current_epoch)
        self._settle(warps)
        return True

    def _take_turns(self, idx: Any) -> None:
        """A warp whose paths stay apart for long lets the path that has waited longest run."""
        warps = self.warps(idx)
        for w in warps[(self.streak[warps] >= 256) & ~self.converged[warps]].tolist():
            self.streak[w] = 0
            running = self.lane_state[w] == RUN
            if not running.any():
                continue
            oldest = np.where(running, self.lane_stamp[w], NONE)
            lane = int(np.argmin(oldest))
            number = int(self.lane_pc[w, lane])
            self.warp_next[w] = number
            self.key[w] = self.epoch[w] + number
        self.streak[warps[self.converged[warps]]] = 0
