# SPDX-License-Identifier: Apache-2.0
"""Block scaling of tcgen05.mma: scale vectors, and where Tensor Memory keeps the factors.

Sources: PTX ISA 9.0 §9.7.16.10.7 tables 56 and 57 (vectors and types), §9.7.16.10.7.2-3 (selection by id);
CUTLASS include/cute/atom/mma_traits_sm100.hpp (tmem_sf_frg) for lanes, columns and bytes.
"""

from __future__ import annotations

from enum import StrEnum

from porter.ptx.swizzle import IntLike
from porter.ptx.tmem import WARP_LANES, DLayout, column_splits
from porter.ptx.umma import Kind

COUNTS: dict[tuple[Kind, str], int] = {
    (Kind.MXF8F6F4, ""): 1,
    (Kind.MXF8F6F4, "scale_vec::1X"): 1,
    (Kind.MXF8F6F4, "block32"): 1,
    (Kind.MXF4, ""): 2,
    (Kind.MXF4, "scale_vec::2X"): 2,
    (Kind.MXF4, "block32"): 2,
    (Kind.MXF4NVF4, "scale_vec::2X"): 2,
    (Kind.MXF4NVF4, "block32"): 2,
    (Kind.MXF4NVF4, "scale_vec::4X"): 4,
    (Kind.MXF4NVF4, "block16"): 4,
}
"""Factors along one instruction's K, by kind and vector qualifier ("" where it is left out)."""


class ScaleType(StrEnum):
    """Number formats of scale factors: a power of two, and e4m3 without its sign."""

    UE8M0 = "ue8m0"
    UE4M3 = "ue4m3"


SCALE_TYPE_CODES: dict[ScaleType, int] = {ScaleType.UE4M3: 0, ScaleType.UE8M0: 1}
UE8M0_BIAS = 127
UE8M0_NAN = 0xFF
UE4M3_MASK = 0x7F
"""The sign bit of e4m3 takes no part."""


def scale_count(kind: Kind, vector: str) -> int:
    """Factors of each row of A (column of B) along one instruction's K. Raises ValueError for a pair of kind
    and qualifier that does not exist."""
    if (kind, vector) not in COUNTS:
        name = f".{vector}" if vector else "no scale vector"
        raise ValueError(f"kind::{kind.value} with {name}")
    return COUNTS[kind, vector]


def legal_scale_types(kind: Kind, count: int) -> tuple[ScaleType, ...]:
    """Formats of the factors (table 57)."""
    if kind is Kind.MXF4NVF4 and count == 4:
        return (ScaleType.UE8M0, ScaleType.UE4M3)
    return (ScaleType.UE8M0,)


def legal_scale_ids(count: int) -> tuple[int, ...]:
    """Values of the scale factor ids: the first byte of a cell that holds this instruction's factors."""
    return {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}[count]


def scale_columns(rows: int) -> int:
    """Tensor Memory columns of the factors of `rows` rows of A or columns of B."""
    return -(-rows // WARP_LANES)


def scale_cell(row: IntLike, factor: IntLike, scale_id: IntLike) -> tuple[IntLike, IntLike, IntLike]:
    """(lane, column, byte) of a factor in one 32-lane partition, relative to the address.

    Every partition holds its own copy of all factors and reads only that one. A row is a row of A in one CTA, or
    a column of B; see `b_rows_per_copy` for accumulators that are split over lanes.
    """
    return row % WARP_LANES, row // WARP_LANES, scale_id + factor


def b_rows_per_copy(layout: DLayout, n: int) -> int:
    """Columns of B whose factors one partition holds: all, or those of its share of a split accumulator."""
    return n // column_splits(layout)
