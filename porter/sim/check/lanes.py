# SPDX-License-Identifier: Apache-2.0
"""Races between the lanes of one warp over shared memory, and over global memory (`global_lanes`).

The clocks take a warp's threads as one. Here each granule of memory, 2 bytes of shared memory, remembers which lane
wrote it last and which one has read it, and in which *interval* of its warp: the time between two synchronizations of
the warp's own threads. bar.warp.sync, barriers and memory fences begin a new interval; shfl, vote, elect and
the instructions that a warp executes together do not order memory (PTX ISA 9.7.13.2, 9.7.9.6).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from porter.sim.check.clocks import Clocks
from porter.sim.footprints import GRANULE
from porter.sim.machine import Machine

Array = npt.NDArray[Any]

TOGETHER = 62
"""Stands for the lane where a warp's threads access memory together (ldmatrix, stmatrix)."""
_SEVERAL = 63
_SHIFT = 6


class Touch(NamedTuple):
    """Accesses about to happen, [n, accesses, granules]: `column` are their stamps, `chosen` the active ones, or `...`
    for all."""

    warps: Array
    now: Array
    column: Array
    place: Array
    chosen: Any
    write: bool


class Stamps:
    """Who wrote and who read each granule of a memory last, as interval << 6 | lane, and the last interval in which a
    warp wrote or read there."""

    def __init__(self, granules: int, warps: int) -> None:
        self.writers = np.zeros(granules, np.int32)
        self.readers = np.zeros(granules, np.int32)
        self.wrote = np.zeros(warps, np.int64)
        self.read = np.zeros(warps, np.int64)

    def repeat(self, times: int) -> None:
        """Granules become smaller."""
        self.writers, self.readers = np.repeat(self.writers, times), np.repeat(self.readers, times)

    def races(self, new: Touch) -> list[tuple[int, int, int, int, bool]]:
        """What new accesses race with: (row, lane, granule, other lane, whether the other wrote)."""
        found: list[tuple[int, int, int, int, bool]] = []
        if (self.wrote[new.warps] == new.now).any():
            _suspects(found, self.writers, new, True)
        if new.write and (self.read[new.warps] == new.now).any():
            _suspects(found, self.readers, new, False)
        return found

    def stamp(self, new: Touch) -> None:
        """The accesses happen."""
        stamps = np.broadcast_to(new.column, new.place.shape)[new.chosen].astype(np.int32)
        spots = new.place[new.chosen]
        if new.write:
            self.writers[spots] = stamps
            self.wrote[new.warps] = new.now
            return
        before = self.readers[spots]
        others = (before >> _SHIFT == stamps >> _SHIFT) & (before != stamps)
        stamps[others] |= _SEVERAL
        self.readers[spots] = stamps
        back = self.readers[spots]
        several = (back != stamps) & (back >> _SHIFT == stamps >> _SHIFT)
        if several.any():
            self.readers[spots[several]] = back[several] | _SEVERAL
        self.read[new.warps] = new.now


def _suspects(races: list[tuple[int, int, int, int, bool]], stamps: Array, new: Touch, wrote: bool) -> None:
    place, column = new.place, new.column
    old = stamps[place]
    bad = (old >> _SHIFT == column >> _SHIFT) & ((old != column) | (old & _SEVERAL == TOGETHER))
    if new.chosen is not ...:
        bad &= new.chosen
    if bad.any():
        # One for each warp is enough.
        for row in np.flatnonzero(bad.any(axis=(1, 2))).tolist():
            i, k = np.argwhere(bad[row])[0].tolist()
            lane = int(column[row, i, 0]) & _SEVERAL
            races.append((row, lane, int(place[row, i, k]), int(old[row, i, k]) & _SEVERAL, wrote))


