# SPDX-License-Identifier: Apache-2.0
"""The zero-column mask descriptor of tcgen05.mma.ws: which columns of B count as zero.

Source: PTX ISA 9.0 §9.7.16.4.3 table 45 and its examples. The examples, not the prose of the table, settle that
a run of zeroed columns is skip span + 1 long and a run of used ones use span + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from porter.ptx.bits import Field

START_COUNTS = tuple(Field(8 * i, 8) for i in range(4))
FIRST_SPANS = tuple(Field(32 + i, 1) for i in range(4))
NON_ZERO = Field(39, 1)
SKIP_SPAN = Field(40, 8)
USE_SPAN = Field(48, 8)
SHIFT = Field(56, 6)

SUB_MASKS: dict[int, int] = {128: 1, 64: 2, 32: 4}
"""Sub-masks by M; each covers its share of the columns."""


def max_shift(m: int) -> int:
    return 16 if m == 32 else 32


@dataclass(frozen=True)
class ZeroColumns:
    """A decoded descriptor. A first span of 1 starts a sub-mask with zeroed columns."""

    start_counts: tuple[int, ...] = (0, 0, 0, 0)
    first_spans: tuple[int, ...] = (0, 0, 0, 0)
    enabled: bool = True
    skip_span: int = 0
    use_span: int = 0
    shift: int = 0

    @staticmethod
    def decode(word: int) -> ZeroColumns:
        return ZeroColumns(
            tuple(field.get(word) for field in START_COUNTS),
            tuple(field.get(word) for field in FIRST_SPANS),
            bool(NON_ZERO.get(word)),
            SKIP_SPAN.get(word),
            USE_SPAN.get(word),
            SHIFT.get(word),
        )

    def encode(self) -> int:
        word = NON_ZERO.put(int(self.enabled)) | SKIP_SPAN.put(self.skip_span) | USE_SPAN.put(self.use_span)
        word |= SHIFT.put(self.shift)
        for i in range(4):
            word |= START_COUNTS[i].put(self.start_counts[i]) | FIRST_SPANS[i].put(self.first_spans[i])
        return word

    def zeroed(self, m: int, n: int) -> tuple[bool, ...]:
        """For each of the instruction's `n` columns whether zeros replace it. Raises ValueError for another M
        or a shift that M does not allow."""
        if m not in SUB_MASKS:
            raise ValueError(f"M={m} has no zero-column mask")
        if self.shift > max_shift(m):
            raise ValueError(f"a column shift of {self.shift} is more than the {max_shift(m)} of M={m}")
        if not self.enabled:
            return (False,) * n
        width = n // SUB_MASKS[m]
        mask: list[bool] = []
        for i in range(SUB_MASKS[m]):
            value = bool(self.first_spans[i])
            run: list[bool] = []
            while len(run) < width + self.start_counts[i]:
                run += [value] * ((self.skip_span if value else self.use_span) + 1)
                value = not value
            mask += run[self.start_counts[i] :][:width]
        return tuple(mask)
