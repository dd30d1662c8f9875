# SPDX-License-Identifier: Apache-2.0
"""What all parts of the checker share: what warps and lanes know, and the hazards that they report."""

from __future__ import annotations

import functools
from operator import or_
from typing import Any

from porter.ptx.table import Decoded
from porter.sim.check.catalog import KINDS
from porter.sim.check.clocks import ORDER, Clocks
from porter.sim.check.global_shadow import GlobalAccess
from porter.sim.check.hazard import Hazard, Level, Severity, Site, edge
from porter.sim.check.judge import AFTER_COMMIT, AFTER_WAIT_GROUP, Batch, Verdict, race_name, waited_at
from porter.sim.check.lanes import Lanes
from porter.sim.check.rulings import Ruling
from porter.sim.check.shadow import Access
from porter.sim.effects import Place
from porter.sim.machine import Machine


class Reports:
    """Of one wave."""

    def __init__(self, machine: Machine, level: Level) -> None:
        self.machine = machine
        self.level = level
        self.clocks = Clocks(machine.W, machine.warps_per_cta * machine.cluster_size, machine.cluster_size)
        self.lanes = Lanes(machine, self.clocks)
        self.hazards: dict[Any, Hazard] = {}
        # Waits and fences that made something known to a warp.
        self.waits: set[int] = set()
        # What the last commit on each mbarrier closed.
        self.batches: dict[Place, Batch] = {}

    def generic(self, kind: str, at: int, warp: int, write: bool, bits: int, item: int) -> Access:
        now = self.clocks.now(warp)
        return Access(kind, at, warp, None, write, "generic", bits, [now], now, item=item)

    def site(self, access: Access | GlobalAccess) -> Site:
        M = self.machine
        ins = self._instruction(access)
        if isinstance(access, GlobalAccess):
            # Its block may be one of an earlier wave.
            what, block = _GLOBAL_WHAT.get(access.kind, access.kind), access.wave.position(access.warp)
        else:
            what = _WHAT.get((access.kind, access.proxy), access.kind)
            block = M.block_position(int(M.warp_cta[access.warp]))
        return Site(
            what=what,
            opcode=ins.opcode,
            ptx_line=ins.line,
            loc=ins.loc,
            block=block,
            warp=access.warp % M.warps_per_cta,
            lane=access.lane,
        )

    def report(
        self,
        verdict: Verdict,
        old: Access | GlobalAccess | None,
        new: Access | GlobalAccess,
        where: str,
        cta: int | None,
    ) -> None:
        """`cta` is the block whose memory it is, None for global memory."""
        if verdict.doubtful and self.level == "practice":
            return
        relied = self._relied(old, new) if verdict.ruling is None else None
        ruling = verdict.ruling or relied
        lenient = ruling is not None and self.level == "practice"
        severity: Severity = "review" if lenient or verdict.doubtful else "error"
        # Unrolled loops repeat one source line; each line is reported once.
        key = verdict.id, None if old is None else self._place(old), self._place(new), severity
        found = self.hazards.get(key)
        waited = waited_at(old) if verdict.missing in (AFTER_COMMIT, AFTER_WAIT_GROUP) else None
        lacking = edge(
            verdict.missing,
            verdict.remedy,
            relied in (Ruling.LOAD_DEPENDENCE, Ruling.WARPGROUP_WAIT),
            None if waited is None else self.machine.program.code[waited].loc,
        )
        if found is not None:
            found.count += 1
            found.edges.add(lacking)
            return
        if cta is not None:
            x, y, z = self.machine.block_position(cta)
            where = f"{where} of block {x},{y},{z}" if where else f"block {x},{y},{z}"
        self.hazards[key] = Hazard(
            kind=KINDS[verdict.id],
            severity=severity,
            race=race_name(old, new),
            kernel=self.machine.program.entry.name,
            first=None if old is None else self.site(old),
            second=self.site(new),
            where=where,
            missing=verdict.missing,
            remedy=verdict.remedy,
            strict=verdict.ruling is not None and not verdict.doubtful,
            ruling=ruling,
            edges={lacking},
        )

    def _instruction(self, access: Access | GlobalAccess) -> Decoded:
        """Of this grid, or of one that it may overlap with."""
        program = access.wave.program if isinstance(access, GlobalAccess) else self.machine.program
        return program.code[access.at]

    def _place(self, access: Access | GlobalAccess) -> tuple[object, str]:
        ins = self._instruction(access)
        return ins.loc or ins.line, ins.opcode

    def _relied(self, old: Access | GlobalAccess | None, new: Access | GlobalAccess) -> Ruling | None:
        """More than the letter of the ISA asks for an edge, but in practice something else orders this pair."""
        if not (isinstance(old, Access) and isinstance(new, Access)):
            return None
        if self._consumed(old, new):
            return Ruling.LOAD_DEPENDENCE
        if self._by_warpgroup(old, new):
            return Ruling.WARPGROUP_WAIT
        return Ruling.PADDING_ROWS if _padding(new, old) or _padding(old, new) else None

    def _consumed(self, old: Access, new: Access) -> bool:
        """A load whose registers had all been used before: the register dependence has waited for it."""
        used = old.notes.get("consumed")
        return old.kind == "ld" and not old.done and used is not None and self.clocks.knows(new.warp, ORDER, [used])

    def _by_warpgroup(self, old: Access, new: Access) -> bool:
        """A wgmma reads what another warp of its warpgroup knows to be there. The ISA wants a barrier; the four
        warps of a wgmma meet before it all the same, and NVIDIA's tutorial wgmma_sm90 relies on that."""
        group = new.notes.get("warpgroup", ())
        return any(self.clocks.knows(warp, ORDER, old.done) for warp in group)


