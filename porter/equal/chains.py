# SPDX-License-Identifier: Apache-2.0
"""Products that are added to an accumulator one after another.

An element that was `old` is `old * FACTOR + row * column` behind a product, of the words of its row of A and its column
of B, in numbers of 64 bits that wrap: which products it is made of, and in which order, shows in it as in a polynomial
whose variables are these words. So many products are one product of matrices of words, which is made when somebody asks
for the accumulator, and it does not matter when that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from porter.equal.words import Words, element_words, joined, mixed, spread, word

_FACTOR = np.uint64(0x9FB21C651E98DF25)
_ODD = np.uint64(1)
"""Of an even number the highest bits of the other one would not count."""


def of_rows(key: np.uint64, rows: Words) -> Words:
    """The factors of rows of A in a kind of product."""
    return mixed(key, rows) | _ODD


def of_columns(columns: Words) -> Words:
    """The factors of columns of B."""
    return mixed(word("column"), columns) | _ODD


@lru_cache(maxsize=8)
def nothing(size: int) -> Words:
    """The word [1] of an element of so many bytes that are zeros."""
    return joined(np.zeros((1, size), np.uint64))


def accumulated(key: np.uint64, a: Words, b: Words, before: Words | None, size: int) -> Words:
    """The bytes [..., size] of elements of an accumulator behind a product of their rows `a` with their columns `b`."""
    old = nothing(size) if before is None else element_words(before[..., :size])
    return spread(behind(old, of_rows(key, a), of_columns(b)), size)


def behind(old: Words, rows: Words, columns: Words) -> Words:
    """The words of elements behind a product, of what `of_rows` and `of_columns` give."""
    return old * _FACTOR + rows * columns


@dataclass
class Chain:
    """An accumulator whose elements [rows, columns] were `base`, and the products that were added to it since."""

    base: Words
    rows: list[Words] = field(default_factory=list)
    columns: list[Words] = field(default_factory=list)

    def add(self, rows: Words, columns: Words) -> None:
        """The product of rows [rows] with columns [columns], given as `of_rows` and `of_columns`."""
        self.rows.append(rows)
        self.columns.append(columns)

    def words(self) -> Words:
        """The words [rows, columns] of its elements."""
        count = len(self.rows)
        powers = np.full(count + 1, _FACTOR)
        powers[0] = 1
        powers = np.multiply.accumulate(powers)
        rows = np.stack(self.rows, axis=1) * powers[count - 1 :: -1]
        found: Words = rows @ np.stack(self.columns)
        found += self.base * powers[count:]
        return found
