# SPDX-License-Identifier: Apache-2.0
"""mbarrier objects: phases, arrival counts and transaction counts (PTX ISA 9.7.13.15).

State per object: `count` (arrivals a phase needs), `pending` (arrivals still to come), `tx` (bytes still to
come; may be negative for a moment), `phase` (completed phases). Kept beside shared memory, by byte offset, as
arrays over the blocks, so that blocks in step are served by one operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT, SYSTEM_SHARED
from porter.ptx.symbols import local_name
from porter.sim.results import Stop
from porter.sim.wave import Wave

Array = npt.NDArray[Any]
MAX_COUNT = (1 << 20) - 1


class Mbarriers:
    def __init__(self, machine: Wave) -> None:
        self.machine = machine
        self.slot_of = np.full(machine.smem_stride // 8 + 1, -1, np.int64)
        self.offsets: list[int] = []
        shape = (0, machine.n_cta)
        self.valid = np.zeros(shape, bool)
        self.count = np.zeros(shape, np.int64)
        self.pending = np.zeros(shape, np.int64)
        self.tx = np.zeros(shape, np.int64)
        self.phase = np.zeros(shape, np.int64)

    def _new_slot(self, offset: int) -> int:
        slot = len(self.offsets)
        self.offsets.append(offset)
        self.slot_of[offset >> 3] = slot
        for name in ("valid", "count", "pending", "tx", "phase"):
            old = getattr(self, name)
            setattr(self, name, np.vstack([old, np.zeros((1, self.machine.n_cta), old.dtype)]))
        return slot

    def locate(self, at: int, idx: Any, n: int, lanes: Array, addr: Any) -> tuple[Array, Array]:
        """(slots, blocks) of the active lanes, flat. Raises Stop where there is no valid mbarrier.

        `lanes` is [n, 32], or [n, 1] if `addr` is and one lane stands for all of its warp.
        """
        M = self.machine
        a = np.broadcast_to(np.asarray(addr), lanes.shape)
        flat = a[lanes]
        cta = np.broadcast_to(M.warp_cta[M.warps(idx)][:, None], lanes.shape)[lanes]
        offset = (flat & np.uint32(OFFSET_MASK)).astype(np.int64)
        if M.clustered:
            rank = (flat >> np.uint32(RANK_SHIFT)).astype(np.int64)
            if (rank >= M.cluster_size).any():
                self._bad(at, idx, n, lanes, int(flat[np.argmax(rank >= M.cluster_size)]), "no block of the cluster")
            cta = M.cta_first[cta] + rank
        bad = (offset & 7 != 0) | (offset + 8 > M.smem_size) | (flat >> np.uint32(RANK_SHIFT) >= M.cluster_size)
        if bad.any():
            self._bad(at, idx, n, lanes, int(flat[np.argmax(bad)]), "not an 8-byte aligned shared memory address")
        slot = self.slot_of[offset >> 3]
        unknown = slot < 0
        if not unknown.any():
            unknown = ~self.valid[slot, cta]
        if unknown.any():
            self._bad(at, idx, n, lanes, int(flat[np.argmax(unknown)]), "used before mbarrier.init, or after inval")
        return slot, cta

    def _bad(self, at: int, idx: Any, n: int, lanes: Array, address: int, why: str) -> None:
        M = self.machine
        raise Stop(Code.SIM_MBARRIER, f"address {address:#x}: {why}", at, *M.first_lane(idx, n, lanes))

    def resolve(self, cta: int, address: int, at: int) -> tuple[int, int]:
        """(slot, block) for an address as seen by a thread of block `cta`."""
        M = self.machine
        offset, rank = address & OFFSET_MASK, address >> RANK_SHIFT
        target = int(M.cta_first[cta]) + rank if M.clustered else cta
        warp = cta * M.warps_per_cta
        if rank >= M.cluster_size or offset % 8 or offset + 8 > M.smem_size:
            raise Stop(Code.SIM_MBARRIER, f"address {address:#x}: not an mbarrier address", at, warp)
        slot = int(self.slot_of[offset >> 3])
        if slot < 0 or not self.valid[slot, target]:
            raise Stop(
                Code.SIM_MBARRIER,
                f"address {address:#x}: used before mbarrier.init, or after inval",
                at,
                warp,
            )
        return slot, target

    # State changes ------------------------------------------------------------------------------------

    def complete_tx(self, slot: int, cta: int, nbytes: int) -> None:
        """`nbytes` of an asynchronous copy have arrived."""
        if self.machine.observer is not None:
            self.machine.observer.signals(slot, cta, 0, nbytes)
        self.tx[slot, cta] -= nbytes
        if self.tx[slot, cta] < -MAX_COUNT:
            warp = cta * self.machine.warps_per_cta
            raise Stop(Code.SIM_MBARRIER, f"{self.describe(slot, cta)}: beyond -{MAX_COUNT} bytes", -1, warp)
        self.machine.activity += 1
        if self.tx[slot, cta] == 0 and self.pending[slot, cta] == 0:
            self._check(np.array([slot]), np.array([cta]))

    def arrive(self, slot: int, cta: int, at: int, count: int = 1) -> None:
        """Arrivals by an asynchronous operation."""
        if self.machine.observer is not None:
            self.machine.observer.signals(slot, cta, count, 0)
        self.arrivals(np.array([slot]), np.array([cta]), np.array([count]), at)

    def arrivals(self, slot: Array, cta: Array, count: Array, at: int) -> None:
        """Arrivals by threads or an operation, flat."""
        M = self.machine
        M.activity += 1
        n_cta = M.n_cta
        key = slot * n_cta + cta
        keys, inverse = np.unique(key, return_inverse=True)
        totals = np.bincount(inverse, weights=count).astype(np.int64)
        s, c = keys // n_cta, keys % n_cta
        left = self.pending[s, c] - totals
        if (left >= 0).all():
            self.pending[s, c] = left
            self._check(s, c)
            return
        # More arrivals than the phase needs: take them one by one, as some may belong to the next phase.
        for one_s, one_c, k in zip(slot.tolist(), cta.tolist(), count.tolist(), strict=True):
            if self.pending[one_s, one_c] < k:
                raise Stop(
                    Code.SIM_MBARRIER,
                    f"{self.describe(one_s, one_c)}: {k} arrivals, but the phase waits for "
                    f"{self.pending[one_s, one_c]} more",
                    at,
                    one_c * M.warps_per_cta,
                )
            self.pending[one_s, one_c] -= k
            self._check(np.array([one_s]), np.array([one_c]))

    def have_room(self, slot: Array, cta: Array, count: Array) -> bool:
        """Do all these arrivals belong to the current phases?"""
        totals = np.zeros_like(self.pending)
        np.add.at(totals, (slot, cta), count)
        return bool((totals <= self.pending).all())

    def _check(self, slot: Array, cta: Array) -> None:
        """Complete the phases that wait for nothing more."""
        done = (self.pending[slot, cta] == 0) & (self.tx[slot, cta] == 0)
        if not done.any():
            return
        slot, cta = slot[done], cta[done]
        self.phase[slot, cta] += 1
        self.pending[slot, cta] = self.count[slot, cta]
        self.machine.activity += 1
        places = list(zip(slot.tolist(), cta.tolist(), strict=True))
        self.machine.wake(*[("mbar", *place) for place in places])
        if self.machine.observer is not None:
            for place in sorted(set(places)):
                self.machine.observer.phase_done(*place)

    def name(self, slot: int) -> str:
        """Its shared memory offset, and the variable that it lies in."""
        offset = self.offsets[slot]
        name = ""
        own = offset - SYSTEM_SHARED
        for v in self.machine.program.variables.values():
            if v.space == "shared" and v.offset <= own and (own < v.offset + v.size or (v.decl and v.decl.extern)):
                name = f" ({local_name(v.name.partition('@')[0])}+{own - v.offset})"
        return f"mbarrier {offset:#x}{name}"

    def describe(self, slot: int, cta: int) -> str:
        M = self.machine
        x, y, z = M.block_position(cta)
        return (
            f"{self.name(slot)} of block {x},{y},{z}, phase {int(self.phase[slot, cta])} "
            f"(parity {int(self.phase[slot, cta]) & 1}), {int(self.pending[slot, cta])} of "
            f"{int(self.count[slot, cta])} arrivals and {int(self.tx[slot, cta])} bytes pending"
        )
