# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma, tcgen05.ld and tcgen05.st on the Tensor Memory of one CTA or a CTA pair."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.mma_numerics import Architecture, DotRule, dot_rule
from porter.ptx.tmem import (
    COLUMNS,
    DLayout,
    a_cell,
    column_of,
    column_splits,
    d_cell,
    d_columns,
    d_layout,
    lane_of,
    lane_offsets,
    rows_per_cta,
)
from porter.ptx.tmem_access import Shape, cell, is_legal_count, lane_problem, unpacked_columns
from porter.ptx.types import ElementType
from porter.ptx.umma import UmmaOp
from porter.sim.datapath.errors import DatapathError, UnsupportedDatapathError
from porter.sim.datapath.mma_arith import Arithmetic, Decoded, Words, decode_accumulator, fused_dot
from porter.sim.datapath.operands import Bytes, decode, read_smem_operand

Indices = NDArray[np.int64]

F16_UPPER_HALF = 0xFFFF0000
"""What the upper half of a cell holds after an f16 result, which the PTX ISA leaves open: a NaN pattern, so
that a program relying on it fails."""


def decode_idesc(op: UmmaOp, idesc: int) -> InstructionDescriptor:
    """The checked instruction descriptor. Raises DatapathError if it is not legal for the instruction."""
    if op.block_scale:
        raise UnsupportedDatapathError(f"block-scaled kind::{op.kind.value}")
    try:
        decoded = InstructionDescriptor.decode(idesc, op.kind)
        decoded.validate(cta_group=op.cta_group, ws=op.ws)
    except ValueError as error:
        raise DatapathError(str(error)) from None
    if decoded.sparse != op.sparse:
        raise DatapathError("the sparse bit of the instruction descriptor does not agree with .sp")
    return decoded


@lru_cache(maxsize=64)
def _layout(op: UmmaOp, m: int) -> DLayout:
    return d_layout(m, op.cta_group, ws=op.ws, sparse=op.sparse)


@lru_cache(maxsize=128)
def _d_index(layout: DLayout, n: int) -> tuple[Indices, Indices, Indices]:
    """Lane, column and index in flat Tensor Memory of D [rows of one CTA, n], relative to its address."""
    rows = np.arange(rows_per_cta(layout), dtype=np.int64)[:, None]
    cols = np.arange(n, dtype=np.int64)[None, :]
    _, lanes, columns = d_cell(layout, rows, cols, n)
    lanes, columns = lanes + 0 * cols, columns + 0 * rows
    return lanes, columns, lanes * COLUMNS + columns


def _flat(tmem: Words) -> Words:
    """Tensor Memory [128, 512] as one axis, aliasing it."""
    if not tmem.flags.c_contiguous:
        raise ValueError("Tensor Memory must be one contiguous array")
    return tmem.reshape(-1)


def mma_cells(op: UmmaOp, idesc: int, d_addr: int) -> tuple[Indices, Indices]:
    """(lanes, columns) [rows, N] of D in each CTA's Tensor Memory.

    Raises DatapathError for an invalid descriptor or address.
    """
    decoded = decode_idesc(op, idesc)
    lane, column = _check_d(op, decoded, d_addr)
    lanes, columns, _ = _d_index(_layout(op, decoded.m), decoded.n)
    return lanes + lane, columns + column


def _check_d(op: UmmaOp, decoded: InstructionDescriptor, d_addr: int) -> tuple[int, int]:
    """Lane and column of the accumulator's address."""
    layout = _layout(op, decoded.m)
    lane, column = lane_of(d_addr), column_of(d_addr)
    if lane not in lane_offsets(layout):
        legal = " or ".join(str(offset) for offset in lane_offsets(layout))
        raise DatapathError(
            f"the accumulator of an M={decoded.m} tcgen05.mma lies at lane {lane}; it must be {legal}"
        )
    if column + d_columns(layout, decoded.n) > COLUMNS:
        raise DatapathError(f"an accumulator of N={decoded.n} at column {column} passes column {COLUMNS}")
    return lane, column


