# SPDX-License-Identifier: Apache-2.0
"""Shared-memory swizzles: which address bits are exchanged.

A swizzle acts on the byte address in shared memory, never on a logical index, so a pattern repeats at fixed
addresses. TMA writes the patterns that matrix descriptors read.

Sources: PTX ISA 9.0 §5.5.7 (tables of swizzle modes); CUTLASS include/cute/swizzle.hpp for the notation
Swizzle<B, M, S>.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

IntLike = TypeVar("IntLike", int, NDArray[np.int64])


@dataclass(frozen=True)
class Swizzle:
    """Bits [base, base+bits) of an address are XORed with the bits `shift` above them."""

    bits: int
    base: int
    shift: int

    @property
    def source_mask(self) -> int:
        """The address bits that are read."""
        return ((1 << self.bits) - 1) << (self.base + self.shift)

    def apply(self, address: IntLike, anchor: int = 0) -> IntLike:
        """The address (bytes) where the byte of an unswizzled address is kept. Its own inverse.

        `anchor` is the address at which the pattern starts, modulo the period (0 for aligned tiles).
        """
        return address ^ (((address - anchor) & self.source_mask) >> self.shift)


class SwizzleMode(Enum):
    """Swizzle modes of matrix descriptors; the value is the span in bytes and the atom in bytes."""

    NONE = (16, 16)
    B32 = (32, 16)
    B64 = (64, 16)
    B128 = (128, 16)
    B128_ATOM32 = (128, 32)

    @property
    def span(self) -> int:
        """Bytes that one swizzled row covers (16 without a swizzle)."""
        return self.value[0]

    @property
    def swizzle(self) -> Swizzle:
        return SWIZZLES[self]


SWIZZLES: dict[SwizzleMode, Swizzle] = {
    SwizzleMode.NONE: Swizzle(0, 4, 3),
    SwizzleMode.B32: Swizzle(1, 4, 3),
    SwizzleMode.B64: Swizzle(2, 4, 3),
    SwizzleMode.B128: Swizzle(3, 4, 3),
    SwizzleMode.B128_ATOM32: Swizzle(2, 5, 2),
}
PERIOD = max(1 << s.base + s.shift + s.bits for s in SWIZZLES.values())
"""Bytes within which every pattern repeats."""
