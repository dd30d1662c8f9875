# SPDX-License-Identifier: Apache-2.0
"""The sum of products of one matrix instruction.

Two modes. "float64": products and sum in double precision, one rounding to the type of D. "exact": the
truncated fused dot product of `porter.ptx.mma_numerics`, bit for bit. Integer results are exact in both.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from porter.ptx.mma_numerics import CANONICAL_NAN, DotRule, Rounding
from porter.ptx.types import FLOAT_FORMATS, ElementType

Arithmetic = Literal["float64", "exact"]
Words = NDArray[np.uint32]
Decoded = NDArray[np.float64]

# Stands for the exponent of zero: below that of any product, and sums of two still fit.
_NO_EXPONENT = -10_000

_F32_INF_BITS = 0x7F800000


def fused_dot(a: Decoded, b: Decoded, c: Decoded | None, rule: DotRule, mode: Arithmetic) -> Words:
    """D = A·Bᵀ + C for a [M, K], b [N, K], c [M, N] or None for zero; all decoded to float64.

    Returns the bits of D [M, N] as uint32 (f16 results in the low half). K beyond `rule.length` is added in
    consecutive instructions of that length in exact mode.
    """
    if rule.rounding is Rounding.EXACT:
        return _integer_dot(a, b, c, rule)
    if mode == "float64":
        with np.errstate(all="ignore"):
            total = a @ b.T
            if c is not None:
                total += c
            return _round_nearest(total, rule.d_type)
    if c is None:
        c = np.zeros((a.shape[0], b.shape[0]))
    words = encode_accumulator(c, rule.d_type)
    for start in range(0, a.shape[1], rule.length):
        part = slice(start, start + rule.length)
        words = _truncated_dot(a[:, part], b[:, part], c, rule)
        c = decode_accumulator(words, rule.d_type)
    return words


def accumulate(
    words: Words, a: Decoded, b: Decoded, scale_d: bool, rule: DotRule, mode: Arithmetic, scratch: Decoded
) -> None:
    """D = A·B + D for stacks of D [tiles, M, N] (bits, in place), a [tiles, M, K] and b [tiles, K, N].
    `scratch` [tiles, M, N] is overwritten.

    Without `scale_d` D = A·B. As `fused_dot` of each tile, except that f32 results of float64 mode keep
    whatever NaN comes out: `canonical` mends them.
    """
    if mode == "float64" and rule.d_type is ElementType.F32:
        total = np.matmul(a, b, out=scratch)
        values = words.view(np.float32)
        if scale_d:
            total += values
        values[...] = total
        return
    for one, left, right in zip(words, a, b, strict=True):
        c = decode_accumulator(one, rule.d_type) if scale_d else None
        one[...] = fused_dot(left, right.T, c, rule, mode)


def canonical(words: Words, d_type: ElementType) -> Words:
    """Accumulators whose NaNs have the bits that tensor cores give them."""
    if d_type is not ElementType.F32:
        return words
    bad = np.isnan(words.view(np.float32))
    return np.where(bad, np.uint32(CANONICAL_NAN[d_type]), words) if bad.any() else words


def decode_accumulator(words: Words, d_type: ElementType) -> Decoded:
    """Accumulator bits (uint32, f16 in the low half) as float64."""
    if d_type is ElementType.F32:
        with np.errstate(invalid="ignore"):
            return words.view(np.float32).astype(np.float64)
    if d_type is ElementType.S32:
        return words.view(np.int32).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return words.astype(np.uint16).view(np.float16).astype(np.float64)


def encode_accumulator(values: Decoded, d_type: ElementType) -> Words:
    """The inverse of `decode_accumulator` for representable values."""
    if d_type is ElementType.S32:
        return values.astype(np.int64).astype(np.uint32)
    return _round_nearest(values, d_type)


def _integer_dot(a: Decoded, b: Decoded, c: Decoded | None, rule: DotRule) -> Words:
    # Products of 8-bit integers and their sums with a 32-bit accumulator are exact in float64.
    total = a @ b.T
    if c is not None:
        total += c
    if rule.saturate:
        total = np.clip(total, -(2**31), 2**31 - 1)
    return total.astype(np.int64).astype(np.uint32)


def _round_nearest(total: Decoded, d_type: ElementType) -> Words:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if d_type is ElementType.F32:
            words = total.astype(np.float32).view(np.uint32)
        else:
            words = total.astype(np.float16).view(np.uint16).astype(np.uint32)
    bad = np.isnan(total)
    if bad.any():
        words[bad] = CANONICAL_NAN[d_type]
    return words


def _exponents(values: Decoded, element: ElementType) -> NDArray[np.int32]:
    """Exponents as encoded: subnormals count with the smallest normal exponent, zeros with none."""
    number_format = FLOAT_FORMATS[element]
    exponent = np.maximum(np.frexp(values)[1] - 1, number_format.min_exponent)
    return np.where(values == 0, _NO_EXPONENT, exponent).astype(np.int32)


def _truncated_dot(a: Decoded, b: Decoded, c: Decoded, rule: DotRule) -> Words:
    finite_a, finite_b, finite_c = (np.where(np.isfinite(x), x, 0.0) for x in (a, b, c))
    exponents_a = np.ascontiguousarray(_exponents(finite_a, rule.a_type).T)
    exponents_b = np.ascontiguousarray(_exponents(finite_b, rule.b_type).T)
    largest = _exponents(finite_c, rule.d_type)
    for ea, eb in zip(exponents_a, exponents_b, strict=True):
        np.maximum(largest, ea[:, None] + eb[None, :], out=largest)
    # A sum of zeros has no exponent; any scale leaves it zero.
    scale = np.maximum(largest, -500) - rule.fraction_bits
    unit = np.ldexp(1.0, -scale)
    total = np.trunc(finite_c * unit)
    for column_a, column_b in zip(finite_a.T, finite_b.T, strict=True):
        total += np.trunc(column_a[:, None] * column_b[None, :] * unit)
    exact = np.ldexp(total, scale)
    words = _round_nearest(exact, rule.d_type) if rule.rounding is Rounding.RNE10 else _toward_zero(exact)
    if rule.rounding is Rounding.RZ13:
        words &= np.uint32(0xFFFFFFFF << 10 & 0xFFFFFFFF)
    words[exact == 0] = 0
    if not (np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(c).all()):
        _put_specials(words, a, b, c, rule.d_type)
    return words


def _toward_zero(exact: Decoded) -> Words:
    """Truncation to f32. Values of 2^128 and more become infinity."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = exact.astype(np.float32)
    words = rounded.view(np.uint32).copy()
    # The next magnitude toward zero is the next lower word, also from infinity to the largest number.
    words -= (np.abs(rounded.astype(np.float64)) > np.abs(exact)).astype(np.uint32)
    overflow = np.abs(exact) >= 2.0**128
    if overflow.any():
        words[overflow] = np.where(exact[overflow] < 0, 0x80000000 | _F32_INF_BITS, _F32_INF_BITS)
    return words


def _put_specials(words: Words, a: Decoded, b: Decoded, c: Decoded, d_type: ElementType) -> None:
    """Overwrite results that a NaN or an infinity takes part in."""
    with np.errstate(all="ignore"):
        # Infinities and NaNs dominate any finite sum, and float64 cannot overflow by the finite terms.
        total = c.copy()
        for column_a, column_b in zip(a.T, b.T, strict=True):
            product = column_a[:, None] * column_b[None, :]
            total += np.where(np.isfinite(product), 0.0, product)
        special = ~np.isfinite(total)
        words[special] = _round_nearest(total, d_type)[special]
