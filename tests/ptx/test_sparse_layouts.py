# SPDX-License-Identifier: Apache-2.0
"""Places of sparsity metadata and scale factors, against the layouts of CuTe's headers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cute_layout import CuteLayout, cute_header, find_alias, parse_layout

from porter.ptx import sparse
from porter.ptx.block_scale import COUNTS, ScaleType, legal_scale_ids, legal_scale_types, scale_cell, scale_columns
from porter.ptx.tmem import DLayout
from porter.ptx.umma import Kind

pytestmark = pytest.mark.external
ATOM = re.compile(r"Layout tmem_atom = (Layout<.*?>)\s*\{\};", re.DOTALL)

# Logical K of one instruction, and bits of metadata for an element, by the width that the header branches on.
K = {32: 16, 16: 32, 8: 64, 4: 128}
BITS = {32: 2, 16: 1, 8: 1, 4: 0.5}


def section(first: str, last: str) -> list[str]:
    header = cute_header("atom/mma_traits_sm100.hpp")
    return ATOM.findall(header[header.index(first) : header.index(last)])


def check(layout: DLayout, text: str, bits: int, rows: int) -> None:
    """The first copy of the atom: its offset counts lanes, then the bits of an element."""
    row, chunk = np.arange(rows)[:, None], np.arange(K[bits] // sparse.chunk_elements(bits))[None, :]
    lane, column, bit = sparse.metadata_cell(layout, row, chunk, bits, 0)
    atom = parse_layout(text)
    k = chunk * sparse.chunk_elements(bits)
    offset = atom(row, k) if len(atom.shape) == 2 else atom(row, k, 0)
    np.testing.assert_array_equal(offset % 128, lane)
    np.testing.assert_array_equal(offset // 128 * BITS[bits], 32 * column + bit)


def test_metadata_cells_equal_cute() -> None:
    atoms = section("struct tmem_e_frg : ", "struct tmem_e_frg_ws : ")
    assert len(atoms) == 4
    for bits, text in zip((32, 16, 8, 4), atoms, strict=True):
        check(DLayout.D, text, bits, 128)


def test_weight_stationary_metadata_cells_equal_cute() -> None:
    atoms = section("struct tmem_e_frg_ws : ", "struct tmem_sf_frg")
    assert len(atoms) == 9
    forms = [(bits, layout, m) for bits in (32, 16, 8) for layout, m in
             ((DLayout.D, 128), (DLayout.E, 64), (DLayout.G, 32))]  # fmt: skip
    for (bits, layout, m), text in zip(forms, atoms, strict=True):
        check(layout, text, bits, m)


@pytest.mark.parametrize(("name", "bits"), [("ELayout_64x16", 32), ("ELayout_64x32", 16), ("ELayout_64x64", 8)])
def test_metadata_registers_equal_cute(name: str, bits: int) -> None:
    layout = parse_layout(find_alias(cute_header("atom/mma_traits_sm90_gmma_sparse.hpp"), name))
    thread = np.arange(128)[:, None]
    per = {32: 2, 16: 1, 8: 1}[bits]
    value = np.arange(32 // per)[None, :]
    if isinstance(layout.shape[1], int):
        layout = CuteLayout((layout.shape[0], (layout.shape[1],)), (layout.stride[0], (layout.stride[1],)))
    offset = layout(thread, value)
    row, k = offset % 64, offset // 64
    for selector in (0, 1) if bits > 8 else (0,):
        holder, bit = sparse.metadata_register(row, k // sparse.chunk_elements(bits), bits, selector)
        mine = holder == thread
        # Threads of the other pair hold a copy that is not looked at.
        assert mine.all(axis=1).sum() == (64 if bits > 8 else 128)
        place = bit + k % sparse.chunk_elements(bits) * per
        np.testing.assert_array_equal(place[mine], (value * per + 0 * thread)[mine])


def test_scale_cells_equal_cute() -> None:
    header = cute_header("atom/mma_traits_sm100.hpp")
    text = header[header.index("struct tmem_sf_frg") :]
    shape = re.search(r"Shape<Int<SUBPART_DPs>, Int<MMA_MN/SUBPART_DPs>>, REP>", text)
    stride = re.search(r"Stride<Stride<Stride<\s*_1,\s*_512>, _32>, Stride<\s*_0,\s*_128>>", text)
    assert shape
    assert stride
    # ((32, rows / 32), 4), (vector, factors) : ((1, 512), 32), (0, 128), in bytes of 128 lanes.
    atom = CuteLayout(((32, 8), (4,)), ((1, 512), (128,)))
    row, number = np.arange(256)[:, None], np.arange(4)[None, :]
    lane, column, byte = scale_cell(row, number, 0 * number)
    np.testing.assert_array_equal(lane + 128 * (4 * column + byte), atom(row, number))
    assert [scale_columns(n) for n in (8, 32, 40, 128, 256)] == [1, 1, 2, 4, 8]


def test_scale_vectors() -> None:
    for (kind, vector), count in COUNTS.items():
        assert vector in ("", "block16", "block32") or vector == f"scale_vec::{count}X"
        assert ScaleType.UE8M0 in legal_scale_types(kind, count)
        assert max(legal_scale_ids(count)) + count <= 4
    assert (Kind.MXF4NVF4, "") not in COUNTS
    assert ScaleType.UE4M3 not in legal_scale_types(Kind.MXF4NVF4, 2)
