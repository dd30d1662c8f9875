# SPDX-License-Identifier: Apache-2.0
"""The life of mbarrier objects: who used and who arrived on them, scopes, re-initialization, invalidation,
overwriting (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from porter.ptx.memory_order import Scope, mbarrier_scope
from porter.sim.check.clocks import ORDER
from porter.sim.check.judge import Verdict
from porter.sim.check.reports import Reports
from porter.sim.check.shadow import Access, describe_bytes, range_bits

_BYTES = 8
Place = tuple[int, int]
"""An mbarrier: slot and block."""


class MbarrierLife:
    """Of one wave."""

    def __init__(self, check: Reports) -> None:
        self.check = check
        self.machine = check.machine
        self.inits: dict[Place, Access] = {}
        self.bits = [0] * self.machine.n_cta
        # Each warp's last use of an mbarrier, and what overwrote one.
        self.uses: dict[Place, dict[int, Access]] = {}
        self.overwritten: dict[Place, Access] = {}
        # Arrivals of other blocks' threads: in the phase that goes on, and in the last complete one.
        self.foreign: dict[Place, list[tuple[Access, Scope]]] = {}
        self.told: dict[Place, list[tuple[Access, Scope]]] = {}
        # How often each instruction has arrived, for the report of a deadlock.
        self.arrivals: dict[Place, Counter[int]] = {}

    def where(self, place: Place) -> str:
        return f"mbarrier {self.machine.mbar.offsets[place[0]]:#x}"

    # Life cycle ---------------------------------------------------------------------------------------

    def initialized(self, place: Place, init: Access, was_valid: bool) -> None:
        """mbarrier.init by a thread; `was_valid`: over an object that had not been invalidated."""
        slot, cta = place
        if was_valid:
            edge = "mbarrier.inval before the location is initialized anew"
            strict = not self._in_use(place)
            old = self.inits.get(place)
            self.check.report(Verdict("M2", edge, "mbarrier.inval", strict=strict), old, init, self.where(place), cta)
            self._after_all_uses("M2", place, init)
        self.bits[cta] |= range_bits(self.machine.mbar.offsets[slot], _BYTES)
        for table in (self.uses, self.overwritten, self.foreign, self.told):
            table.pop(place, None)

    def invalidated(self, place: Place, inval: Access) -> None:
        slot, cta = place
        if self._in_use(place):
            edge = "completion of the operations and waits that use it"
            self.check.report(Verdict("M3", edge, "mbarrier.try_wait"), None, inval, self.where(place), cta)
        self._after_all_uses("M3", place, inval)
        self.bits[cta] &= ~range_bits(self.machine.mbar.offsets[slot], _BYTES)
        self.uses.pop(place, None)

    def _in_use(self, place: Place) -> bool:
        """Whether threads wait on it, or operations under way are to signal it."""
        M, key = self.machine, ("mbar", *place)
        return bool(M.mbar.tx[place] != 0 or key in M.engine.by_key or M.parked.get(key))

    def _after_all_uses(self, id: str, place: Place, new: Access) -> None:
        for warp, use in self.uses.get(place, {}).items():
            if warp != new.warp and not self.check.clocks.knows(new.warp, ORDER, use.done):
                verdict = Verdict(id, "synchronization with the threads that use it", "bar.sync")
                self.check.report(verdict, use, new, self.where(place), place[1])

    def used(self, place: Place, use: Access) -> None:
        """A thread, or an operation that it issues, uses the mbarrier."""
        self.uses.setdefault(place, {})[use.warp] = use
        writer = self.overwritten.get(place)
        if writer is not None:
            verdict = Verdict("M4", "memory of its own for the mbarrier", "another address, or mbarrier.inval and init")
            self.check.report(verdict, writer, use, self.where(place), place[1])

    def written(self, cta: int, new: Access) -> None:
        """A store or a copy into shared memory that holds live mbarriers."""
        common = new.bits & self.bits[cta]
        if not common:
            return
        verdict = Verdict("M4", "mbarrier.inval before the memory is used for something else", "mbarrier.inval",
                          strict=True)  # fmt: skip
        self.check.report(verdict, None, new, describe_bytes(common), cta)
        for slot, offset in enumerate(self.machine.mbar.offsets):
            if self.machine.mbar.valid[slot, cta] and common & range_bits(offset, _BYTES):
                self.overwritten[slot, cta] = new

    # Arrivals -----------------------------------------------------------------------------------------

    def arrived(self, place: Place, at: int, warp: int | None) -> None:
        """An arrival by a thread, or (`warp` is None) by an operation."""
        self.arrivals.setdefault(place, Counter())[at] += 1
        if warp is not None and int(self.machine.warp_cta[warp]) != place[1]:
            scope = mbarrier_scope(self.machine.program.code[at])
            access = self.check.generic("arrival", at, warp, True, 1, _BYTES)
            self.foreign.setdefault(place, []).append((access, scope))

    def phase_done(self, place: Place) -> None:
        if self.foreign or self.told:
            self.told[place] = self.foreign.pop(place, [])

    def waited(self, place: Place, at: int, warp: int) -> None:
        """A warp has seen the last complete phase: the scopes of both sides have to take in both blocks."""
        for arrival, scope in self.told.get(place, ()):
            if int(self.machine.warp_cta[arrival.warp]) == int(self.machine.warp_cta[warp]):
                continue
            narrow = min(scope, mbarrier_scope(self.machine.program.code[at]))
            if narrow < Scope.CLUSTER:
                side = "arrive" if scope < Scope.CLUSTER else "wait"
                wait = self.check.generic("wait", at, warp, False, 1, _BYTES)
                edge = f"the scope .cluster on the {side}, not {narrow.suffix}"
                remedy = "mbarrier.arrive.release.cluster and try_wait.acquire.cluster"
                verdict = Verdict("M1", edge, remedy, strict=True)
                self.check.report(verdict, arrival, wait, self.where(place), place[1])

    def history(self, slot: int, cta: int) -> str:
        """Who has arrived so far, for the report of a deadlock."""
        code = self.machine.program.code
        counts = self.arrivals.get((slot, cta))
        if not counts:
            return "nothing has arrived on it"
        lines = [f"{code[at].opcode} at {_place(code[at])} {times} times" for at, times in sorted(counts.items())[:4]]
        more = f" and {len(counts) - 4} more instructions" if len(counts) > 4 else ""
        return f"arrivals so far: {', '.join(lines)}{more}"


def _place(ins: Any) -> str:
    return f"{ins.loc.file}:{ins.loc.line}" if ins.loc else f"PTX line {ins.line}"
