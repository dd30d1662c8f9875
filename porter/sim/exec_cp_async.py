# SPDX-License-Identifier: Apache-2.0
"""cp.async: 4 to 16 bytes per thread from global to shared memory (PTX ISA 9.7.9.25.3)."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from porter.ptx.forms.grammar import Completion
from porter.ptx.table import Decoded
from porter.sim.codegen import Context, emits, runtime
from porter.sim.effects import Effect, Shared
from porter.sim.exec_bulk import emit_bulk
from porter.sim.exec_memory import shared_index
from porter.sim.footprints import byte_bits
from porter.sim.global_access import global_groups
from porter.sim.machine import Machine
from porter.sim.operation import Groups, Operation
from porter.sim.shared_address import shared_address
from porter.sim.threads import active_warps, per_lane

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CopyBatch:
    """One cp.async executed by several warps; each warp's part lands by itself. Arrays are [n, 32]: `target`
    indices of all shared memory, `source` offsets in `found`, of which `sizes` bytes are copied."""

    machine: Machine
    warp_row: dict[int, int]
    item: int
    target: Array
    found: Any
    source: Array
    lanes: Array
    sizes: Array

    def land(self, warp: int) -> None:
        r = self.warp_row[warp]
        lanes = self.lanes[r]
        if not lanes.any():
            return
        steps = np.arange(self.item)
        source = self.source[r][lanes].astype(np.int64)[:, None] + steps
        inside = steps[None, :] < self.sizes[r][lanes][:, None]
        data = self.found.data[np.where(inside, source, 0)]
        self.machine.smem_flat[self.target[r][lanes][:, None] + steps] = np.where(inside, data, 0)


class CopyOperands(NamedTuple):
    """Operands of a cp.async of `item` bytes a thread; `size` and `ignore` may be None."""

    dst: Any
    src: Any
    item: int
    size: Any
    ignore: Any

    def sizes(self, n: int) -> Array:
        """The bytes that each thread reads, [n, 32]; the others of its `item` bytes become zero."""
        sizes = np.minimum(per_lane(self.item if self.size is None else self.size, n).astype(np.int64), self.item)
        return sizes if self.ignore is None else np.where(per_lane(self.ignore, n), 0, sizes)


runtime(CopyOperands)


def _copies(M: Machine, warp: int) -> Groups:
    return M.copies.setdefault(warp, Groups())


@runtime
def cp_async(M: Machine, at: int, idx: Any, n: int, mask: Any, operands: CopyOperands) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32)).copy()
    if not lanes.any():
        return
    item = operands.item
    target = np.broadcast_to(shared_index(M, at, idx, n, mask, operands.dst, item, False), (n, 32))
    sizes = operands.sizes(n)
    reads = lanes & (sizes > 0)
    row_of = {warp: row for row, warp in enumerate(M.warps(idx).tolist())}
    batches: list[CopyBatch] = []
    groups = global_groups(M, at, idx, n, reads, operands.src, item) if reads.any() else []
    for found, offsets, part in groups:
        here = reads if part is None else part
        batches.append(CopyBatch(M, row_of, item, target, found, per_lane(offsets, n), here, sizes))
    zeros = lanes & ~reads
    if zeros.any():
        blank, nowhere = SimpleNamespace(data=np.zeros(1, np.uint8)), np.zeros((n, 32), np.uint64)
        batches.append(CopyBatch(M, row_of, item, target, blank, nowhere, zeros, sizes * 0))
    effects: dict[int, Effect] = {}
    if M.observer is not None:
        for row, warp in active_warps(M, idx, n, mask):
            cta = int(M.warp_cta[warp])
            bits = byte_bits(target[row][lanes[row]].astype(np.int64) - cta * M.smem_stride, item)
            effect = Effect("cp.async", at, warp, None, [Shared(cta, bits, True)], Completion.CP_ASYNC_GROUP)
            effects[warp] = M.observer.issues(effect)
        whole = lanes & (sizes == item)
        if whole.any():
            M.observer.touches_global(at, idx, n, whole, groups, item, item, "cp.async", effects=effects)
    for _, warp in active_warps(M, idx, n, mask):

        def land(warp: int = warp, parts: list[CopyBatch] = batches) -> None:
            for b in parts:
                b.land(warp)

        op = Operation(at, warp, land, effect=effects.get(warp))
        M.engine.issue(op)
        _copies(M, warp).open.append(op)


@runtime
def cp_async_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    for _, warp in active_warps(M, idx, n, mask):
        M.engine.commit(warp, _copies(M, warp))


@runtime
def cp_async_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int) -> None:
    """Wait until at most `left` groups are pending; -1: until all copies have landed."""
    due = []
    for _, warp in active_warps(M, idx, n, mask):
        state = _copies(M, warp)
        due.append((warp, state.due(max(left, 0))))
        if left < 0:
            due.append((warp, state.open))
            state.open = []
    M.engine.wait(at, idx, n, mask, due)


def arrivals(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any) -> list[tuple[int, tuple[int, int], int]]:
    """(warp, mbarrier as (slot, block), threads) of a cp.async.mbarrier.arrive, in the order of issue."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if not lanes.any():
        return []
    slots, ctas = M.mbar.locate(at, idx, n, lanes, addr)
    warps = np.broadcast_to(M.warps(idx)[:, None], (n, 32))[lanes]
    key = (warps * len(M.mbar.offsets) + slots) * M.n_cta + ctas
    found = []
    for k, count in zip(*(x.tolist() for x in np.unique(key, return_counts=True)), strict=True):
        rest, cta = divmod(k, M.n_cta)
        warp, slot = divmod(rest, len(M.mbar.offsets))
        found.append((warp, (slot, cta), count))
    return found


