# SPDX-License-Identifier: Apache-2.0
"""The truncated fused dot product for operands of moderate size, in single precision and 32-bit integers.

The same numbers as the general way in `mma_arith`, several times faster. A product of two operands has at most
24 bits, so that single precision holds it and its multiples by powers of two exactly as long as nothing
overflows or underflows; conversion to an integer then truncates it toward zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from porter.ptx.mma_numerics import DotRule, Rounding
from porter.ptx.types import FLOAT_FORMATS, ElementType

Decoded = NDArray[np.float64]
Words = NDArray[np.uint32]
Exponents = NDArray[np.int16]

# Operands with exponents from -_REACH to _REACH have products well inside single precision. So do their sums
# with accumulators below 2^_LARGEST, and whatever the rounding leaves of them.
_REACH = 50
_SMALLEST, _LARGEST = -2 * _REACH, 60

# Stands for the exponent of zero, below that of any product; sums of two still fit 16 bits.
_NONE = np.int16(-4000)

# So many scaled products, each below 2^(fraction bits + 2), fit a 32-bit sum (fraction bits are at most 25).
_GROUP = 16


def _operand_exponents(values: Decoded, element: ElementType) -> Exponents | None:
    """As they are encoded, `_NONE` for zero; or None if some are out of reach or not finite."""
    field = (values.view(np.uint64) >> np.uint64(52)).astype(np.int16) & np.int16(0x7FF)
    found = np.maximum(field - np.int16(1023), np.int16(FLOAT_FORMATS[element].min_exponent))
    found[field == 0] = 0
    if int(found.max()) > _REACH or int(found.min()) < -_REACH:
        return None
    found[field == 0] = _NONE
    return found


def _accumulator_exponents(values: NDArray[np.float32], d_type: ElementType) -> Exponents | None:
    words = values.view(np.uint32)
    field = (words >> np.uint32(23)).astype(np.int16) & np.int16(0xFF)
    if int(field.max()) > 127 + _LARGEST:
        return None
    if int(field.min()) < 127 + _SMALLEST:
        low = field < 127 + _SMALLEST
        if values[low].any():
            return None
        found = np.maximum(field - np.int16(127), np.int16(FLOAT_FORMATS[d_type].min_exponent))
        found[low] = _NONE
        return found
    return np.maximum(field - np.int16(127), np.int16(FLOAT_FORMATS[d_type].min_exponent))


def narrow_dot(a: Decoded, b: Decoded, c: Decoded, rule: DotRule) -> Words | None:
    """D = A·B + C for stacks a [tiles, M, L], b [tiles, L, N], c [tiles, M, N], with L at most `rule.length`.

    None if some operand is too large or too small, or not finite.
    """
    exponents_a, exponents_b = _operand_exponents(a, rule.a_type), _operand_exponents(b, rule.b_type)
    if exponents_a is None or exponents_b is None:
        return None
    with np.errstate(over="ignore"):
        start = c.astype(np.float32)
    largest = _accumulator_exponents(start, rule.d_type)
    if largest is None:
        return None
    sums = np.empty_like(largest)
    for k in range(a.shape[-1]):
        np.add(exponents_a[..., k, None], exponents_b[..., k, None, :], out=sums)
        np.maximum(largest, sums, out=largest)
    # A sum of zeros has no exponent; any scale leaves it zero.
    np.maximum(largest, np.int16(_SMALLEST), out=largest)
    # Powers of two: the last bit kept, and how many of it make one.
    raised = (largest + np.int16(127 - rule.fraction_bits)).astype(np.int32) << np.int32(23)
    unit = raised.view(np.float32)
    total = _scaled_sum(a, b, (np.int32(254 << 23) - raised).view(np.float32))
    total += (start / unit).astype(np.int32)
    return _rounded(total, unit, rule)


def _scaled_sum(a: Decoded, b: Decoded, scale: NDArray[np.float32]) -> Decoded:
    """Sum of the products, each scaled and truncated toward zero."""
    left, right = a.astype(np.float32), b.astype(np.float32)
    product = np.empty(scale.shape, np.float32)
    whole = np.empty(scale.shape, np.int32)
    total: Decoded | None = None
    for first in range(0, a.shape[-1], _GROUP):
        part = np.zeros(scale.shape, np.int32)
        for k in range(first, min(first + _GROUP, a.shape[-1])):
            np.einsum("ti,tj->tij", left[..., k], right[..., k, :], out=product)
            np.multiply(product, scale, out=product)
            np.copyto(whole, product, casting="unsafe")
            np.add(part, whole, out=part)
        total = part.astype(np.float64) if total is None else total + part
    assert total is not None
    return total


def _rounded(total: Decoded, unit: NDArray[np.float32], rule: DotRule) -> Words:
    """The one rounding of a whole number of units. It is exact in float64 and, rounded, in single precision."""
    if rule.rounding is Rounding.RNE10:
        with np.errstate(over="ignore", under="ignore"):
            halves = (total * unit).astype(np.float16)
        return halves.view(np.uint16).astype(np.uint32)
    dropped = 39 if rule.rounding is Rounding.RZ13 else 29
    kept = total.view(np.uint64) & np.uint64(0xFFFF_FFFF_FFFF_FFFF << dropped & 0xFFFF_FFFF_FFFF_FFFF)
    rounded = kept.view(np.float64).astype(np.float32)
    return np.multiply(rounded, unit, out=rounded).view(np.uint32)
