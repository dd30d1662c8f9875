# SPDX-License-Identifier: Apache-2.0
"""Asynchronous operations: what they touch while they are under way, and what tells that they are over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from porter.sim.check.checker import Checker
from porter.sim.check.clocks import EXEC, ORDER, PARKED, PAST, TENSOR
from porter.sim.check.judge import Batch, Verdict
from porter.sim.check.laps import WARPGROUP
from porter.sim.check.rulings import Ruling
from porter.sim.check.shadow import Access
from porter.sim.effects import Effect, Map, Outside, Shared, Span, Tensor
from porter.sim.exec_tmem import blocks_of_group
from porter.sim.footprints import column_bits, range_bits
from porter.sim.observer import Observer
from porter.sim.operation import Operation
from porter.sim.threads import lane_mask


class Channel:
    """tcgen05 operations of one thread since its last commit. `issued` counts all."""

    def __init__(self) -> None:
        self.issued = 0
        self.uncommitted: list[Access] = []


class Operations(Observer):
    def __init__(self, check: Checker) -> None:
        self.check = check
        self.machine = check.machine
        self._channels: dict[tuple[int, int], Channel] = {}
        # The operation that lands, and how many mbarriers it has signalled.
        self._landing: Effect | None = None
        self._signals = 0
        self._issued: dict[str, Callable[[Effect], None]] = {
            "mma": self._committable, "cp": self._committable, "shift": self._committable, "commit": self._commit,
            "ld": self._load, "dealloc": self._dealloc, "arrive": self._arrive,
        }  # fmt: skip

    # Issue --------------------------------------------------------------------------------------------

    def issues(self, effect: Effect) -> Effect:
        for touch in effect.touches:
            if isinstance(touch, Shared):
                self._shared(effect, touch)
            elif isinstance(touch, Tensor):
                self._tensor(effect, touch)
            elif isinstance(touch, Outside):
                self._outside(effect, touch)
        for touch in effect.touches:
            if isinstance(touch, Map):
                use = self.check.global_memory.use_tensor_map(effect.at, effect.warp, effect.lane, touch.address)
                effect.accesses += use
        if effect.kind in self._issued:
            self._issued[effect.kind](effect)
        told = (touch.signal for touch in effect.touches if isinstance(touch, Shared))
        if effect.kind == "arrive" or effect.signals or any(signal is not None for signal in told):
            effect.past = self.check.clocks.past(effect.warp)
        return effect

    def _access(self, effect: Effect, touch: Shared | Tensor, proxy: str, warp: int | None = None) -> Access:
        who = effect.warp if warp is None else warp
        now, pair = self.check.clocks.now(who), getattr(touch, "pair", None)
        return Access(effect.kind, effect.at, who, effect.lane, touch.write, proxy, touch.bits, [], now, pair)

    def _shared(self, effect: Effect, touch: Shared) -> None:
        check = self.check
        access = self._access(effect, touch, "generic" if effect.kind == "cp.async" else "async", touch.warp)
        if touch.signal is not None:
            check.mbarriers.use(effect.at, effect.warp, touch.signal, effect.lane)
            if touch.reduces:
                access.kind = "reduction"
            access.notes["stored"], access.notes["told"] = touch.stored, touch.signal[1]
            access.notes["signals"] = f"at shared address {self.machine.mbar.offsets[touch.signal[0]]:#x}"
        elif effect.kind == "copy":
            # Landing completes reading and writing alike.
            access.kind, access.done = "store", effect.accesses[0].done
            first = effect.touches[0]
            access.notes["sent"] = isinstance(first, Shared) and first.cta != touch.cta
        elif effect.kind == "wgmma":
            access.notes["registers"], access.notes["rows"] = effect.registers, effect.rows
            access.notes["warpgroup"] = list(range(effect.warp, effect.warp + 4))
            if effect.accesses and check.level == "practice":
                # CUTLASS lets one warp's wait stand for the warpgroup's operation; the ISA gives each warp its own.
                access.done = effect.accesses[0].done
        check.access_shared(touch.cta, access, reads=touch.reduces)
        effect.accesses.append(access)

    def _tensor(self, effect: Effect, touch: Tensor) -> None:
        access = self._access(effect, touch, "tensor")
        if effect.kind == "ld":
            access.notes["unread"] = set(effect.registers)
        self.check.access_tensor(touch.cta, access, reads=touch.reads)
        effect.accesses.append(access)

    def _outside(self, effect: Effect, touch: Outside) -> None:
        """Global memory: over, for a copy from there, when any of its mbarriers says so."""
        found, kind, signals = self.check.global_memory, effect.kind, ""
        if kind == "copy" and effect.accesses:
            # Of a multicast to at least one block.
            signals = f" ({effect.accesses[0].notes['signals']})"
        elif touch.reduces:
            kind = "reduce"
        access = found.bulk(kind, effect.at, effect.warp, effect.lane, touch.write, [], signals)
        access.operands = touch.same or None
        effect.accesses.append(access)
        if isinstance(touch.place, Span):
            found.copy_span(*touch.place, access)
        else:
            found.copy_tile(touch.place.tensor_map, touch.place.place, access, touch.place.mode, touch.place.shift)

    def _arrive(self, effect: Effect) -> None:
        """An arrival on an mbarrier that is told once earlier copies of the warp are over."""
        effect.accesses = [access for before in effect.after for access in before.accesses]

    # tcgen05 ------------------------------------------------------------------------------------------

    def _channel(self, warp: int, lane: int | None) -> tuple[Channel, int]:
        assert lane is not None
        found = self._channels.setdefault((warp, lane), Channel())
        return found, self.check.clocks.component(("tcgen05", int(self.check.clocks.own[warp]), lane))

    def _committable(self, effect: Effect) -> None:
        """An operation of one thread: its next commit will complete the accesses."""
        channel, component = self._channel(effect.warp, effect.lane)
        channel.issued += 1
        for access in effect.accesses:
            access.done.append((component, channel.issued))
        channel.uncommitted += effect.accesses

    def _warpgroup(self, warp: int) -> range:
        count = self.machine.warps_per_cta
        in_block = warp % count
        first = warp - in_block % WARPGROUP
        return range(first, min(first + WARPGROUP, warp - in_block + count))

    def _commit(self, effect: Effect) -> None:
        check, warp, at = self.check, effect.warp, effect.at
        clocks, cta = check.clocks, int(self.machine.warp_cta[warp])
        for signal in effect.signals:
            check.mbarriers.use(at, warp, signal, effect.lane)
        if not effect.signals:
            # A mask without blocks: nobody is told.
            return
        channel, component = self._channel(warp, effect.lane)
        if not channel.issued:
            new = check.generic("commit", at, warp, True, 1, 8)
            remedy = "tcgen05.commit in the thread that issues"
            verdict = Verdict("H22", "an operation of this thread to commit", remedy, Ruling.EMPTY_COMMIT)
            check.report(verdict, None, new, "", cta)
        offset = self.machine.mbar.offsets[effect.signals[0][0]]
        place = f"at shared address {offset:#x}, PTX line {self.machine.program.code[at].line}"
        batch = Batch(place, self._warpgroup(warp))
        for access in channel.uncommitted:
            access.notes["committed"] = batch
        channel.uncommitted = []
        check.batches.update(dict.fromkeys(effect.signals, batch))
        # The arrival tells that the operations are over, and all that they came after.
        message = clocks.message(warp)
        own = int(clocks.own[warp])
        message[~np.isin(np.arange(len(message)), (PARKED, PAST)), own] = 0
        tensor = clocks.state[warp, TENSOR, : message.shape[1]]
        np.maximum(message[PARKED], tensor, out=message[PARKED])
        for view in (ORDER, EXEC, PARKED):
            message[view, component] = channel.issued
        over = [(component, channel.issued)]
        away = [check.mbarriers.commit_leaves(place, at, warp, over) for place in effect.signals if place[1] != cta]
        effect.accesses = [message, *away]

    def elects(self, at: int, idx: Any, n: int, mask: Any) -> None:
        lanes = lane_mask(n, mask)
        for row, warp in enumerate(self.machine.warps(idx).tolist()):
            count = int(lanes[row].sum())
            if count > 1:
                new = Access("mma", at, warp, None, True, "tensor", 1, [], self.check.clocks.now(warp))
                verdict = Verdict("H23", f"the election of one thread ({count} threads execute it)", "elect.sync")
                self.check.report(verdict, None, new, "", int(self.machine.warp_cta[warp]))

    def tolerates(self, kind: str, at: int, warps: Any) -> None:
        for warp in warps.tolist():
            new = Access("operand", at, warp, None, False, "generic", 1, [], self.check.clocks.now(warp))
            self.check.report(_OPERANDS[kind], None, new, "", int(self.machine.warp_cta[warp]))

    def _load(self, effect: Effect) -> None:
        self.check.loads.setdefault(effect.warp, {}).setdefault(effect.at, []).extend(effect.accesses)

    def loaded(self, at: int, warp: int) -> None:
        loads = self.check.loads.pop(warp, {})
        self.check.completed_by(warp, [access for same in loads.values() for access in same], at)

    def allocates(self, cta: int, start: int, columns: int) -> None:
        self.check.tensor[cta].remove(column_bits(start, columns))

    def allocated(self, at: int, warp: int, offset: int, start: int, columns: int, group: int) -> None:
        M, check = self.machine, self.check
        cta = int(M.warp_cta[warp])
        check.access_shared(cta, check.generic("alloc", at, warp, True, range_bits(offset, 4), 4))
        now, done = check.clocks.now(warp), check.clocks.publish_alloc(warp)
        cells = Access("alloc", at, warp, None, True, "tensor", column_bits(start, columns), [done], now)
        check.tensor[cta].add(cells)
        if group == 2:
            # Neither block of a pair gets its columns before the other, so either allocation tells of both.
            other = blocks_of_group(M, cta, group, at, warp)[1 - int(M.cta_rank[cta]) % 2]
            for old in check.tensor[other].accesses:
                if old.kind == "alloc" and old.bits == cells.bits:
                    old.done, cells.done = [*old.done, now], [*cells.done, *old.done]
                    check.clocks.meet(warp, int(M.cta_rank[other]))
                    check.clocks.meet(old.warp, int(M.cta_rank[cta]))

    def _dealloc(self, effect: Effect) -> None:
        for touch in effect.touches:
            assert isinstance(touch, Tensor)
            self.check.tensor[touch.cta].remove(touch.bits)

    # Completion ---------------------------------------------------------------------------------------

    def landing(self, op: Operation) -> None:
        self._landing, self._signals = op.effect, 0

    def landed(self, op: Operation) -> None:
        self._landing = None

    def signals(self, slot: int, cta: int, arrivals: int, nbytes: int) -> None:
        """The mbarrier's current phase will prove that the landing operation is over."""
        effect, life = self._landing, self.check.mbarriers
        if effect is None:
            return
        life.tell((slot, cta), self.check.clocks.issued(effect.past))
        life.laps.is_signalled((slot, cta), self._over(effect))
        if effect.kind in ("commit", "arrive"):
            life.count((slot, cta), effect.at)
        if int(self.machine.warp_cta[effect.warp]) != cta:
            # Whatever comes from another block tells that it runs.
            life.tell((slot, cta), self.check.clocks.start(effect.warp))
        component = life.copied(slot, cta) if effect.kind == "arrive" else life.component(slot, cta)
        proof = component, int(self.machine.mbar.phase[slot, cta]) + 1
        if effect.kind == "commit":
            message, *away = effect.accesses
            for arrival in (a for a in away if a.notes["at"] == (slot, cta)):
                arrival.done.append(proof)
            life.commit_arrives((slot, cta), effect.at, effect.warp)
            life.tell((slot, cta), message.copy())
            return
        for i, access in enumerate(effect.accesses):
            # Each part of a copy is told to its own mbarrier.
            part = effect.kind == "copy" and isinstance(access, Access)
            if not part or i == self._signals:
                access.done.append(proof)
        self._signals += 1

    def _over(self, effect: Effect) -> tuple[int, int] | None:
        """What tells that a landing operation is over, beside its mbarrier: of a commit any later one of its thread."""
        if effect.kind != "commit":
            return None
        message, component = effect.accesses[0], self._channel(effect.warp, effect.lane)[1]
        issued = int(message[EXEC, component])
        return (component, issued) if issued else None

    def grouped(self, warp: int, ops: Sequence[Operation]) -> None:
        for op in ops:
            for access in op.effect.accesses if op.effect is not None else ():
                if access.warp == warp:
                    access.grouped = True

    def waited(self, at: int, due: Iterable[tuple[int, Sequence[Operation]]], read: bool) -> None:
        for warp, ops in due:
            for op in ops:
                mine = [] if op.effect is None else [a for a in op.effect.accesses if a.warp == warp]
                if op.effect is not None and op.effect.kind == "store":
                    # wait_group.read completes the reading of shared memory alone.
                    mine = [a for a in mine if not a.done and not (read and a.write)]
                self.check.completed_by(warp, mine, at)


_OPERANDS = {
    "A1": Verdict("A1", "a generic address of the mbarrier", "cvta.shared, or .shared::cluster on the tcgen05.commit",
                  Ruling.SHARED_OFFSET),
    "A3": Verdict("A3", "another block of the cluster", "an ordinary store or reduction in the own block",
                  Ruling.OWN_BLOCK),
    "A2": Verdict("A2", "the lane without the rank of the block", "", Ruling.LANE_FIELD),
    "A4": Verdict("A4", "the first lane of the warp's own quarter",
                  "add (warp % 4 * 32) << 16 to the address", Ruling.LANE_FIELD),
}  # fmt: skip
