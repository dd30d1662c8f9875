# SPDX-License-Identifier: Apache-2.0
"""Structured sparsity of A: what metadata says, and where wgmma and tcgen05.mma find it.

Half of each row of A is stored. A chunk of K has four bits of metadata: two 2-bit places of what is stored. tf32
stores one of two elements, 16- and 8-bit types two of four, packed 4-bit types two pairs of four pairs.

Sources: PTX ISA 9.0 §9.7.15.6.1-2 (wgmma) and §9.7.16.10.8 (tcgen05); CUTLASS
include/cute/atom/mma_traits_sm90_gmma_sparse.hpp (ELayout_64x16/32/64) and mma_traits_sm100.hpp (tmem_e_frg,
tmem_e_frg_ws) for the bits of every element.
"""

from __future__ import annotations

from porter.ptx.swizzle import IntLike
from porter.ptx.tmem import DLayout

NIBBLE = 4
"""Bits of metadata of a chunk."""

LEGAL_PAIRS = frozenset({0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110})
"""Meaningful metadata of a chunk with two places."""

LEGAL_TF32 = frozenset({0b0100, 0b1110})
"""Meaningful metadata of a tf32 chunk: its first, its second element."""


def chunk_elements(element_bits: int) -> int:
    """Logical elements of K that one nibble describes."""
    return {32: 2, 4: 8}.get(element_bits, 4)


def legal_nibbles(element_bits: int) -> frozenset[int]:
    return LEGAL_TF32 if element_bits == 32 else LEGAL_PAIRS


def logical_offset(nibble: IntLike, stored: IntLike, element_bits: int) -> IntLike:
    """Place within its chunk of a chunk's `stored`-th stored element."""
    if element_bits == 32:
        return nibble // 8 + 0 * stored
    if element_bits == 4:
        return 2 * (nibble >> 2 * (stored // 2) & 3) + stored % 2
    return nibble >> 2 * stored & 3


def metadata_lanes(layout: DLayout, row: IntLike) -> IntLike:
    """First lane of the 16 rows that `row` belongs to, in the first lane range of the accumulator."""
    return (32 if layout in (DLayout.F, DLayout.C) else 16) * (row // 16)


def metadata_cell(
    layout: DLayout, row: IntLike, chunk: IntLike, element_bits: int, selector: int
) -> tuple[IntLike, IntLike, IntLike]:
    """(lane, column, lowest bit) of a chunk's nibble, relative to the metadata's address.

    16- and 32-bit types put rows r and r + 8 in the two halves of a cell, with the first half of K in lane r and
    the second in lane r + 8; the sparsity selector is the column. Narrower types keep a row in its own lane.
    Where an accumulator is split over lane ranges, each range has its copy.
    """
    first = metadata_lanes(layout, row)
    if element_bits >= 16:
        lane, bit = first + row % 8 + 8 * (chunk // 4), 16 * (row // 8 % 2) + NIBBLE * (chunk % 4)
        return lane, selector + 0 * lane, bit
    return first + row % 16 + 0 * chunk, chunk // 8 + 0 * row, NIBBLE * (chunk % 8) + 0 * row


def metadata_register(row: IntLike, chunk: IntLike, element_bits: int, selector: int) -> tuple[IntLike, IntLike]:
    """(thread of the warpgroup, lowest bit) of a chunk's nibble in wgmma's metadata register.

    `selector` is sp-sel: which pair of each four threads supplies the metadata of 16- and 32-bit types.
    """
    thread = 32 * (row // 16) + 4 * (row % 8)
    if element_bits >= 16:
        return thread + 2 * selector + chunk // 4, 16 * (row // 8 % 2) + NIBBLE * (chunk % 4)
    return thread + row // 8 % 2 + 2 * (chunk // 8), NIBBLE * (chunk % 8) + 0 * row
