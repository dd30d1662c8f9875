# SPDX-License-Identifier: Apache-2.0
"""Bits of f32, f16 and bf16 words (IEEE 754 binary32 and binary16; bf16 is the upper half of an f32).

A word whose exponent bits are all set is an infinity if its fraction is zero, else a NaN; one whose exponent bits
are all clear is a zero or a subnormal number.
"""

from __future__ import annotations

F32_SIGN = 0x80000000
F32_MAGNITUDE = 0x7FFFFFFF
"""All bits but the sign: magnitudes of numbers are in the order of these."""
F32_INFINITY = 0x7F800000
"""Positive infinity, which is the bits of the exponent."""
F32_FRACTION = 0x007FFFFF

F16_SIGN = 0x8000
F16_INFINITY = 0x7C00

BF16_SIGN = 0x8000
BF16_MAGNITUDE = 0x7FFF
BF16_INFINITY = 0x7F80
BF16_LARGEST = 0x7F7F
