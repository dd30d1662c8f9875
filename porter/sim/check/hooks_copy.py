# SPDX-License-Identifier: Apache-2.0
"""Bulk and tensor copies as the checker sees them."""

from __future__ import annotations

from typing import Any

from porter.sim import copy_groups, exec_bulk, exec_launch, exec_store_async, exec_tensor_copy
from porter.sim.bulk_operands import AsyncStoreForm, AsyncStoreOperands, BulkForm, BulkLoadOperands, BulkStoreOperands
from porter.sim.check.global_shadow import GlobalAccess
from porter.sim.check.hooks_sync import check_init
from porter.sim.check.issues import Groups, Issue
from porter.sim.check.shadow import range_bits
from porter.sim.datapath.tma import covered_bytes
from porter.sim.machine import Machine
from porter.sim.tensor_copy_operands import TensorCopyForm, TensorLoadOperands, TensorStoreOperands
from porter.sim.threads import Issuer, Signal, active_lanes, issuers, per_lane

# Copies that complete on an mbarrier --------------------------------------------------------------------


def _copy_in(by: Issuer, targets: list[int], signals: list[Signal], offset: int, nbytes: int) -> Issue:
    """A copy into shared memory of the blocks `targets`, each signalling one mbarrier."""
    M, at = by.machine, by.at
    check: Any = M.check
    accesses = []
    for target, (slot, owner) in zip(targets, signals, strict=True):
        check_init(M, at, by.warp, slot, owner, True)
        access = check.asynchronous("copy", at, by.warp, by.lane, True, "async", range_bits(offset, nbytes))
        access.notes["signals"] = f"at shared address {M.mbar.offsets[slot]:#x}"
        check.access_shared(target, access)
        accesses.append(access)
    issue = Issue("copy", accesses)
    check.queue.append(issue)
    return issue


def _source(by: Issuer, issue: Issue) -> GlobalAccess:
    """The reading of global memory by a copy, over when any of its mbarriers says so."""
    check: Any = by.machine.check
    signals = f" ({issue.accesses[0].notes['signals']})"
    read: GlobalAccess = check.global_memory.bulk("copy", by.at, by.warp, by.lane, False, [], signals)
    issue.source = read
    return read


def tensor_load(
    M: Machine, at: int, idx: Any, n: int, mask: Any, form: TensorCopyForm, operands: TensorLoadOperands
) -> None:
    check: Any = M.check
    for copy in operands.threads(M, at, idx, n, mask, form):
        tm = copy.tensor_map()
        first, offset = copy.target(tm)
        targets = copy.targets(first)
        signals = copy.signals(targets)
        check.global_memory.use_tensor_map(at, copy.by.warp, copy.by.lane, copy.map)
        issue = _copy_in(copy.by, targets, signals, offset, covered_bytes(tm, form.mode))
        check.global_memory.copy_tile(tm, copy.place, _source(copy.by, issue), form.mode, copy.shift)
    exec_tensor_copy.tensor_load(M, at, idx, n, mask, form, operands)
    check.queue.clear()


def bulk_load(M: Machine, at: int, idx: Any, n: int, mask: Any, form: BulkForm, operands: BulkLoadOperands) -> None:
    check: Any = M.check
    for copy in operands.threads(M, at, idx, n, mask, form):
        first, offset = copy.target()
        targets = copy.targets(first)
        issue = _copy_in(copy.by, targets, copy.signals(targets), offset, copy.nbytes)
        origin = copy.origin()
        if origin is None:
            check.global_memory.copy_span(copy.src, copy.nbytes, _source(copy.by, issue))
        else:
            owner, start = origin
            bits = range_bits(start, copy.nbytes)
            read = check.asynchronous("store", at, copy.by.warp, copy.by.lane, False, "async", bits)
            check.access_shared(owner, read)
            # Landing completes reading and writing alike.
            read.done = check.queue[-1].accesses[0].done
    exec_bulk.bulk_load(M, at, idx, n, mask, form, operands)
    check.queue.clear()


def store_async(
    M: Machine, at: int, idx: Any, n: int, mask: Any, form: AsyncStoreForm, operands: AsyncStoreOperands
) -> None:
    for store in operands.threads(M, at, idx, n, mask, form):
        owner, offset = store.target()
        _copy_in(store.by, [owner], [store.signal()], offset, store.data.nbytes)
    exec_store_async.store_async(M, at, idx, n, mask, form, operands)
    M.check.queue.clear()


def try_cancel(M: Machine, at: int, idx: Any, n: int, mask: Any, address: Any, mbar: Any, everyone: bool) -> None:
    """The response is written as a copy is."""
    a, b = per_lane(address, n), per_lane(mbar, n)
    for by, i in issuers(M, at, idx, n, mask):
        targets, offset, signals = exec_launch.response_places(by, int(a[i]), int(b[i]), everyone)
        _copy_in(by, targets, signals, offset, exec_launch.RESPONSE_BYTES)
    exec_launch.try_cancel(M, at, idx, n, mask, address, mbar, everyone)
    M.check.queue.clear()


# Bulk groups ------------------------------------------------------------------------------------------


def _copy_out(by: Issuer, owner: int, offset: int, nbytes: int, reduces: bool, target_at: Any) -> GlobalAccess:
    """A copy from shared memory; returns its access to global memory."""
    M, at, warp, lane = by.machine, by.at, by.warp, by.lane
    check: Any = M.check
    access = check.asynchronous("store", at, warp, lane, False, "async", range_bits(offset, nbytes))
    check.access_shared(owner, access)
    target: GlobalAccess = check.global_memory.bulk("reduce" if reduces else "store", at, warp, lane, True, [])
    target.operands = M.steps, at, warp, owner, offset, nbytes, target_at
    check.bulk.setdefault((warp, lane), Groups()).open.append((access, target))
    return target


def bulk_store(M: Machine, at: int, idx: Any, n: int, mask: Any, form: BulkForm, operands: BulkStoreOperands) -> None:
    check: Any = M.check
    for copy in operands.threads(M, at, idx, n, mask):
        owner, offset = copy.origin()
        target = _copy_out(copy.by, owner, offset, copy.nbytes, bool(form.how), copy.dst)
        check.global_memory.copy_span(copy.dst, copy.nbytes, target)
    exec_bulk.bulk_store(M, at, idx, n, mask, form, operands)


def tensor_store(
    M: Machine, at: int, idx: Any, n: int, mask: Any, form: TensorCopyForm, operands: TensorStoreOperands
) -> None:
    check: Any = M.check
    for copy in operands.threads(M, at, idx, n, mask, form):
        tm = copy.tensor_map()
        nbytes = covered_bytes(tm, form.mode)
        owner, offset = copy.origin(nbytes)
        check.global_memory.use_tensor_map(at, copy.by.warp, copy.by.lane, copy.map)
        target = _copy_out(copy.by, owner, offset, nbytes, form.how is not None, (copy.map, *copy.place))
        check.global_memory.copy_tile(tm, copy.place, target, form.mode)
    exec_tensor_copy.tensor_store(M, at, idx, n, mask, form, operands)


def bulk_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    check: Any = M.check
    for _, lane, warp in active_lanes(M, idx, n, mask):
        if (warp, lane) in check.bulk:
            check.bulk[warp, lane].commit()
    copy_groups.bulk_commit(M, at, idx, n, mask)


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
    copy_groups.bulk_wait(M, at, idx, n, mask, left, read)


HOOKS: dict[str, Any] = {
    f.__name__: f
    for f in (tensor_load, bulk_load, store_async, bulk_store, tensor_store, bulk_commit, bulk_wait, try_cancel)
}
