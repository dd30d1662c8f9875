# SPDX-License-Identifier: Apache-2.0
"""Asynchronous copies: cp.async, bulk copies and reductions, st.async (PTX ISA 9.7.9.25 to 9.7.9.27)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.sim.codegen import WIDTH_OF, Context, Unsupported, emits, kind_of, runtime
from porter.sim.engine import Operation
from porter.sim.exec_memory import global_groups, shared_index
from porter.sim.mbarrier import shared_address
from porter.sim.memory import MemoryAccessError
from porter.sim.reduction import combine
from porter.sim.results import Stop

if TYPE_CHECKING:
    from porter.sim.machine import Machine

Array = npt.NDArray[Any]
_OFFSET = (1 << 24) - 1


def active_lanes(M: Machine, idx: Any, n: int, mask: Any) -> list[tuple[int, int, int]]:
    """(row, lane, warp) of every active thread."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    warps = M.warps(idx)
    return [(row, lane, int(warps[row])) for row, lane in np.argwhere(lanes).tolist()]


def per_lane(value: Any, n: int) -> Array:
    """A value for every thread [n, 32]."""
    array = np.asarray(value)
    return array if array.shape == (n, 32) else np.broadcast_to(array, (n, 32))


def shared_place(M: Machine, cta: int, address: int, nbytes: int, at: int, warp: int, lane: int) -> tuple[int, int]:
    """(block, byte offset) of a shared address as seen by a thread of block `cta`."""
    rank, offset = address >> 24, address & _OFFSET
    if rank >= M.cluster_size or offset + nbytes > M.smem_size:
        what = f"shared address {address:#x} ({nbytes} bytes) is outside the cluster's shared memory"
        raise Stop(Code.SIM_OUT_OF_BOUNDS, what, at, warp, lane)
    return (int(M.cta_first[cta]) + rank if M.clustered else cta), offset


# cp.async: 4 to 16 bytes per thread ---------------------------------------------------------------------


class CopyBatch:
    """One cp.async executed by several warps; each warp's part lands by itself."""

    def __init__(
        self,
        M: Machine,
        rows: Array,
        target: Array,
        found: Any,
        source: Array,
        lanes: Array,
        sizes: Array,
        item: int,
    ) -> None:
        self.machine = M
        self.target, self.found, self.source, self.lanes, self.sizes, self.item = (
            target,
            found,
            source,
            lanes,
            sizes,
            item,
        )
        self.warp_row = {int(w): r for r, w in enumerate(rows)}

    def land(self, warp: int) -> None:
        r = self.warp_row[warp]
        lanes = self.lanes[r]
        if not lanes.any():
            return
        M, item = self.machine, self.item
        steps = np.arange(item)
        source = self.source[r][lanes].astype(np.int64)[:, None] + steps
        inside = steps[None, :] < self.sizes[r][lanes][:, None]
        data = self.found.data[np.where(inside, source, 0)]
        M.smem_flat[self.target[r][lanes][:, None] + steps] = np.where(inside, data, 0)


class CopyState:
    """A warp's cp.async operations: those not yet in a group, and the groups, oldest first."""

    def __init__(self) -> None:
        self.open: list[Operation] = []
        self.groups: deque[list[Operation]] = deque()

    def all(self) -> list[Operation]:
        return [op for g in self.groups for op in g] + self.open


def _copies(M: Machine, warp: int) -> CopyState:
    return M.copies.setdefault(warp, CopyState())


