# SPDX-License-Identifier: Apache-2.0
"""Asynchronous copies and wgmma as the checker sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from porter.ptx import ast
from porter.ptx.wgmma import WgmmaOp
from porter.sim import exec_async, exec_launch, exec_memory, exec_tensor, exec_tensor_copy
from porter.sim.check.checker import Groups, Issue
from porter.sim.check.footprints import operand_bits, operand_rows_bits
from porter.sim.check.global_shadow import GlobalAccess
from porter.sim.check.hooks_sync import active, check_init
from porter.sim.check.shadow import Access, byte_bits, range_bits
from porter.sim.datapath.errors import DatapathError
from porter.sim.datapath.tma import Mode, covered_bytes
from porter.sim.exec_async import active_lanes, per_lane

if TYPE_CHECKING:
    from porter.sim.machine import Machine

Array = npt.NDArray[Any]
_OFFSET = (1 << 24) - 1


# Copies that complete on an mbarrier --------------------------------------------------------------------


def _copy_in(
    M: Machine,
    at: int,
    warp: int,
    lane: int,
    targets: list[int],
    signals: list[tuple[int, int]],
    offset: int,
    nbytes: int,
) -> Issue:
    """A copy into shared memory of the blocks `targets`, each signalling one mbarrier."""
    check: Any = M.check
    accesses = []
    for target, (slot, owner) in zip(targets, signals, strict=True):
        check_init(M, at, warp, slot, owner, True)
        access = check.asynchronous("copy", at, warp, lane, True, "async", range_bits(offset, nbytes))
        access.notes["signals"] = f"at shared address {M.mbar.offsets[slot]:#x}"
        check.access_shared(target, access)
        accesses.append(access)
    issue = Issue("copy", accesses)
    check.queue.append(issue)
    return issue


def _source(M: Machine, at: int, warp: int, lane: int, issue: Issue) -> Any:
    """The reading of global memory by a copy, over when any of its mbarriers says so."""
    check: Any = M.check
    read = check.global_memory.bulk("copy", at, warp, lane, False, [], f" ({issue.accesses[0].notes['signals']})")
    issue.source = read
    return read


def tensor_load(
    M: Machine,
    at: int,
    idx: Any,
    n: int,
    mask: Any,
    dst: Any,
    address: Any,
    coords: tuple[Any, ...],
    mbar: Any,
    multicast: Any,
    pair: bool,
    mode: Mode = "tile",
    offsets: tuple[Any, ...] = (),
) -> None:
    check: Any = M.check
    d, a, b = (per_lane(x, n) for x in (dst, address, mbar))
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        tm = exec_tensor_copy.tensor_map(M, int(a[row, lane]), at, warp, lane)
        nbytes = covered_bytes(tm, mode)
        first, offset = exec_async.shared_place(M, cta, int(d[row, lane]), nbytes, at, warp, lane)
        targets = [first]
        if multicast is not None:
            chosen = int(per_lane(multicast, n)[row, lane])
            targets = exec_async._mask_targets(M, cta, chosen, at, warp, lane)
        signals = [exec_async.signal_of(M, cta, int(b[row, lane]), t, pair, at, warp) for t in targets]
        check.global_memory.use_tensor_map(at, warp, lane, int(a[row, lane]))
        issue = _copy_in(M, at, warp, lane, targets, signals, offset, nbytes)
        place, shift = ([int(per_lane(x, n)[row, lane]) for x in values] for values in (coords, offsets))
        check.global_memory.copy_tile(tm, place, _source(M, at, warp, lane, issue), mode, shift)
    exec_tensor_copy.tensor_load(M, at, idx, n, mask, dst, address, coords, mbar, multicast, pair, mode, offsets)
    check.queue.clear()


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
    check: Any = M.check
    d, s, z, b = (per_lane(x, n) for x in (dst, src, size, mbar))
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        nbytes, barrier = int(z[row, lane]), int(b[row, lane])
        first, offset = exec_async.shared_place(M, cta, int(d[row, lane]), nbytes, at, warp, lane)
        targets = [first]
        if multicast is not None:
            chosen = int(per_lane(multicast, n)[row, lane])
            targets = exec_async._mask_targets(M, cta, chosen, at, warp, lane)
        signals = [
            exec_async.signal_of(M, cta, barrier, t, False, at, warp)
            if multicast is not None or not from_shared
            else M.mbar.resolve(cta, barrier, at)
            for t in targets
        ]
        issue = _copy_in(M, at, warp, lane, targets, signals, offset, nbytes)
        if not from_shared:
            check.global_memory.copy_span(int(s[row, lane]), nbytes, _source(M, at, warp, lane, issue))
        else:
            owner, start = exec_async.shared_place(M, cta, int(s[row, lane]), nbytes, at, warp, lane)
            read = check.asynchronous("store", at, warp, lane, False, "async", range_bits(start, nbytes))
            check.access_shared(owner, read)
            copied = check.queue[-1].accesses[0]
            # Landing completes reading and writing alike.
            read.done = copied.done
    exec_async.bulk_load(M, at, idx, n, mask, dst, src, size, mbar, multicast, from_shared, how, kind)
    check.queue.clear()


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
    d, b = per_lane(dst, n), per_lane(mbar, n)
    nbytes = item * len(values)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        owner, offset = exec_async.shared_place(M, cta, int(d[row, lane]), nbytes, at, warp, lane)
        signal = M.mbar.resolve(cta, int(b[row, lane]), at)
        _copy_in(M, at, warp, lane, [owner], [signal], offset, nbytes)
    exec_async.store_async(M, at, idx, n, mask, dst, values, mbar, item, how, kind)
    M.check.queue.clear()


def try_cancel(M: Machine, at: int, idx: Any, n: int, mask: Any, address: Any, mbar: Any, everyone: bool) -> None:
    """The response is written as a copy is."""
    a, b = per_lane(address, n), per_lane(mbar, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        places = exec_launch.response_places(M, at, warp, lane, int(a[row, lane]), int(b[row, lane]), everyone)
        targets, offset, signals = places
        _copy_in(M, at, warp, lane, targets, signals, offset, exec_launch.RESPONSE_BYTES)
    exec_launch.try_cancel(M, at, idx, n, mask, address, mbar, everyone)
    M.check.queue.clear()


# Bulk groups ------------------------------------------------------------------------------------------


def _copy_out(
    M: Machine, at: int, warp: int, lane: int, owner: int, offset: int, nbytes: int, how: str, target_at: Any
) -> GlobalAccess:
    """A copy from shared memory; returns its access to global memory."""
    check: Any = M.check
    access = check.asynchronous("store", at, warp, lane, False, "async", range_bits(offset, nbytes))
    check.access_shared(owner, access)
    target: GlobalAccess = check.global_memory.bulk("reduce" if how else "store", at, warp, lane, True, [])
    target.operands = M.steps, at, warp, owner, offset, nbytes, target_at
    check.bulk.setdefault((warp, lane), Groups()).open.append((access, target))
    return target


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
    check: Any = M.check
    d, s, z = per_lane(dst, n), per_lane(src, n), per_lane(size, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        nbytes, cta = int(z[row, lane]), int(M.warp_cta[warp])
        owner, offset = exec_async.shared_place(M, cta, int(s[row, lane]), nbytes, at, warp, lane)
        target = _copy_out(M, at, warp, lane, owner, offset, nbytes, how, int(d[row, lane]))
        check.global_memory.copy_span(int(d[row, lane]), nbytes, target)
    exec_async.bulk_store(M, at, idx, n, mask, dst, src, size, how, kind, chosen)


def tensor_store(
    M: Machine,
    at: int,
    idx: Any,
    n: int,
    mask: Any,
    address: Any,
    coords: tuple[Any, ...],
    src: Any,
    how: str,
    mode: Mode = "tile",
) -> None:
    check: Any = M.check
    a, s = per_lane(address, n), per_lane(src, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        tm = exec_tensor_copy.tensor_map(M, int(a[row, lane]), at, warp, lane)
        nbytes = covered_bytes(tm, mode)
        owner, offset = exec_async.shared_place(M, cta, int(s[row, lane]), nbytes, at, warp, lane)
        check.global_memory.use_tensor_map(at, warp, lane, int(a[row, lane]))
        place = [int(per_lane(x, n)[row, lane]) for x in coords]
        target = _copy_out(M, at, warp, lane, owner, offset, nbytes, how, (int(a[row, lane]), *place))
        check.global_memory.copy_tile(tm, place, target, mode)
    exec_tensor_copy.tensor_store(M, at, idx, n, mask, address, coords, src, how, mode)


def bulk_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    check: Any = M.check
    for _, lane, warp in active_lanes(M, idx, n, mask):
        _close(check.bulk.get((warp, lane)))
    exec_async.bulk_commit(M, at, idx, n, mask)


def _close(groups: Groups | None) -> None:
    if groups is not None:
        groups.groups.append(groups.open)
        groups.open = []


def bulk_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int, read: bool) -> None:
    check: Any = M.check
    for _, lane, warp in active_lanes(M, idx, n, mask):
        groups = check.bulk.get((warp, lane))
        if groups is None:
            continue
        # wait_group.read completes the reading of shared memory alone.
        over = len(groups.groups) - left
        for group in list(groups.groups)[: max(over, 0)]:
            check.completed_by(warp, [read for read, _ in group if not read.done], at)
            if not read:
                check.completed_by(warp, [write for _, write in group if not write.done], at)
        while not read and len(groups.groups) > left:
            groups.groups.popleft()
    exec_async.bulk_wait(M, at, idx, n, mask, left, read)


# cp.async ---------------------------------------------------------------------------------------------


def cp_async(
    M: Machine, at: int, idx: Any, n: int, mask: Any, dst: Any, src: Any, item: int, size: Any, ignore: Any
) -> None:
    check: Any = M.check
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if lanes.any():
        where = exec_memory.shared_index(M, at, idx, n, mask, dst, item, False)
        where = np.broadcast_to(where, (n, 32))
        done: dict[int, Any] = {}
        for row, warp in active(M, idx, n, mask):
            cta = int(M.warp_cta[warp])
            local = where[row][lanes[row]].astype(np.int64) - cta * M.smem_stride
            access = Access("cp.async", at, warp, None, True, "generic", byte_bits(local, item), [],
                            check.clocks.now(warp))  # fmt: skip
            check.access_shared(cta, access)
            done[warp] = access.done
            check.copies.setdefault(warp, Groups()).open.append((access,))
        sizes = np.minimum(per_lane(item if size is None else size, n).astype(np.int64), item)
        if ignore is not None:
            sizes = np.where(per_lane(ignore, n), 0, sizes)
        reads = lanes & (sizes == item)
        if reads.any():
            groups = exec_memory.global_groups(M, at, idx, n, reads, src, item)
            check.global_memory.threads(at, idx, n, reads, groups, item, item, "cp.async", done=done)
    exec_async.cp_async(M, at, idx, n, mask, dst, src, item, size, ignore)


def cp_async_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    for _, warp in active(M, idx, n, mask):
        _close(M.check.copies.get(warp))
    exec_async.cp_async_commit(M, at, idx, n, mask)


def cp_async_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int) -> None:
    check: Any = M.check
    for _, warp in active(M, idx, n, mask):
        groups = check.copies.get(warp)
        if groups is None:
            continue
        while len(groups.groups) > max(left, 0):
            check.completed_by(warp, [access for (access,) in groups.groups.popleft()], at)
        if left < 0:
            check.completed_by(warp, [access for (access,) in groups.open], at)
            groups.open = []
    exec_async.cp_async_wait(M, at, idx, n, mask, left)


def cp_async_arrive(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, noinc: bool) -> None:
    check: Any = M.check
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if lanes.any():
        slots, ctas = M.mbar.locate(at, idx, n, lanes, addr)
        warps = np.broadcast_to(M.warps(idx)[:, None], (n, 32))[lanes]
        # In the order in which the simulator issues the arrivals.
        keys = np.unique((warps * len(M.mbar.offsets) + slots) * M.n_cta + ctas)
        for key in keys.tolist():
            warp = key // M.n_cta // len(M.mbar.offsets)
            groups = check.copies.get(warp)
            pending = [] if groups is None else [a for g in (*groups.groups, groups.open) for (a,) in g]
            check.queue.append(Issue("arrive", pending, at=at))
    exec_async.cp_async_arrive(M, at, idx, n, mask, addr, noinc)
    check.queue.clear()


# wgmma ------------------------------------------------------------------------------------------------


def wgmma_issue(
    M: Machine,
    at: int,
    idx: Any,
    n: int,
    op: WgmmaOp,
    rows: tuple[int, ...],
    a: Any,
    a_registers: Any,
    b: Any,
    scale_d: Any,
    flags: tuple[bool, bool, bool, bool],
    metadata: Any = None,
    selector: int = 0,
) -> None:
    check: Any = M.check
    warps = M.warps(idx)
    ins = M.program.code[at]
    registers = {i.name for o in ins.operands[:2] if isinstance(o, ast.Vec) for i in o.items if isinstance(i, ast.Reg)}
    b_desc = per_lane(b, n)
    a_desc = None if a is None else per_lane(a, n)
    _, _, trans_a, trans_b = flags
    shared: list[tuple[int, int]] = []
    for row in range(n):
        warp = int(warps[row])
        cta = int(M.warp_cta[warp])
        try:
            bits = operand_bits(int(b_desc[row, 0]), "sm_90", op.n, op.k, op.b_type.bits, trans_b)
            if a_desc is not None:
                # A warp multiplies its own 16 rows of A.
                first = int(M.warp_rank[warp]) % 4 * 16
                bits |= operand_rows_bits(
                    int(a_desc[row, 0]), "sm_90", op.m, op.stored_k, op.a_type.bits, trans_a, first, 16
                )
        except DatapathError:
            continue
        access = check.asynchronous("wgmma", at, warp, None, False, "async", bits)
        access.notes["registers"] = registers
        access.notes["warpgroup"] = warps[row - row % 4 : row - row % 4 + 4].tolist()
        if row % 4 and check.level == "practice":
            # CUTLASS lets one warp's wait stand for the warpgroup's operation; the ISA gives each warp its own.
            access.done = shared
        shared = access.done
        check.access_shared(cta, access)
        check.wgmmas.setdefault(warp, Groups()).open.append((access,))
    exec_tensor.wgmma_issue(M, at, idx, n, op, rows, a, a_registers, b, scale_d, flags, metadata, selector)


def wgmma_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    for warp in M.warps(idx).tolist():
        groups = M.check.wgmmas.get(warp)
        if groups is None:
            groups = M.check.wgmmas[warp] = Groups()
        _close(groups)
    exec_tensor.wgmma_commit(M, at, idx, n, mask)


def wgmma_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int) -> None:
    check: Any = M.check
    for warp in M.warps(idx).tolist():
        groups = check.wgmmas.get(warp)
        while groups is not None and len(groups.groups) > left:
            check.completed_by(warp, [access for (access,) in groups.groups.popleft()], at)
    exec_tensor.wgmma_wait(M, at, idx, n, mask, left)


HOOKS: dict[str, Any] = {
    f.__name__: f
    for f in (tensor_load, bulk_load, store_async, bulk_store, tensor_store, bulk_commit, bulk_wait, cp_async,
              try_cancel, cp_async_commit, cp_async_wait, cp_async_arrive, wgmma_issue, wgmma_commit, wgmma_wait)
}  # fmt: skip