def _padding(read: Access, write: Access) -> bool:
    """Of the operand that a wgmma multiplies row by row, what is written leaves out the first rows: results of the
    others are of use to nobody where a tile has fewer rows than the instruction."""
    rows = read.notes.get("rows") or (0,)
    common = read.bits & write.bits
    return write.write and not rows[0] & write.bits and common != 0 and not common & ~functools.reduce(or_, rows)


_WHAT = {
    ("arrival", "generic"): "arrival on another block's mbarrier", ("wait", "generic"): "wait on an mbarrier",
    ("operand", "generic"): "operand", ("register", "generic"): "use of registers",
    ("wgmma", "generic"): "wgmma using registers", ("barrier", "generic"): "barrier",
    ("commit", "generic"): "tcgen05.commit", ("setmaxnreg", "generic"): "setmaxnreg",
    ("load", "generic"): "load", ("write", "generic"): "store", ("atomic", "generic"): "atomic",
    ("alloc", "generic"): "tcgen05.alloc writing the address", ("alloc", "tensor"): "tcgen05.alloc",
    ("mma", "tensor"): "tcgen05.mma on Tensor Memory", ("mma", "async"): "tcgen05.mma reading shared memory",
    ("cp", "tensor"): "tcgen05.cp to Tensor Memory", ("cp", "async"): "tcgen05.cp reading shared memory",
    ("relinquish", "tensor"): "tcgen05.relinquish_alloc_permit", ("shift", "generic"): "tcgen05.shift",
    ("ld", "tensor"): "tcgen05.ld", ("st", "tensor"): "tcgen05.st", ("dealloc", "tensor"): "tcgen05.dealloc",
    ("wgmma", "async"): "wgmma reading shared memory", ("copy", "async"): "asynchronous copy to shared memory",
    ("reduction", "async"): "asynchronous reduction in shared memory",
    ("store", "async"): "asynchronous copy from shared memory", ("cp.async", "generic"): "cp.async",
}  # fmt: skip
_GLOBAL_WHAT = {
    "load": "load from global memory", "write": "store to global memory", "atomic": "atomic on global memory",
    "copy": "asynchronous copy from global memory", "store": "asynchronous copy to global memory",
    "reduce": "asynchronous reduction in global memory", "cp.async": "cp.async from global memory",
    "tensor map": "asynchronous copy reading its tensor map",
}  # fmt: skip
