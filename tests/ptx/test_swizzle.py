# SPDX-License-Identifier: Apache-2.0
"""Swizzles against the tables of PTX ISA §5.5.7, which permute the chunks of each row."""

from __future__ import annotations

import numpy as np
import pytest

from porter.ptx.swizzle import SWIZZLES, Swizzle, SwizzleMode
from porter.ptx.tensormap import TMA_SWIZZLES, TensorMapSwizzle

# Chunk order of successive rows of the span's width, read off the tables: one digit per 16-byte chunk.
TABLES = {
    32: ["01", "01", "01", "01", "10", "10", "10", "10"],
    64: ["0123", "0123", "1032", "1032", "2301", "2301", "3210", "3210"],
    128: [
        "01234567",
        "10325476",
        "23016745",
        "32107654",
        "45670123",
        "54761032",
        "67452301",
        "76543210",
    ],
}


@pytest.mark.parametrize("mode", [SwizzleMode.B32, SwizzleMode.B64, SwizzleMode.B128])
def test_chunk_tables(mode: SwizzleMode) -> None:
    table = TABLES[mode.span]
    for row in range(64):
        for chunk in range(mode.span // 16):
            for byte in (0, 7, 15):
                address = row * mode.span + chunk * 16 + byte
                place = row * mode.span + int(table[row % 8][chunk]) * 16 + byte
                assert mode.swizzle.apply(address) == place


def test_atoms_of_32_bytes() -> None:
    """Pairs of chunks move together, by the row modulo 4."""
    for row in range(16):
        for pair in range(4):
            for byte in range(32):
                address = row * 128 + pair * 32 + byte
                place = row * 128 + (pair ^ row % 4) * 32 + byte
                assert SwizzleMode.B128_ATOM32.swizzle.apply(address) == place


@pytest.mark.parametrize("mode", SwizzleMode)
def test_permutation_with_period(mode: SwizzleMode) -> None:
    swizzle = mode.swizzle
    addresses = np.arange(8192)
    moved = swizzle.apply(addresses)
    assert sorted(moved.tolist()) == addresses.tolist()
    np.testing.assert_array_equal(swizzle.apply(moved), addresses)
    period = {"NONE": 1, "B32": 256, "B64": 512, "B128": 1024, "B128_ATOM32": 512}[mode.name]
    np.testing.assert_array_equal(swizzle.apply(addresses + 3 * period), moved + 3 * period)


def test_anchor_moves_the_pattern() -> None:
    """A pattern that starts 3 rows into its period treats those rows as its first."""
    swizzle = Swizzle(3, 4, 3)
    for address in range(384, 384 + 1024):
        assert swizzle.apply(address, 384) - 384 == swizzle.apply(address - 384)


def test_tma_and_descriptors_use_the_same_patterns() -> None:
    for mode, tma in (
        (SwizzleMode.NONE, TensorMapSwizzle.NONE),
        (SwizzleMode.B32, TensorMapSwizzle.B32),
        (SwizzleMode.B64, TensorMapSwizzle.B64),
        (SwizzleMode.B128, TensorMapSwizzle.B128),
        (SwizzleMode.B128_ATOM32, TensorMapSwizzle.B128_ATOM_32B),
    ):
        assert SWIZZLES[mode] == TMA_SWIZZLES[tma]
        assert mode is SwizzleMode.NONE or mode.span == tma.span
