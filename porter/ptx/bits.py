# SPDX-License-Identifier: Apache-2.0
"""Bit fields of descriptor words."""

from __future__ import annotations

from dataclasses import dataclass


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
