# SPDX-License-Identifier: Apache-2.0
"""Which NaN a floating-point instruction makes.

PTX ISA 9.0, section 9.7.3: f32, f16 and bf16 results that are NaN are the canonical one; `mov`, `selp`, loads and
stores copy bits, `copysign` changes the sign bit only. Conversions to 8-bit formats have one code for NaN
(9.7.9.21). f64 keeps the payload of an operand, made quiet.

What the ISA leaves open ("an unspecified NaN") is what an H200 does: `neg` and `abs` make the canonical NaN but
pass an f64 NaN on, sign and all; atomics on memory leave an f64 NaN signalling; a tf32 NaN has its low 13 bits
clear; of several f64 NaN operands the one listed first in `F64_ORDER` is kept; an invalid f64 operation gives
`F64_INVALID`.
"""

from __future__ import annotations

CANONICAL: dict[str, int] = {
    "f32": 0x7FFFFFFF,
    "f16": 0x7FFF,
    "bf16": 0x7FFF,
    "tf32": 0x7FFFE000,
    "e4m3": 0x7F,
    "e5m2": 0x7F,
    "ue8m0": 0xFF,
}
"""Bits of a NaN result by type."""

F64_INVALID = 0xFFF8000000000000
"""Bits of the f64 result of an invalid operation on numbers, such as infinity minus infinity."""

F64_QUIET = 1 << 51
"""The bit that a signalling f64 NaN gets."""

F64_ORDER: dict[str, str] = {"add": "ba", "sub": "ba", "mul": "ba", "fma": "bca", "div": "ab", "min": "ba", "max": "ba"}
"""Operands a, b, c in the order in which their NaN is taken."""
