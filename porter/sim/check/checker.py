# SPDX-License-Identifier: Apache-2.0
"""The checker of one wave: clocks, shadow memories and what was found.

It only observes. The hooks of this package tell it what instructions do before or after the simulator does
it; it never changes what a run computes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.sim.check.clocks import ORDER, Done
from porter.sim.check.global_memory import GlobalMemoryCheck
from porter.sim.check.hazard import Level
from porter.sim.check.issues import Channel, Groups, Issue
from porter.sim.check.judge import Verdict, judge_shared, judge_tensor
from porter.sim.check.lanes import Lanes, lane_of
from porter.sim.check.mbarriers import MbarrierLife
from porter.sim.check.reports import Reports
from porter.sim.check.shadow import GRANULE, Access, Shadow, describe_bytes, describe_cells
from porter.sim.machine import Machine

Array = npt.NDArray[Any]


class Checker(Reports):
    def __init__(self, machine: Machine, level: Level) -> None:
        super().__init__(machine, level)
        self.shared = [Shadow() for _ in range(machine.n_cta)]
        self.tensor = [Shadow() for _ in range(machine.n_cta)]
        self.global_memory = GlobalMemoryCheck(self)
        self.lanes = Lanes(machine, self.clocks)
        self.mbarriers = MbarrierLife(self)
        # The byte indices and active lanes of the threads' access that is being checked.
        self.acting: tuple[Array, Array] | None = None
        # Issues of the instruction being executed, in the order in which the engine will get them.
        self.queue: deque[Issue] = deque()
        # Footprints in Tensor Memory by what gives them.
        self.cells: dict[Any, int] = {}
        self.landing: Issue | None = None
        self.mbar_messages: dict[tuple[int, int], Array] = {}
        self.mbar_phases: dict[tuple[int, int], Array] = {}
        # Arrivals of other blocks' threads on a block's mbarriers.
        self.remote: dict[int, list[Access]] = {}
        self.barriers: dict[tuple[int, int], tuple[Array | None, set[int]]] = {}
        self.cluster_messages: dict[int, Array] = {}
        self.cluster_phases: dict[int, Array] = {}
        self.cluster_waiting: dict[int, set[int]] = {}
        self.channels: dict[tuple[int, int], Channel] = {}
        self.bulk: dict[tuple[int, int], Groups] = {}
        self.copies: dict[int, Groups] = {}
        self.wgmmas: dict[int, Groups] = {}
        self.loads: dict[int, list[Access]] = {}
        self.stores: dict[int, list[Access]] = {}
        # Stretches of writes to wgmma registers since the warp's last wgmma.fence; no entry before its first.
        self.unfenced: dict[int, set[int]] = {}
        # Waits and fences that made something known to a warp.
        self.waits: set[int] = set()

    # Accesses -----------------------------------------------------------------------------------------

    def access_shared(self, cta: int, new: Access) -> None:
        """An access to a block's shared memory happens, or is issued, now."""
        shadow = self.shared[cta]
        if new.proxy == "async" and new.lane is not None and new.bits:
            self._lanes_before_issue(cta, new)
        home = int(self.machine.warp_cta[new.warp])
        if cta != home and self.machine.alive[cta] == 0:
            self.report(_GONE, None, new, "", cta)
        if new.write and self.mbarriers.bits[cta]:
            self.mbarriers.written(cta, new)
        for old, common in shadow.conflicts(new):
            same_block = int(self.machine.warp_cta[old.warp]) == home
            verdict = judge_shared(self.clocks, old, new, cta != home, same_block)
            if verdict is not None:
                self.report(verdict, *self._with_lanes(old, new, common, cta), describe_bytes(common), cta)
        if not new.write and new.bits & ~shadow.written:
            where = describe_bytes(new.bits & ~shadow.written)
            self.report(Verdict("U1", "a write of these bytes", "", strict=True), None, new, where, cta)
            shadow.written |= new.bits
        shadow.insert(new)

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
        verdict = Verdict("G8", "synchronization between the lanes of the warp", "bar.warp.sync", strict=True)
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
            self.report(Verdict("U2", "a write of these cells", "", strict=True), None, new, where, cta)
            shadow.written |= new.bits
        shadow.insert(new)

    def asynchronous(
        self, kind: str, at: int, warp: int, lane: int | None, write: bool, proxy: str, bits: int, pair: Any = None
    ) -> Access:
        return Access(kind, at, warp, lane, write, proxy, bits, [], self.clocks.now(warp), pair)

    # Completion ---------------------------------------------------------------------------------------

    def completed_by(self, warp: int, accesses: list[Any], at: int) -> None:
        """The warp has waited for these accesses, at instruction `at`."""
        if accesses:
            self.waits.add(at)
        now = self.clocks.now(warp)
        for access in accesses:
            access.done.append(now)

    def mbar_component(self, slot: int, cta: int) -> int:
        return self.clocks.component(("mbar", int(self.machine.cta_rank[cta]), slot))

    def arrive(self, slot: int, cta: int, message: Array) -> None:
        """An arrival on an mbarrier brings a message."""
        key = slot, cta
        self.mbar_messages[key] = self.clocks.merge(self.mbar_messages.get(key), message)

    def phase_done(self, slot: int, cta: int, phase: int) -> None:
        """An mbarrier has completed `phase` phases."""
        key = slot, cta
        self.mbarriers.phase_done(key)
        component = self.mbar_component(slot, cta)
        news = self.mbar_messages.pop(key, None)
        if news is None or news.shape[1] <= component:
            news = self.clocks.merge(self.clocks.blank(), news) if news is not None else self.clocks.blank()
        news[:, component] = np.maximum(news[:, component], phase)
        self.mbar_phases[key] = self.clocks.merge(self.mbar_phases.get(key), news)

    def waited(self, warp: int, slot: int, cta: int, relaxed: bool) -> None:
        """A warp has seen the latest completed phase."""
        news = self.mbar_phases.get((slot, cta))
        if news is not None and relaxed:
            self.clocks.receive_relaxed(warp, news)
        elif news is not None:
            self.clocks.receive(warp, news)

    def signal(self, slot: int, cta: int) -> None:
        """The landing operation signals an mbarrier: its current phase will prove that it is over."""
        issue = self.landing
        if issue is None:
            return
        if issue.at >= 0:
            self.mbarriers.arrived((slot, cta), issue.at, None)
        component = self.mbar_component(slot, cta)
        phase = int(self.machine.mbar.phase[slot, cta]) + 1
        if issue.kind == "commit":
            assert issue.message is not None
            self.arrive(slot, cta, issue.message.copy())
        elif issue.kind == "copy":
            if issue.signals < len(issue.accesses):
                issue.accesses[issue.signals].done.append((component, phase))
            if issue.source is not None:
                issue.source.done.append((component, phase))
        else:
            for access in issue.accesses:
                access.done.append((component, phase))
        issue.signals += 1

    def next_issue(self) -> Issue | None:
        return self.queue.popleft() if self.queue else None

    # Barriers -----------------------------------------------------------------------------------------

    def barrier_done(self, cta: int, number: int) -> None:
        message, waiting = self.barriers.pop((cta, number), (None, set()))
        if message is not None:
            for warp in waiting:
                self.clocks.receive(warp, message)

    def cluster_done(self, cluster: int) -> None:
        message = self.cluster_messages.pop(cluster, None)
        if message is None:
            return
        self.cluster_phases[cluster] = self.clocks.merge(self.cluster_phases.get(cluster), message)
        for warp in self.cluster_waiting.pop(cluster, set()):
            self.clocks.receive(warp, self.cluster_phases[cluster])

    # Ends ---------------------------------------------------------------------------------------------

    def remote_arrival(self, at: int, warp: int, cta: int, done: Done | None = None) -> None:
        """A thread of another block arrives on an mbarrier of block `cta`, which must still be there.

        `done` proves the arrival of an operation over, such as a tcgen05.commit.
        """
        arrival = self.generic("arrival", at, warp, True, 1, 8)
        if done is not None:
            arrival.done = done
        if self.machine.alive[cta] == 0:
            self.report(_PEER_GONE, None, arrival, "", cta)
        else:
            self.remote.setdefault(cta, []).append(arrival)

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
                if self.clocks.known_by_block(first, count, old.done):
                    continue
                foreign = int(M.warp_cta[old.warp]) != cta
                remedy = "barrier.cluster, or a wait on the operation's mbarrier"
                verdict = Verdict("H26" if foreign else "X1", "a wait for the operation before the block ends",
                                  remedy, strict=not foreign)  # fmt: skip
                self.report(verdict, None, old, "", cta)
        for arrival in self.remote.pop(cta, ()):
            if not self.clocks.known_by_block(first, count, arrival.done):
                self.report(_PEER_GONE, None, arrival, "", cta)
        self.shared[cta] = Shadow()
        self.tensor[cta] = Shadow()

    def known(self, warp: int, access: Access) -> bool:
        return self.clocks.knows(warp, ORDER, access.done)


_GONE = Verdict("H26", "a wait of the other block for this access before it ends", "barrier.cluster")
_PEER_GONE = Verdict("H26", "a wait for the arrival before the block ends", "barrier.cluster")
