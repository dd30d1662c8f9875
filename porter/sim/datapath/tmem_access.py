# SPDX-License-Identifier: Apache-2.0
"""tcgen05.ld and tcgen05.st on the cells of one block's Tensor Memory (PTX ISA 9.7.16.8)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from porter.ptx.float_words import F32_INFINITY, F32_MAGNITUDE
from porter.ptx.mma_cells import Indices
from porter.ptx.mma_numerics import CANONICAL_NAN
from porter.ptx.operand_errors import OperandError
from porter.ptx.tmem import COLUMNS, WARP_LANES, column_of, lane_of
from porter.ptx.tmem_access import LoadReduction, Shape, cell, is_legal_count, lane_problem, unpacked_columns
from porter.ptx.types import ElementType
from porter.sim.datapath.mma_arith import (
    Words,
)
from porter.sim.datapath.tcgen05 import F16_UPPER_HALF, flat_cells


@lru_cache(maxsize=256)
def _access_index(shape: Shape, count: int, packed: bool, half_split: int) -> tuple[Indices, Indices, int]:
    """Lane and column [32, registers] of each register, or [32, registers, 2] of its halves; the last column."""
    if not is_legal_count(shape, count):
        raise OperandError(f".x{count} is no repetition of .{shape.value}")
    threads = np.arange(32, dtype=np.int64)[:, None]
    registers = np.arange(count * shape.registers_per_repeat, dtype=np.int64)[None, :]
    lanes, columns = cell(shape, threads, registers)
    if packed:
        lanes = np.repeat(lanes[:, :, None], 2, axis=2)
        columns = np.stack(unpacked_columns(columns), axis=2)
    if shape is Shape.S16X32BX2:
        second = (threads >= 16) * half_split
        columns = columns + (second[:, :, None] if packed else second)
    return lanes, columns, int(columns.max())


def first_cell(
    taddr: int, shape: Shape, count: int, *, warp_rank: int, packed: bool, half_split: int
) -> tuple[int, int]:
    """(lane, column) where an access begins. Raises OperandError as `cells` does."""
    last = _access_index(shape, count, packed, half_split)[2]
    lane, column = lane_of(taddr), column_of(taddr)
    if problem := lane_problem(lane, shape, warp_rank):
        raise OperandError(problem)
    if column + last >= COLUMNS:
        raise OperandError(
            f"a .{shape.value}.x{count} access at column {column} passes column {COLUMNS} of Tensor Memory"
        )
    return warp_rank % 4 * WARP_LANES + lane % WARP_LANES, column


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

    `warp_rank` is the warp's rank in its CTA. Raises OperandError if the warp does not reach the lane, the
    lane is not aligned for the shape, or the columns pass the end of Tensor Memory.
    """
    shape = Shape(shape)
    lane, column = first_cell(taddr, shape, count, warp_rank=warp_rank, packed=packed, half_split=half_split)
    lanes, columns, _ = _access_index(shape, count, packed, half_split)
    return lanes + lane, columns + column


@lru_cache(maxsize=256)
def _access_offsets(shape: Shape, count: int, packed: bool, half_split: int) -> Indices:
    """The same as places in `flat_cells`."""
    lanes, columns, _ = _access_index(shape, count, packed, half_split)
    return np.asarray(lanes * COLUMNS + columns)


def loads(tmem: Words, firsts: Indices, shape: Shape, count: int, pack16: bool, half_split: int) -> Words:
    """tcgen05.ld of several warps: registers [warps, 32 threads, registers]. `tmem` is the Tensor Memory of one or more
    blocks, `firsts` the place of each warp's first cell in it as one axis."""
    offsets = _access_offsets(shape, count, pack16, half_split)
    values = np.take(flat_cells(tmem), firsts.reshape(-1, *(1,) * offsets.ndim) + offsets)
    if not pack16:
        return values
    return values[..., 0] & np.uint32(0xFFFF) | values[..., 1] << np.uint32(16)


def load(
    tmem: Words,
    taddr: int,
    shape: Shape | str,
    count: int,
    pack16: bool,
    warp_rank: int,
    half_split: int = 0,
) -> Words:
    """tcgen05.ld of one warp: registers [32 threads, registers]. Raises OperandError as `cells` does."""
    shape = Shape(shape)
    lane, column = first_cell(taddr, shape, count, warp_rank=warp_rank, packed=pack16, half_split=half_split)
    found: Words = loads(tmem, np.array([lane * COLUMNS + column]), shape, count, pack16, half_split)[0]
    return found


def reduce_loaded(values: Words, reduction: LoadReduction) -> Words:
    """The reduction [warps, 32] of registers [warps, 32 threads, registers]."""
    if reduction.kind != "f32":
        numbers = values.view(np.int32) if reduction.kind == "s32" else values
        return (numbers.max(axis=-1) if reduction.largest else numbers.min(axis=-1)).view(np.uint32)
    bits = values & np.uint32(F32_MAGNITUDE) if reduction.absolute else values
    nan = (values & np.uint32(F32_MAGNITUDE)) > F32_INFINITY
    # As integers of sign and magnitude floats keep their order, and -0 is below +0.
    key = bits.view(np.int32) ^ ((bits.view(np.int32) >> 31) & np.int32(F32_MAGNITUDE))
    limits = np.iinfo(np.int32)
    key = np.where(nan, limits.min if reduction.largest else limits.max, key)
    best = key.max(axis=-1) if reduction.largest else key.min(axis=-1)
    found = (best ^ ((best >> 31) & np.int32(F32_MAGNITUDE))).astype(np.int32).view(np.uint32)
    none = nan.any(axis=-1) if reduction.propagate_nan else nan.all(axis=-1)
    return np.where(none, np.uint32(CANONICAL_NAN[ElementType.F32]), found)


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
    """tcgen05.st of one warp's registers [32, registers]. Raises OperandError as `cells` does."""
    lanes, columns = cells(taddr, shape, count, warp_rank=warp_rank, packed=unpack16, half_split=half_split)
    if unpack16:
        halves = [registers & np.uint32(0xFFFF), registers >> np.uint32(16)]
        registers = np.stack(halves, axis=2) | np.uint32(F16_UPPER_HALF)
    tmem[lanes, columns] = registers
