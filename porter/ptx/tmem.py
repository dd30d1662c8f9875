# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory: addresses, allocation rules, and where tcgen05.mma keeps D and A.

Sources: PTX ISA 9.0 §9.7.16.1 (addressing), §9.7.16.7 (allocation), §9.7.16.10.5 (layouts A-G); CUTLASS
include/cute/atom/mma_traits_sm100_frag.hpp for the lane and column of every element.
"""

from __future__ import annotations

from enum import Enum

from porter.ptx.swizzle import IntLike

LANES = 128
COLUMNS = 512
WARP_LANES = 32
"""Lanes that one warp can load from and store to: those of its rank modulo 4."""

MIN_ALLOCATION = 32
ALLOCATIONS = tuple(MIN_ALLOCATION << i for i in range((COLUMNS // MIN_ALLOCATION).bit_length()))
"""Columns that a tcgen05.alloc may ask for."""

HALF_LANE = 16
"""Lane offset of the second of two M=64 tiles that share their columns (layouts C and F)."""

SHIFT_COLUMNS = 8
"""Columns that tcgen05.shift moves down by one lane within 32 lanes (§9.7.16.9.3, shape .31x256b): lane r gets
what lane r + 1 held and the last lane keeps its own, as .ashift does to A (CUTLASS
examples/python/CuTeDSL/experimental/primitives/tcgen05/1cta_mma_a_from_tmem.py)."""

LANE_SHIFT = 16
COLUMN_MASK = 0xFFFF


def address(lane: IntLike, column: IntLike) -> IntLike:
    return lane << LANE_SHIFT | column


def lane_of(taddr: IntLike) -> IntLike:
    """The lane field of an address, all 16 bits of it."""
    return taddr >> LANE_SHIFT & 0xFFFF


def column_of(taddr: IntLike) -> IntLike:
    return taddr & COLUMN_MASK


class DLayout(Enum):
    """Accumulator layouts, by the letters of the PTX ISA."""

    A = "A"
    B = "B"
    C = "C"
    D = "D"
    E = "E"
    F = "F"
    G = "G"


def d_layout(m: int, cta_group: int, *, ws: bool = False, sparse: bool = False) -> DLayout:
    """The layout of an accumulator of `m` rows (over the CTA pair). Raises ValueError for other sizes."""
    layouts = {
        (256, 2, False): DLayout.A,
        (128, 2, False): DLayout.C if sparse else DLayout.B,
        (128, 1, False): DLayout.D,
        (128, 1, True): DLayout.D,
        (64, 1, True): DLayout.E,
        (64, 1, False): DLayout.F,
        (32, 1, True): DLayout.G,
    }
    if (m, cta_group, ws) not in layouts:
        raise ValueError(f"no accumulator layout for M={m}, cta_group::{cta_group}{', .ws' if ws else ''}")
    return layouts[m, cta_group, ws]


def rows_per_cta(layout: DLayout) -> int:
    return {DLayout.A: 128, DLayout.D: 128, DLayout.G: 32}.get(layout, 64)


def column_splits(layout: DLayout) -> int:
    """In how many lane ranges the columns of D lie side by side."""
    return {DLayout.B: 2, DLayout.E: 2, DLayout.G: 4}.get(layout, 1)


def d_columns(layout: DLayout, n: int) -> int:
    """Tensor Memory columns that an accumulator of `n` columns takes."""
    return n // column_splits(layout)


def lane_offsets(layout: DLayout) -> tuple[int, ...]:
    """Legal lanes of the accumulator's address."""
    return (0, HALF_LANE) if layout in (DLayout.F, DLayout.C) else (0,)


def d_cell(layout: DLayout, row: IntLike, col: IntLike, n: int) -> tuple[IntLike, IntLike, IntLike]:
    """(CTA of the pair, lane, column) of D(row, col), lane and column relative to the address of D.

    `n` is the N of the instruction. The lanes of layout C are those of F in each CTA, which only a figure
    of the PTX ISA shows.
    """
    rows = rows_per_cta(layout)
    cta, local = row // rows, row % rows
    if layout in (DLayout.F, DLayout.C):
        return cta, 32 * (local // 16) + local % 16, col
    width = d_columns(layout, n)
    return cta, local + rows * (col // width), col % width


def a_cell(layout: DLayout, row: IntLike, k: IntLike, element_bits: int) -> tuple[IntLike, IntLike, IntLike]:
    """(lane, column, bit) of A(row, k) of one CTA in Tensor Memory, relative to the address of A.

    A row lies in the lane of D's row; elements are packed from the low bits up, one instruction's K is 8
    columns. Where D splits its columns over lane ranges, A is needed once in each of them.
    """
    lane = 32 * (row // 16) + row % 16 if layout in (DLayout.F, DLayout.C) else row
    per_cell = 32 // element_bits
    return lane, k // per_cell, k % per_cell * element_bits
