# SPDX-License-Identifier: Apache-2.0
"""Element types of matrix instructions and their number formats.

Sources: PTX ISA "Alternate Floating-Point Data Formats" and the OCP 8-bit and microscaling format
specifications for the layouts of the narrow floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format: sign, `exponent_bits`, `mantissa_bits`, from the top down.

    `has_inf` says whether the top exponent holds infinities and NaNs as in IEEE 754. Without it the format
    has either one NaN per sign, the all-ones pattern (`has_nan`), or no special values at all.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    has_inf: bool = True
    has_nan: bool = True

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number, and of every subnormal."""
        return 1 - self.bias


class ElementType(StrEnum):
    """Types of matrix elements, named as PTX writes them."""

    F16 = "f16"
    BF16 = "bf16"
    TF32 = "tf32"
    E4M3 = "e4m3"
    E5M2 = "e5m2"
    E2M3 = "e2m3"
    E3M2 = "e3m2"
    E2M1 = "e2m1"
    S8 = "s8"
    U8 = "u8"
    S4 = "s4"
    U4 = "u4"
    B1 = "b1"
    F32 = "f32"
    F64 = "f64"
    S32 = "s32"

    @property
    def bits(self) -> int:
        """Bits of one element in its container: 4- and 6-bit floats are counted as 8 (the container of
        `.kind::f8f6f4`), tf32 as 32."""
        return CONTAINER_BITS[self]


CONTAINER_BITS: dict[ElementType, int] = {
    ElementType.F16: 16,
    ElementType.BF16: 16,
    ElementType.TF32: 32,
    ElementType.E4M3: 8,
    ElementType.E5M2: 8,
    ElementType.E2M3: 8,
    ElementType.E3M2: 8,
    ElementType.E2M1: 8,
    ElementType.S8: 8,
    ElementType.U8: 8,
    ElementType.S4: 4,
    ElementType.U4: 4,
    ElementType.B1: 1,
    ElementType.F32: 32,
    ElementType.F64: 64,
    ElementType.S32: 32,
}

FLOAT_FORMATS: dict[ElementType, FloatFormat] = {
    ElementType.F16: FloatFormat(5, 10, 15),
    ElementType.BF16: FloatFormat(8, 7, 127),
    ElementType.TF32: FloatFormat(8, 10, 127),
    ElementType.E4M3: FloatFormat(4, 3, 7, has_inf=False),
    ElementType.E5M2: FloatFormat(5, 2, 15),
    ElementType.E2M3: FloatFormat(2, 3, 1, has_inf=False, has_nan=False),
    ElementType.E3M2: FloatFormat(3, 2, 3, has_inf=False, has_nan=False),
    ElementType.E2M1: FloatFormat(2, 1, 1, has_inf=False, has_nan=False),
    ElementType.F32: FloatFormat(8, 23, 127),
}

FP8_TYPES = frozenset({ElementType.E4M3, ElementType.E5M2})
F8F6F4_TYPES = FP8_TYPES | {ElementType.E2M3, ElementType.E3M2, ElementType.E2M1}
INT8_TYPES = frozenset({ElementType.S8, ElementType.U8})
