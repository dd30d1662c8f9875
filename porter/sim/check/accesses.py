# SPDX-License-Identifier: Apache-2.0
"""Loads, stores, atomics and matrix accesses of threads to shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.memory_order import MemoryOrder
from porter.sim.check.checker import Checker
from porter.sim.check.lanes import TOGETHER
from porter.sim.check.stores import SharedStores
from porter.sim.footprints import byte_bits
from porter.sim.observer import Observer

Array = npt.NDArray[Any]


class SharedAccesses(Observer):
    def __init__(self, check: Checker) -> None:
        self.check = check
        self.machine = check.machine

    def touches_shared(
        self, at: int, idx: Any, n: int, lanes: Array, where: Array, size: int, kind: str, item: int | None = None,
        value: Any = None,
    ) -> None:  # fmt: skip
        if not lanes.any():
            return
        check, stride = self.check, self.machine.smem_stride
        where = np.broadcast_to(where, lanes.shape).astype(np.int64)
        item = item or size
        warps = self.machine.warps(idx)
        touch = None
        order = check.global_memory.order(at)
        if order.strong:
            self._strong(at, warps, lanes, where, order, kind, "load")
        # Bytes side by side in one granule would look like one place.
        if item > 1 and not order.strong:
            collective = self.machine.program.code[at].parts[0] in ("ldmatrix", "stmatrix")
            lane = np.full(lanes.shape[1], TOGETHER) if collective else np.arange(32)
            touch = check.lanes.touch(warps, lanes, where, size, kind != "load", lane)
            for race in check.lanes.shared.races(touch):
                check.lane_race(at, int(warps[race[0]]), kind, *race[1:])
        stores = None if value is None else SharedStores(where, lanes, value, size // (value[0, 0].size))
        reduces = kind == "atomic" and "exch" not in self.machine.program.code[at].parts
        for row, warp in enumerate(warps.tolist()):
            offsets = where[row][lanes[row]]
            if offsets.size == 0:
                continue
            for cta in np.unique(offsets // stride).tolist():
                local = offsets[offsets // stride == cta] - cta * stride
                access = check.generic(kind, at, warp, kind != "load", byte_bits(local, size), item)
                access.scope = order.scope if order.strong else None
                if not lanes[row].all() and lanes.shape[1] == 32:
                    some = int(np.packbits(lanes[row], bitorder="little").view(np.uint32)[0])
                    access.done.append(check.clocks.by_lanes(warp, some))
                check.acting = where[row], lanes[row]
                if stores is not None:
                    stores.row = row
                check.storing = stores
                check.access_shared(cta, access, reads=reduces)
        check.acting = check.storing = None
        if touch is not None:
            check.lanes.shared.stamp(touch)
        if order.strong or check.global_memory.state.flags.locations:
            self._strong(at, warps, lanes, where, order, kind, "store")

    def _strong(
        self, at: int, warps: Array, lanes: Array, where: Array, order: MemoryOrder, kind: str, part: str
    ) -> None:
        """Flags in shared memory: what strong accesses acquire, before, and release, after."""
        M, found = self.machine, self.check.global_memory
        rows, columns = np.nonzero(lanes)
        places = where[rows, columns]
        for cta in np.unique(places // M.smem_stride).tolist():
            here = places // M.smem_stride == cta
            memory = "shared", M.ctas.start + cta
            arguments = rows[here], places[here] - cta * M.smem_stride, memory, order, kind
            if part == "load":
                found.flag_reads(warps, *arguments)
            elif kind != "load":
                found.flag_writes(warps, *arguments)
