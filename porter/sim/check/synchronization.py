# SPDX-License-Identifier: Apache-2.0
"""Fences, and barriers of warps, blocks and clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.memory_order import (
    Scope,
    fence_scope,
    fence_sides,
    fenced_spaces,
    fences_for_itself,
    fences_own_block,
    fences_shared_alone,
    scope_of,
)
from porter.ptx.table import Decoded
from porter.sim.check.barrier_phases import BarrierPhases
from porter.sim.check.checker import Checker
from porter.sim.check.restricted_fences import RestrictedFences
from porter.sim.codegen import Context
from porter.sim.machine import Machine
from porter.sim.observer import Observer
from porter.sim.progress import GONE
from porter.sim.threads import active_warps, lane_mask

Array = npt.NDArray[Any]


class Synchronization(Observer):
    def __init__(self, check: Checker) -> None:
        self.check = check
        self.machine = check.machine
        # By barrier: what those who have arrived tell, and the warps that wait.
        self._messages: dict[Any, Array] = {}
        self._waiting: dict[Any, set[int]] = {}
        # What the latest phase of a cluster barrier has told.
        self._cluster_phases: dict[int, Array] = {}
        # By cluster and block: what threads that have ended tell at barriers of all threads; barriers of some threads.
        self._gone: dict[Any, Array] = {}
        self._counted: set[Any] = set()
        self._phases = BarrierPhases(check)
        self._restricted = RestrictedFences(check)

    # Fences, which do nothing in a functional run ------------------------------------------------------

    def code(self, cg: Context, ins: Decoded) -> None:
        p = ins.parts
        what: str | None = None
        of: Any = None
        if p[0] == "fence" and p[1] == "proxy" and p[2].startswith("tensormap"):
            address = cg.addr(ins.operands[0], "u64") if "acquire" in p else "None"
            cg.line(cg.call("M.observer.fences_map", address))
        elif p[0] == "fence" and p[1] == "proxy":
            if p[2].startswith("async"):
                what, of = "proxy", (*fenced_spaces(ins), fences_for_itself(ins), fences_own_block(ins))
        elif p[0] == "fence" and p[1] == "mbarrier_init":
            what = "mbarrier_init"
        elif p[0] == "fence" and fences_shared_alone(ins):
            what, of = "shared", fence_sides(ins)[1]
        elif (scope := fence_scope(ins)) is not None:
            what, of = "memory", (int(scope), *fence_sides(ins))
        elif p[0] in ("bar", "barrier") and p[1] == "warp":
            what = "warp"
        elif p[0] == "tcgen05":
            what = {"fence::before_thread_sync": "before", "fence::after_thread_sync": "after"}.get(p[1])
        if what is not None:
            cg.line(cg.call("M.observer.fences", repr(what), repr(of)))

    def fences(self, M: Machine, at: int, idx: Any, n: int, mask: Any, what: str, of: Any = None) -> None:
        """Called by generated code. `of`: the state spaces of a proxy fence, whether it is for its own thread alone,
        and for its own block's memory alone; the scope of a memory fence, whether it acquires, whether it releases; of
        one of shared memory alone whether it releases."""
        check = self.check
        for row, warp in active_warps(M, idx, n, mask):
            if what == "proxy":
                check.clocks.proxy_fence(warp, *of)
            elif what == "before":
                check.clocks.before_thread_sync(warp)
            elif what == "after":
                if check.clocks.after_thread_sync(warp):
                    check.waits.add(at)
            elif what == "memory":
                check.lanes.sync(warp)
                scope, *sides = of
                check.global_memory.users.fence(warp, Scope(scope), *sides)
                check.clocks.fence(warp, scope > Scope.CTA, *sides)
            elif what == "shared":
                check.lanes.sync(warp)
                self._restricted.fence(warp, of)
            elif what == "warp":
                lanes = lane_mask(n, mask)[row]
                left = M.exists[warp] & (M.lane_state[warp] != GONE) & ~lanes
                check.lanes.sync(warp, lanes if left.any() else None)
            elif what == "mbarrier_init":
                check.global_memory.users.add_fenced(warp, check.mbarriers.fence_inits(warp))

    def fences_map(self, M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any) -> None:
        """Called by generated code: the acquire of the map at an address, or the release (no address)."""
        found = self.check.global_memory
        lanes = lane_mask(n, mask)
        for row, warp in active_warps(M, idx, n, mask):
            if addr is None:
                found.release_tensor_maps(warp)
                continue
            for address in np.unique(np.broadcast_to(addr, (n, 32))[row][lanes[row]]).tolist():
                found.fence_tensor_map(warp, address)

    def published(self, at: int, warp: int) -> None:
        found = self.check.global_memory
        found.users.fence(warp, scope_of(self.machine.program.code[at].parts, Scope.GPU))
        found.release_tensor_maps(warp)

    # Barriers -----------------------------------------------------------------------------------------

    def joins(self, key: Any, at: int, warps: Array, waits: bool) -> None:
        clocks, ins = self.check.clocks, self.machine.program.code[at]
        relaxed, counted = "relaxed" in ins.parts, "b" in ins
        for warp in warps.tolist():
            if key[0] == "bar":
                self._phases.joins(key, at, warp)
            message = clocks.release_relaxed(warp, self.machine.clustered) if relaxed else clocks.release(warp)
            self._messages[key] = clocks.merge(self._messages.get(key), message)
            if counted:
                self._counted.add(key)
            if waits:
                self._waiting.setdefault(key, set()).add(warp)
                self.check.lanes.sync(warp)

    def exited(self, warps: Array) -> None:
        """A warp that has ended no longer holds up a barrier of all threads; who passes it knows what the warp did
        (ruling `cluster-exit`)."""
        M = self.machine
        for warp in warps[(M.lane_state[warps] == GONE).all(axis=1)].tolist():
            cta = int(M.warp_cta[warp])
            message = self.check.clocks.release(warp)
            for key in (("cluster", cta // M.cluster_size), ("bar", cta)):
                self._gone[key] = self.check.clocks.merge(self._gone.get(key), message.copy())

    def completes(self, key: Any) -> None:
        message = self._messages.pop(key, None)
        gone = self._gone.get(key if key[0] == "cluster" else key[:2] if key not in self._counted else None)
        self._counted.discard(key)
        if message is not None and gone is not None:
            message = self.check.clocks.merge(message, gone)
        if message is None:
            return
        if key[0] == "bar":
            message = self._phases.completes(key, message)
        if key[0] == "cluster":
            message = self._cluster_phases[key[1]] = self.check.clocks.merge(self._cluster_phases.get(key[1]), message)
        for warp in self._waiting.pop(key, ()):
            self.check.clocks.receive(warp, message)

    def cluster_waits(self, warps: Array, waiting: Array) -> None:
        for warp, waits in zip(warps.tolist(), waiting, strict=True):
            cluster = int(self.machine.warp_cta[warp]) // self.machine.cluster_size
            if waits.any():
                self._waiting.setdefault(("cluster", cluster), set()).add(warp)
            elif cluster in self._cluster_phases:
                self.check.clocks.receive(warp, self._cluster_phases[cluster])
            self.check.lanes.sync(warp)
