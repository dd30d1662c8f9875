# SPDX-License-Identifier: Apache-2.0
"""The checker of one wave: clocks, shadow memories and what was found.

It only observes: the other parts of this package tell it what the simulator reports of instructions and operations.
It never changes what a run computes, but for tests of mbarriers that may come too early (`early_tests`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.sim.check.clocks import EXEC, ORDER
from porter.sim.check.global_memory import GlobalMemoryCheck
from porter.sim.check.hazard import Level
from porter.sim.check.judge import Verdict, before_the_end, judge_shared, judge_tensor
from porter.sim.check.lanes import lane_of
from porter.sim.check.mbarriers import MbarrierCheck
from porter.sim.check.reports import Reports
from porter.sim.check.rulings import Ruling
from porter.sim.check.shadow import Access, Shadow, describe_bytes, describe_cells
from porter.sim.check.stores import SharedStores
from porter.sim.footprints import GRANULE
from porter.sim.machine import Machine

Array = npt.NDArray[Any]


class Checker(Reports):
    def __init__(self, machine: Machine, level: Level) -> None:
        super().__init__(machine, level)
        self.shared = [Shadow() for _ in range(machine.n_cta)]
        self.tensor = [Shadow() for _ in range(machine.n_cta)]
        self.global_memory = GlobalMemoryCheck(self)
        self.mbarriers = MbarrierCheck(self)
        # The byte indices and active lanes of the threads' access that is being checked.
        self.acting: tuple[Array, Array] | None = None
        self.storing: SharedStores | None = None
        # tcgen05.ld that a warp has not waited for, by their instructions.
        self.loads: dict[int, dict[int, list[Access]]] = {}

    # Accesses -----------------------------------------------------------------------------------------

    def access_shared(self, cta: int, new: Access, *, reads: bool = False) -> None:
        """An access to a block's shared memory happens, or is issued, now. `reads`: a write that also reads."""
        shadow = self.shared[cta]
        if new.proxy == "async" and new.lane is not None and new.bits:
            self._lanes_before_issue(cta, new)
        home = int(self.machine.warp_cta[new.warp])
        if cta != home:
            self._in_other_block(cta, new)
        if new.write and (self.mbarriers.bits[cta] or self.mbarriers.freed[cta]):
            self.mbarriers.written(cta, new)
        ordered: set[Any] = set()
        for old, common in shadow.conflicts(new):
            alike = _alike(old)
            if alike in ordered:
                continue
            same_block = int(self.machine.warp_cta[old.warp]) == home
            verdict = judge_shared(self.clocks, old, new, cta != home, same_block, int(self.machine.cta_rank[cta]))
            if verdict is not None:
                if verdict.id == "G1" and verdict.ruling is None and old.write and self._keeps(common, cta):
                    verdict = replace(verdict, ruling=Ruling.SHARED_FLAG)
                self.report(verdict, *self._with_lanes(old, new, common, cta), describe_bytes(common), cta)
            elif alike is not None:
                ordered.add(alike)
        if (reads or not new.write) and new.bits & ~shadow.written:
            where = describe_bytes(new.bits & ~shadow.written)
            self.report(Verdict("U1", "a write of these bytes", "", Ruling.NEVER_WRITTEN), None, new, where, cta)
            shadow.written |= new.bits
        shadow.insert(new)

    def _keeps(self, common: int, cta: int) -> bool:
        """Whether the store that is judged writes what is there already, where it touches these granules."""
        base = cta * self.machine.smem_stride // GRANULE
        low, high = (common & -common).bit_length() - 1, common.bit_length()
        return self.storing is not None and self.storing.keep(self.machine.smem_flat, range(base + low, base + high))

    def _in_other_block(self, cta: int, new: Access) -> None:
        """The block has to run (ruling `peer-start`) and must not have ended. Who uses its mbarriers has to know their
        initialization, and so that it runs."""
        direct = new.proxy == "generic" or new.notes.get("told", cta) != cta
        if self.machine.alive[cta] == 0:
            self.report(_GONE, None, new, "", cta)
        elif direct and not self.clocks.started(new.warp, int(self.machine.cta_rank[cta])):
            self.report(_NOT_STARTED, None, new, "", cta)

    def _with_lanes(self, old: Access, new: Access, common: int, cta: int) -> tuple[Access, Access]:
        """Accesses of threads with the lanes that came to the first granule of both."""
        low = (common & -common).bit_length() - 1
        granule = cta * self.machine.smem_stride // GRANULE + low
        if old.lane is None and old.proxy == "generic" and old.kind in ("load", "write"):
            old = replace(old, lane=self.lanes.last(granule, old.write))
        if new.lane is None and self.acting is not None:
            where, active = self.acting
            there = np.flatnonzero(active & (where // GRANULE <= granule))
            if there.size and where.size == 32:
                new = replace(new, lane=int(there[np.argmax(where[there])]))
        return old, new

    def _lanes_before_issue(self, cta: int, new: Access) -> None:
        """Other lanes of the issuing warp have to be done with what an operation touches."""
        base = cta * self.machine.smem_stride // GRANULE
        assert new.lane is not None
        for granule, other, wrote in self.lanes.issued(
            new.warp, new.lane, base, new.low, new.high, new.bits, new.write
        ):
            self._report_lanes(new, granule, cta, other, wrote)

    def lane_race(self, at: int, warp: int, kind: str, lane: int, granule: int, other: int, wrote: bool) -> None:
        """A thread accesses a granule of all shared memory that another lane of its warp has used."""
        cta, local = divmod(granule, self.machine.smem_stride // GRANULE)
        new = self.generic(kind, at, warp, kind != "load", 1 << local, 4)
        new.lane = lane_of(lane)
        self._report_lanes(new, local, cta, other, wrote)

    def _report_lanes(self, new: Access, granule: int, cta: int, other: int, wrote: bool) -> None:
        old = next(
            (a for a in reversed(self.shared[cta].accesses)
             if a.warp == new.warp and a.write == wrote and a.proxy == "generic" and a.bits >> granule & 1),
            None,
        )  # fmt: skip
        if old is not None:
            old = replace(old, lane=lane_of(other))
        edge = "synchronization between the lanes of the warp", "bar.warp.sync"
        verdict = Verdict("G8", *edge, Ruling.LOCKSTEP)
        self.report(verdict, old, new, describe_bytes(1 << granule), cta)

    def access_tensor(self, cta: int, new: Access, *, reads: bool = False) -> None:
        """An access to a block's Tensor Memory is issued now. `reads`: a write that also reads."""
        shadow = self.tensor[cta]
        for old, common in shadow.conflicts(new):
            verdict = judge_tensor(self.clocks, old, new)
            if verdict is not None:
                self.report(verdict, old, new, describe_cells(common), cta)
        if (reads or not new.write) and new.bits & ~shadow.written:
            where = describe_cells(new.bits & ~shadow.written)
            self.report(Verdict("U2", "a write of these cells", "", Ruling.NEVER_WRITTEN), None, new, where, cta)
            shadow.written |= new.bits
        shadow.insert(new)

    # Completion ---------------------------------------------------------------------------------------

    def completed_by(self, warp: int, accesses: list[Any], at: int) -> None:
        """The warp has waited for these accesses, at instruction `at`."""
        if accesses:
            self.waits.add(at)
        now = self.clocks.now(warp)
        for access in accesses:
            access.done.append(now)
            access.notes["waited"] = at

    # Ends ---------------------------------------------------------------------------------------------

    def block_ended(self, cta: int) -> None:
        """All threads of a block are gone: nothing may still use its memories."""
        M = self.machine
        first, count = cta * M.warps_per_cta, M.warps_per_cta
        for shadow in (self.shared[cta], self.tensor[cta]):
            for old in shadow.accesses:
                # Of what threads do, only what other blocks' threads do may still go on.
                local = old.proxy == "generic" and int(M.warp_cta[old.warp]) == cta
                if local or old.kind in ("ld", "st", "alloc"):
                    continue
                foreign = int(M.warp_cta[old.warp]) != cta
                # Of its own operations the block has only to know that they are over.
                if self.clocks.known_by_block(first, count, old.done, ORDER if foreign else EXEC):
                    continue
                # What a copy brings to another block is wanted there.
                matters = foreign or bool(old.notes.get("sent"))
                remedy = _PEER_WAIT if matters else before_the_end(self.clocks, old)
                # Code that counts on a store without a wait has it in a group all the same.
                tolerated = not matters and (old.kind != "store" or old.grouped or "sent" in old.notes)
                verdict = Verdict("H26" if foreign else "X1", "a wait for the operation before the block ends",
                                  remedy, Ruling.BLOCK_END if tolerated else None)  # fmt: skip
                self.report(verdict, None, old, "", cta)
        self.mbarriers.block_ended(cta)
        self.shared[cta] = Shadow()
        self.tensor[cta] = Shadow()


def _alike(old: Access) -> Any:
    """Equal for accesses that the same later access is ordered after alike: those of a warp's threads since its last
    synchronization. None for an access that is judged by itself."""
    if old.proxy != "generic" or len(old.done) != 1:
        return None
    return old.warp, old.done[0], old.kind, old.item, old.scope


_PEER_WAIT = "barrier.cluster, or a wait on the operation's mbarrier"
_NOT_STARTED = Verdict(
    "H32", "synchronization with the other block before the access", "barrier.cluster.arrive and .wait"
)
_GONE = Verdict("H26", "a wait of the other block for this access before it ends", "barrier.cluster")
