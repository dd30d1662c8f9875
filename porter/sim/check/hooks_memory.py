# SPDX-License-Identifier: Apache-2.0
"""Loads, stores, atomics and matrix accesses of threads to shared memory as the checker sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.memory_order import MemoryOrder, Scope, scope_of
from porter.sim import exec_atomic, exec_memory, exec_tensormap, exec_warp, global_access
from porter.sim.check.lanes import TOGETHER
from porter.sim.check.shadow import byte_bits
from porter.sim.exec_atomic import AtomicForm
from porter.sim.machine import Machine

Array = npt.NDArray[Any]


def touch_shared(
    M: Machine, at: int, idx: Any, n: int, lanes: Array, where: Array, size: int, item: int, kind: str
) -> None:
    """Threads access `size` bytes at byte indices `where` of all shared memory, [n, lanes]."""
    check: Any = M.check
    stride = M.smem_stride
    where = np.broadcast_to(where, lanes.shape).astype(np.int64)
    warps = M.warps(idx)
    touch = None
    order = check.global_memory.order(at)
    if order.strong:
        _strong(M, at, warps, lanes, where, order, kind, "load")
    # Bytes side by side in one granule would look like one place.
    if item > 1 and not order.strong:
        collective = M.program.code[at].parts[0] in ("ldmatrix", "stmatrix")
        lane = np.full(lanes.shape[1], TOGETHER) if collective else np.arange(32)
        touch = check.lanes.touch(warps, lanes, where, size, kind != "load", lane)
        for race in check.lanes.races(touch):
            check.lane_race(at, int(warps[race[0]]), kind, *race[1:])
    for row, warp in enumerate(warps.tolist()):
        offsets = where[row][lanes[row]]
        if offsets.size == 0:
            continue
        for cta in np.unique(offsets // stride).tolist():
            local = offsets[offsets // stride == cta] - cta * stride
            access = check.generic(kind, at, warp, kind != "load", byte_bits(local, size), item)
            access.scope = order.scope if order.strong else None
            if not lanes[row].all() and lanes.shape[1] == 32:
                access.done.append(check.clocks.by_lanes(warp, _bits(lanes[row])))
            check.acting = where[row], lanes[row]
            check.access_shared(cta, access)
    check.acting = None
    if touch is not None:
        check.lanes.stamp(touch)
    if order.strong or check.global_memory.state.flags.locations:
        _strong(M, at, warps, lanes, where, order, kind, "store")


def _bits(lanes: Array) -> int:
    """A warp's lanes as an integer."""
    return int(np.packbits(lanes, bitorder="little").view(np.uint32)[0])


def _strong(
    M: Machine, at: int, warps: Array, lanes: Array, where: Array, order: MemoryOrder, kind: str, part: str
) -> None:
    """Flags in shared memory: what strong accesses acquire, before, and release, after."""
    check: Any = M.check
    rows, columns = np.nonzero(lanes)
    places = where[rows, columns]
    for cta in np.unique(places // M.smem_stride).tolist():
        here = places // M.smem_stride == cta
        memory = "shared", M.ctas.start + cta
        arguments = rows[here], places[here] - cta * M.smem_stride, memory, order, kind
        if part == "load":
            check.global_memory.flag_reads(warps, *arguments)
        elif kind != "load":
            check.global_memory.flag_writes(at, warps, *arguments)


def _touch(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, cluster: bool, kind: str
) -> None:
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    if lanes.any():
        where = exec_memory.shared_index(M, at, idx, n, mask, addr, item * count, cluster)
        touch_shared(M, at, idx, n, lanes, where, item * count, item * count, kind)


def ld_shared(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, cluster: bool
) -> Array:
    _touch(M, at, idx, n, mask, addr, item, count, cluster, "load")
    return exec_memory.ld_shared(M, at, idx, n, mask, addr, item, count, cluster)


def st_shared(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, cluster: bool, value: Any
) -> None:
    _touch(M, at, idx, n, mask, addr, item, count, cluster, "write")
    exec_memory.st_shared(M, at, idx, n, mask, addr, item, count, cluster, value)


def touch_global(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, kind: str, value: Any = None
) -> None:
    check: Any = M.check
    if mask is not None and not np.any(mask):
        return
    groups = global_access.global_groups(M, at, idx, n, mask, addr, item * count)
    if value is not None:
        value = np.broadcast_to(np.asarray(value), (n, 32, count) if count > 1 else (n, 32))
    check.global_memory.threads(at, idx, n, mask, groups, item * count, item, kind, value)


def _generic(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, kind: str, value: Any = None
) -> None:
    if mask is not None and not np.any(mask):
        return
    for window, lanes in exec_memory._by_space(M, n, mask, addr):
        use = mask if lanes is None else lanes
        if window == exec_memory._SHARED:
            _touch(M, at, idx, n, use, np.asarray(addr).astype(np.uint32), item, count, True, kind)
        elif window not in (exec_memory._LOCAL, exec_memory._PARAM):
            touch_global(M, at, idx, n, use, addr, item, count, kind, value)


def ld_global(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int) -> Array:
    touch_global(M, at, idx, n, mask, addr, item, count, "load")
    return global_access.ld_global(M, at, idx, n, mask, addr, item, count)


def st_global(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, value: Any) -> None:
    touch_global(M, at, idx, n, mask, addr, item, count, "write", value)
    global_access.st_global(M, at, idx, n, mask, addr, item, count, value)


def ld_generic(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int) -> Array:
    _generic(M, at, idx, n, mask, addr, item, count, "load")
    return exec_memory.ld_generic(M, at, idx, n, mask, addr, item, count)


def st_generic(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, value: Any) -> None:
    _generic(M, at, idx, n, mask, addr, item, count, "write", value)
    exec_memory.st_generic(M, at, idx, n, mask, addr, item, count, value)


def _atomic(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, form: AtomicForm) -> None:
    item, count = form.item, form.count
    if form.space in ("shared", "cluster"):
        _touch(M, at, idx, n, mask, addr, item, count, form.space == "cluster", "atomic")
    elif form.space == "generic":
        _generic(M, at, idx, n, mask, addr, item, count, "atomic")
    else:
        touch_global(M, at, idx, n, mask, addr, item, count, "atomic")


def atomic(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, form: AtomicForm, b: Any, c: Any) -> Array:
    _atomic(M, at, idx, n, mask, addr, form)
    return exec_atomic.atomic(M, at, idx, n, mask, addr, form, b, c)


def atomic_wide(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, form: AtomicForm, b: Any, c: Any) -> Array:
    _atomic(M, at, idx, n, mask, addr, form)
    return exec_atomic.atomic_wide(M, at, idx, n, mask, addr, form, b, c)


def clear_shared(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, size: Any) -> None:
    sizes = np.broadcast_to(size, (n, 32))
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32)) & (sizes > 0)
    if lanes.any():
        where = np.broadcast_to(exec_memory.shared_index(M, at, idx, n, lanes, addr, 1, False), (n, 32))
        for nbytes in np.unique(sizes[lanes]).tolist():
            touch_shared(M, at, idx, n, lanes & (sizes == nbytes), where, int(nbytes), 8, "write")
    exec_memory.clear_shared(M, at, idx, n, mask, addr, size)