def a_cells(op: UmmaOp, idesc: int, a_addr: int) -> tuple[Indices, Indices]:
    """(lanes, columns) [rows, 8] of A in each CTA's Tensor Memory, in all copies that the layout needs.

    Raises DatapathError for an invalid descriptor or address.
    """
    decoded = decode_idesc(op, idesc)
    layout = _layout(op, decoded.m)
    lane, column = lane_of(a_addr), column_of(a_addr)
    if lane not in lane_offsets(layout):
        raise DatapathError(f"A in Tensor Memory lies at lane {lane}, which M={decoded.m} does not allow")
    width = op.k * decoded.a_type.bits // 32
    if column + width > COLUMNS:
        raise DatapathError(f"A at column {column} of Tensor Memory passes column {COLUMNS}")
    rows = np.arange(rows_per_cta(layout), dtype=np.int64)[:, None]
    lanes, _, _ = a_cell(layout, rows, np.int64(0) * rows, decoded.a_type.bits)
    lanes = np.concatenate([lanes + i * rows.size for i in range(column_splits(layout))])
    columns = np.arange(width, dtype=np.int64)[None, :]
    return lanes + lane + 0 * columns, columns + column + 0 * lanes


def mma(
    op: UmmaOp,
    idesc: int,
    *,
    smem: Sequence[Bytes],
    tmem: Sequence[Words],
    d_addr: int,
    a_desc: int | None,
    a_tmem: int | None,
    b_desc: int,
    enable_d: bool,
    scale_d: int = 0,
    disable_lanes: int | None = None,
    mode: Arithmetic = "float64",
    rules: Architecture = "sm_100",
) -> None:
    """Execute a tcgen05.mma, updating `tmem` in place.

    `smem` and `tmem` hold one array, or with cta_group 2 those of the even and the odd CTA. `scale_d` is the
    scale-input-d immediate; bit i of `disable_lanes` keeps lane i unwritten (128 + i: of the odd CTA).
    Raises DatapathError for invalid operands.
    """
    decoded = decode_idesc(op, idesc)
    if op.sparse or op.ashift:
        raise UnsupportedDatapathError("tcgen05.mma.sp" if op.sparse else "tcgen05.mma with .ashift")
    if len(smem) != op.cta_group or len(tmem) != op.cta_group:
        raise DatapathError(f"cta_group::{op.cta_group} needs the memories of {op.cta_group} CTAs")
    if scale_d and op.kind.value not in ("f16", "tf32"):
        raise DatapathError(f"kind::{op.kind.value} has no scale-input-d")
    if disable_lanes is not None and not op.has_disable_lanes:
        raise DatapathError("disable-output-lane is not available with .ws")
    layout = _layout(op, decoded.m)
    lane, column = _check_d(op, decoded, d_addr)
    lanes, _, index = _d_index(layout, decoded.n)
    index = index + (lane * COLUMNS + column)
    width = decoded.n // op.cta_group
    b = np.concatenate(
        [
            read_smem_operand(shared, b_desc, "sm_100", width, op.k, decoded.b_type, decoded.b_mn_major)
            for shared in smem
        ]
    )
    rule = dot_rule(
        rules,
        "tcgen05" if rules == "sm_100" else "wgmma",
        decoded.a_type,
        decoded.b_type,
        decoded.d_type,
        saturate=decoded.saturate,
    )
    for cta, memory in enumerate(tmem):
        flat = _flat(memory)
        copies = _read_a(op, idesc, decoded, layout, smem[cta], memory, a_desc, a_tmem)
        if decoded.negate_a != decoded.negate_b:
            copies = [-a for a in copies]
        c = None
        if enable_d:
            c = decode_accumulator(np.take(flat, index), decoded.d_type)
            if scale_d:
                c *= 2.0**-scale_d
        words = _dot_copies(copies, b, c, rule, mode)
        if decoded.d_type is ElementType.F16:
            words |= np.uint32(F16_UPPER_HALF)
        if disable_lanes is not None:
            mask = disable_lanes >> (128 * cta)
            keep = np.array([mask >> i & 1 for i in range(128)], dtype=bool)[lanes + lane]
            words = np.where(keep, np.take(flat, index), words)
        flat[index] = words


def _dot_copies(
    copies: list[Decoded], b: Decoded, c: Decoded | None, rule: DotRule, mode: Arithmetic
) -> Words:
    """D [rows, N], where each copy of A multiplies its share of the columns."""
    if len(copies) == 1:
        return fused_dot(copies[0], b, c, rule, mode)
    width = b.shape[0] // len(copies)
    parts = []
    for i, a in enumerate(copies):
        columns = slice(i * width, (i + 1) * width)
        parts.append(fused_dot(a, b[columns], None if c is None else c[:, columns], rule, mode))
    return np.concatenate(parts, axis=1)