@runtime
def cp_async(
    M: Machine, at: int, idx: Any, n: int, mask: Any, dst: Any, src: Any, item: int, size: Any, ignore: Any
) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32)).copy()
    if not lanes.any():
        return
    target = np.broadcast_to(shared_index(M, at, idx, n, mask, dst, item, False), (n, 32))
    sizes = np.minimum(per_lane(item if size is None else size, n).astype(np.int64), item)
    if ignore is not None:
        sizes = np.where(per_lane(ignore, n), 0, sizes)
    reads = lanes & (sizes > 0)
    warps = M.warps(idx)
    batches: list[CopyBatch] = []
    groups = global_groups(M, at, idx, n, reads, src, item) if reads.any() else []
    for found, offsets, part in groups:
        here = reads if part is None else part
        batches.append(CopyBatch(M, warps, target, found, per_lane(offsets, n), here, sizes, item))
    zeros = lanes & ~reads
    if zeros.any():
        blank = type("Blank", (), {"data": np.zeros(1, np.uint8)})
        batches.append(CopyBatch(M, warps, target, blank, np.zeros((n, 32), np.uint64), zeros, sizes * 0, item))
    for row in np.flatnonzero(lanes.any(axis=1)).tolist():
        w = int(warps[row])

        def land(w: int = w, parts: list[CopyBatch] = batches) -> None:
            for b in parts:
                b.land(w)

        op = Operation(at, w, land)
        M.engine.issue(op)
        _copies(M, w).open.append(op)


@runtime
def cp_async_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row in np.flatnonzero(lanes.any(axis=1)).tolist():
        state = _copies(M, int(M.warps(idx)[row]))
        state.groups.append(state.open)
        state.open = []


@runtime
def cp_async_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int) -> None:
    """Wait until at most `left` groups are pending; -1: until all copies have landed."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row in np.flatnonzero(lanes.any(axis=1)).tolist():
        state = _copies(M, int(M.warps(idx)[row]))
        while len(state.groups) > max(left, 0):
            M.engine.land_all(state.groups.popleft())
        if left < 0:
            M.engine.land_all(state.open)
            state.open = []


@runtime
def cp_async_arrive(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, noinc: bool) -> None:
    """Arrive on an mbarrier once the thread's earlier cp.async operations have landed."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if not lanes.any():
        return
    slots, ctas = M.mbar.locate(at, idx, n, lanes, addr)
    warps = np.broadcast_to(M.warps(idx)[:, None], (n, 32))[lanes]
    if not noinc:
        np.add.at(M.mbar.pending, (slots, ctas), 1)
    key = (warps * len(M.mbar.offsets) + slots) * M.n_cta + ctas
    for k, count in zip(*(x.tolist() for x in np.unique(key, return_counts=True)), strict=True):
        ws, cta = divmod(k, M.n_cta)
        warp, slot = divmod(ws, len(M.mbar.offsets))

        def land(slot: int = slot, cta: int = cta, count: int = count) -> None:
            M.mbar._arrive(np.array([slot]), np.array([cta]), np.array([count]), at)

        M.engine.issue(Operation(at, warp, land, _copies(M, warp).all(), [("mbar", slot, cta)]))


# Bulk groups --------------------------------------------------------------------------------------------


def _bulk(M: Machine, warp: int, lane: int) -> CopyState:
    return M.bulk.setdefault(warp, {}).setdefault(lane, CopyState())


@runtime
def bulk_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, w in enumerate(M.warps(idx).tolist()):
        for lane, state in M.bulk.get(w, {}).items():
            if lanes[row, lane]:
                state.groups.append(state.open)
                state.open = []


@runtime
def bulk_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int, read: bool) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    for row, w in enumerate(M.warps(idx).tolist()):
        for lane, state in M.bulk.get(w, {}).items():
            if not lanes[row, lane]:
                continue
            if read:
                for group in list(state.groups)[: max(len(state.groups) - left, 0)]:
                    for op in group:
                        M.engine.read_sources(op)
                continue
            while len(state.groups) > left:
                M.engine.land_all(state.groups.popleft())


# Bulk copies --------------------------------------------------------------------------------------------


def _mask_targets(M: Machine, cta: int, mask: int, at: int, warp: int, lane: int) -> list[int]:
    if mask >> M.cluster_size:
        what = f"multicast mask {mask:#x} names blocks beyond the cluster's {M.cluster_size}"
        raise Stop(Code.SIM_OUT_OF_BOUNDS, what, at, warp, lane)
    return [int(M.cta_first[cta]) + r for r in range(M.cluster_size) if mask >> r & 1]