class Lanes:
    """Of one wave. Intervals are numbered over all warps."""

    def __init__(self, machine: Machine, clocks: Clocks) -> None:
        self.clocks = clocks
        self.machine = machine
        self.shared = Stamps(machine.smem_flat.size // GRANULE, machine.W)
        self.interval = np.arange(1, machine.W + 1, dtype=np.int64)
        self._last = machine.W
        # Warps that have arrived on an mbarrier since their last synchronization.
        self.arrived: set[int] = set()

    def sync(self, warp: int, lanes: Array | None = None) -> None:
        """The warp's threads are ordered among themselves, or only some `lanes` [32] of it."""
        self._last += 1
        if lanes is not None:
            self._stay(warp, lanes)
        self.interval[warp] = self._last
        self.arrived.discard(warp)
        self.clocks.lanes_synced(warp)

    def _stay(self, warp: int, lanes: Array) -> None:
        """What other lanes than these last did to the block's memory comes into the interval that begins."""
        stride = self.machine.smem_stride // GRANULE
        first = int(self.machine.warp_cta[warp]) * stride
        now = int(self.interval[warp])
        # Where lanes cannot be told apart they count as synchronized.
        outside = np.append(~lanes, np.zeros(_SEVERAL + 1 - lanes.size, bool))
        memory = self.shared
        for stamps, last in ((memory.writers, memory.wrote), (memory.readers, memory.read)):
            part = stamps[first : first + stride]
            stay = (part >> _SHIFT == now) & outside[part & _SEVERAL]
            if int(last[warp]) == now and stay.any():
                part[stay] = self._last << _SHIFT | part[stay] & _SEVERAL
                last[warp] = self._last

    def waited(self, warp: int) -> None:
        """A wait on an mbarrier orders lanes if some of them arrived on one before."""
        if warp in self.arrived:
            self.sync(warp)

    def touch(self, warps: Array, lanes: Array, where: Array, size: int, write: bool, lane: Any) -> Touch:
        """Accesses of `size` bytes at byte indices `where` of all shared memory, [n, accesses], by lanes `lane`."""
        now = self.interval[warps]
        column = now[:, None, None] << _SHIFT | np.asarray(lane)[None, :, None]
        place = where[:, :, None] // GRANULE + np.arange(max(size // GRANULE, 1))
        return Touch(warps, now, column, place, lanes[:, :, None] & np.ones(place.shape, bool), write)

    def of_threads(self, warps: Array, lanes: Array, place: Array, write: bool) -> Touch:
        """Accesses of single threads, by warp and lane [threads], to granules [threads, granules]."""
        now = self.interval[warps]
        column, place = (now << _SHIFT | lanes)[:, None, None], place[:, None, :]
        return Touch(warps, now, column, place, ..., write)

    def issued(self, warp: int, lane: int, base: int, low: int, high: int, bits: int, write: bool) -> list[Any]:
        """An asynchronous operation of one lane on granules `bits`, from `base` on: (granule, lane, wrote)."""
        now = int(self.interval[warp])
        found: list[tuple[int, int, bool]] = []
        memory = self.shared
        for stamps, last, wrote in ((memory.writers, memory.wrote, True), (memory.readers, memory.read, False)):
            if int(last[warp]) != now or not (wrote or write):
                continue
            part = stamps[base + low : base + high]
            bad = np.flatnonzero((part >> _SHIFT == now) & (part & _SEVERAL != lane))
            hit = next((g for g in bad.tolist() if bits >> (low + g) & 1), None)
            if hit is not None:
                found.append((low + hit, int(part[hit]) & _SEVERAL, wrote))
        return found

    def last(self, granule: int, wrote: bool) -> int | None:
        """The lane that wrote, or read, a granule last."""
        stamp = int((self.shared.writers if wrote else self.shared.readers)[granule])
        return lane_of(stamp & _SEVERAL) if stamp else None


def same_interval(one: Array, other: Array) -> Array:
    """Whether stamps are of the same warp, with no synchronization of it between."""
    equal: Array = one >> _SHIFT == other >> _SHIFT
    return equal


def lane_of(stamp: int) -> int | None:
    """The lane of a report; None for several or all."""
    return stamp if stamp < TOGETHER else None
