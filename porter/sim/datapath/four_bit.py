# SPDX-License-Identifier: Apache-2.0
"""The sum of products of kind::mxf4 and kind::mxf4nvf4: packed 4-bit operands with factors along K."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from porter.ptx.block_scale import UE4M3_MASK, UE8M0_BIAS, UE8M0_NAN, ScaleType
from porter.ptx.float_words import F32_MAGNITUDE
from porter.ptx.mma_numerics import CANONICAL_NAN, FourBitRule
from porter.ptx.types import FLOAT_FORMATS, ElementType
from porter.sim.datapath.mma_arith import (
    Arithmetic,
    Decoded,
    Mask,
    Words,
    encode_accumulator,
    round_nearest,
    toward_zero,
)
from porter.sim.datapath.operands import decode

Exponents = NDArray[np.int32]

# Stands for the exponent of nothing: below any other, and sums of several still fit.
_NONE = -10_000

# Larger than the number of products of a group, so that the largest power in a sum of powers can be told.
_RADIX_BITS = 6

_F32_MIN_EXPONENT = FLOAT_FORMATS[ElementType.F32].min_exponent
_E2M1_MIN_EXPONENT = FLOAT_FORMATS[ElementType.E2M1].min_exponent
_E4M3_MIN_EXPONENT = FLOAT_FORMATS[ElementType.E4M3].min_exponent


def decode_scales(codes: NDArray[np.uint8], scale_type: ScaleType) -> Decoded:
    """Values of scale factors, NaN for NaN."""
    if scale_type is ScaleType.UE8M0:
        values = np.ldexp(1.0, codes.astype(np.int32) - UE8M0_BIAS)
        return np.where(codes == UE8M0_NAN, np.nan, values)
    return decode(codes & np.uint8(UE4M3_MASK), ElementType.E4M3)


@dataclass
class _Factors:
    a: Decoded
    b: Decoded
    scales_a: Decoded
    scales_b: Decoded
    scale_type: ScaleType


@dataclass
class _Group:
    """One run of products with one pair of factors. `total` [M, N] is their exact sum, `largest` the largest
    exponent of a nonzero one, `scale` the factors' exponents where there is one."""

    total: Decoded
    largest: Exponents
    scale: Exponents


def four_bit_dot(
    a: Decoded,
    b: Decoded,
    scales_a: Decoded,
    scales_b: Decoded,
    c: Decoded | None,
    rule: FourBitRule,
    scale_type: ScaleType,
    mode: Arithmetic,
) -> Words:
    """D = (A·scales)·(B·scales)ᵀ + C: a [M, K], b [N, K], factors [M, S] and [N, S] of K / S elements each, c
    [M, N] or None for zero. Returns the f32 bits of D."""
    if c is None:
        c = np.zeros((a.shape[0], b.shape[0]))
    bad_a, bad_b = (np.atleast_1d(np.isnan(scales).any(axis=1)) for scales in (scales_a, scales_b))
    bad = bad_a[:, None] | bad_b[None, :] | np.isnan(c)
    scales_a, scales_b = np.nan_to_num(scales_a), np.nan_to_num(scales_b)
    finite_c = np.where(np.isfinite(c), c, 0.0)
    if mode == "float64":
        width = a.shape[1] // scales_a.shape[1]
        total = np.repeat(scales_a, width, axis=1) * a @ (np.repeat(scales_b, width, axis=1) * b).T
        words = round_nearest(total + finite_c, ElementType.F32)
    else:
        words = _exact(_Factors(a, b, scales_a, scales_b, scale_type), finite_c, rule)
    infinite = np.isinf(c)
    words[infinite] = round_nearest(c, ElementType.F32)[infinite]
    words[bad] = CANONICAL_NAN[ElementType.F32]
    return words