def signal_of(M: Machine, cta: int, mbar: int, target: int, pair: bool, at: int, warp: int) -> tuple[int, int]:
    """The mbarrier that counts the bytes landing in block `target`: same offset, same block.

    With .cta_group::2 it is that of the target's pair whose rank has the parity of the address's.
    """
    rank = int(M.cta_rank[target])
    if pair:
        rank = (rank & ~1) | (mbar >> 24 & 1)
    return M.mbar.resolve(cta, (rank << 24 | mbar & _OFFSET) if M.clustered else mbar & _OFFSET, at)


@runtime
def bulk_load(
    M: Machine,
    at: int,
    idx: Any,
    n: int,
    mask: Any,
    dst: Any,
    src: Any,
    size: Any,
    mbar: Any,
    multicast: Any,
    from_shared: bool,
    how: str,
    kind: str,
) -> None:
    """cp.async.bulk and cp.reduce.async.bulk to shared memory, completing on an mbarrier."""
    d, s, z, b = (per_lane(x, n) for x in (dst, src, size, mbar))
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        nbytes, source = int(z[row, lane]), int(s[row, lane])
        first, offset = shared_place(M, cta, int(d[row, lane]), nbytes, at, warp, lane)
        if (offset | nbytes | source) & 15:
            what = f"bulk copy of {nbytes} bytes from {source:#x} to {offset:#x}: multiples of 16 are needed"
            raise Stop(Code.SIM_MISALIGNED, what, at, warp, lane)
        targets = [first]
        if multicast is not None:
            targets = _mask_targets(M, cta, int(per_lane(multicast, n)[row, lane]), at, warp, lane)
        barrier = int(b[row, lane])
        signals = [
            signal_of(M, cta, barrier, t, False, at, warp)
            if multicast is not None or not from_shared
            else M.mbar.resolve(cta, barrier, at)
            for t in targets
        ]
        origin = shared_place(M, cta, source, nbytes, at, warp, lane) if from_shared else None

        def land(
            targets: list[int] = targets,
            signals: list[tuple[int, int]] = signals,
            source: int = source,
            offset: int = offset,
            nbytes: int = nbytes,
            origin: tuple[int, int] | None = origin,
        ) -> None:
            if origin is not None:
                data = M.smem[origin[0], origin[1] : origin[1] + nbytes].copy()
            else:
                data = view_global(M, source, nbytes)
            for t, (slot, c) in zip(targets, signals, strict=True):
                place = M.smem[t, offset : offset + nbytes]
                place[:] = _combined(place, data, how, kind) if how else data
                M.mbar.complete_tx(slot, c, nbytes)

        M.engine.issue(Operation(at, warp, land, keys=[("mbar", *sc) for sc in signals]))


def _combined(old: Array, new: Array, how: str, kind: str) -> Array:
    """Bytes of a reduction. Sums of f32 keep subnormals, unlike those of `red`."""
    dtype, _ = _REDUCTION[kind]
    return combine(old.copy().view(dtype), new.view(dtype), None, how, kind).view(np.uint8)


def view_global(M: Machine, address: int, nbytes: int) -> Array:
    try:
        return M.memory.view(address, nbytes)
    except MemoryAccessError:
        return M.internal.view(address, nbytes)


class _Everything:
    """Global memory and the module's own variables, as the datapaths see memory."""

    def __init__(self, M: Machine) -> None:
        self.machine = M

    def view(self, address: int, nbytes: int) -> Array:
        return view_global(self.machine, address, nbytes)


def bulk_out(
    M: Machine, at: int, warp: int, lane: int, read: Callable[[], None] | None, land: Callable[[], None]
) -> None:
    op = Operation(at, warp, land, read=read)
    state = _bulk(M, warp, lane)
    # Copies of one thread keep their order, so that a later reduction finds an earlier store's result.
    M.engine.issue(op)
    state.open.append(op)


