# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma.sp, zero-column masks and shifted rows, against float64 products.

Metadata is placed by CuTe's layouts (mma_traits_sm100.hpp, tmem_e_frg and tmem_e_frg_ws): bits of a row's nibbles
counted over K.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_datapath_tcgen05 import accumulator
from test_datapath_wgmma import DTYPES, place, random_tile
from umma_calls import empty_tmem, issue, pairs, umma, values
from wgmma_as_umma import sm90_to_sm100

from porter.ptx import tmem
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.operand_errors import OperandError
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.types import ElementType as T
from porter.ptx.umma import Kind
from porter.ptx.zero_columns import ZeroColumns
from porter.sim.datapath import tcgen05

META, A_TMEM, SF = 320, 340, 380
PAIRS = [(0b0100, 0, 1), (0b1000, 0, 2), (0b1100, 0, 3), (0b1001, 1, 2), (0b1101, 1, 3), (0b1110, 2, 3), (0b0110, 2, 1)]


def sparsify(rng: np.random.Generator, dense: np.ndarray, unit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(A with zeros, what is stored, nibbles [rows, chunks]): two units of four stay, or one tf32 of two."""
    rows, k = dense.shape
    tf32 = dense.dtype == np.float32
    width = 2 if tf32 else 4 * unit
    full, stored = np.zeros_like(dense), np.zeros((rows, k // 2), dense.dtype)
    nibbles = np.zeros((rows, k // width), int)
    for row in range(rows):
        for chunk in range(k // width):
            if tf32:
                place_ = int(rng.integers(2))
                nibbles[row, chunk], places = (0b1110 if place_ else 0b0100), [place_]
            else:
                nibbles[row, chunk], first, second = PAIRS[rng.integers(len(PAIRS))]
                places = [unit * p + u for p in (first, second) for u in range(unit)]
            for i, p in enumerate(places):
                stored[row, chunk * len(places) + i] = dense[row, chunk * width + p]
                full[row, chunk * width + p] = dense[row, chunk * width + p]
    return full, stored, nibbles


def put_metadata(cells: np.ndarray, address: int, nibbles: np.ndarray, layout: tmem.DLayout, interleaved: bool) -> None:
    """By CuTe: a row of 16- or 32-bit types gives its first 16 bits to lane m0 and the rest to lane m0 + 8, in the
    half of the cell that m1 names; other rows keep 64 bits in their lane. Copies for each lane range."""
    rows = nibbles.shape[0]
    for row in range(rows):
        bits = sum(int(nibble) << 4 * i for i, nibble in enumerate(nibbles[row]))
        group = row // 16 * (32 if layout in (tmem.DLayout.F, tmem.DLayout.C) else 16) + (address >> 16)
        for copy in range(0, 128, rows) if layout in (tmem.DLayout.E, tmem.DLayout.G) else (0,):
            column = address & 0xFFFF
            if interleaved:
                m0, m1 = row % 8, row // 8 % 2
                for k1 in range(2):
                    half = bits >> 16 * k1 & 0xFFFF
                    cell = cells[copy + group + m0 + 8 * k1, column : column + 1].view(np.uint16)
                    cell[m1] = half
            else:
                cells[copy + group + row % 16, column : column + 2] = [bits & 0xFFFFFFFF, bits >> 32]


CASES = [
    ("sp.cta_group::1.kind::f16", 64, 96, T.F16, 0),
    ("sp.cta_group::1.kind::f16", 64, 8, T.BF16, 16),
    ("sp.cta_group::1.kind::f16", 128, 64, T.F16, 0),
    ("sp.cta_group::1.kind::tf32", 64, 32, T.TF32, 16),
    ("sp.cta_group::1.kind::tf32", 128, 128, T.TF32, 0),
    ("sp.cta_group::1.kind::f8f6f4", 64, 64, T.E4M3, 0),
    ("sp.cta_group::1.kind::f8f6f4", 128, 40, T.E5M2, 0),
    ("sp.cta_group::1.kind::i8", 128, 48, T.S8, 0),
    ("sp.cta_group::2.kind::f16", 256, 64, T.BF16, 0),
    ("sp.cta_group::2.kind::f16", 128, 64, T.F16, 16),
    ("sp.cta_group::2.kind::i8", 128, 64, T.U8, 0),
    ("ws.sp.cta_group::1.kind::f16", 32, 64, T.F16, 0),
    ("ws.sp.cta_group::1.kind::tf32", 64, 64, T.TF32, 0),
    ("ws.sp.cta_group::1.kind::f8f6f4", 64, 128, T.E4M3, 0),
    ("ws.sp.cta_group::1.kind::i8", 32, 128, T.S8, 0),
    ("ws.sp.cta_group::1.kind::f16", 128, 128, T.BF16, 0),
]


# 8-bit types take both columns of metadata, so they have no selector.
@pytest.mark.parametrize(
    ("opcode", "m", "n", "element", "half", "selector"),
    [(*case, selector) for case in CASES for selector in ((0,) if case[3].bits == 8 else (0, 1))],
)
@pytest.mark.parametrize("mode", ["exact", "float64"])
@pytest.mark.parametrize("in_tmem", [False, True])
def test_sparse_product(
    opcode: str, m: int, n: int, element: T, half: int, mode: str, in_tmem: bool, selector: int
) -> None:
    op = umma(opcode)
    rng, ctas = np.random.default_rng(3), op.cta_group
    layout = tmem.d_layout(m, ctas, ws=op.ws, sparse=True)
    full, stored, nibbles = sparsify(rng, random_tile(rng, (m, op.k), element), 1)
    b = random_tile(rng, (n, op.k), element)
    smem = [rng.integers(0, 256, 1 << 16, dtype=np.uint8) for _ in range(ctas)]
    memory = [empty_tmem() for _ in range(ctas)]
    for cta, cells in enumerate(memory):
        a_part, b_part, meta = (np.split(x, ctas)[cta] for x in (stored, b, nibbles))
        a_desc = sm90_to_sm100(place(smem[cta], 1024, a_part, SwizzleMode.B32, False).encode("sm_90"))
        b_desc = sm90_to_sm100(place(smem[cta], 16384, b_part, SwizzleMode.B64, False).encode("sm_90"))
        put_metadata(cells, tmem.address(half, META + selector), meta, layout, element.bits >= 16)
        if in_tmem:
            rows = np.arange(a_part.shape[0])
            lanes, _, _ = tmem.a_cell(layout, rows, 0 * rows, 32)
            words = np.ascontiguousarray(a_part).view(np.uint32)
            for copy in range(0, 128, len(rows)) if layout in (tmem.DLayout.E, tmem.DLayout.G) else (0,):
                cells[copy + half + lanes, A_TMEM : A_TMEM + 8] = words
    d_type = T.S32 if element in (T.S8, T.U8) else T.F32
    idesc = InstructionDescriptor(
        op.kind, m, n, d_type, element, element, sparse=True, sparsity_selector=selector
    ).encode()
    base = tmem.address(half, 0)
    operands = {"a_tmem": base + A_TMEM} if in_tmem else {"a_desc": a_desc}
    issue(
        op, idesc, smem=smem, tmem=memory, d_addr=base, b_desc=b_desc, enable_d=False, metadata=base + META,
        mode=mode, **operands,
    )  # fmt: skip
    want = full.astype(float) @ b.astype(float).T
    np.testing.assert_array_equal(accumulator(memory, m, n, op, base, d_type), want)


@pytest.mark.parametrize("mode", ["exact", "float64"])
def test_places_that_are_not_stored_take_no_part(mode: str) -> None:
    """A NaN or infinity of B counts only in rows whose A is stored there, also where A is zero."""
    op = umma("sp.cta_group::1.kind::f16")
    smem, memory = np.zeros(1 << 14, np.uint8), empty_tmem()
    nibbles = np.where(np.arange(64)[:, None] % 2, 0b1110, 0b0100) * np.ones((1, 8), int)
    put_metadata(memory, META, nibbles, tmem.DLayout.F, True)
    a = np.zeros((64, 16), np.float16)
    b = np.ones((8, 32), np.float16)
    b[3, 4], b[5, 7] = np.inf, np.nan
    a_desc = sm90_to_sm100(place(smem, 0, a, SwizzleMode.B32, False).encode("sm_90"))
    b_desc = sm90_to_sm100(place(smem, 8192, b, SwizzleMode.B64, False).encode("sm_90"))
    idesc = InstructionDescriptor(Kind.F16, 64, 8, T.F32, T.F16, T.F16, sparse=True).encode()
    issue(
        op, idesc, smem=[smem], tmem=[memory], d_addr=0, a_desc=a_desc, b_desc=b_desc, enable_d=False, metadata=META,
        mode=mode,
    )  # fmt: skip
    bad = np.isnan(accumulator([memory], 64, 8, op, 0, T.F32))
    want = np.zeros((64, 8), bool)
    want[0::2, 3] = want[1::2, 5] = True
    np.testing.assert_array_equal(bad, want)


@pytest.mark.parametrize(("opcode", "kind"), [
    ("sp.cta_group::1.kind::mxf4.block_scale", Kind.MXF4),
    ("sp.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X", Kind.MXF4NVF4),
])  # fmt: skip
def test_sparse_four_bit_product(opcode: str, kind: Kind) -> None:
    """Pairs of 4-bit elements are stored or not; the factors count logical K."""
    op, rng = umma(opcode), np.random.default_rng(4)
    full, stored, nibbles = sparsify(rng, rng.integers(0, 16, (128, 128)), 2)
    b = rng.integers(0, 16, (16, 128))
    smem, memory = np.zeros(1 << 15, np.uint8), empty_tmem()
    a_desc = sm90_to_sm100(place(smem, 0, pairs(stored), SwizzleMode.B32, False).encode("sm_90"))
    b_desc = sm90_to_sm100(place(smem, 8192, pairs(b), SwizzleMode.B64, False).encode("sm_90"))
    put_metadata(memory, META, nibbles, tmem.DLayout.D, False)
    count = 2 if kind is Kind.MXF4 else 4
    scales = rng.integers(126, 130, (128, 4)).astype(np.uint8)
    for row in range(128):
        memory[row % 32 :: 32, SF + row // 32] = scales[row].view(np.uint32)[0]
    idesc = ScaledDescriptor(kind, 128, 16, T.F32, T.E2M1, T.E2M1, sparse=True).encode()
    issue(
        op, idesc, smem=[smem], tmem=[memory], d_addr=0, a_desc=a_desc, b_desc=b_desc, enable_d=False, metadata=META,
        scale_a=SF, scale_b=SF, mode="exact",
    )  # fmt: skip
    factors = np.repeat(2.0 ** (scales[:, :count].astype(float) - 127), 128 // count, axis=1)
    want = (values(full, T.E2M1) * factors) @ (values(b, T.E2M1) * factors[:16]).T
    np.testing.assert_array_equal(accumulator([memory], 128, 16, op, 0, T.F32), want)


def test_metadata_without_meaning() -> None:
    op = umma("sp.cta_group::1.kind::f16")
    idesc = InstructionDescriptor(Kind.F16, 64, 8, T.F32, T.F16, T.F16, sparse=True).encode()
    smem, memory = np.zeros(1 << 14, np.uint8), empty_tmem()
    desc = 8 << 16 | 8 << 32 | 1 << 46
    operands = {
        "smem": [smem], "tmem": [memory], "d_addr": 0, "a_desc": desc, "b_desc": desc, "enable_d": False,
    }  # fmt: skip
    with pytest.raises(OperandError, match="0b1111 of row 0"):
        issue(op, idesc, metadata=META, **operands)
    with pytest.raises(OperandError, match="lane 16 of Tensor Memory, the accumulator at 0"):
        issue(op, idesc, metadata=tmem.address(16, META), **operands)
    with pytest.raises(OperandError, match="does not agree"):
        issue(umma("cta_group::1.kind::f16"), idesc, **operands)


# Weight-stationary form -------------------------------------------------------------------------------

MASKS = [
    # The examples of PTX ISA 9.7.16.4.3, lowest column first.
    (ZeroColumns(enabled=False, skip_span=4, use_span=3), 128, ["0"]),
    (ZeroColumns(skip_span=2, use_span=3), 128, ["0000111"]),
    (ZeroColumns(first_spans=(1, 0, 0, 0), skip_span=2, use_span=3), 64, ["1110000", "0000111"]),
    (
        ZeroColumns((0, 1, 2, 1), (1, 1, 0, 0), True, 2, 3, 2), 32,
        ["1110000", "1100001", "0011100", "0001110"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("mask", "m", "patterns"), MASKS)
def test_zero_columns(mask: ZeroColumns, m: int, patterns: list[str]) -> None:
    op, n, rng = umma("ws.cta_group::1.kind::f16"), 64, np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, 16), (n + mask.shift, 16)))
    b[4 + mask.shift] = np.nan
    smem, memory = np.zeros(1 << 14, np.uint8), empty_tmem()
    a_desc = sm90_to_sm100(place(smem, 0, a, SwizzleMode.B32, False).encode("sm_90"))
    b_desc = sm90_to_sm100(place(smem, 8192, b, SwizzleMode.B32, False).encode("sm_90"))
    idesc = InstructionDescriptor(Kind.F16, m, n, T.F32, T.F16, T.F16).encode()
    issue(
        op, idesc, smem=[smem], tmem=[memory], d_addr=0, a_desc=a_desc, b_desc=b_desc, enable_d=False,
        zero_columns=mask.encode(),
    )  # fmt: skip
    width = n // len(patterns)
    zeroed = np.array([bit == "1" for p in patterns for bit in (p * width)[:width]])
    with np.errstate(invalid="ignore"):
        want = np.where(zeroed, 0.0, a.astype(float) @ b[mask.shift :].astype(float).T)
    np.testing.assert_array_equal(accumulator([memory], m, n, op, 0, T.F32), want)
    assert ZeroColumns.decode(mask.encode()) == mask


def test_column_shift_limits() -> None:
    with pytest.raises(ValueError, match="more than the 16 of M=32"):
        ZeroColumns(shift=17).zeroed(32, 64)
    with pytest.raises(ValueError, match="M=256"):
        ZeroColumns().zeroed(256, 64)
    assert len(ZeroColumns(shift=32).zeroed(128, 256)) == 256


# Shifted rows -----------------------------------------------------------------------------------------


def test_ashift_moves_a_after_the_product() -> None:
    """The first MMA reads A as it is; the next one finds each row in the lane before, but for each 32nd."""
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((128, 8), (32, 8)))
    smem, memory = np.zeros(8192, np.uint8), empty_tmem()
    memory[:, A_TMEM : A_TMEM + 8] = a.view(np.uint32)
    b_desc = sm90_to_sm100(place(smem, 0, b, SwizzleMode.B32, False).encode("sm_90"))
    idesc = InstructionDescriptor(Kind.TF32, 128, 32, T.F32, T.TF32, T.TF32).encode()
    operands = {"smem": [smem], "tmem": [memory], "a_tmem": A_TMEM, "b_desc": b_desc, "enable_d": False}
    plain = umma("cta_group::1.kind::tf32")
    issue(umma("cta_group::1.kind::tf32.ashift"), idesc, d_addr=0, **operands)
    issue(plain, idesc, d_addr=64, **operands)
    np.testing.assert_array_equal(accumulator([memory], 128, 32, plain, 0, T.F32), a @ b.T)
    moved = np.where(np.arange(128)[:, None] % 32 == 31, a, np.roll(a, -1, axis=0))
    np.testing.assert_array_equal(accumulator([memory], 128, 32, plain, 64, T.F32), moved @ b.T)
    np.testing.assert_array_equal(memory[:, A_TMEM + 8 : A_TMEM + 20], 0xFFFFFFFF)


def test_shift_moves_the_rows_of_one_warp() -> None:
    rng = np.random.default_rng(7)
    before = rng.integers(0, 1 << 32, (128, 512), dtype=np.uint32)
    after = [before.copy(), before.copy()]
    tcgen05.shift(tmem.address(64, 100), after)
    want = before.copy()
    want[64:95, 100:108] = before[65:96, 100:108]
    for cells in after:
        np.testing.assert_array_equal(cells, want)
    with pytest.raises(OperandError, match="multiple of 32"):
        tcgen05.shift(tmem.address(16, 0), after)
    with pytest.raises(OperandError, match="passes column"):
        tcgen05.shift(tmem.address(0, 508), after)


def test_types_of_the_tiles() -> None:
    assert {element for *_, element, _ in CASES} <= set(DTYPES)
