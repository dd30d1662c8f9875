# SPDX-License-Identifier: Apache-2.0
"""How tensor cores add: the truncated fused dot product of each instruction family and type.

One instruction aligns the K products and the accumulator at the largest exponent among them, truncates each
toward zero `fraction_bits` below it, adds exactly, and rounds once. Products keep the sum of their operands'
exponents and are not normalised; a subnormal operand counts with the smallest normal exponent; zeros take no
part. NaN, infinity times zero and opposite infinities give the canonical NaN; overflow gives infinity.

Scale factors of kind::mxf8f6f4 multiply exactly and their exponents join the alignment. The kinds of packed 4-bit
operands add by another rule, `FourBitRule`. Sparse A: places that are not stored take no part, whatever B holds
there; one instruction is still one sum.

Sources: MMA-Sim (arXiv 2511.10909, microsoft/MMA-Sim); Khattak and Mikaitis, "Accurate Models of NVIDIA
Tensor Cores" (arXiv 2512.07004), with recorded result words; sf-tensor/tcgen05 for words of tcgen05.mma.
The PTX ISA leaves order, rounding and subnormals unspecified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Literal

from porter.ptx import nan
from porter.ptx.types import F8F6F4_TYPES, FP8_TYPES, INT8_TYPES, ElementType

T = ElementType

Architecture = Literal["sm_90", "sm_100"]
Unit = Literal["wgmma", "tcgen05", "mma"]

CANONICAL_NAN = {T.F32: nan.CANONICAL["f32"], T.F16: nan.CANONICAL["f16"]}
"""Bit pattern of every NaN result."""

TF32_TRUNCATED_BITS = 13
"""Low bits of a 32-bit container that tf32 operands lose before anything else."""


class Rounding(Enum):
    """The one conversion at the end: toward zero to 23 or 13 fraction bits of an f32, to nearest even of an
    f16, or none (integers)."""

    RZ23 = "rz23"
    RZ13 = "rz13"
    RNE10 = "rne10"
    EXACT = "exact"


@dataclass(frozen=True)
class DotRule:
    """The sum of one instruction: `length` products at a time, `fraction_bits` kept below the largest
    exponent. `saturate` is the clamp of integer results; without it they wrap."""

    a_type: ElementType
    b_type: ElementType
    d_type: ElementType
    length: int
    fraction_bits: int
    rounding: Rounding
    saturate: bool = False


def _rules() -> dict[tuple[Architecture, Unit, ElementType, ElementType], DotRule]:
    rules: dict[tuple[Architecture, Unit, ElementType, ElementType], DotRule] = {}

    units: tuple[tuple[Architecture, Unit], ...] = (
        ("sm_90", "wgmma"),
        ("sm_90", "mma"),
        ("sm_100", "tcgen05"),
        ("sm_100", "mma"),
    )
    for arch, unit in units:
        # Only the warpgroup instruction of Hopper adds 8-bit floats with fewer bits.
        hopper = unit == "wgmma"
        narrow, narrow_rounding = (13, Rounding.RZ13) if hopper else (25, Rounding.RZ23)
        rows = [
            (T.F16, T.F32, 16, 25, Rounding.RZ23),
            (T.BF16, T.F32, 16, 25, Rounding.RZ23),
            (T.F16, T.F16, 16, 25, Rounding.RNE10),
            (T.TF32, T.F32, 8, 25, Rounding.RZ23),
            *((ab, T.S32, 32, 0, Rounding.EXACT) for ab in sorted(INT8_TYPES)),
        ]
        for ab in sorted(F8F6F4_TYPES if unit == "tcgen05" else FP8_TYPES):
            rows.append((ab, T.F32, 32, narrow, narrow_rounding))
            rows.append((ab, T.F16, 32, narrow, Rounding.RNE10))
        if unit != "tcgen05":
            rows.append((T.B1, T.S32, 256, 0, Rounding.EXACT))
        for ab, d, length, fraction, rounding in rows:
            rules[arch, unit, ab, d] = DotRule(ab, ab, d, length, fraction, rounding)
    return rules


DOT_RULES = _rules()
"""By (architecture, unit, A type, D type); mixed operand types follow A's entry."""


@lru_cache(maxsize=256)
def dot_rule(
    arch: Architecture,
    unit: Unit,
    a_type: ElementType,
    b_type: ElementType,
    d_type: ElementType,
    *,
    saturate: bool = False,
) -> DotRule:
    """The rule of a product. Raises KeyError if the unit has no such product."""
    return replace(DOT_RULES[arch, unit, a_type, d_type], b_type=b_type, saturate=saturate)


@dataclass(frozen=True)
class FourBitRule:
    """The sum of one instruction of kind::mxf4 or kind::mxf4nvf4: e2m1 products times two scale factors.

    Let R be the largest exponent of a nonzero product with its factors, S the largest sum of two factors'
    exponents among those, and C the accumulator's exponent. Terms are truncated toward zero to 2^q with
    q = max(max(R, C) - `window`, S - `scale_window`), added exactly and truncated to f32.

    A term is the exact sum of `merge` consecutive products. With a nonzero accumulator whose exponent is no
    smaller than R (ue4m3), or than that of a group of `merge_c` (ue8m0), groups of `merge_c` products are
    truncated to 2^(C - `scale_window`) instead. Where the result is an f32 subnormal, ue8m0 groups whose factors
    are not the largest count only from 2^`floor` up.

    Source: sf-tensor/tcgen05 (MIT), tcgen05_model/MODEL.md §5, which has recorded words that tell this rule from
    that of MMA-Sim.
    """

    merge: int
    merge_c: int
    window: int = 39
    scale_window: int = 35
    per_group: bool = False
    floor: int | None = None


FOUR_BIT_UE8M0 = FourBitRule(merge=16, merge_c=16, per_group=True, floor=-174)
FOUR_BIT_UE4M3 = FourBitRule(merge=4, merge_c=16)
FOUR_BIT_UE4M3_SPARSE = FourBitRule(merge=4, merge_c=32)


def four_bit_rule(ue4m3: bool, sparse: bool) -> FourBitRule:
    """The rule by scale format and sparsity; K counts logical elements."""
    if not ue4m3:
        return FOUR_BIT_UE8M0
    return FOUR_BIT_UE4M3_SPARSE if sparse else FOUR_BIT_UE4M3
