# SPDX-License-Identifier: Apache-2.0
"""Tiles of twice the columns for two CTAs that multiply together: how the shape of a tile may be written, and what
keeps it. Traces are stated, so that nothing is compiled."""

from __future__ import annotations

import pytest
from test_dsl_pair import KERNEL, ported

INIT = "    def __init__(self, tile):\n        self.tile = (*tile, 64)\n"
assert INIT in KERNEL


def init(*lines: str, given: str = "tile") -> tuple[str, str]:
    """A change of how the kernel's class is made."""
    return INIT, f"    def __init__(self, {given}):\n" + "".join(f"        {line}\n" for line in lines)


SAME = {
    "as it is": (init("self.tile = (*tile, 64)"), "self.tile = (tile[0], min(2 * tile[1], 256), 64)\n"),
    "by three": (init("self.tile = (128, 128, 64)"), "self.tile = (128, min(2 * 128, 256), 64)\n"),
    "by two sizes": (
        init("self.tile = (m, n + 0, 64)", given="m, n"), "self.tile = (m, min(2 * (n + 0), 256), 64)\n"),
    "as a whole": (init("self.tile = tile"), "self.tile = (tile[0], min(2 * tile[1], 256), *tile[2:])\n"),
    "set again": (init("self.tile = (*tile, 1)", "self.tile = (self.tile[0], self.tile[1], 64)"),
                  "min(2 * tile[1], 256), 1)\n        self.tile = (self.tile[0], self.tile[1], 64)\n"),
}  # fmt: skip
LEFT = {
    "twice": (init("self.tile = (*tile, 64)", "self.tile = (128, 128, 64)"), "values of `self.tile`"),
    "of a call": (init("self.tile = shape(tile)"), "a shape of a tile that is written as rows, columns and depth"),
    "set again to other columns": (
        init("self.tile = (*tile, 1)", "self.tile = (self.tile[0], 128, 64)"), "columns of `self.tile` that stay"),
    "asked for beside": (
        init("self.tile = (*tile, 64)", "self.half = tile[1] // 2"), "columns that nothing but the shape of a tile"),
    "a star behind": (init("self.tile = (128, *tile)"), "a shape of a tile that is written as rows"),
    "made nowhere": (init("pass"), "values of `self.tile`, the shape of a tile: none found"),
}  # fmt: skip


@pytest.mark.parametrize("form", [pytest.param(f, marks=pytest.mark.slow if i else ()) for i, f in enumerate(SAME)])
def test_the_shape_of_a_tile_gets_twice_the_columns(form: str) -> None:
    change, expected = SAME[form]
    found, text = ported(change) if change[0] != change[1] else ported()
    assert "wide-tile" in found.steps
    assert expected in text


@pytest.mark.parametrize("form", [pytest.param(f, marks=pytest.mark.slow if i else ()) for i, f in enumerate(LEFT)])
def test_what_keeps_the_columns(form: str) -> None:
    change, what = LEFT[form]
    found, text = ported(change)
    assert list(found.steps) == ["mma-warp", "cta-pair"]
    assert what in next(why for _, step, why, _ in found.without if step == "wide-tile")
    assert "min(2 *" not in text


@pytest.mark.slow
def test_tiles_of_256_columns_stay() -> None:
    found, _ = ported(columns=256)
    assert [(step, what) for _, step, what, _ in found.without] == [("wide-tile", "tiles of less than 256 columns")]
