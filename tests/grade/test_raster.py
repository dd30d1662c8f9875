# SPDX-License-Identifier: Apache-2.0
"""What tiles that run at a time load, by their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from porter.grade.raster import held_bytes, missing, wave_bytes
from porter.grade.shape import Mma, Problem, Residency, Shape
from porter.ptx.umma import Kind

TILE = Shape(
    "sm_100a", ((Mma(128, 128), 4),), 128, 128, 32768, 4, "specialized", persistent=True,
    residency=Residency(smem=131072, tmem_columns=256, threads=384, registers=168),
)  # fmt: skip
ROW = 128 * 8192 * 2
LARGE = Problem(8192, 8192, 8192)


def test_rows_of_a_large_product_are_all_of_its_columns() -> None:
    # 4096 tiles, 148 at a time: 28 waves, the last of 100 tiles
    assert 64 * ROW < wave_bytes(TILE, LARGE) <= (64 + 4) * ROW
    assert wave_bytes(TILE, LARGE, 8) < 32 * ROW


def test_one_wave_loads_all_in_any_order() -> None:
    small = Problem(1024, 1024, 8192)
    assert wave_bytes(TILE, small) == wave_bytes(TILE, small, 8) == 16 * ROW


def test_columns_of_a_product_are_rows_of_the_order() -> None:
    flat = Problem(1024, 65536, 8192)
    assert wave_bytes(TILE, flat, by_columns=True) == wave_bytes(TILE, Problem(65536, 1024, 8192))
    assert wave_bytes(TILE, flat, 8) < wave_bytes(TILE, flat)


def test_a_pair_has_a_tile_for_two_blocks() -> None:
    pair = replace(TILE, mmas=((Mma(256, 256, cta_group=2), 4),), tile_m=256, tile_n=256)
    # 1024 tiles, 74 at a time
    assert 64 * ROW < wave_bytes(pair, LARGE) <= (64 + 8) * ROW
    assert wave_bytes(pair, LARGE, 8) < 40 * ROW


def test_operands_of_eight_bits_are_half() -> None:
    narrow = replace(TILE, mmas=((Mma(128, 128, Kind.F8F6F4), 4),))
    assert 2 * wave_bytes(narrow, LARGE) == wave_bytes(TILE, LARGE)


@pytest.mark.parametrize(
    ("problem", "what"),
    [
        (LARGE, ""),
        (Problem(4096, 4096, 4096), "tiles that run at a time load 39 MB, and L2 holds 60 MB"),
        (Problem(16384, 1024, 16384), "tiles that run at a time load"),
    ],
)
def test_what_keeps_an_order_from_being_a_gain(problem: Problem, what: str) -> None:
    said = missing(TILE, problem, 8)
    assert (what in said) if what else said == ""


def test_what_is_no_product_has_no_order() -> None:
    with pytest.raises(ValueError, match="plain product"):
        wave_bytes(replace(TILE, tile_m=None, tile_n=None), LARGE)
    assert held_bytes() == 60e6
