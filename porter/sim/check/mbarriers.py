# SPDX-License-Identifier: Apache-2.0
"""mbarrier objects: what arrivals tell those who wait, who used and who arrived on them, scopes, re-initialization,
invalidation, overwriting (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.barriers import MBARRIER_BYTES
from porter.ptx.memory_order import Scope, mbarrier_scope
from porter.sim.check.clocks import EXACT, EXEC, ORDER, Done
from porter.sim.check.judge import Verdict
from porter.sim.check.laps import Laps
from porter.sim.check.reports import Reports
from porter.sim.check.rulings import Ruling
from porter.sim.check.shadow import Access, describe_bytes
from porter.sim.effects import Place
from porter.sim.footprints import range_bits
from porter.sim.observer import Named, Observer
from porter.sim.progress import GONE

Array = npt.NDArray[Any]
_GENERIC = ORDER, EXACT, EXEC
"""Views of the clocks that know of what is over without a proxy fence."""


class MbarrierCheck(Observer):
    """Of one wave."""

    def __init__(self, check: Reports) -> None:
        self.check = check
        self.machine = check.machine
        # What the arrivals of the current phases carry, and what those of complete ones have.
        self._messages: dict[Place, Array] = {}
        self._phases: dict[Place, Array] = {}
        self._copied: dict[Place, int] = {}
        # Arrivals that are told of once the phase before theirs is complete.
        self._late: list[tuple[Place, Array]] = []
        self.laps = Laps(check)
        self.inits: dict[Place, Access] = {}
        # Blocks whose threads have fenced initializations.
        self.fencing: set[int] = set()
        self.bits = [0] * self.machine.n_cta
        # Each warp's last use of an mbarrier, and what overwrote one.
        self.uses: dict[Place, dict[int, Access]] = {}
        self.overwritten: dict[Place, Access] = {}
        # Invalidations whose memory nobody has used since, and where that is.
        self.ended: dict[Place, Access] = {}
        self.freed = [0] * self.machine.n_cta
        # Arrivals of other blocks' threads: in the phase that goes on, in the last complete one, and all on a block.
        self.foreign: dict[Place, list[tuple[Access, Scope]]] = {}
        self.told: dict[Place, list[tuple[Access, Scope]]] = {}
        self._remote: dict[int, list[Access]] = {}
        # How often each instruction has arrived, for the report of a deadlock.
        self.arrivals: dict[Place, Counter[int]] = {}

    def where(self, place: Place) -> str:
        return f"mbarrier {self.machine.mbar.offsets[place[0]]:#x}"

    def component(self, slot: int, cta: int) -> int:
        """What counts an mbarrier's phases in the clocks."""
        return self.check.clocks.component(("mbar", int(self.machine.cta_rank[cta]), slot))

    def copied(self, slot: int, cta: int) -> int:
        """What counts the phases that end copies of threads, which the asynchronous proxy does not know of."""
        rank = int(self.machine.cta_rank[cta])
        self._copied[slot, cta] = self.check.clocks.component(("copied", rank, slot))
        return self._copied[slot, cta]

    def _access(self, kind: str, at: int, warp: int, write: bool = True) -> Access:
        return self.check.generic(kind, at, warp, write, 1, MBARRIER_BYTES)

    def _relaxed(self, at: int) -> bool:
        return "relaxed" in self.machine.program.code[at].parts

    # Life cycle ---------------------------------------------------------------------------------------

    def initialized(self, at: int, named: Named, valid: set[Place]) -> None:
        for warp, _, places in named.by_warp():
            for place in places:
                init = self._access("mbarrier.init", at, warp)
                init.notes["lanes"] = int(self.check.lanes.interval[warp]), named.lanes(warp, place)
                self._initialized(place, init, place in valid)
                self.inits[place] = init
                self._messages.pop(place, None)
                self.laps.forget(place)

    def _initialized(self, place: Place, init: Access, was_valid: bool) -> None:
        """`was_valid`: over an object that had not been invalidated."""
        slot, cta = place
        if was_valid:
            edge = "mbarrier.inval before the location is initialized anew"
            ruling = None if self._in_use(place) else Ruling.MBARRIER_REUSE
            old = self.inits.get(place)
            self.check.report(Verdict("M2", edge, "mbarrier.inval", ruling), old, init, self.where(place), cta)
            self._after_all_uses("M2", place, init)
        self._reused("M2", place, init)
        self.bits[cta] |= range_bits(self.machine.mbar.offsets[slot], MBARRIER_BYTES)
        for table in (self.uses, self.overwritten, self.foreign, self.told):
            table.pop(place, None)

    def invalidates(self, at: int, named: Named) -> None:
        for warp, _, places in named.by_warp():
            for place in places:
                self.use(at, warp, place, named)
                self._invalidated(place, self._access("mbarrier.inval", at, warp))

    def _invalidated(self, place: Place, inval: Access) -> None:
        slot, cta = place
        if self._in_use(place):
            edge = "completion of the operations and waits that use it"
            self.check.report(Verdict("M3", edge, "mbarrier.try_wait"), None, inval, self.where(place), cta)
        self._after_all_uses("M3", place, inval)
        self.bits[cta] &= ~range_bits(self.machine.mbar.offsets[slot], MBARRIER_BYTES)
        self.uses.pop(place, None)
        self.ended[place] = inval
        self.freed[cta] |= range_bits(self.machine.mbar.offsets[slot], MBARRIER_BYTES)

    def _reused(self, id: str, place: Place, new: Access) -> None:
        """The memory of an mbarrier that there was is used again: its end has to be known."""
        inval = self.ended.pop(place, None)
        if inval is None:
            return
        self.freed[place[1]] &= ~range_bits(self.machine.mbar.offsets[place[0]], MBARRIER_BYTES)
        if inval.warp != new.warp and not self.check.clocks.knows(new.warp, ORDER, inval.done):
            verdict = Verdict(id, "synchronization with the thread that invalidates", "bar.sync")
            self.check.report(verdict, inval, new, self.where(place), place[1])

    def _in_use(self, place: Place) -> bool:
        """Whether threads wait on it, or operations under way are to signal it."""
        M, key = self.machine, ("mbar", *place)
        return bool(M.mbar.tx[place] != 0 or key in M.engine.by_key or M.parked.get(key))

    def _after_all_uses(self, id: str, place: Place, new: Access) -> None:
        for warp, use in self.uses.get(place, {}).items():
            if warp != new.warp and not self.check.clocks.knows(new.warp, ORDER, use.done):
                verdict = Verdict(id, "synchronization with the threads that use it", "bar.sync")
                self.check.report(verdict, use, new, self.where(place), place[1])

    def expects(self, at: int, named: Named) -> None:
        self.used(at, named)
        for place in named.by_place():
            self.laps.is_signalled(place)

    def used(self, at: int, named: Named) -> None:
        for warp, _, places in named.by_warp():
            for place in places:
                self.use(at, warp, place, named)

    def use(self, at: int, warp: int, place: Place, who: Named | int | None) -> None:
        """Threads use an mbarrier, or an operation that the lane `who` (None: the warp) issues: its initialization must
        be known, and fenced if another proxy uses it."""
        M, clocks = self.machine, self.check.clocks
        init = self.inits.get(place)
        if init is None:
            return
        use = self._access("use of the mbarrier", at, warp)
        self.uses.setdefault(place, {})[warp] = use
        writer = self.overwritten.get(place)
        if writer is not None:
            verdict = Verdict("M4", "memory of its own for the mbarrier", "another address, or mbarrier.inval and init")
            self.check.report(verdict, writer, use, self.where(place), place[1])
        edge, ruling = None, None
        if not clocks.knows(warp, ORDER, init.done):
            wait = "bar.sync" if int(M.warp_cta[init.warp]) == int(M.warp_cta[warp]) else "barrier.cluster.wait"
            edge = "synchronization of this warp after the initialization", f"{wait} by this warp"
            if clocks.knows(warp, EXEC, init.done):
                # A relaxed cluster barrier is between, which orders no memory by itself: CUTLASS's kernels for pairs
                # of blocks initialize a barrier behind their last fence.
                edge = "a fence between the initialization and the relaxed barrier", _INIT_FENCE
                ruling = Ruling.INIT_FENCE if int(M.warp_cta[init.warp]) in self.fencing else None
        elif self._other_lane(init, warp, place, who):
            edge, ruling = ("synchronization between the lanes of the warp", "bar.warp.sync"), Ruling.LOCKSTEP
        elif not isinstance(who, Named) and not (
            clocks.fenced_for(warp, init.done, int(M.cta_rank[place[1]]))
            or clocks.knows(warp, ORDER, init.notes.get("fences", ()))
        ):
            # NVIDIA's tutorials have only the barrier.
            edge, ruling = ("a fence after the initialization", _INIT_FENCE), Ruling.INIT_FENCE
        if edge is not None:
            self.check.report(Verdict("H21", *edge, ruling), init, use, self.where(place), place[1])

    def _other_lane(self, init: Access, warp: int, place: Place, who: Named | int | None) -> bool:
        """Whether lanes that did not initialize an mbarrier use it with no synchronization of the warp between."""
        interval, lanes = init.notes["lanes"]
        if who is None or init.warp != warp or int(self.check.lanes.interval[warp]) != interval:
            return False
        return not set(who.lanes(warp, place) if isinstance(who, Named) else [who]) <= set(lanes)

    def written(self, cta: int, new: Access) -> None:
        """A store or a copy into shared memory that holds mbarriers, or has held some."""
        for place in [p for p in self.ended if p[1] == cta] if new.bits & self.freed[cta] else ():
            if new.bits & range_bits(self.machine.mbar.offsets[place[0]], MBARRIER_BYTES):
                self._reused("M4", place, new)
        common = new.bits & self.bits[cta]
        if not common:
            return
        verdict = Verdict("M4", "mbarrier.inval before the memory is used for something else", "mbarrier.inval",
                          Ruling.MBARRIER_REUSE)  # fmt: skip
        self.check.report(verdict, None, new, describe_bytes(common), cta)
        for slot, offset in enumerate(self.machine.mbar.offsets):
            if self.machine.mbar.valid[slot, cta] and common & range_bits(offset, MBARRIER_BYTES):
                self.overwritten[slot, cta] = new

    # Arrivals -----------------------------------------------------------------------------------------

    def arrives(self, at: int, named: Named, counts: Array) -> None:
        clocks, relaxed = self.check.clocks, self._relaxed(at)
        messages: dict[Place, list[tuple[int, Array]]] = {}
        for warp, lanes, places in named.by_warp():
            for cta in {cta for _, cta in places if cta != int(self.machine.warp_cta[warp])}:
                self.from_afar(at, warp, cta)
            self.check.lanes.arrived.add(warp)
            message = None if relaxed else clocks.release(warp, self._partial(warp, lanes))
            for place in places:
                self.use(at, warp, place, named)
                self.count(place, at)
                self.laps.arrives(place, at, warp)
                far = int(self.machine.warp_cta[warp]) != place[1]
                if far:
                    scope = mbarrier_scope(self.machine.program.code[at])
                    self.foreign.setdefault(place, []).append((self._access("arrival", at, warp), scope))
                told = clocks.release_relaxed(warp, far) if message is None else message
                messages.setdefault(place, []).append((warp, told))
        late = self._beyond_phase(named, counts) if messages else {}
        for (place, warp), split in late.items():
            self.laps.is_signalled(place)
            if split:
                arrival = self._access("arrival", at, warp)
                self.check.report(_MISCOUNTED, self.inits.get(place), arrival, self.where(place), place[1])
        for place, arrivals in messages.items():
            for warp, message in arrivals:
                if (place, warp) not in late:
                    self.tell(place, message.copy())
        self._late = [(place, dict(messages[place])[warp].copy()) for place, warp in late]

    def arrived(self) -> None:
        for place, message in self._late:
            self.tell(place, message)
        self._late = []

    def _partial(self, warp: int, lanes: Array) -> int | None:
        """The lanes of a warp that arrive, a bit each; None if all do that are left."""
        M = self.machine
        left = M.exists[warp] if M.converged[warp] else M.lane_state[warp] != GONE
        return None if (lanes | ~left).all() else int(np.packbits(lanes, bitorder="little").view(np.uint32)[0])

    def _beyond_phase(self, named: Named, counts: Array) -> dict[tuple[Place, int], bool]:
        """(mbarrier, warp) where not all of the warp's arrivals fall into the phase that is current now: what the warp
        has done is known only from the next one on. The value says whether some do."""
        pending, lanes = self.machine.mbar.pending, named.key >= 0
        if int(pending.reshape(-1)[named.key[lanes]].min()) >= int(counts[lanes].sum()):
            return {}
        rows, columns = np.nonzero(lanes)
        warps = int(named.warps.max()) + 1
        pairs = named.key[rows, columns] * warps + named.warps[rows]
        each, first, of = np.unique(pairs, return_index=True, return_inverse=True)
        totals = np.zeros(each.size, np.int64)
        np.add.at(totals, of, counts[rows, columns])
        left: dict[Place, int] = {}
        found = {}
        for i in np.argsort(first).tolist():
            key, warp = divmod(int(each[i]), warps)
            place, k = divmod(key, named.blocks), int(totals[i])
            before = left.get(place, int(pending[place]))
            left[place] = before - k
            if left[place] < 0:
                found[place, warp] = before > 0
        return found

    def commit_arrives(self, place: Place, at: int, warp: int) -> None:
        """A tcgen05.commit is over, whose arrival is of cluster scope (PTX ISA 9.7.16.12.1)."""
        if int(self.machine.warp_cta[warp]) != place[1]:
            self.foreign.setdefault(place, []).append((self._access("commit", at, warp), Scope.CLUSTER))

    def count(self, place: Place, at: int) -> None:
        """An arrival by a thread or an operation."""
        self.arrivals.setdefault(place, Counter())[at] += 1

    def tell(self, place: Place, message: Array) -> None:
        """An arrival brings a message."""
        self._messages[place] = self.check.clocks.merge(self._messages.get(place), message)

    def from_afar(self, at: int, warp: int, cta: int) -> Access:
        """A thread of another block arrives on an mbarrier of block `cta`, which must still be there."""
        arrival = self._access("arrival", at, warp)
        if self.machine.alive[cta] == 0:
            self.check.report(_PEER_GONE, None, arrival, "", cta)
        else:
            self._remote.setdefault(cta, []).append(arrival)
        return arrival

    def commit_leaves(self, place: Place, at: int, warp: int, over: Done) -> Access:
        """The arrival of a tcgen05.commit on another block's mbarrier, whose phase alone will prove that it is over:
        not that its operations are `over`, as another commit may tell."""
        arrival = self.from_afar(at, warp, place[1])
        arrival.done = []
        arrival.notes.update(at=place, over=over)
        return arrival

    def block_ended(self, cta: int) -> None:
        first, count = cta * self.machine.warps_per_cta, self.machine.warps_per_cta
        clocks = self.check.clocks
        for arrival in self._remote.pop(cta, ()):
            if clocks.known_by_block(first, count, arrival.done, EXEC):
                continue
            tolerated = clocks.known_by_block(first, count, arrival.notes.get("over", []), EXEC)
            self.check.report(_COMMIT_LEFT if tolerated else _PEER_GONE, None, arrival, "", cta)

    def fence_inits(self, warp: int) -> Array:
        """fence.mbarrier_init, of what this warp's threads have initialized: the message of it."""
        event, message = self.check.clocks.fence_inits(warp)
        self.fencing.add(int(self.machine.warp_cta[warp]))
        for init in self.inits.values():
            if init.warp == warp:
                init.done.append(event)
                init.notes.setdefault("fences", []).append(event)
        return message

    # Phases -------------------------------------------------------------------------------------------

    def phase_done(self, slot: int, cta: int) -> None:
        place, clocks = (slot, cta), self.check.clocks
        if self.foreign or self.told:
            self.told[place] = self.foreign.pop(place, [])
        component = self.component(slot, cta)
        arrivals = self._messages.pop(place, clocks.blank())
        self.laps.completed(place, arrivals)
        news = clocks.merge(clocks.blank(), arrivals)
        phase = int(self.machine.mbar.phase[place])
        news[:, component] = np.maximum(news[:, component], phase)
        if (copied := self._copied.get(place)) is not None:
            news[_GENERIC, copied] = np.maximum(news[_GENERIC, copied], phase)
        self._phases[place] = clocks.merge(self._phases.get(place), news)

    def passed(self, at: int, named: Named) -> None:
        clocks, relaxed = self.check.clocks, self._relaxed(at)
        for warp, _, places in named.by_warp():
            for place in places:
                self.use(at, warp, place, named)
                if self.machine.mbar.phase[place]:
                    self.check.waits.add(at)
                self.laps.passed(place, at, warp, self.component(*place))
                batch = self.check.batches.get(place)
                if batch is not None and warp in batch.warpgroup:
                    batch.waited = at
                self._check_scopes(place, at, warp)
                if place not in self._phases:
                    continue
                if relaxed:
                    clocks.receive_relaxed(warp, self._phases[place], bool(self.told.get(place)))
                else:
                    clocks.receive(warp, self._phases[place])
            self.check.lanes.waited(warp)

    def _check_scopes(self, place: Place, at: int, warp: int) -> None:
        """A warp has seen the last complete phase: the scopes of both sides have to take in both blocks."""
        for arrival, scope in self.told.get(place, ()):
            if int(self.machine.warp_cta[arrival.warp]) == int(self.machine.warp_cta[warp]):
                continue
            narrow = min(scope, mbarrier_scope(self.machine.program.code[at]))
            if narrow < Scope.CLUSTER:
                side = "arrive" if scope < Scope.CLUSTER else "wait"
                wait = self._access("wait", at, warp, False)
                edge = f"the scope .cluster on the {side}, not {narrow.suffix}"
                remedy = "mbarrier.arrive.release.cluster and try_wait.acquire.cluster"
                ruling, doubtful = Ruling.MBARRIER_SCOPE, arrival.kind == "commit"
                verdict = Verdict("M1", edge, remedy, None if doubtful else ruling, doubtful)
                self.check.report(verdict, arrival, wait, self.where(place), place[1])

    def history(self, slot: int, cta: int) -> str:
        code = self.machine.program.code
        counts = self.arrivals.get((slot, cta))
        if not counts:
            return "nothing has arrived on it"
        lines = [f"{code[at].opcode} at {_place(code[at])} {times} times" for at, times in sorted(counts.items())[:4]]
        more = f" and {len(counts) - 4} more instructions" if len(counts) > 4 else ""
        return f"arrivals so far: {', '.join(lines)}{more}"


def _place(ins: Any) -> str:
    return f"{ins.loc.file}:{ins.loc.line}" if ins.loc else f"PTX line {ins.line}"


_INIT_FENCE = "fence.mbarrier_init.release.cluster"
_PEER_GONE = Verdict("H26", "a wait for the arrival before the block ends", "barrier.cluster")
_COMMIT_LEFT = Verdict(
    "H26", "a wait on the commit's mbarrier before the block ends", "mbarrier.try_wait", Ruling.COMMIT_ARRIVAL
)
_THREADS = "an arrival count that is the number of threads that arrive"
_MISCOUNTED = Verdict("H24", _THREADS, "mbarrier.init")