@runtime
def bulk_store(
    M: Machine,
    at: int,
    idx: Any,
    n: int,
    mask: Any,
    dst: Any,
    src: Any,
    size: Any,
    how: str,
    kind: str,
    chosen: Any,
) -> None:
    """cp.async.bulk and cp.reduce.async.bulk from shared to global memory.

    `chosen`: bit i says whether byte i of every 16 is written (.cp_mask).
    """
    d, s, z = (per_lane(x, n) for x in (dst, src, size))
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        nbytes, target = int(z[row, lane]), int(d[row, lane])
        owner, offset = shared_place(M, cta, int(s[row, lane]), nbytes, at, warp, lane)
        if (offset | nbytes | target) & 15:
            what = f"bulk copy of {nbytes} bytes from {offset:#x} to {target:#x}: multiples of 16 are needed"
            raise Stop(Code.SIM_MISALIGNED, what, at, warp, lane)
        box: list[Array] = []

        def read(owner: int = owner, offset: int = offset, nbytes: int = nbytes, box: list[Array] = box) -> None:
            box.append(M.smem[owner, offset : offset + nbytes].copy())

        which = None if chosen is None else int(per_lane(chosen, n)[row, lane])

        def land(
            target: int = target, nbytes: int = nbytes, box: list[Array] = box, which: int | None = which
        ) -> None:
            out = view_global(M, target, nbytes)
            if how:
                out[:] = _combined(out, box[0], how, kind)
            elif which is None:
                out[:] = box[0]
            else:
                out[:] = np.where(which >> (np.arange(nbytes) % 16) & 1, box[0], out)

        bulk_out(M, at, warp, lane, read, land)


_REDUCTION = {
    "u32": ("u4", 4), "s32": ("u4", 4), "b32": ("u4", 4), "f32": ("u4", 4), "f16": ("u2", 2),
    "u64": ("u8", 8), "s64": ("u8", 8), "b64": ("u8", 8), "f64": ("u8", 8), "bf16": ("u2", 2),
}  # fmt: skip


# Stores that complete on an mbarrier -------------------------------------------------------------------


@runtime
def store_async(
    M: Machine,
    at: int,
    idx: Any,
    n: int,
    mask: Any,
    dst: Any,
    values: tuple[Any, ...],
    mbar: Any,
    item: int,
    how: str,
    kind: str,
) -> None:
    """st.async and red.async to shared memory of the cluster, completing on an mbarrier there."""
    d, b = per_lane(dst, n), per_lane(mbar, n)
    words = [per_lane(v, n) for v in values]
    nbytes = item * len(values)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        owner, offset = shared_place(M, cta, int(d[row, lane]), nbytes, at, warp, lane)
        if offset % nbytes:
            what = f"shared address {offset:#x} is not a multiple of {nbytes}"
            raise Stop(Code.SIM_MISALIGNED, what, at, warp, lane)
        signal = M.mbar.resolve(cta, int(b[row, lane]), at)
        data = np.array([w[row, lane] for w in words], f"<u{item}")

        def land(
            owner: int = owner, offset: int = offset, data: Array = data, signal: tuple[int, int] = signal
        ) -> None:
            place = M.smem[owner, offset : offset + nbytes].view(data.dtype)
            if how:
                place[:] = combine(place.copy(), data, None, how, kind)
            else:
                place[:] = data
            M.mbar.complete_tx(signal[0], signal[1], nbytes)

        M.engine.issue(Operation(at, warp, land, keys=[("mbar", *signal)]))


def emit_store_async(cg: Context, ins: ast.Instruction) -> None:
    """st.async and red.async."""
    p, ops = ins.parts, ins.operands
    if not any(x.startswith("mbarrier::complete_tx") for x in p):
        raise Unsupported("")
    kind = kind_of(p[-1])
    item = WIDTH_OF[kind] // 8
    items = ops[1].items if isinstance(ops[1], ast.Vec) else (ops[1],)
    values = "(" + ", ".join(cg.src(v, f"u{item * 8}") for v in items) + ",)"
    how = "" if p[0] == "st" else next(x for x in p if x in ("add", "min", "max", "inc", "dec", "and", "or", "xor"))
    place, barrier = cg.addr(ops[0], "u32"), cg.addr(ops[2], "u32")
    cg.line(cg.call("store_async", place, values, barrier, str(item), repr(how), repr(p[-1])))


# Code generation ----------------------------------------------------------------------------------------


