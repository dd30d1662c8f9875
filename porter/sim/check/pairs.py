# SPDX-License-Identifier: Apache-2.0
"""The life of Tensor Memory where more than one block or warp has a part in it: allocations of a block pair, and the
right to allocate (PTX ISA 9.7.16.5, 9.7.16.7.1).

The simulator gives both blocks of a pair their columns at once, and as late as legal frees them at once. The ISA
promises neither: the first warp to come *could* block until the peer's comes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from porter.sim.check.checker import Checker
from porter.sim.check.clocks import EXEC, PARKED, Done
from porter.sim.check.judge import Verdict, judge_tensor
from porter.sim.check.rulings import Ruling
from porter.sim.check.shadow import Access, describe_cells
from porter.sim.effects import Effect, Tensor
from porter.sim.footprints import column_bits
from porter.sim.observer import Observer

_SYNC = "barrier.cluster.arrive and .wait"


class TensorLifetime(Observer):
    """Of one wave."""

    def __init__(self, check: Checker) -> None:
        self.check = check
        self.machine = check.machine
        # Allocations in their order, by block; those of pairs also by columns, with how many of these are free again.
        self._allocs: dict[int, list[tuple[Access, int]]] = {}
        self._of_pair: dict[tuple[int, int], list[Access]] = {}
        self._freed: dict[tuple[int, int], int] = {}
        # Columns of a block that its peer has deallocated and it has not.
        self._half_freed: dict[int, list[Access]] = {}

    def _peer(self, warp: int) -> int:
        """The other block of the pair: its rank differs in the last bit."""
        return int(self.machine.warp_cta[warp]) ^ 1

    def _knows(self, warp: int, done: Done) -> bool:
        """Allocations are synchronous, so order of execution is enough."""
        clocks = self.check.clocks
        return clocks.knows(warp, EXEC, done) or clocks.knows(warp, PARKED, done)

    # Allocation ---------------------------------------------------------------------------------------

    def asks(self, at: int, warp: int, group: int) -> None:
        if group == 1:
            return
        peer = self._peer(warp)
        if self.check.clocks.started(warp, int(self.machine.cta_rank[peer])):
            return
        new = self._access("alloc", at, warp, 1)
        verdict = Verdict(
            "L1", "synchronization with the peer block before the allocation", _SYNC, Ruling.PAIR_ALLOCATION
        )
        self.check.report(verdict, None, new, "", peer)

    def allocated(self, at: int, warp: int, offset: int, start: int, columns: int, group: int) -> None:
        cta, bits = int(self.machine.warp_cta[warp]), column_bits(start, columns)
        new = self._access("alloc", at, warp, bits)
        earlier = self._allocs.setdefault(cta, [])
        if earlier and earlier[-1][1] < columns:
            missing = f"an order of allocations without growth, {columns} columns after {earlier[-1][1]}"
            verdict = Verdict("L4", missing, "the larger tcgen05.alloc first", Ruling.ALLOCATION_ORDER)
            self.check.report(verdict, earlier[-1][0], new, "", cta)
        earlier.append((new, columns))
        if group == 2:
            self._of_pair.setdefault((cta, bits), []).append(new)

    def _access(self, kind: str, at: int, warp: int, bits: int) -> Access:
        now = self.check.clocks.now(warp)
        return Access(kind, at, warp, None, True, "tensor", bits, [now], now)

    def relinquishes(self, at: int, warp: int, group: int) -> None:
        cta = int(self.machine.warp_cta[warp])
        for old, _ in self._allocs.get(cta, ()):
            if old.warp != warp and not self._knows(warp, old.done):
                new = self._access("relinquish", at, warp, 1)
                self.check.report(_RELINQUISHED, old, new, "", cta)

    # Deallocation -------------------------------------------------------------------------------------

    def allocates(self, cta: int, start: int, columns: int) -> None:
        self._allocated_anew(cta, column_bits(start, columns))

    def _allocated_anew(self, cta: int, bits: int) -> None:
        left = [access for access in self._half_freed.get(cta, ()) if not access.bits & bits]
        self._half_freed[cta] = left

    def frees(self, at: int, warp: int, bits: int, group: int) -> None:
        cta, peer = int(self.machine.warp_cta[warp]), self._peer(warp)
        if group == 1:
            return
        new = self._access("dealloc", at, warp, bits)
        self._allocated_anew(cta, bits)
        number = self._freed.get((cta, bits), 0)
        self._freed[cta, bits] = number + 1
        theirs = self._of_pair.get((peer, bits), ())[number:]
        if not theirs or not self._knows(warp, theirs[0].done):
            self.check.report(_NOT_ALLOCATED, theirs[0] if theirs else None, new, describe_cells(bits), peer)
        for old in self.check.tensor[peer].accesses:
            if old.bits & bits and old.kind != "alloc":
                verdict = judge_tensor(self.check.clocks, old, new)
                if verdict is not None:
                    verdict = replace(verdict, id="L2", ruling=Ruling.PAIR_FREE)
                    self.check.report(verdict, old, new, describe_cells(old.bits & bits), peer)
        if self._freed.get((peer, bits), 0) <= number:
            self._half_freed.setdefault(peer, []).append(new)

    # Operations ---------------------------------------------------------------------------------------

    def issues(self, effect: Effect) -> Effect:
        for touch in effect.touches:
            if isinstance(touch, Tensor) and effect.kind != "dealloc":
                for old in self._half_freed.get(touch.cta, ()):
                    self._after_half_freed(effect, touch, old)
        if effect.kind in _OF_PAIRS and not effect.touches:
            self._needs_peer(effect)
        return effect

    def _after_half_freed(self, effect: Effect, touch: Tensor, old: Access) -> None:
        common = old.bits & touch.bits
        if common and old.warp != effect.warp:
            now = self.check.clocks.now(effect.warp)
            new = Access(effect.kind, effect.at, effect.warp, effect.lane, touch.write, "tensor", common, [], now)
            self.check.report(_HALF_FREED, old, new, describe_cells(common), touch.cta)

    def _needs_peer(self, effect: Effect) -> None:
        """An operation of a pair that touches no memory there."""
        given: Any = self.machine.program.code[effect.at].modifiers
        peer = self._peer(effect.warp)
        if given.get("cta_group", "")[-1:] == "2" and self.machine.alive[peer] == 0:
            now = self.check.clocks.now(effect.warp)
            new = Access(effect.kind, effect.at, effect.warp, effect.lane, True, "generic", 1, [], now)
            self.check.report(_GONE, None, new, "", peer)


_OF_PAIRS = frozenset(("commit", "shift"))
_RELINQUISHED = Verdict("L3", "synchronization with the warp that allocates", "bar.sync after tcgen05.alloc")
_NOT_ALLOCATED = Verdict(
    "L2", "synchronization with the peer block between its tcgen05.alloc and this tcgen05.dealloc", _SYNC
)
_HALF_FREED = Verdict(
    "L2", "synchronization with the peer block after this access, ahead of its tcgen05.dealloc", _SYNC, Ruling.PAIR_FREE
)
_GONE = Verdict("H26", "a wait of the peer block for this operation before it ends", "barrier.cluster")
