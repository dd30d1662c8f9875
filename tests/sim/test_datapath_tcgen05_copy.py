# SPDX-License-Identifier: Apache-2.0
"""tcgen05.cp: rows of shared memory to lanes of Tensor Memory."""

from __future__ import annotations

import numpy as np
import pytest
from opcodes import given
from test_datapath_wgmma import place
from wgmma_as_umma import sm90_to_sm100

from porter.ptx import tmem
from porter.ptx.operand_errors import OperandError
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.tmem_copy import TmemCopy, copy_cells
from porter.sim.datapath.tcgen05_copy import copy

# Source row of every written lane.
CASES = {
    "128x256b": list(range(128)),
    "128x128b": list(range(128)),
    "64x128b.warpx2::02_13": [*range(64), *range(64)],
    "64x128b.warpx2::01_23": [*range(32), *range(32), *range(32, 64), *range(32, 64)],
    "32x128b.warpx4": [*range(32)] * 4,
    "4x256b": [lane // 32 if lane % 32 == 0 else None for lane in range(128)],
}


def parse(text: str) -> TmemCopy:
    return TmemCopy.of(given(f"tcgen05.cp.{text}"))


@pytest.mark.parametrize("shape", CASES)
@pytest.mark.parametrize("cta_group", [1, 2])
def test_rows_and_lanes(shape: str, cta_group: int) -> None:
    op = parse(f"cta_group::{cta_group}.{shape}")
    rng = np.random.default_rng(1)
    width = op.row_bytes
    smem = [np.zeros(8192, np.uint8) for _ in range(cta_group)]
    memory = [np.full((128, 512), 0xFFFFFFFF, np.uint32) for _ in range(cta_group)]
    rows = [rng.integers(0, 256, (max(op.rows, 8), width), dtype=np.uint8) for _ in range(cta_group)]
    for shared, tile in zip(smem, rows, strict=True):
        desc = sm90_to_sm100(place(shared, 1024, tile, SwizzleMode.NONE, False).encode("sm_90"))
    copy(op, 100, desc, smem, memory)
    lanes, columns = copy_cells(op, 100)
    for cells, tile in zip(memory, rows, strict=True):
        words = tile.view(np.uint32)
        for lane, row in enumerate(CASES[shape]):
            want = np.full(width // 4, 0xFFFFFFFF, np.uint32) if row is None else words[row]
            np.testing.assert_array_equal(cells[lane, 100 : 100 + width // 4], want)
        outside = np.ones((128, 512), bool)
        outside[lanes, columns] = False
        assert (cells[outside] == 0xFFFFFFFF).all()


def test_refusals() -> None:
    for bad in ("cta_group::1.64x128b", "cta_group::1.128x256b.warpx4", "128x256b", "cta_group::1.8x128b"):
        with pytest.raises(ValueError, match=r"tcgen05\.cp"):
            parse(bad)
    smem, memory = [np.zeros(8192, np.uint8)], [np.zeros((128, 512), np.uint32)]
    with pytest.raises(OperandError, match="end of Tensor Memory"):
        copy(parse("cta_group::1.128x256b"), 508, 1 << 46, smem, memory)
    with pytest.raises(OperandError, match="end of Tensor Memory"):
        copy(parse("cta_group::1.128x256b"), tmem.address(32, 0), 1 << 46, smem, memory)
    with pytest.raises(OperandError, match="0b001"):
        copy(parse("cta_group::1.128x256b"), 0, 0, smem, memory)
    for half in ("cta_group::1.128x256b.b6x16_p32", "cta_group::1.128x256b.b8x16"):
        with pytest.raises(ValueError, match="no row"):
            parse(half)


@pytest.mark.parametrize(("source", "bits", "shift"), [("b4x16_p64", 4, 2), ("b6x16_p32", 6, 1)])
def test_decompression_puts_values_in_the_middle_of_bytes(source: str, bits: int, shift: int) -> None:
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 1 << bits, (128, 32), dtype=np.uint8)
    rows = rng.integers(0, 256, (128, 32), dtype=np.uint8)
    for row in range(128):
        for half in range(2):
            whole = sum(int(code) << bits * i for i, code in enumerate(codes[row, 16 * half : 16 * half + 16]))
            rows[row, 16 * half : 16 * half + 2 * bits] = np.frombuffer(whole.to_bytes(2 * bits, "little"), np.uint8)
    smem, memory = np.zeros(8192, np.uint8), np.zeros((128, 512), np.uint32)
    desc = sm90_to_sm100(place(smem, 1024, rows, SwizzleMode.B32, False).encode("sm_90"))
    copy(parse(f"cta_group::1.128x256b.b8x16.{source}"), 40, desc, [smem], [memory])
    got = np.ascontiguousarray(memory[:, 40:48]).view(np.uint8)
    np.testing.assert_array_equal(got, codes << shift)
