# SPDX-License-Identifier: Apache-2.0
"""The sum of products of one matrix instruction.

Two modes. "float64": products and sum in double precision, one rounding to the type of D. "exact": the
truncated fused dot product of `porter.ptx.mma_numerics`, bit for bit. Integer results are exact in both.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from porter.ptx.float_words import F32_INFINITY, F32_SIGN
from porter.ptx.mma_numerics import CANONICAL_NAN, DotRule, Rounding
from porter.ptx.types import FLOAT_FORMATS, ElementType
from porter.sim.datapath.narrow_dot import narrow_dot

Arithmetic = Literal["float64", "exact"]
Words = NDArray[np.uint32]
Decoded = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Stands for the exponent of zero: below that of any product, and sums of two still fit.
_NO_EXPONENT = -10_000


# Tiles that `accumulate` adds together in exact mode: few enough to stay in a core's cache.
_TOGETHER = 4


def fused_dot(
    a: Decoded,
    b: Decoded,
    c: Decoded | None,
    rule: DotRule,
    mode: Arithmetic,
    *,
    active: Mask | None = None,
    scales: tuple[Decoded, Decoded] | None = None,
) -> Words:
    """D = A·Bᵀ + C for a [M, K], b [N, K], c [M, N] or None for zero; all decoded to float64.

    `active` [M, K] marks the stored elements of a sparse A, which holds zeros elsewhere. `scales` are factors of
    the rows of A [M] and of B [N]: powers of two, or NaN. Returns the bits of D [M, N] as uint32 (f16 results in
    the low half). K of a dense A beyond `rule.length` is added in consecutive instructions of that length in
    exact mode; a sparse A is one instruction.
    """
    if rule.rounding is Rounding.EXACT:
        return _integer_dot(a, b, c, rule)
    if mode == "float64":
        return _float64_dot(a, b, c, rule, active, scales)
    if c is None:
        c = np.zeros((a.shape[0], b.shape[0]))
    words = encode_accumulator(c, rule.d_type)
    length = rule.length if active is None else a.shape[1]
    for start in range(0, a.shape[1], length):
        left, right = a[:, start : start + length], b[:, start : start + length]
        found = None
        if scales is None:
            found = narrow_dot(np.ascontiguousarray(left)[None], np.ascontiguousarray(right.T)[None], c[None], rule)
        words = _truncated_dot(left, right, c, rule, active, scales) if found is None else found[0]
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
    if mode == "exact" and rule.rounding is not Rounding.EXACT and a.shape[2] <= rule.length:
        for first in range(0, len(words), _TOGETHER):
            some = slice(first, first + _TOGETHER)
            starts = decode_accumulator(words[some], rule.d_type) if scale_d else np.zeros(words[some].shape)
            found = narrow_dot(a[some], b[some], starts, rule)
            if found is None:
                found = np.stack([
                    _truncated_dot(left, right.T, start, rule, None, None)
                    for left, right, start in zip(a[some], b[some], starts, strict=True)
                ])  # fmt: skip
            words[some] = found
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


def _scaled(a: Decoded, b: Decoded, scales: tuple[Decoded, Decoded] | None) -> tuple[Decoded, Decoded]:
    return (a, b) if scales is None else (a * scales[0][:, None], b * scales[1][:, None])


def _float64_dot(
    a: Decoded,
    b: Decoded,
    c: Decoded | None,
    rule: DotRule,
    active: Mask | None,
    scales: tuple[Decoded, Decoded] | None,
) -> Words:
    with np.errstate(all="ignore"):
        a, b = _scaled(a, b, scales)
        mask = active is not None and not np.isfinite(b).all()
        total = (_finite(a) @ _finite(b).T) if mask else a @ b.T
        if c is not None:
            total += c
    words = round_nearest(total, rule.d_type)
    if mask:
        start = np.zeros_like(total) if c is None else c
        _put_specials(words, a, b, start, rule.d_type, active)
    return words


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
    return round_nearest(values, d_type)


def _integer_dot(a: Decoded, b: Decoded, c: Decoded | None, rule: DotRule) -> Words:
    # Products of 8-bit integers and their sums with a 32-bit accumulator are exact in float64.
    total = a @ b.T
    if c is not None:
        total += c
    if rule.saturate:
        total = np.clip(total, -(2**31), 2**31 - 1)
    return total.astype(np.int64).astype(np.uint32)


def round_nearest(total: Decoded, d_type: ElementType) -> Words:
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


def _finite(values: Decoded) -> Decoded:
    return np.where(np.isfinite(values), values, 0.0)


def _truncated_dot(
    a: Decoded,
    b: Decoded,
    c: Decoded,
    rule: DotRule,
    active: Mask | None,
    scales: tuple[Decoded, Decoded] | None,
) -> Words:
    exponents_a, exponents_b = _exponents(_finite(a), rule.a_type), _exponents(_finite(b), rule.b_type)
    if scales is not None:
        exponents_a += power_exponents(scales[0])[:, None]
        exponents_b += power_exponents(scales[1])[:, None]
        with np.errstate(invalid="ignore"):
            a, b = _scaled(a, b, scales)
    finite_a, finite_b, finite_c = _finite(a), _finite(b), _finite(c)
    exponents_a, exponents_b = np.ascontiguousarray(exponents_a.T), np.ascontiguousarray(exponents_b.T)
    largest = np.full(c.shape, 2 * _NO_EXPONENT, np.int32)
    for ea, eb in zip(exponents_a, exponents_b, strict=True):
        np.maximum(largest, ea[:, None] + eb[None, :], out=largest)
    alone = largest < _NO_EXPONENT // 2
    np.maximum(largest, _exponents(finite_c, rule.d_type), out=largest)
    # A sum of zeros has no exponent; any scale leaves it zero.
    scale = np.maximum(largest, -500) - rule.fraction_bits
    unit = np.ldexp(1.0, -scale)
    total = np.trunc(finite_c * unit)
    for column_a, column_b in zip(finite_a.T, finite_b.T, strict=True):
        total += np.trunc(column_a[:, None] * column_b[None, :] * unit)
    exact = np.ldexp(total, scale)
    words = round_nearest(exact, rule.d_type) if rule.rounding is Rounding.RNE10 else toward_zero(exact)
    if rule.rounding is Rounding.RZ13:
        words &= np.uint32(0xFFFFFFFF << 10 & 0xFFFFFFFF)
    words[exact == 0] = 0
    if scales is not None:
        # Without a product the accumulator stays as it is, also a negative zero.
        words[alone] = encode_accumulator(finite_c, rule.d_type)[alone]
    if not (np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(c).all()):
        _put_specials(words, a, b, c, rule.d_type, active)
    return words


def power_exponents(scales: Decoded) -> NDArray[np.int32]:
    """Exponents of powers of two; 0 for NaN."""
    return np.where(np.isfinite(scales), np.frexp(scales)[1] - 1, 0).astype(np.int32)


def toward_zero(exact: Decoded) -> Words:
    """Truncation to f32. Values of 2^128 and more become infinity."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = exact.astype(np.float32)
    words = rounded.view(np.uint32).copy()
    # The next magnitude toward zero is the next lower word, also from infinity to the largest number.
    words -= (np.abs(rounded.astype(np.float64)) > np.abs(exact)).astype(np.uint32)
    overflow = np.abs(exact) >= 2.0**128
    if overflow.any():
        words[overflow] = np.where(exact[overflow] < 0, F32_SIGN | F32_INFINITY, F32_INFINITY)
    return words


def _put_specials(words: Words, a: Decoded, b: Decoded, c: Decoded, d_type: ElementType, active: Mask | None) -> None:
    """Overwrite results that a NaN or an infinity takes part in."""
    with np.errstate(all="ignore"):
        # Infinities and NaNs dominate any finite sum, and float64 cannot overflow by the finite terms.
        total = c.copy()
        for i, (column_a, column_b) in enumerate(zip(a.T, b.T, strict=True)):
            product = column_a[:, None] * column_b[None, :]
            term = np.where(np.isfinite(product), 0.0, product)
            total += term if active is None else np.where(active[:, i, None], term, 0.0)
        special = ~np.isfinite(total)
        words[special] = round_nearest(total, d_type)[special]
