# SPDX-License-Identifier: Apache-2.0
"""Tensor maps changed and published by kernels: PTX ISA 9.7.9.28, 9.7.13.16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx.alignment import CHANGED_MAP
from porter.ptx.table import Decoded
from porter.ptx.tensormap import ENCODED_BYTES, replaced
from porter.sim.addresses import shared_place
from porter.sim.codegen import Context, emits, runtime
from porter.sim.exec_memory import LOCAL, PARAM, SHARED, by_space, shared_access
from porter.sim.global_access import global_groups
from porter.sim.machine import Machine
from porter.sim.memory import MemoryAccessError
from porter.sim.results import Stop
from porter.sim.threads import active_lanes, active_warps, lane_mask, per_lane

Bytes = npt.NDArray[np.uint8]


def map_bytes(M: Machine, address: int, shared: bool, at: int, warp: int, lane: int) -> Bytes:
    """The 128 bytes at a shared (`shared`) or generic address."""
    try:
        if shared or address >> 48 == 1:
            low = address & 0xFFFFFFFF
            owner, offset = shared_place(M, int(M.warp_cta[warp]), low, ENCODED_BYTES, at, warp, lane)
            found: Bytes = M.smem[owner, offset : offset + ENCODED_BYTES]
        else:
            found = M.everything.view(address, ENCODED_BYTES)
    except MemoryAccessError as problem:
        raise Stop(Code.SIM_OUT_OF_BOUNDS, str(problem), at, warp, lane) from problem
    if address % CHANGED_MAP:
        what = f"tensor map at {address:#x}: multiples of {CHANGED_MAP} are needed"
        raise Stop(Code.SIM_MISALIGNED, what, at, warp, lane)
    return found


def _report(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, shared: bool, kind: str) -> None:
    """Tell the observer of an access to maps at shared (`shared`) or generic addresses."""
    assert M.observer is not None
    for window, lanes in [(SHARED, None)] if shared else by_space(M, n, mask, addr):
        use = mask if lanes is None else lanes
        if window == SHARED:
            shared_access(M, at, idx, n, use, np.asarray(addr).astype(np.uint32), ENCODED_BYTES, not shared, kind)
        elif window not in (LOCAL, PARAM):
            groups = global_groups(M, at, idx, n, use, addr, ENCODED_BYTES)
            M.observer.touches_global(at, idx, n, use, groups, ENCODED_BYTES, 8, kind)


@runtime
def replace_field(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, shared: bool, name: str, ordinal: int, value: Any
) -> None:
    if M.observer is not None:
        _report(M, at, idx, n, mask, addr, shared, "write")
    a, v = per_lane(addr, n), per_lane(value, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        place = map_bytes(M, int(a[row, lane]), shared, at, warp, lane)
        try:
            changed = replaced(bytes(place), name, int(v[row, lane]), ordinal)
        except ValueError as problem:
            raise Stop(Code.SIM_TENSOR_MAP, str(problem), at, warp, lane) from problem
        place[:] = np.frombuffer(changed, np.uint8)
    M.stores += 1


@runtime
def publish_map(M: Machine, at: int, idx: Any, n: int, mask: Any, dst: Any, src: Any) -> None:
    """tensormap.cp_fenceproxy: 128 bytes from shared to global memory."""
    if M.observer is not None:
        # The lanes copy together: one of them stands for all.
        first = np.zeros((n, 32), bool)
        first[:, 0] = lane_mask(n, mask).any(axis=1)
        _report(M, at, idx, n, first, src, True, "load")
        _report(M, at, idx, n, first, dst, False, "write")
    d, s = per_lane(dst, n), per_lane(src, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        source = map_bytes(M, int(s[row, lane]), True, at, warp, lane)
        map_bytes(M, int(d[row, lane]), False, at, warp, lane)[:] = source
    M.stores += 1
    if M.observer is not None:
        for _, warp in active_warps(M, idx, n, mask):
            M.observer.published(at, warp)


@emits("tensormap.cp_fenceproxy")
def _publish(cg: Context, ins: Decoded) -> None:
    cg.line(cg.call("publish_map", cg.get("dst"), cg.get("src")))


@emits("tensormap.replace")
def _replace(cg: Context, ins: Decoded) -> None:
    shared = ins.space("map").startswith("shared")
    ordinal = cg.integer(ins["ordinal"]) if "ordinal" in ins else 0
    value = cg.get("value", "u64" if "b64" in ins.modifiers else "u32")
    cg.line(cg.call("replace_field", cg.get("map"), str(shared), repr(ins.modifiers["field"]), str(ordinal), value))
