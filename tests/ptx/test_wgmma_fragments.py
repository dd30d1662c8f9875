# SPDX-License-Identifier: Apache-2.0
"""wgmma shapes and register fragments, against CuTe's layouts of them."""

from __future__ import annotations

import numpy as np
import pytest
from cute_layout import CuteLayout, cute_header, find_alias, parse_layout
from opcodes import given
from wgmma_as_umma import a_fragment_pieces, accumulator_pieces, d_position_f16, wgmma_to_umma

from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.tmem import a_cell, d_cell, d_layout
from porter.ptx.tmem_access import Shape, cell, unpacked_columns
from porter.ptx.types import ElementType as T
from porter.ptx.umma import Kind
from porter.ptx.wgmma import WgmmaOp, a_position, d_position, legal_n, umma_kind

THREADS = np.arange(128)[:, None]
ALL_N = range(8, 257, 8)

# (thread, value) to m + 64 * column, from the fragment figures of the PTX ISA.
D_FRAGMENT = {n: CuteLayout(((4, 8, 4), (2, 2, n // 8)), ((128, 1, 16), (64, 8, 512))) for n in ALL_N}
A_FRAGMENTS = {
    32: CuteLayout(((4, 8, 4), (2, 2)), ((64, 1, 16), (8, 256))),
    16: CuteLayout(((4, 8, 4), (2, 2, 2)), ((128, 1, 16), (64, 8, 512))),
    8: CuteLayout(((4, 8, 4), (4, 2, 2)), ((256, 1, 16), (64, 8, 1024))),
}


@pytest.mark.parametrize("n", ALL_N)
def test_d_fragment(n: int) -> None:
    values = np.arange(n // 2)[None, :]
    row, column = d_position(THREADS, values)
    np.testing.assert_array_equal(row + 64 * column, D_FRAGMENT[n](THREADS, values))


@pytest.mark.parametrize("n", ALL_N)
def test_d_fragment_f16_packs_pairs(n: int) -> None:
    values = np.arange(n // 2)[None, :]
    row, column = d_position_f16(THREADS, values // 2, values % 2)
    np.testing.assert_array_equal(row + 64 * column, D_FRAGMENT[n](THREADS, values))


@pytest.mark.parametrize("bits", A_FRAGMENTS)
def test_a_fragment(bits: int) -> None:
    per_register = 32 // bits
    values = np.arange(4 * per_register)[None, :]
    row, k = a_position(THREADS, values // per_register, values % per_register, bits)
    np.testing.assert_array_equal(row + 64 * k, A_FRAGMENTS[bits](THREADS, values))


def test_d_of_one_product_is_a_of_the_next() -> None:
    """Registers 8kb+{0,1 / 2,3 / 4,5 / 6,7} of D, packed in pairs, are A registers 0-3 of K block kb."""
    for block in range(4):
        for register in range(4):
            for half in range(2):
                row, column = d_position(THREADS, np.array(8 * block + 2 * register + half))
                a_row, k = a_position(THREADS, np.array(register), np.array(half), 16)
                np.testing.assert_array_equal(row, a_row)
                np.testing.assert_array_equal(column - 16 * block, k)


@pytest.mark.external
def test_fragments_equal_cute() -> None:
    header = cute_header("atom/mma_traits_sm90_gmma.hpp")
    text = find_alias(header, "CLayout_64xN")
    for n in ALL_N:
        layout = parse_layout(text, N=n)
        values = np.arange(n // 2)[None, :]
        row, column = d_position(THREADS, values)
        np.testing.assert_array_equal(row + 64 * column, layout(THREADS, values))
    for name, bits in (("ALayout_64x8", 32), ("ALayout_64x16", 16), ("ALayout_64x32", 8)):
        layout = parse_layout(find_alias(header, name))
        per_register = 32 // bits
        values = np.arange(4 * per_register)[None, :]
        row, k = a_position(THREADS, values // per_register, values % per_register, bits)
        np.testing.assert_array_equal(row + 64 * k, layout(THREADS, values))


def test_layout_evaluator() -> None:
    layout = CuteLayout(((4, 8), (2, 3)), ((10, 100), (1, 5000)))
    assert layout(4 * 3 + 2, 2 * 2 + 1) == 2 * 10 + 3 * 100 + 1 + 2 * 5000
    assert parse_layout("Layout<Shape <Shape < _4,_8>,_2>, Stride<Stride<_1, Int<N/8>>,_0>>", N=64)(5, 1) == 9
    assert parse_layout("Layout<_32>").flat(7) == 7


def _loaded_cells(pieces: tuple, half: int) -> tuple[np.ndarray, np.ndarray]:
    """(lane, column) [128, registers, halves] that four warps reach with the accesses of a fragment."""
    warp = THREADS[:, :, None] // 32
    lanes, columns = [], []
    for piece in pieces:
        registers = np.arange(piece.registers)[None, :]
        lane, column = cell(piece.access.shape, THREADS % 32, registers)
        if piece.access.packed:
            column = np.stack(unpacked_columns(column), axis=2)
            lane = np.repeat(lane[:, :, None], 2, axis=2)
        else:
            lane, column = lane[:, :, None], column[:, :, None]
        lanes.append(lane + 32 * warp + half)
        columns.append(column + piece.column)
    lane, column = np.concatenate(lanes, axis=1), np.concatenate(columns, axis=1)
    return lane, np.broadcast_to(column, lane.shape)


@pytest.mark.parametrize("half", [0, 16])
@pytest.mark.parametrize("n", ALL_N)
@pytest.mark.parametrize("max_registers", [128, 16])
def test_accumulator_loads_give_the_wgmma_fragment(n: int, half: int, max_registers: int) -> None:
    """tcgen05.ld of an M=64 accumulator yields wgmma's D registers, for every N and every thread."""
    layout = d_layout(64, 1)
    for d_type in (T.F32, T.S32, T.F16):
        pieces = accumulator_pieces(n, d_type, max_registers=max_registers)
        assert all(piece.registers <= max_registers for piece in pieces)
        assert sum(piece.registers for piece in pieces) == (n // 4 if d_type is T.F16 else n // 2)
        starts = np.cumsum([0, *(piece.registers for piece in pieces)])
        assert [piece.register for piece in pieces] == starts[:-1].tolist()
        lane, column = _loaded_cells(pieces, half)
        registers = np.arange(lane.shape[1])[None, :, None]
        threads = THREADS[:, :, None]
        if d_type is T.F16:
            row, col = d_position_f16(threads, registers, np.arange(2)[None, None, :])
        else:
            row, col = d_position(threads, registers)
        cta, want_lane, want_column = d_cell(layout, row, col, n)
        assert not np.any(cta)
        np.testing.assert_array_equal(lane, np.broadcast_to(want_lane, lane.shape) + half)
        np.testing.assert_array_equal(column, np.broadcast_to(want_column, lane.shape))


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("k_blocks", [1, 2, 3, 4, 8])
def test_a_stores_write_the_wgmma_fragment(bits: int, k_blocks: int) -> None:
    """tcgen05.st.16x128b of wgmma's A registers writes A as an M=64 tcgen05.mma reads it."""
    pieces = a_fragment_pieces(k_blocks)
    assert {piece.access.shape for piece in pieces} == {Shape.S16X128B}
    lane, column = _loaded_cells(pieces, 0)
    assert lane.shape[1] == 4 * k_blocks
    register = np.arange(4 * k_blocks)[None, :, None]
    element = np.arange(32 // bits)[None, None, :]
    row, k = a_position(THREADS[:, :, None], register % 4, element, bits)
    k = k + register // 4 * (256 // bits)
    want_lane, want_column, want_bit = a_cell(d_layout(64, 1), row, k, bits)
    np.testing.assert_array_equal(np.broadcast_to(lane, want_lane.shape), want_lane)
    np.testing.assert_array_equal(np.broadcast_to(column, want_column.shape), want_column)
    np.testing.assert_array_equal(want_bit, np.broadcast_to(element * bits, want_bit.shape))


def parse(text: str) -> WgmmaOp:
    return WgmmaOp.of(given(text))


def test_parse() -> None:
    op = parse("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16")
    assert op == WgmmaOp(128, 16, T.F32, T.BF16, T.BF16)
    assert (op.m, op.d_registers, op.has_transpose, op.has_scale) == (64, 64, True, True)
    assert parse("wgmma.mma_async.sync.aligned.m64n256k16.f16.f16.f16").d_registers == 64
    assert parse("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8.satfinite").satfinite
    assert parse("wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.s8.u8").satfinite
    assert parse("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16").sparse
    assert not parse("wgmma.mma_async.sync.aligned.m64n240k32.s32.s8.s8").has_scale
    assert parse("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc").k == 256


@pytest.mark.parametrize(
    "opcode",
    [
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n264k16.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m128n8k16.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16.satfinite",
        "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16",
        "wgmma.mma_async.m64n8k16.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16.ftz",
    ],
)
def test_parse_refuses(opcode: str) -> None:
    with pytest.raises(ValueError, match="no row"):
        parse(opcode)


def test_every_wgmma_shape_has_a_tcgen05_shape() -> None:
    """Same N, same K, M=64, legal in one CTA: for everything but b1."""
    for a_type in (T.F16, T.BF16, T.TF32, T.E4M3, T.E5M2, T.S8, T.U8):
        for n in legal_n(a_type):
            d_type = T.S32 if a_type in (T.S8, T.U8) else T.F32
            k = {2: 16, 4: 8, 1: 32}[a_type.bits // 8]
            kind, idesc = wgmma_to_umma(WgmmaOp(n, k, d_type, a_type, a_type))
            assert idesc.problems() == []
            assert InstructionDescriptor.decode(idesc.encode(), kind) == idesc
    with pytest.raises(ValueError, match="b1"):
        umma_kind(T.B1)


def test_wgmma_to_umma_carries_the_immediates() -> None:
    op = parse("wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16")
    kind, idesc = wgmma_to_umma(op, m=128, negate_a=True, trans_b=True)
    assert kind is Kind.F16
    assert idesc.encode() == (1 << 4) | (1 << 13) | (1 << 16) | (96 // 8 << 17) | (128 // 16 << 24)
    kind, idesc = wgmma_to_umma(parse("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8.satfinite"))
    assert kind is Kind.I8
    assert idesc.encode() == (1 << 3) | (2 << 4) | (1 << 7) | (0 << 10) | (1 << 17) | (4 << 24)
