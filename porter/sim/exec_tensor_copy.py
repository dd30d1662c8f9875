# SPDX-License-Identifier: Apache-2.0
"""Tensor copies and reductions (TMA): PTX ISA 9.7.9.27."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.tensormap import ENCODED_BYTES, TensorMap
from porter.sim.codegen import Context, Unsupported, runtime
from porter.sim.datapath.tma import Mode, covered_bytes, load_tile, reduce_tile, store_tile
from porter.sim.engine import Operation
from porter.sim.exec_async import (
    _mask_targets,
    active_lanes,
    bulk_out,
    per_lane,
    shared_place,
    signal_of,
    view_global,
)
from porter.sim.memory import MemoryAccessError
from porter.sim.results import Stop

if TYPE_CHECKING:
    from porter.sim.machine import Machine

Array = npt.NDArray[Any]


def tensor_map(M: Machine, address: int, at: int, warp: int, lane: int) -> TensorMap:
    """The tensor map at a generic address."""
    try:
        raw = bytes(view_global(M, address, ENCODED_BYTES))
        found = M.tensor_maps.get(raw)
        if found is None:
            found = M.tensor_maps[raw] = TensorMap.decode(raw)
        return found
    except (MemoryAccessError, ValueError) as problem:
        raise Stop(Code.SIM_TENSOR_MAP, f"at {address:#x}: {problem}", at, warp, lane) from problem


def _at(values: tuple[Any, ...], n: int, row: int, lane: int) -> list[int]:
    return [int(per_lane(x, n)[row, lane]) for x in values]


@runtime
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
    """cp.async.bulk.tensor from global to shared memory."""
    d, a, b = (per_lane(x, n) for x in (dst, address, mbar))
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        tm = tensor_map(M, int(a[row, lane]), at, warp, lane)
        first, offset = shared_place(M, cta, int(d[row, lane]), covered_bytes(tm, mode), at, warp, lane)
        targets = [first]
        if multicast is not None:
            targets = _mask_targets(M, cta, int(per_lane(multicast, n)[row, lane]), at, warp, lane)
        barrier = int(b[row, lane])
        if multicast is None and not pair and M.clustered and barrier >> 24 != int(M.cta_rank[first]):
            what = f"mbarrier {barrier:#x} is not in the block that the copy goes to"
            raise Stop(Code.SIM_MBARRIER, what, at, warp, lane)
        signals = [signal_of(M, cta, barrier, t, pair, at, warp) for t in targets]
        place, shift = _at(coords, n, row, lane), _at(offsets, n, row, lane)

        def land(
            tm: TensorMap = tm,
            place: list[int] = place,
            shift: list[int] = shift,
            targets: list[int] = targets,
            signals: list[tuple[int, int]] = signals,
            offset: int = offset,
        ) -> None:
            nbytes = 0
            # Every block of a multicast gets the same bytes at the same offsets.
            for t in targets:
                nbytes = load_tile(tm, M.everything, place, M.smem[t], offset, mode, shift)
            for slot, owner in signals:
                M.mbar.complete_tx(slot, owner, nbytes)

        M.engine.issue(Operation(at, warp, land, keys=[("mbar", *sc) for sc in signals]))


@runtime
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
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    a, s = per_lane(address, n), per_lane(src, n)
    for row, lane, warp in active_lanes(M, idx, n, mask):
        cta = int(M.warp_cta[warp])
        tm = tensor_map(M, int(a[row, lane]), at, warp, lane)
        nbytes = covered_bytes(tm, mode)
        owner, offset = shared_place(M, cta, int(s[row, lane]), nbytes, at, warp, lane)
        box: list[Array] = []
        # The copy keeps the tile's place relative to the swizzle pattern, which repeats every 1024 bytes.
        base = offset // 1024 * 1024
        end = offset + nbytes
        place = _at(coords, n, row, lane)

        def read(owner: int = owner, base: int = base, end: int = end, box: list[Array] = box) -> None:
            box.append(M.smem[owner, base : -(-end // 1024) * 1024].copy())

        def land(
            tm: TensorMap = tm,
            place: list[int] = place,
            start: int = offset - base,
            box: list[Array] = box,
        ) -> None:
            if how:
                reduce_tile(tm, M.everything, place, box[0], start, how, mode)  # type: ignore[arg-type]
            else:
                store_tile(tm, M.everything, place, box[0], start, mode)

        bulk_out(M, at, warp, lane, read, land)


_MODES: dict[str, Mode] = {
    "tile": "tile", "tile::gather4": "rows", "tile::scatter4": "rows", "im2col": "im2col",
    "im2col_no_offs": "im2col",
}  # fmt: skip


def tensor_copy(cg: Context, ins: ast.Instruction, how: str) -> None:
    """Generate a tensor copy, or a reduction `how`."""
    p, ops = ins.parts, ins.operands
    written = next((x for x in p if x.startswith(("im2col", "tile"))), "tile")
    if written not in _MODES:
        raise Unsupported(f"tensor copy mode .{written}")
    mode = _MODES[written]
    at_dim = next(i for i, x in enumerate(p) if x in ("1d", "2d", "3d", "4d", "5d"))

    def target(op: ast.Operand) -> tuple[str, str]:
        assert isinstance(op, ast.Mem)
        vector = op.parts[0]
        items = vector.items if isinstance(vector, ast.Vec) else (vector,)
        coords = ", ".join(cg.src(i, "s32") for i in items)
        address = cg.src(op.base, "u64") if op.offset == 0 else cg.addr(ast.Mem(op.base, op.offset), "u64")
        return address, f"({coords},)"

    to = next(x for x in p[at_dim + 1 :] if x.startswith(("shared", "global")))
    if not to.startswith("shared"):
        address, coords = target(ops[0])
        cg.line(cg.call("tensor_store", address, coords, cg.addr(ops[1], "u32"), repr(how), repr(mode)))
        return
    address, coords = target(ops[1])
    rest = list(ops[3:])
    offsets = "()"
    if written == "im2col":
        vector = rest.pop(0)
        items = vector.items if isinstance(vector, ast.Vec) else (vector,)
        offsets = "(" + ", ".join(cg.src(i, "u16") for i in items) + ",)"
    multicast = cg.src(rest[0], "u32") if "multicast::cluster" in p else "None"
    cg.line(
        cg.call(
            "tensor_load",
            cg.addr(ops[0], "u32"),
            address,
            coords,
            cg.addr(ops[2], "u32"),
            multicast,
            str("cta_group::2" in p),
            repr(mode),
            offsets,
        )
    )
