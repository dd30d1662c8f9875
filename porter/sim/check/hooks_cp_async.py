# SPDX-License-Identifier: Apache-2.0
"""cp.async as the checker sees it."""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.sim import exec_cp_async, exec_memory, global_access
from porter.sim.check.issues import Groups, Issue
from porter.sim.check.shadow import Access, byte_bits
from porter.sim.machine import Machine
from porter.sim.threads import active_warps


def cp_async(M: Machine, at: int, idx: Any, n: int, mask: Any, operands: exec_cp_async.CopyOperands) -> None:
    check: Any = M.check
    item = operands.item
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if lanes.any():
        where = exec_memory.shared_index(M, at, idx, n, mask, operands.dst, item, False)
        where = np.broadcast_to(where, (n, 32))
        done: dict[int, Any] = {}
        for row, warp in active_warps(M, idx, n, mask):
            cta = int(M.warp_cta[warp])
            local = where[row][lanes[row]].astype(np.int64) - cta * M.smem_stride
            access = Access("cp.async", at, warp, None, True, "generic", byte_bits(local, item), [],
                            check.clocks.now(warp))  # fmt: skip
            check.access_shared(cta, access)
            done[warp] = access.done
            check.copies.setdefault(warp, Groups()).open.append((access,))
        reads = lanes & (operands.sizes(n) == item)
        if reads.any():
            groups = global_access.global_groups(M, at, idx, n, reads, operands.src, item)
            check.global_memory.threads(at, idx, n, reads, groups, item, item, "cp.async", done=done)
    exec_cp_async.cp_async(M, at, idx, n, mask, operands)


def cp_async_commit(M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
    check: Any = M.check
    for _, warp in active_warps(M, idx, n, mask):
        if warp in check.copies:
            check.copies[warp].commit()
    exec_cp_async.cp_async_commit(M, at, idx, n, mask)


def cp_async_wait(M: Machine, at: int, idx: Any, n: int, mask: Any, left: int) -> None:
    check: Any = M.check
    for _, warp in active_warps(M, idx, n, mask):
        groups = check.copies.get(warp)
        if groups is None:
            continue
        while len(groups.groups) > max(left, 0):
            check.completed_by(warp, [access for (access,) in groups.groups.popleft()], at)
        if left < 0:
            check.completed_by(warp, [access for (access,) in groups.open], at)
            groups.open = []
    exec_cp_async.cp_async_wait(M, at, idx, n, mask, left)


def cp_async_arrive(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, noinc: bool) -> None:
    check: Any = M.check
    for warp, _, _ in exec_cp_async.arrivals(M, at, idx, n, mask, addr):
        groups = check.copies.get(warp)
        pending = [] if groups is None else [a for g in (*groups.groups, groups.open) for (a,) in g]
        check.queue.append(Issue("arrive", pending, at=at))
    exec_cp_async.cp_async_arrive(M, at, idx, n, mask, addr, noinc)
    check.queue.clear()


HOOKS: dict[str, Any] = {f.__name__: f for f in (cp_async, cp_async_commit, cp_async_wait, cp_async_arrive)}