def replace_field(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, shared: bool, name: str, ordinal: int, value: Any
) -> None:
    if shared:
        _touch(M, at, idx, n, mask, addr, 8, 16, False, "write")
    else:
        _generic(M, at, idx, n, mask, addr, 8, 16, "write")
    exec_tensormap.replace_field(M, at, idx, n, mask, addr, shared, name, ordinal, value)


def publish_map(M: Machine, at: int, idx: Any, n: int, mask: Any, dst: Any, src: Any) -> None:
    # The lanes copy together: one of them stands for all.
    lanes = np.zeros((n, 32), bool)
    lanes[:, 0] = True if mask is None else np.broadcast_to(mask, (n, 32)).any(axis=1)
    _touch(M, at, idx, n, lanes, src, 8, 16, False, "load")
    touch_global(M, at, idx, n, lanes, dst, 8, 16, "write")
    exec_tensormap.publish_map(M, at, idx, n, mask, dst, src)
    scope = scope_of(M.program.code[at].parts, Scope.GPU)
    check: Any = M.check
    for row, warp in enumerate(M.warps(idx).tolist()):
        if lanes[row, 0]:
            check.global_memory.users.fence(warp, scope)
            check.global_memory.release_tensor_maps(warp)


def _matrices(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, rows: int, kind: str) -> None:
    where = exec_warp.matrix_addresses(M, at, idx, n, mask, addr, rows)
    touch_shared(M, at, idx, n, np.ones((n, rows), bool), where, 16, 16, kind)


def load_matrices(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: int, trans: bool) -> Array:
    _matrices(M, at, idx, n, mask, addr, 8 * count, "load")
    return exec_warp.load_matrices(M, at, idx, n, mask, addr, count, trans)


def store_matrices(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, trans: bool, *values: Any) -> None:
    _matrices(M, at, idx, n, mask, addr, 8 * len(values), "write")
    exec_warp.store_matrices(M, at, idx, n, mask, addr, trans, *values)


def load_bytes(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: int, shape: str, source: str
) -> Array:
    _matrices(M, at, idx, n, mask, addr, (16 if shape == "m16n16" else 8) * count, "load")
    return exec_warp.load_bytes(M, at, idx, n, mask, addr, count, shape, source)


def store_bytes(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, *values: Any) -> None:
    _matrices(M, at, idx, n, mask, addr, 8 * len(values), "write")
    exec_warp.store_bytes(M, at, idx, n, mask, addr, *values)


HOOKS: dict[str, Any] = {
    f.__name__: f
    for f in (ld_shared, st_shared, ld_global, st_global, ld_generic, st_generic, atomic, atomic_wide,
              clear_shared, replace_field, publish_map, load_matrices, store_matrices, load_bytes,
              store_bytes)
}  # fmt: skip
