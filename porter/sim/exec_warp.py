# SPDX-License-Identifier: Apache-2.0
"""Instructions between the threads of a warp: shuffles, votes, elections, matrix moves (PTX ISA 9.7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.matrix_rows import ROWS, byte_places, rows_of
from porter.ptx.nan import CANONICAL
from porter.ptx.packing import SOURCE_BITS, SOURCE_SHIFT
from porter.ptx.shared_window import OFFSET_MASK, RANK_MASK, RANK_SHIFT
from porter.ptx.shuffle import source_lane
from porter.ptx.table import Decoded, items
from porter.sim.codegen import Context, emits, runtime
from porter.sim.exec_memory import shared_index
from porter.sim.machine import Machine
from porter.sim.shared_address import shared_address
from porter.sim.sync import lane_bits

Array = npt.NDArray[Any]
_LANE = np.arange(32, dtype=np.int64)[None, :]


def _lanes(n: int, mask: Any) -> Array:
    return np.broadcast_to(True if mask is None else mask, (n, 32))


def _members(n: int, mask: Any, members: Any) -> Array:
    """[n, 32, 32]: does lane j take part for lane i."""
    lanes = _lanes(n, mask)
    m = np.broadcast_to(np.asarray(members, np.uint32), (n, 32))
    bits = (m[:, :, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return (bits != 0) & lanes[:, None, :]


@runtime
def shuffle(n: int, mask: Any, value: Any, b: Any, c: Any, mode: str) -> tuple[Array, Array]:
    """shfl.sync: (values, whether the source lane was in range)."""
    v = np.broadcast_to(value, (n, 32))
    j, ok = source_lane(mode, _LANE, np.asarray(b).astype(np.int64), np.asarray(c).astype(np.int64))
    j, ok = np.broadcast_to(np.where(ok, j, _LANE), (n, 32)), np.broadcast_to(ok, (n, 32))
    return np.take_along_axis(v, j & 31, axis=1), ok


@emits("shfl")
def _shfl(cg: Context, ins: Decoded) -> None:
    value, ok = cg.let("None"), cg.let("None")
    call = f"shuffle(n, {cg.mask()}, {', '.join(map(cg.get, 'abc'))}, {ins.modifiers['mode']!r})"
    cg.line(f"{value}, {ok} = {call}")
    cg.put("d", value)
    if "p" in ins:
        cg.put("p", ok)


@runtime
def vote(n: int, mask: Any, predicate: Any, members: Any, how: str) -> Array:
    lanes = _lanes(n, mask)
    p = np.broadcast_to(predicate, (n, 32))
    m = np.broadcast_to(np.asarray(members, np.uint32), (n, 32))
    yes = lane_bits(p & lanes)[:, None] & m
    part = lane_bits(lanes)[:, None] & m
    if how == "ballot":
        return yes
    if how == "any":
        return yes != 0
    if how == "all":
        return yes == part
    return (yes == part) | (yes == 0)


@emits("vote")
def _vote(cg: Context, ins: Decoded) -> None:
    how = ins.modifiers.get("mode", "ballot")
    cg.put("d", f"vote(n, {cg.mask()}, {cg.get('a')}, {cg.get('mask')}, {how!r})")


@emits("activemask")
def _activemask(cg: Context, ins: Decoded) -> None:
    cg.put("d", cg.const("u32", 0xFFFFFFFF) if cg.mask() == "None" else f"active_bits(n, {cg.mask()})")


@runtime
def active_bits(n: int, mask: Any) -> Array:
    return lane_bits(_lanes(n, mask))[:, None]


@runtime
def match(n: int, mask: Any, value: Any, members: Any, every: bool) -> tuple[Array, Array]:
    v = np.broadcast_to(value, (n, 32))
    part = _members(n, mask, members)
    same = part & (v[:, :, None] == v[:, None, :])
    bits = (same.astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
    if not every:
        return bits, bits != 0
    agree = (same == part).all(axis=2)
    return np.where(agree, bits, np.uint32(0)), agree


@emits("match")
def _match(cg: Context, ins: Decoded) -> None:
    bits, agree = cg.let("None"), cg.let("None")
    call = f"match(n, {cg.mask()}, {cg.get('a')}, {cg.get('mask')}, {'all' in ins.modifiers})"
    cg.line(f"{bits}, {agree} = {call}")
    cg.put("d", bits)
    if "p" in ins:
        cg.put("p", agree)


@runtime
def reduce_lanes(n: int, mask: Any, value: Any, members: Any, how: str, absolute: bool, nan: bool) -> Array:
    v = np.broadcast_to(value, (n, 32))
    part = _members(n, mask, members)
    each = np.broadcast_to(v[:, None, :], (n, 32, 32))
    kind = v.dtype.type
    if v.dtype.kind == "f":
        x = np.abs(each) if absolute else each
        fn: Any = np.fmin if how == "min" else np.fmax
        start = kind(np.nan)
        r = fn.reduce(np.where(part, x, start), axis=2)
        if nan:
            r = np.where((part & np.isnan(x)).any(axis=2), kind(np.nan), r)
        bad = np.isnan(r)
        return np.where(bad, np.uint32(CANONICAL["f32"]).view(np.float32), r) if bad.any() else r
    if how == "add":
        return np.where(part, each, kind(0)).sum(axis=2, dtype=v.dtype)
    if how in ("and", "or", "xor"):
        fn = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[how]
        start = ~kind(0) if how == "and" else kind(0)
        return fn.reduce(np.where(part, each, start), axis=2)
    info = np.iinfo(v.dtype)
    if how == "min":
        return np.where(part, each, kind(info.max)).min(axis=2)
    return np.where(part, each, kind(info.min)).max(axis=2)


@emits("redux")
def _redux(cg: Context, ins: Decoded) -> None:
    given = ins.modifiers
    call = f"reduce_lanes(n, {cg.mask()}, {cg.get('a')}, {cg.get('mask')}"
    cg.put("d", f"{call}, {given['op']!r}, {'abs' in given}, {'NaN' in given})")


@runtime
def elect(n: int, mask: Any, members: Any) -> tuple[Array, Array]:
    """The lowest member lane: its number, and whether a lane is it."""
    part = lane_bits(_lanes(n, mask))[:, None] & np.broadcast_to(np.asarray(members, np.uint32), (n, 32))
    low = part & (~part + np.uint32(1))
    lane = (np.bitwise_count(low - np.uint32(1))).astype(np.uint32)
    return lane, lane == _LANE.astype(np.uint32)


@emits("elect")
def _elect(cg: Context, ins: Decoded) -> None:
    lane, leader = cg.let("None"), cg.let("None")
    cg.line(f"{lane}, {leader} = elect(n, {cg.mask()}, {cg.get('mask')})")
    if ins.registers("d"):
        cg.put("d", lane)
    cg.put("p", leader)


@emits("mapa")
def _mapa(cg: Context, ins: Decoded) -> None:
    rank = cg.get("b")
    mask = cg.const("u32", OFFSET_MASK)
    shift = cg.const("u32", RANK_SHIFT)
    if "space" in ins.modifiers and ins.type("a") == "u32":
        cg.put("d", f"({cg.get('a')} & {mask}) | ({rank} << {shift})")
        return
    keep = cg.const("u64", ~(RANK_MASK << RANK_SHIFT))
    cg.put("d", f"({cg.get('a', 'u64')} & {keep}) | ({rank} << {shift}).astype(t_u64)", "u64")


@emits("getctarank")
def _getctarank(cg: Context, ins: Decoded) -> None:
    kind = ins.type("a")
    a, shift, mask = cg.get("a"), cg.const(kind, RANK_SHIFT), cg.const(kind, RANK_MASK)
    cg.put("d", f"(({a} >> {shift}) & {mask}).astype(t_u32)")


@runtime
def matrix_addresses(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, rows: int, kind: str) -> Array:
    """Byte index of the 16-byte rows that the first `rows` lanes name, [n, rows]; `kind` is load or write."""
    used = np.broadcast_to(np.arange(32)[None, :] < rows, (n, 32))
    lanes = used if mask is None else used & mask
    where = shared_index(M, at, idx, n, lanes, addr, 16, False)
    where = np.broadcast_to(where, (n, 32))[:, :rows]
    if M.observer is not None:
        M.observer.touches_shared(at, idx, n, np.ones((n, rows), bool), where, 16, kind)
    return where


@runtime
def load_matrices(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: int, trans: bool) -> Array:
    """ldmatrix m8n8.b16: registers [n, 32, count]."""
    where = matrix_addresses(M, at, idx, n, mask, addr, 8 * count, "load")
    rows = M.smem_view(2, 8)[where >> 4].reshape(n, count, 8, 8)
    if trans:
        rows = rows.swapaxes(2, 3)
    pairs = np.ascontiguousarray(rows).view(np.uint32)  # [n, count, 8, 4]: thread 4*row + pair
    return pairs.reshape(n, count, 32).swapaxes(1, 2)


@runtime
def store_matrices(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, trans: bool, *values: Any) -> None:
    """stmatrix m8n8.b16."""
    count = len(values)
    where = matrix_addresses(M, at, idx, n, mask, addr, 8 * count, "write")
    regs = np.stack([np.broadcast_to(v, (n, 32)) for v in values], axis=1)
    rows = np.ascontiguousarray(regs).view(np.uint16).reshape(n, count, 8, 8)
    if trans:
        rows = rows.swapaxes(2, 3)
    M.smem_view(2, 8)[where >> 4] = rows.reshape(n, count * 8, 8)


@runtime
def load_bytes(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, count: int, shape: str, source: str
) -> Array:
    """ldmatrix of 8-bit elements, `source` the format in memory or "": registers [n, 32, registers]."""
    rows = rows_of(shape, count)
    where = matrix_addresses(M, at, idx, n, mask, addr, rows, "load")
    data = M.smem_view(1, 16)[where >> 4]
    if source:
        # 16 elements one after the other, the first in the lowest bits; the rest of the row is padding.
        width = SOURCE_BITS[source]
        bits = np.unpackbits(data[..., : 2 * width], axis=-1, bitorder="little").reshape(n, rows, 16, width)
        weights = np.uint8(1) << np.arange(width, dtype=np.uint8)
        data = (bits * weights).sum(axis=-1, dtype=np.uint8) << np.uint8(SOURCE_SHIFT[source])
    row, byte = byte_places(shape, rows // ROWS, False)
    return np.ascontiguousarray(data[:, row, byte]).view(np.uint32)[..., 0]


@runtime
def store_bytes(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, *values: Any) -> None:
    """stmatrix m16n8 of 8-bit elements, transposed."""
    count = len(values)
    where = matrix_addresses(M, at, idx, n, mask, addr, 8 * count, "write")
    regs = np.stack([np.broadcast_to(v, (n, 32)) for v in values], axis=-1)
    row, byte = byte_places("m16n8", count, False)
    data = np.zeros((n, 8 * count, 16), np.uint8)
    data[:, row, byte] = np.ascontiguousarray(regs)[..., None].view(np.uint8)
    M.smem_view(1, 16)[where >> 4] = data
    M.stores += 1


@emits("ldmatrix")
def _ldmatrix(cg: Context, ins: Decoded) -> None:
    given = ins.modifiers
    address, count = shared_address(cg, "p"), given["num"][1:]
    if "m8n8" in given:
        value = cg.let(cg.call("load_matrices", address, count, str("trans" in given)))
    else:
        shape = next(x for x in ("m8n16", "m16n16") if x in given)
        value = cg.let(cg.call("load_bytes", address, count, repr(shape), repr(given.get("source", ""))))
    for i, to in enumerate(items(ins["r"])):
        cg.set(to, "u32", f"{value}[..., {i}]")


@emits("stmatrix")
def _stmatrix(cg: Context, ins: Decoded) -> None:
    address = shared_address(cg, "p")
    values = [cg.src(i, "u32") for i in items(ins["r"])]
    if "m16n8" in ins.modifiers:
        cg.line(cg.call("store_bytes", address, *values))
        return
    cg.line(cg.call("store_matrices", address, str("trans" in ins.modifiers), *values))


@runtime
def transpose_matrix(n: int, value: Any) -> Array:
    """movmatrix: transpose one 8x8 matrix of b16."""
    regs = np.ascontiguousarray(np.broadcast_to(value, (n, 32)))
    rows = regs.view(np.uint16).reshape(n, 8, 8).swapaxes(1, 2)
    return np.ascontiguousarray(rows).view(np.uint32).reshape(n, 32)


@emits("movmatrix")
def _movmatrix(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"transpose_matrix(n, {cg.get('a')})")
