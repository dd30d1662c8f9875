# SPDX-License-Identifier: Apache-2.0
"""Integers of so many bits, and bit fields of descriptor words."""

from __future__ import annotations

from dataclasses import dataclass


def unsigned(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


def signed(value: int, width: int) -> int:
    low = unsigned(value, width)
    return low - (1 << width) if low >> (width - 1) else low


@dataclass(frozen=True)
class Field:
    """`width` bits of a word, the lowest at bit `shift`."""

    shift: int
    width: int

    @property
    def mask(self) -> int:
        """The field's bits in place."""
        return ((1 << self.width) - 1) << self.shift

    @property
    def limit(self) -> int:
        """The largest value that fits."""
        return (1 << self.width) - 1

    def put(self, value: int) -> int:
        """`value` moved into place. Raises ValueError if it does not fit."""
        if not 0 <= value <= self.limit:
            raise ValueError(f"{value} does not fit into {self.width} bits")
        return value << self.shift

    def get(self, word: int) -> int:
        return (word >> self.shift) & self.limit


def type_bytes(kind: str) -> int:
    """Bytes of a PTX type as `b32`, `f16x2`, `pred` not among them."""
    digits = kind.removesuffix("x2").lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) // 8 * (2 if kind.endswith("x2") else 1)
