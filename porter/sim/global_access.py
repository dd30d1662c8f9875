# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of global memory, by allocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.sim.codegen import runtime
from porter.sim.machine import Machine
from porter.sim.memory import Allocation
from porter.sim.results import Stop

Array = npt.NDArray[Any]


def scatter(view: Array, where: Array, n: int, mask: Any, value: Any, count: int) -> None:
    """view[where] = value on active lanes; of several lanes with one address the last wins."""
    if mask is None:
        if where.shape != (n, 32):
            where = np.broadcast_to(where, (n, 32))
        view[where] = value
        return
    active = np.broadcast_to(mask, (n, 32))
    where = np.broadcast_to(where, (n, 32))[active]
    shape = (n, 32, count) if count > 1 else (n, 32)
    view[where] = np.broadcast_to(value, shape)[active]


def _allocation(M: Machine, address: int) -> Allocation | None:
    found = M.last_allocation
    if found is not None and found.start <= address < found.end:
        return found
    found = M.memory.find(address) or M.internal.find(address)
    M.last_allocation = found
    return found


def _global_error(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Array, size: int) -> None:
    """Find the first active lane whose access is bad and raise Stop."""
    active = np.broadcast_to(True if mask is None else mask, (n, 32))
    a = np.broadcast_to(addr, (n, 32))
    for row, lane in np.argwhere(active).tolist():
        address = int(a[row, lane])
        found = M.memory.find(address) or M.internal.find(address)
        where = int(M.warps(idx)[row]), lane
        if found is None:
            place = M.memory.describe(address)
            raise Stop(Code.SIM_OUT_OF_BOUNDS, f"global address {address:#x} is {place}", at, *where)
        if address + size > found.end:
            name = f" {found.name}" if found.name else ""
            raise Stop(
                Code.SIM_OUT_OF_BOUNDS,
                f"global address {address:#x} ({size} bytes) runs past the end of allocation{name} at {found.end:#x}",
                at,
                *where,
            )
        if address % size:
            raise Stop(Code.SIM_MISALIGNED, f"global address {address:#x} is not a multiple of {size}", at, *where)


def global_groups(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, size: int
) -> list[tuple[Allocation, Array, Any]]:
    """The accesses by allocation: (allocation, byte offsets, lanes or None for all active)."""
    a = np.asarray(addr)
    if mask is not None:
        active = np.broadcast_to(mask, (n, 32))
        if not active.any():
            return []
        full = np.broadcast_to(a, (n, 32))
        a = np.where(active, full, full[active][0])
    low, high = int(a.min()), int(a.max())
    found = _allocation(M, low)
    if found is not None and high + size <= found.end:
        offsets = a - np.uint64(found.start)
        if size > 1 and int(np.bitwise_or.reduce(a, axis=None)) & (size - 1):
            _global_error(M, at, idx, n, mask, a, size)
        return [(found, offsets, None)]
    if size > 1 and int(np.bitwise_or.reduce(a, axis=None)) & (size - 1):
        _global_error(M, at, idx, n, mask, a, size)
    groups = []
    left = np.broadcast_to(True if mask is None else mask, (n, 32)).copy()
    full = np.broadcast_to(a, (n, 32))
    while left.any():
        address = int(full[left][0])
        found = _allocation(M, address)
        if found is None:
            _global_error(M, at, idx, n, left, a, size)
            raise AssertionError
        here = left & (full >= np.uint64(found.start)) & (full < np.uint64(found.end))
        if (full[here] > np.uint64(found.end - size)).any() or found.end - found.start < size:
            _global_error(M, at, idx, n, here, a, size)
        groups.append((found, np.where(here, full - np.uint64(found.start), np.uint64(0)), here))
        left &= ~here
    return groups


def _gather(found: Allocation, offsets: Array, item: int, count: int) -> Array:
    size = item * count
    view = found.elements(item, count)
    if view is not None and view.shape[0] * size >= found.end - found.start:
        return view[(offsets >> np.uint64(size.bit_length() - 1)).astype(np.int64)]
    raw = found.data[offsets.astype(np.int64)[..., None] + np.arange(size)]
    rows: Array = np.ascontiguousarray(raw).view(f"u{item}")
    return rows if count > 1 else rows[..., 0]


@runtime
def ld_global(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int) -> Array:
    groups = global_groups(M, at, idx, n, mask, addr, item * count)
    if M.observer is not None:
        M.observer.touches_global(at, idx, n, mask, groups, item * count, item, "load")
    shape = (n, 32, count) if count > 1 else (n, 32)
    if len(groups) == 1:
        return _gather(groups[0][0], groups[0][1], item, count)
    result = np.zeros(shape, f"u{item}")
    for found, offsets, lanes in groups:
        result[lanes] = np.broadcast_to(_gather(found, offsets, item, count), shape)[lanes]
    return result


@runtime
def st_global(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, item: int, count: int, value: Any) -> None:
    groups = global_groups(M, at, idx, n, mask, addr, item * count)
    if M.observer is not None:
        M.observer.touches_global(at, idx, n, mask, groups, item * count, item, "write", value)
    M.stores += 1
    for found, offsets, lanes in groups:
        put_global(found, offsets, n, mask if lanes is None else lanes, value, item, count)


def put_global(found: Allocation, offsets: Array, n: int, lanes: Any, value: Any, item: int, count: int) -> None:
    size = item * count
    view = found.elements(item, count)
    if view is not None and view.shape[0] * size >= found.end - found.start:
        scatter(view, (offsets >> np.uint64(size.bit_length() - 1)).astype(np.int64), n, lanes, value, count)
        return
    active = np.broadcast_to(True if lanes is None else lanes, (n, 32))
    shape = (n, 32, count) if count > 1 else (n, 32)
    rows = np.ascontiguousarray(np.broadcast_to(np.asarray(value, f"u{item}"), shape)[active])
    raw = rows.reshape(rows.shape[0], -1).view(np.uint8)
    where = np.broadcast_to(offsets, (n, 32))[active].astype(np.int64)
    found.data[where[:, None] + np.arange(size)] = raw