def _read_a(
    op: UmmaOp,
    idesc: int,
    decoded: InstructionDescriptor,
    layout: DLayout,
    smem: Bytes,
    tmem: Words,
    a_desc: int | None,
    a_tmem: int | None,
) -> list[Decoded]:
    """A [rows of one CTA, K]: once, or one copy for each lane range of a split accumulator."""
    rows = rows_per_cta(layout)
    if a_tmem is None:
        if a_desc is None:
            raise DatapathError("tcgen05.mma without an A operand")
        return [read_smem_operand(smem, a_desc, "sm_100", rows, op.k, decoded.a_type, decoded.a_mn_major)]
    if decoded.a_mn_major:
        raise DatapathError("A in Tensor Memory is K-major only")
    lanes, columns = a_cells(op, idesc, a_tmem)
    words = np.ascontiguousarray(tmem[lanes, columns])
    a = decode(words.view(np.uint8), decoded.a_type)
    return list(a.reshape(column_splits(layout), rows, op.k))


@lru_cache(maxsize=256)
def _access_index(shape: Shape, count: int, packed: bool, half_split: int) -> tuple[Indices, Indices]:
    """Lane and column [32, registers] of each register, or [32, registers, 2] of its halves."""
    if not is_legal_count(shape, count):
        raise DatapathError(f".x{count} is no repetition of .{shape.value}")
    threads = np.arange(32, dtype=np.int64)[:, None]
    registers = np.arange(count * shape.registers_per_repeat, dtype=np.int64)[None, :]
    lanes, columns = cell(shape, threads, registers)
    if packed:
        lanes = np.repeat(lanes[:, :, None], 2, axis=2)
        columns = np.stack(unpacked_columns(columns), axis=2)
    if shape is Shape.S16X32BX2:
        second = (threads >= 16) * half_split
        columns = columns + (second[:, :, None] if packed else second)
    return lanes, columns


def cells(
    taddr: int,
    shape: Shape | str,
    count: int,
    *,
    warp_rank: int,
    packed: bool = False,
    half_split: int = 0,
) -> tuple[Indices, Indices]:
    """(lanes, columns) that an access touches: [32, registers], with packing [32, registers, 2].

    `warp_rank` is the warp's rank in its CTA. Raises DatapathError if the warp does not reach the lane, the
    lane is not aligned for the shape, or the columns pass the end of Tensor Memory.
    """
    shape = Shape(shape)
    lanes, columns = _access_index(shape, count, packed, half_split)
    lane, column = lane_of(taddr), column_of(taddr)
    if problem := lane_problem(lane, shape, warp_rank):
        raise DatapathError(problem)
    if column + int(columns.max()) >= COLUMNS:
        raise DatapathError(
            f"a .{shape.value}.x{count} access at column {column} passes column {COLUMNS} of Tensor Memory"
        )
    return lanes + (warp_rank % 4 * 32 + lane % 32), columns + column


def load(
    tmem: Words,
    taddr: int,
    shape: Shape | str,
    count: int,
    pack16: bool,
    warp_rank: int,
    half_split: int = 0,
) -> Words:
    """tcgen05.ld of one warp: registers [32 threads, registers]. Raises DatapathError as `cells` does."""
    lanes, columns = cells(taddr, shape, count, warp_rank=warp_rank, packed=pack16, half_split=half_split)
    values = np.take(_flat(tmem), lanes * COLUMNS + columns)
    if not pack16:
        return values
    return values[:, :, 0] & np.uint32(0xFFFF) | values[:, :, 1] << np.uint32(16)


def store(
    tmem: Words,
    taddr: int,
    shape: Shape | str,
    count: int,
    unpack16: bool,
    warp_rank: int,
    registers: Words,
    half_split: int = 0,
) -> None:
    """tcgen05.st of one warp's registers [32, registers]. Raises DatapathError as `cells` does."""
    lanes, columns = cells(taddr, shape, count, warp_rank=warp_rank, packed=unpack16, half_split=half_split)
    if unpack16:
        halves = [registers & np.uint32(0xFFFF), registers >> np.uint32(16)]
        registers = np.stack(halves, axis=2) | np.uint32(F16_UPPER_HALF)
    tmem[lanes, columns] = registers
