# SPDX-License-Identifier: Apache-2.0
"""Ports in which one M=128 MMA makes both m64 tiles of a warpgroup: which kernels it is proposed for, how the rows of a
tile are renamed, and what is left with which missing fact. Values and order are judged: `test_full_rate_judged.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from full_rate_distance import PICK, TILES_ALIKE
from full_rate_kernels import missing, texts
from full_rate_tiles import GROUP, HANDS, INDEX, REFUSED, ROWS, TAKEN, ported, row


@pytest.mark.parametrize("name", TAKEN)
def test_one_mma_makes_both_tiles(tmp_path: Path, name: str) -> None:
    result = ported(tmp_path, **TAKEN[name])
    assert not missing(result), missing(result)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    kernel, helpers = texts(result)
    assert "tcgen05::tile_row(m)" in kernel
    assert "m * 64" not in kernel
    assert "thread_index" not in kernel
    assert "128u >> 4 << 24" in helpers
    assert "if ((d.address >> 20 & 1) == 0 && elect_issuer()) {" in helpers
    assert "bar.sync %0, 128;" in helpers
    assert [p.mma_rows for p in result.plans] == [128]


def test_tiles_beside_each_other_are_no_stack(tmp_path: Path) -> None:
    parts = {"MMA": "wgmma_m64n16k16(acc[m], a, b + m * 2);"}
    assert any("one warpgroup" in text for text in missing(ported(tmp_path, **parts)))


def test_tiles_of_two_warpgroups_by_turns_are_joined(tmp_path: Path) -> None:
    parts = {
        "THREADS": "256",
        "ROLE": GROUP,
        "MMA": "wgmma_m64n16k16(acc[m], a + m * 1024 + group * 512, b);",
        **row("m * 128 + group * 64 + warp * 16 + lane / 4"),
    }
    result = ported(tmp_path, **parts)
    assert not missing(result), missing(result)
    assert "thread_index()" in texts(result)[0]


@pytest.mark.parametrize("how", TILES_ALIKE)
def test_a_tiles_below_each_other_are_proposed(tmp_path: Path, how: str) -> None:
    a, role = TILES_ALIKE[how]
    assert missing(ported(tmp_path, HEAD=PICK, ROLE=role, MMA=f"wgmma_m64n16k16(acc[m], {a}, b);")) == []


TOLD = (INDEX, "tile by tile")
LEFT = [name for name, (_, what) in REFUSED.items() if what in TOLD]


@pytest.mark.parametrize("name", LEFT)
def test_what_is_missing_is_named_and_the_port_is_compat(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    result = ported(tmp_path, **parts)
    assert any(what in text for text in missing(result)), missing(result)
    kernel, helpers = texts(result)
    assert "tile_row" not in kernel + helpers
    assert all(p.mma_rows == 64 for p in result.plans)


@pytest.mark.parametrize("name", [n for n, (_, what) in REFUSED.items() if what in (ROWS, HANDS)])
def test_rows_that_nothing_tells_are_no_proposal(tmp_path: Path, name: str) -> None:
    """Where a term tells them, they are renamed: whether that is all that is done by rows, the judge says."""
    result = ported(tmp_path, **REFUSED[name][0])
    assert bool(missing(result)) != ("tile_row(m)" in texts(result)[0])