def _exact(factors: _Factors, c: Decoded, rule: FourBitRule) -> Words:
    terms = _groups(factors, rule.merge)
    large = terms if rule.merge == rule.merge_c else _groups(factors, rule.merge_c)
    largest: Exponents = np.maximum.reduce([group.largest for group in large])
    scale: Exponents = np.maximum.reduce([group.scale for group in large])
    nothing = largest < _NONE // 2
    c_exponent = np.where(c == 0, _NONE, np.maximum(np.frexp(c)[1] - 1, _F32_MIN_EXPONENT)).astype(np.int32)
    dominant = (c != 0) & (c_exponent >= largest)
    q = np.maximum(np.maximum(largest, c_exponent) - rule.window, scale - rule.scale_window)
    q = np.where(dominant, c_exponent - rule.scale_window, q)
    # A sum of zeros has no exponent; any unit leaves it zero.
    q = np.where(nothing, 0, q)
    start = np.trunc(np.ldexp(c, -q))
    units = start.copy()
    parts = []
    for group in terms:
        fine = q
        if rule.per_group:
            coarse = (c != 0) & (c_exponent >= group.largest) & (group.largest > _NONE // 2)
            fine = np.where(coarse, np.maximum(q, c_exponent - rule.scale_window), q)
        part = np.ldexp(np.trunc(np.ldexp(group.total, -fine)), fine - q)
        parts.append(part)
        units += part
    if rule.merge != rule.merge_c:
        merged = sum((np.trunc(np.ldexp(group.total, -q)) for group in large), start.copy())
        units = np.where(dominant, merged, units)
    words = toward_zero(np.ldexp(units, q))
    if rule.floor is not None:
        _apply_floor(words, rule.floor, terms, parts, start, scale, q, ~dominant)
    words[units == 0] = 0
    # Without a product the accumulator stays as it is.
    words[nothing] = encode_accumulator(c, ElementType.F32)[nothing]
    return words


def _apply_floor(
    words: Words,
    floor: int,
    terms: list[_Group],
    parts: list[Decoded],
    start: Decoded,
    scale: Exponents,
    q: Exponents,
    where: Mask,
) -> None:
    """Leave small groups with lesser factors out of subnormal results."""
    magnitude = words & np.uint32(F32_MAGNITUDE)
    low = where & (magnitude > 0) & (magnitude < 1 << 23)
    if not low.any():
        return
    threshold = np.ldexp(1.0, np.maximum(floor - q, 0))
    units = start.copy()
    for group, part in zip(terms, parts, strict=True):
        units += np.where((group.scale < scale) & (np.abs(part) < threshold), 0.0, part)
    words[low] = np.where(units == 0, 0, toward_zero(np.ldexp(units, q)))[low]


def _groups(factors: _Factors, width: int) -> list[_Group]:
    """The products in runs of `width` along K."""
    a, b, scales_a, scales_b = factors.a, factors.b, factors.scales_a, factors.scales_b
    per_scale = a.shape[1] // scales_a.shape[1]
    exponents_a = _scale_exponents(scales_a, factors.scale_type)
    exponents_b = _scale_exponents(scales_b, factors.scale_type)
    out = []
    for start in range(0, a.shape[1], width):
        part, factor = slice(start, start + width), start // per_scale
        values = scales_a[:, factor, None] * scales_b[None, :, factor]
        raw = exponents_a[:, factor, None] + exponents_b[None, :, factor]
        largest = _largest_exponent(a[:, part], b[:, part])
        some = (largest >= 0) & (values != 0)
        out.append(
            _Group(
                a[:, part] @ b[:, part].T * values,
                np.where(some, largest + raw, _NONE).astype(np.int32),
                np.where(some, raw, _NONE).astype(np.int32),
            )
        )
    return out


def _scale_exponents(scales: Decoded, scale_type: ScaleType) -> Exponents:
    """Exponents as encoded: every ue8m0 is normal."""
    exponents = np.frexp(scales)[1] - 1
    if scale_type is ScaleType.UE4M3:
        exponents = np.maximum(exponents, _E4M3_MIN_EXPONENT)
    return exponents.astype(np.int32)


def _largest_exponent(a: Decoded, b: Decoded) -> Exponents:
    """Largest sum of encoded exponents over the nonzero products of each pair of rows, -1 without any."""
    powers = []
    for values in (a, b):
        exponents = np.maximum(np.frexp(values)[1] - 1, _E2M1_MIN_EXPONENT)
        powers.append(np.where(values == 0, 0.0, np.ldexp(1.0, _RADIX_BITS * exponents)))
    total = powers[0] @ powers[1].T
    found = (np.frexp(total)[1] - 1) // _RADIX_BITS
    return np.where(total == 0, -1, found).astype(np.int32)
