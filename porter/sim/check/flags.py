# SPDX-License-Identifier: Apache-2.0
"""Synchronization through flags: releases and acquires of memory locations, and fences with relaxed accesses.

Every location that a strong operation has written remembers what its value carries: of the last store, and of
the atomics that followed it (a release sequence, PTX ISA 8.8). What a scope does not reach is not carried.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy.typing as npt

from porter.ptx.memory_order import MemoryOrder, Scope
from porter.sim.check.foreign import Imports, Known, join

Array = npt.NDArray[Any]
Key = tuple[Any, int]
"""A location: its memory and the byte offset in it."""


@dataclass
class Carried:
    """What one block has put into a location's value, and the scope up to which it did: what is ordered before it in
    memory, what only in execution, which also a relaxed read learns, or what only practice takes for ordered."""

    block: int
    scope: Scope
    known: Known
    at: int
    how: Literal["memory", "execution", "practice"] = "memory"


@dataclass
class Location:
    """`version` counts changes, so that polling finds out at once that there is nothing new."""

    carried: list[Carried] = field(default_factory=list)
    version: int = 0


class Flags:
    """All flags of a launch; waves of blocks share them."""

    def __init__(self) -> None:
        self.locations: dict[Key, Location] = {}
        # By memory, so that ordinary stores find out fast that none is there.
        self.offsets: dict[Any, set[int]] = {}

    def location(self, key: Key) -> Location:
        found = self.locations.get(key)
        if found is None:
            found = self.locations[key] = Location()
            self.offsets.setdefault(key[0], set()).add(key[1])
        return found


class FlagUser:
    """The threads of a wave as users of flags. Blocks have their numbers within the grid."""

    """Where `cumulative`, what a fence of the atomic's thread would have ordered is kept apart, as `lenient`: after
    `__threadfence(); __syncthreads();` an atomic of one thread, as much code has it. The ISA wants that thread's own
    fence behind the barrier, and one behind its atomic before others read (ruling `fence-before-barrier`).
    """

    def __init__(
        self, flags: Flags, imports: Imports, first_block: int, warps_per_block: int, cumulative: bool
    ) -> None:
        self.flags = flags
        self.imports = imports
        self.lenient = Imports(imports.clocks, imports.first, "lenient import")
        self.clocks = imports.clocks
        self.first_block = first_block
        self.per_block = warps_per_block
        self.cumulative = cumulative
        # By warp: what its fences have released, by scope, and what relaxed reads brought and no fence acquired.
        self.fenced: dict[int, dict[Scope, Known]] = {}
        self.held: dict[int, list[tuple[Scope, Carried]]] = {}
        self.seen: dict[tuple[int, Key, bool], int] = {}
        # What a warp read but did not get, because a scope does not reach so far: for reports.
        self.missed: dict[int, list[tuple[Carried, Scope]]] = {}

    def block(self, warp: int) -> int:
        return self.first_block + warp // self.per_block

    def needed(self, warp: int, block: int) -> Scope:
        """The narrowest scope that takes in a warp and a block."""
        if block == self.block(warp):
            return Scope.CTA
        size = self.clocks.per_cluster // self.per_block
        return Scope.CLUSTER if block // size == self.block(warp) // size else Scope.GPU

    # Operations ---------------------------------------------------------------------------------------

    def fence(self, warp: int, scope: Scope, acquires: bool = True, releases: bool = True) -> None:
        """fence.acq_rel, fence.sc, membar, and those of one side."""
        if releases and scope >= Scope.GPU:
            self.clocks.mark_fenced(warp)
        kept = []
        for needed, part in self.held.pop(warp, ()):
            if acquires and needed <= scope:
                self._receive(warp, part)
            else:
                kept.append((needed, part))
        if kept:
            self.held[warp] = kept
        if releases:
            known = self.imports.everything(warp, self.clocks.release(warp))
            self.fenced.setdefault(warp, {}).update({s: known for s in Scope if s <= scope})

    def fence_inits(self, warp: int, message: Array) -> None:
        """fence.mbarrier_init.release.cluster, whose message is of the warp's initializations alone."""
        known, fenced = {self.imports.cluster(warp): message}, self.fenced.setdefault(warp, {})
        for scope in (Scope.CTA, Scope.CLUSTER):
            fenced[scope] = join(fenced.get(scope, {}), known)

    def tells(self, warp: int) -> bool:
        """Whether a relaxed write of the warp carries something."""
        return warp in self.fenced or self.clocks.parks(warp)

    def _receive(self, warp: int, part: Carried) -> None:
        (self.lenient if part.how == "practice" else self.imports).receive(warp, part.known)

    def read(self, warp: int, key: Key, order: MemoryOrder, atomic: bool = False) -> None:
        """A strong load, or the load of an atomic."""
        found = self.flags.locations.get(key)
        if found is None or self.seen.get((warp, key, order.acquires)) == found.version:
            return
        self.seen[warp, key, order.acquires] = found.version
        for part in found.carried:
            needed = self.needed(warp, part.block)
            if needed > min(part.scope, order.scope):
                self.missed.setdefault(warp, []).append((part, needed))
                continue
            if order.acquires or part.how == "execution":
                self._receive(warp, part)
                continue
            if atomic and self.cumulative and warp in self.fenced:
                self.lenient.receive(warp, part.known)
            self.held.setdefault(warp, []).append((needed, part))

    def write(self, warp: int, key: Key, order: MemoryOrder, atomic: bool, at: int) -> None:
        """A strong store, or the store of an atomic, which carries on what was there."""
        parts: list[Carried] = []
        block = self.block(warp)
        if order.releases:
            known = self.imports.everything(warp, self.clocks.release(warp))
            parts.append(Carried(block, order.scope, known, at))
        if self.clocks.parks(warp):
            known = {self.imports.cluster(warp): self.clocks.execution(warp)}
            parts.append(Carried(block, order.scope, known, at, "execution"))
        fenced = self.fenced.get(warp, {})
        told: list[Known] = []
        for scope in sorted((s for s in fenced if s <= order.scope), reverse=True):
            if not any(fenced[scope] is known for known in told):
                told.append(fenced[scope])
                parts.append(Carried(block, scope, fenced[scope], at))
        if fenced and self.cumulative and order.scope >= Scope.GPU:
            message = self.clocks.fenced_message(warp)
            known = join(self.imports.everything(warp, message), self.lenient.everything(warp, message))
            parts.append(Carried(block, order.scope, known, at, "practice"))
        if not parts and key not in self.flags.locations:
            return
        place = self.flags.location(key)
        place.version += 1
        if not atomic:
            place.carried = parts
            return
        for part in parts:
            kind = block, part.scope, part.how
            same = next((c for c in place.carried if (c.block, c.scope, c.how) == kind), None)
            if same is None:
                place.carried.append(part)
            else:
                same.known, same.at = join(same.known, part.known), at

    def overwrite(self, key: Key) -> None:
        """An ordinary store: the value carries nothing any more."""
        place = self.flags.locations.get(key)
        if place is not None and place.carried:
            place.carried = []
            place.version += 1
