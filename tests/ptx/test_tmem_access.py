# SPDX-License-Identifier: Apache-2.0
"""tcgen05.ld/st maps: every register of every thread, for every shape and count."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cute_layout import DP_BITS, CuteLayout, cute_header, parse_layout
from opcodes import given

from porter.ptx.tmem_access import (
    Shape,
    TmemAccess,
    cell,
    is_legal_count,
    lane_problem,
    unpacked_columns,
)

THREADS = np.arange(32)[:, None]
COUNTS = {shape: [1 << i for i in range(8) if 1 << i <= shape.max_count] for shape in Shape}
CASES = [(shape, count) for shape in Shape for count in COUNTS[shape]]


def destination(shape: Shape, count: int) -> CuteLayout:
    """(thread, bit of its registers) to bit in a block of lanes that are `width` bits each."""
    width = {"32x32b": 32, "16x64b": 64, "16x128b": 128, "16x256b": 256, "16x32bx2": 64}[shape] * count
    return {
        Shape.S32X32B: CuteLayout((32, width), (width, 1)),
        Shape.S16X64B: CuteLayout(((2, 2, 8), (32, count)), ((8 * width, 32, width), (1, 64))),
        Shape.S16X128B: CuteLayout(((4, 8), (32, 2, count)), ((32, width), (1, 8 * width, 128))),
        Shape.S16X256B: CuteLayout(((4, 8), (64, 2, count)), ((64, width), (1, 8 * width, 256))),
        Shape.S16X32BX2: CuteLayout(((16, 2), 32 * count), ((width, 32 * count), 1)),
    }[shape]


@pytest.mark.parametrize(("shape", "count"), CASES)
def test_cells(shape: Shape, count: int) -> None:
    lanes = 32 if shape is Shape.S32X32B else 16
    registers = np.arange(count * shape.registers_per_repeat)[None, :]
    lane, column = cell(shape, THREADS, registers)
    if shape is Shape.S16X32BX2:
        # Half of the threads reach the second half, which the block places right after the first.
        column = column + count * (THREADS // 16)
    bits = destination(shape, count)(THREADS, registers * 32)
    width = 32 * (TmemAccess(False, shape, count).columns * (2 if shape is Shape.S16X32BX2 else 1))
    np.testing.assert_array_equal(lane, bits // width)
    np.testing.assert_array_equal(column, bits % width // 32)
    assert len({*zip(lane.ravel().tolist(), column.ravel().tolist(), strict=True)}) == lanes * width // 32


@pytest.mark.external
def test_cells_equal_cute() -> None:
    """All load traits of the header, packed ones too: each half of each register."""
    header = cute_header("atom/copy_traits_sm100.hpp")
    pattern = re.compile(r"struct Copy_Traits<SM100_TMEM_LOAD_(16|32)dp(\d+)b(\d+)x(_16b)?>\s*\{(.*?)\n\};", re.DOTALL)
    seen = set()
    for datapaths, bits, repeats, packed, body in pattern.findall(header):
        name = f"{datapaths}x{bits}b"
        shape, count = Shape("16x32bx2" if name == "16x32b" else name), int(repeats)
        fields = dict(re.findall(r"using (\w+) = (Layout<.*?>)\s*;", body, re.DOTALL))
        value = parse_layout(fields["ValID"])
        target = parse_layout(fields["DstLayout"])
        registers = np.arange(count * shape.registers_per_repeat)[None, :]
        lane, column = cell(shape, THREADS, registers)
        low, high = unpacked_columns(column) if packed else (column, column)
        if shape is Shape.S16X32BX2:
            # CuTe passes an immHalfSplitoff that makes the halves adjacent.
            split = (2 if packed else 1) * count * (THREADS // 16)
            low, high = low + split, high + split
        for half, columns in ((0, low), (1, high)):
            address = value.flat(target(THREADS, registers * 32 + 16 * half))
            np.testing.assert_array_equal(lane, address // DP_BITS)
            np.testing.assert_array_equal(columns, address % DP_BITS // 32)
            if not packed:
                np.testing.assert_array_equal(address % 32, np.full_like(address, 16 * half))
        seen.add((shape, count, bool(packed)))
    assert seen == {(shape, count, packed) for shape, count in CASES for packed in (False, True)}


@pytest.mark.parametrize(("shape", "count"), CASES)
def test_legal_counts(shape: Shape, count: int) -> None:
    assert is_legal_count(shape, count)
    assert not is_legal_count(shape, 3 * count)


def test_register_limit() -> None:
    limits = {"32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128}
    for shape in Shape:
        assert shape.max_count == limits[shape]
        assert not is_legal_count(shape, 2 * shape.max_count)
        assert not is_legal_count(shape, 0)


def test_parse() -> None:
    opcode = "tcgen05.ld.sync.aligned.16x128b.x8.pack::16b.b32"
    access = TmemAccess.of(given(opcode))
    assert access == TmemAccess(False, Shape.S16X128B, 8, packed=True)
    assert (access.registers, access.columns) == (16, 64)
    opcode = "tcgen05.st.sync.aligned.32x32b.x1.unpack::16b.b32"
    access = TmemAccess.of(given(opcode))
    assert access == TmemAccess(True, Shape.S32X32B, 1, packed=True)
    for opcode in (
        "tcgen05.ld.sync.aligned.32x32b.x3.b32",
        "tcgen05.ld.sync.aligned.16x256b.x64.b32",
        "tcgen05.ld.sync.aligned.x4.b32",
        "tcgen05.st.sync.aligned.32x32b.x1.pack::16b.b32",
        "tcgen05.ld.red.sync.aligned.32x32b.x2.b32",
    ):
        with pytest.raises(ValueError, match="tcgen05"):
            TmemAccess.of(given(opcode))


def test_warp_reaches_its_own_quarter() -> None:
    for warp in range(8):
        for lane in range(0, 128, 16):
            for shape in Shape:
                reachable = lane // 32 in (0, warp % 4)
                aligned = lane % 32 == 0 or shape is not Shape.S32X32B
                problem = lane_problem(lane, shape, warp)
                assert (problem is None) == (reachable and aligned)
    assert "lanes 64 to 95" in str(lane_problem(32, Shape.S16X256B, 6))
    assert lane_problem(128, Shape.S32X32B, 0)
    assert lane_problem(8, Shape.S16X256B, 0)
