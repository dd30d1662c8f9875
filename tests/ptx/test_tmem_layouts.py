# SPDX-License-Identifier: Apache-2.0
"""Accumulator layouts in Tensor Memory against CuTe's atoms, and the allocation rules."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cute_layout import CuteLayout, cute_header, parse_layout

from porter.ptx import tmem
from porter.ptx.tmem import DLayout

# (row of a CTA, column) to lane + 128 * column.
ATOMS = {
    DLayout.A: lambda n: CuteLayout((128, n), (1, 128)),
    DLayout.B: lambda n: CuteLayout((64, (n // 2, 2)), (1, (128, 64))),
    DLayout.D: lambda n: CuteLayout((128, n), (1, 128)),
    DLayout.E: lambda n: CuteLayout((64, (n // 2, 2)), (1, (128, 64))),
    DLayout.F: lambda n: CuteLayout(((16, 4), n), ((1, 32), 128)),
    DLayout.G: lambda n: CuteLayout((32, (n // 4, 4)), (1, (128, 32))),
}
ROWS = {"A": 128, "B": 64, "C": 64, "D": 128, "E": 64, "F": 64, "G": 32}


@pytest.mark.parametrize("layout", ATOMS)
@pytest.mark.parametrize("n", [16, 64, 96, 256])
def test_d_cells(layout: DLayout, n: int) -> None:
    rows = ROWS[layout.value]
    ctas = 2 if layout in (DLayout.A, DLayout.B) else 1
    m = np.arange(rows * ctas)[:, None]
    col = np.arange(n)[None, :]
    cta, lane, column = tmem.d_cell(layout, m, col, n)
    np.testing.assert_array_equal(np.broadcast_to(cta, (rows * ctas, 1)), m // rows)
    np.testing.assert_array_equal(lane + 128 * column, ATOMS[layout](n)(m % rows, col))
    assert int(np.max(column)) + 1 == tmem.d_columns(layout, n)
    assert tmem.rows_per_cta(layout) == rows


def test_layout_of_shapes() -> None:
    assert tmem.d_layout(256, 2) is DLayout.A
    assert tmem.d_layout(128, 2) is DLayout.B
    assert tmem.d_layout(128, 2, sparse=True) is DLayout.C
    assert tmem.d_layout(128, 1) is DLayout.D
    assert tmem.d_layout(128, 1, ws=True) is DLayout.D
    assert tmem.d_layout(64, 1, ws=True) is DLayout.E
    assert tmem.d_layout(64, 1) is DLayout.F
    assert tmem.d_layout(32, 1, ws=True) is DLayout.G
    with pytest.raises(ValueError, match="M=32"):
        tmem.d_layout(32, 1)
    with pytest.raises(ValueError, match="M=256"):
        tmem.d_layout(256, 1)


def test_two_m64_tiles_share_columns() -> None:
    """At lane offsets 0 and 16 the tiles take disjoint lanes, which together are all 128."""
    assert tmem.lane_offsets(DLayout.F) == (0, 16)
    assert tmem.lane_offsets(DLayout.D) == (0,)
    lanes = [set((tmem.d_cell(DLayout.F, np.arange(64), 0, 8)[1] + half).tolist()) for half in (0, 16)]
    assert lanes[0] | lanes[1] == set(range(128))
    assert not lanes[0] & lanes[1]


@pytest.mark.external
def test_d_cells_equal_cute() -> None:
    header = cute_header("atom/mma_traits_sm100.hpp")
    start, end = header.index("struct tmem_frg : tmem_frg_base"), header.index("struct tmem_e_frg : ")
    atoms = re.findall(r"Layout tmem_atom = (Layout<.*?>)\s*\{\};", header[start:end], re.DOTALL)
    one_sm = {DLayout.F: atoms[0], DLayout.D: atoms[1]}
    two_sm = {DLayout.G: atoms[2], DLayout.B: atoms[3], DLayout.A: atoms[5]}
    ws_start = header.index("struct tmem_frg_ws : tmem_frg_base")
    ws_atoms = re.findall(r"Layout tmem_atom = (Layout<.*?>)\s*\{\};", header[ws_start:], re.DOTALL)
    ws = {DLayout.G: ws_atoms[0], DLayout.E: ws_atoms[1], DLayout.D: ws_atoms[2]}
    for group in (one_sm, two_sm, ws):
        for layout, text in group.items():
            for n in (64, 128, 256):
                rows = np.arange(ROWS[layout.value])[:, None]
                cols = np.arange(n)[None, :]
                _, lane, column = tmem.d_cell(layout, rows, cols, n)
                np.testing.assert_array_equal(lane + 128 * column, parse_layout(text, N_MMA=n)(rows, cols))


def test_a_cells_pack_low_to_high() -> None:
    assert tmem.a_cell(DLayout.D, 100, 5, 16) == (100, 2, 16)
    assert tmem.a_cell(DLayout.F, 17, 7, 8) == (33, 1, 24)
    assert tmem.a_cell(DLayout.F, 63, 9, 32) == (111, 9, 0)


def test_allocation() -> None:
    assert tmem.ALLOCATIONS == (32, 64, 128, 256, 512)


def test_addresses() -> None:
    taddr = tmem.address(96, 300)
    assert taddr == 96 * 65536 + 300
    assert (tmem.lane_of(taddr), tmem.column_of(taddr)) == (96, 300)