@emits("cp.async")
def _cp_async(cg: Context, ins: ast.Instruction) -> None:
    p, ops = ins.parts, ins.operands
    if p[2] == "commit_group":
        cg.line(cg.call("cp_async_commit"))
    elif p[2] == "wait_group":
        cg.line(cg.call("cp_async_wait", str(_integer(ops[0]))))
    elif p[2] == "wait_all":
        cg.line(cg.call("cp_async_wait", "-1"))
    elif p[2] == "mbarrier":
        cg.line(cg.call("cp_async_arrive", shared_address(cg, ops[0], ins), str("noinc" in p)))
    elif p[2] in ("ca", "cg"):
        size, ignore = "None", "None"
        rest = list(ops[3:])
        if "L2::cache_hint" in p:
            rest = rest[:-1]
        if rest:
            if _is_predicate(cg, rest[0]):
                ignore = cg.src(rest[0], "p")
            else:
                size = cg.src(rest[0], "u32")
        cg.line(
            cg.call(
                "cp_async",
                cg.addr(ops[0], "u32"),
                cg.addr(ops[1], "u64"),
                str(_integer(ops[2])),
                size,
                ignore,
            )
        )
    elif p[2] == "bulk":
        _bulk_form(cg, ins)
    else:
        raise Unsupported("")


@emits("cp.reduce")
def _cp_reduce(cg: Context, ins: ast.Instruction) -> None:
    from porter.sim.exec_tensor_copy import tensor_copy

    p, ops = ins.parts, ins.operands
    how = next(x for x in p if x in ("add", "min", "max", "inc", "dec", "and", "or", "xor"))
    if "tensor" in p:
        tensor_copy(cg, ins, how)
    elif p[4] == "global" and p[5].startswith("shared"):
        kind = p[-1]
        if kind not in _REDUCTION:
            raise Unsupported(f"reduction of .{kind}")
        args = cg.addr(ops[0], "u64"), cg.addr(ops[1], "u32"), cg.src(ops[2], "u32")
        cg.line(cg.call("bulk_store", *args, repr(how), repr(kind), "None"))
    else:
        places = cg.addr(ops[0], "u32"), cg.addr(ops[1], "u32"), cg.src(ops[2], "u32"), cg.addr(ops[3], "u32")
        cg.line(cg.call("bulk_load", *places, "None", "True", repr(how), repr(p[-1])))


def _integer(op: ast.Operand) -> int:
    if not isinstance(op, ast.Imm):
        raise Unsupported("an immediate is needed")
    return int(op.value)


def _is_predicate(cg: Context, op: ast.Operand) -> bool:
    inner = op.operand if isinstance(op, ast.Neg) else op
    return isinstance(inner, ast.Reg) and cg.program.widths.get(inner.name) == 1


def _bulk_form(cg: Context, ins: ast.Instruction) -> None:
    from porter.sim.exec_tensor_copy import tensor_copy

    p, ops = ins.parts, ins.operands
    if "commit_group" in p:
        cg.line(cg.call("bulk_commit"))
    elif "wait_group" in p:
        cg.line(cg.call("bulk_wait", str(_integer(ops[0])), str("read" in p)))
    elif "prefetch" in p:
        return
    elif "tensor" in p:
        tensor_copy(cg, ins, "")
    elif p[3] == "global":
        chosen = cg.src(ops[-1], "u32") if "cp_mask" in p else "None"
        args = cg.addr(ops[0], "u64"), cg.addr(ops[1], "u32"), cg.src(ops[2], "u32")
        cg.line(cg.call("bulk_store", *args, "''", "''", chosen))
    else:
        from_shared = p[4].startswith("shared")
        multicast = cg.src(ops[4], "u32") if "multicast::cluster" in p else "None"
        source = cg.addr(ops[1], "u32" if from_shared else "u64")
        cg.line(
            cg.call(
                "bulk_load",
                cg.addr(ops[0], "u32"),
                source,
                cg.src(ops[2], "u32"),
                cg.addr(ops[3], "u32"),
                multicast,
                str(from_shared),
                "''",
                "''",
            )
        )
