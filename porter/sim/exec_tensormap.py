# SPDX-License-Identifier: Apache-2.0
"""Tensor maps changed and published by kernels: PTX ISA 9.7.9.28, 9.7.13.16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.tensormap import ENCODED_BYTES, replaced
from porter.sim.addresses import shared_place
from porter.sim.codegen import Context, emits, runtime
from porter.sim.kinds import Unsupported
from porter.sim.machine import Machine
from porter.sim.memory import MemoryAccessError
from porter.sim.results import Stop
from porter.sim.threads import active_lanes, per_lane

Bytes = npt.NDArray[np.uint8]
_SHARED_WINDOW = 1 << 48


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
    if address % 128:
        raise Stop(Code.SIM_MISALIGNED, f"tensor map at {address:#x}: multiples of 128 are needed", at, warp, lane)
    return found


@runtime
def replace_field(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, shared: bool, name: str, ordinal: int, value: Any
) -> None:
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
    d, s = per_lane(dst, n), per_lane(src, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        source = map_bytes(M, int(s[row, lane]), True, at, warp, lane)
        map_bytes(M, int(d[row, lane]), False, at, warp, lane)[:] = source
    M.stores += 1


@emits("tensormap")
def _tensormap(cg: Context, ins: ast.Instruction) -> None:
    p, ops = ins.parts, ins.operands
    if p[1] == "cp_fenceproxy":
        cg.line(cg.call("publish_map", cg.addr(ops[0], "u64"), cg.addr(ops[1], "u32")))
        return
    if p[1] != "replace":
        raise Unsupported("")
    shared = "shared::cta" in p
    address = cg.addr(ops[0], "u32" if shared else "u64")
    ordinal = 0
    if len(ops) == 3:
        assert isinstance(ops[1], ast.Imm)
        ordinal = int(ops[1].value)
    value = cg.src(ops[-1], "u64" if p[-1] == "b64" else "u32")
    cg.line(cg.call("replace_field", address, str(shared), repr(p[3]), str(ordinal), value))