@runtime
def cp_async_arrive(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, noinc: bool) -> None:
    """Arrive on an mbarrier once the thread's earlier cp.async operations have landed."""
    due = arrivals(M, at, idx, n, mask, addr)
    if not noinc:
        for _, place, count in due:
            M.mbar.pending[place] += count
    for warp, place, count in due:

        def land(slot: int = place[0], cta: int = place[1], count: int = count) -> None:
            M.mbar.arrive(slot, cta, at, count)

        earlier = _copies(M, warp).all()
        effect = None
        if M.observer is not None:
            after = [op.effect for op in earlier if op.effect is not None]
            effect = Effect("arrive", at, warp, None, (), Completion.MBARRIER_ARRIVE, [place], after)
            M.observer.issues(effect)
        M.engine.issue(Operation(at, warp, land, earlier, [("mbar", *place)], effect=effect))


# Code generation ----------------------------------------------------------------------------------------


@emits("cp.async")
def _cp_async(cg: Context, ins: Decoded) -> None:
    given = ins.modifiers
    if "bulk" in given:
        emit_bulk(cg, ins)
    elif "commit_group" in given:
        cg.line(cg.call("cp_async_commit"))
    elif "wait_group" in given or "wait_all" in given:
        cg.line(cg.call("cp_async_wait", str(cg.integer(ins["n"])) if "n" in ins else "-1"))
    elif "mbar" in ins:
        cg.line(cg.call("cp_async_arrive", shared_address(cg, "mbar"), str("noinc" in given)))
    else:
        # The operand is a number of bytes, or a predicate that says to ignore the source.
        size = ignore = "None"
        if any(cg.program.widths.get(name) == 1 for name in ins.registers("src_size")):
            ignore = cg.get("src_size", "p")
        elif "src_size" in ins:
            size = cg.get("src_size")
        operands = cg.get("dst"), cg.get("src"), str(cg.integer(ins["size"])), size, ignore
        cg.line(cg.call("cp_async", f"CopyOperands({', '.join(operands)})"))
