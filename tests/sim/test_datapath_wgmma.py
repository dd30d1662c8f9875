# SPDX-License-Identifier: Apache-2.0
"""wgmma on registers and shared memory, with tiles laid out by hand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from opcodes import given
from wgmma_as_umma import d_position_f16, sm90_to_sm100

from porter.ptx.operand_errors import OperandError
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.types import ElementType as T
from porter.ptx.wgmma import WgmmaOp, a_position, d_position
from porter.sim.datapath.operands import decode, read_smem_operand
from porter.sim.datapath.wgmma import wgmma

DTYPES = {
    T.F16: np.float16,
    T.BF16: ml_dtypes.bfloat16,
    T.TF32: np.float32,
    T.E4M3: ml_dtypes.float8_e4m3fn,
    T.E5M2: ml_dtypes.float8_e5m2,
    T.S8: np.int8,
    T.U8: np.uint8,
}
MODES = [SwizzleMode.NONE, SwizzleMode.B32, SwizzleMode.B64, SwizzleMode.B128]


def place(
    smem: np.ndarray, start: int, tile: np.ndarray, mode: SwizzleMode, mn_major: bool, k_offset: int = 0
) -> SmemDescriptor:
    """Lay a tile [mn, k] out as swizzled rows, the way TMA and hand-written loaders do.

    Rows of the swizzle's width follow each other; beyond that width the tile goes on in a next panel. Chunks
    of a row are permuted by the row number. The descriptor is that of the part from `k_offset` on.
    """
    outer_is_k = mn_major
    rows = tile.T if outer_is_k else tile
    size = tile.dtype.itemsize
    width = mode.span // size
    count = rows.shape[0]
    panel = count * mode.span
    permuted = {16: lambda r: 0, 32: lambda r: r // 4 % 2, 64: lambda r: r // 2 % 4, 128: lambda r: r % 8}
    for first in range(0, rows.shape[1], width):
        for row in range(count):
            data = np.ascontiguousarray(rows[row, first : first + width]).view(np.uint8)
            base = start + first // width * panel + row * mode.span
            for chunk in range(0, len(data), 16):
                place = (chunk // 16 ^ permuted[mode.span](row)) * 16
                smem[base + place : base + place + 16] = data[chunk : chunk + 16]
    if mn_major:
        # From one panel of MN to the next, and from 8 k's to the next 8.
        to_panel, to_group = panel, 8 * mode.span
        lbo, sbo = (to_group, to_panel) if mode is SwizzleMode.NONE else (to_panel, to_group)
        return SmemDescriptor(start + k_offset * mode.span, lbo, sbo, mode)
    inside = k_offset * size % mode.span
    address = start + k_offset * size // mode.span * panel + inside
    lbo = panel if mode is SwizzleMode.NONE else 16
    return SmemDescriptor(address, lbo, 8 * mode.span, mode)


def random_tile(rng: np.random.Generator, shape: tuple[int, int], element: T) -> np.ndarray:
    """Small integers, exact in every type and every sum."""
    low = 0 if element is T.U8 else -3
    return rng.integers(low, 4, shape).astype(DTYPES[element])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("start", [0, 1024, 7 * 1024])
def test_k_major_operand(mode: SwizzleMode, element: T, start: int) -> None:
    """Every K step of a tile as wide as the swizzle, or of two panels without a swizzle."""
    rng = np.random.default_rng(1)
    dtype = DTYPES[element]
    k = 32 // np.dtype(dtype).itemsize
    total = max(mode.span, 64) // np.dtype(dtype).itemsize
    tile = random_tile(rng, (72, total), element)
    smem = rng.integers(0, 256, 65536, dtype=np.uint8)
    for step in range(total // k):
        desc = place(smem, start, tile, mode, False, step * k)
        for word, generation in ((desc.encode("sm_90"), "sm_90"), (desc.encode("sm_100"), "sm_100")):
            got = read_smem_operand(smem, word, generation, 72, k, element)
            np.testing.assert_array_equal(got, tile[:, step * k : (step + 1) * k].astype(np.float64))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("element", [T.F16, T.BF16, T.E4M3, T.S8])
@pytest.mark.parametrize("rows", [8, 64, 96, 256])
def test_mn_major_operand(mode: SwizzleMode, element: T, rows: int) -> None:
    rng = np.random.default_rng(2)
    dtype = DTYPES[element]
    k = 32 // np.dtype(dtype).itemsize
    width = mode.span // np.dtype(dtype).itemsize
    tile = random_tile(rng, (-(-rows // width) * width, 2 * k), element)
    smem = rng.integers(0, 256, 1 << 17, dtype=np.uint8)
    for step in range(2):
        desc = place(smem, 2048, tile, mode, True, step * k)
        got = read_smem_operand(smem, desc.encode("sm_100"), "sm_100", rows, k, element, True)
        np.testing.assert_array_equal(got, tile[:rows, step * k : (step + 1) * k].astype(np.float64))
        if element.bits == 16:
            got = read_smem_operand(smem, desc.encode("sm_90"), "sm_90", rows, k, element, True)
            np.testing.assert_array_equal(got, tile[:rows, step * k : (step + 1) * k].astype(np.float64))


def test_base_offset_anchors_the_pattern() -> None:
    """A tile that starts 2 rows into the 1024-byte period, its pattern starting with it."""
    rng = np.random.default_rng(3)
    tile = random_tile(rng, (64, 64), T.F16)
    smem = np.zeros(16384, np.uint8)
    aligned = np.zeros(16384, np.uint8)
    desc = place(aligned, 0, tile, SwizzleMode.B128, False)
    smem[256:8448] = aligned[:8192]
    word = SmemDescriptor(256, desc.lbo, desc.sbo, desc.swizzle, base_offset=2).encode("sm_90")
    got = read_smem_operand(smem, word, "sm_90", 64, 16, T.F16)
    np.testing.assert_array_equal(got, tile[:, :16].astype(np.float64))


def test_operand_errors() -> None:
    smem = np.zeros(4096, np.uint8)
    word = SmemDescriptor(0, 16, 1024, SwizzleMode.B128).encode("sm_90")
    with pytest.raises(OperandError, match="of 4096 bytes"):
        read_smem_operand(smem, word, "sm_90", 64, 16, T.F16)
    with pytest.raises(OperandError, match="0b001"):
        read_smem_operand(smem, word, "sm_100", 8, 16, T.F16)
    with pytest.raises(OperandError, match="K-major only"):
        read_smem_operand(smem, word, "sm_90", 8, 32, T.E4M3, True)
    with pytest.raises(OperandError, match="32-byte atoms"):
        read_smem_operand(smem, sm90_to_sm100(word), "sm_100", 32, 8, T.TF32, True)


@pytest.mark.parametrize("element", [T.F16, T.BF16, T.E4M3, T.E5M2, T.E2M3, T.E3M2, T.E2M1, T.S8, T.U8])
def test_decode_all_patterns(element: T) -> None:
    libraries = DTYPES | {
        T.E2M3: ml_dtypes.float6_e2m3fn,
        T.E3M2: ml_dtypes.float6_e3m2fn,
        T.E2M1: ml_dtypes.float4_e2m1fn,
    }
    width = {T.E2M3: 6, T.E3M2: 6, T.E2M1: 4}.get(element, element.bits)
    words = np.arange(1 << width, dtype=f"u{element.bits // 8}")
    with np.errstate(invalid="ignore"):
        want = words.view(libraries[element]).astype(np.float64)
    np.testing.assert_array_equal(decode(words.view(np.uint8), element), want)


def test_decode_tf32_truncates_first() -> None:
    """A NaN whose payload lies in the dropped bits becomes an infinity."""
    words = np.array([0x3F801FFF, 0x7F800001, 0x7FC00000, 0x00001FFF], np.uint32)
    got = decode(words.view(np.uint8), T.TF32)
    assert got[0] == 1.0
    assert got[1] == np.inf
    assert np.isnan(got[2])
    assert got[3] == 0.0


def fragment(tile: np.ndarray, f16: bool) -> np.ndarray:
    """D registers of a tile [64, n], thread by thread."""
    n = tile.shape[1]
    registers = np.zeros((128, n // 4 if f16 else n // 2), np.uint32)
    for thread in range(128):
        for register in range(registers.shape[1]):
            if f16:
                halves = [d_position_f16(thread, register, half) for half in range(2)]
                low, high = (int(tile.astype(np.float16)[p].view(np.uint16)) for p in halves)
                registers[thread, register] = low | high << 16
            else:
                value = tile[d_position(thread, register)]
                registers[thread, register] = value.view(np.uint32)
    return registers


def a_fragment(tile: np.ndarray) -> np.ndarray:
    """A registers of a tile [64, 32 bytes]."""
    size = tile.dtype.itemsize
    registers = np.zeros((128, 4), np.uint32)
    words = tile.view(f"u{size}")
    for thread in range(128):
        for register in range(4):
            for element in range(4 // size):
                value = int(words[a_position(thread, register, element, 8 * size)])
                registers[thread, register] |= np.uint32(value << 8 * size * element)
    return registers


CASES = [
    ("m64n8k16.f32.f16.f16", T.F16, T.F16),
    ("m64n96k16.f32.bf16.bf16", T.BF16, T.BF16),
    ("m64n64k16.f16.f16.f16", T.F16, T.F16),
    ("m64n40k8.f32.tf32.tf32", T.TF32, T.TF32),
    ("m64n128k32.f32.e4m3.e5m2", T.E4M3, T.E5M2),
    ("m64n24k32.f16.e5m2.e5m2", T.E5M2, T.E5M2),
    ("m64n48k32.s32.s8.u8", T.S8, T.U8),
]


@pytest.mark.parametrize(("shape", "a_type", "b_type"), CASES)
@pytest.mark.parametrize("mode", ["float64", "exact"])
@pytest.mark.parametrize("a_in_registers", [False, True])
def test_product(shape: str, a_type: T, b_type: T, mode: str, a_in_registers: bool) -> None:
    op = WgmmaOp.of(given(f"wgmma.mma_async.sync.aligned.{shape}"))
    rng = np.random.default_rng(5)
    a = random_tile(rng, (64, op.k), a_type)
    b = random_tile(rng, (op.n, op.k), b_type)
    smem = rng.integers(0, 256, 1 << 16, dtype=np.uint8)
    a_desc = place(smem, 1024, a, SwizzleMode.B32, False).encode("sm_90")
    b_desc = place(smem, 16384, b, SwizzleMode.NONE, False).encode("sm_90")
    f16 = op.d_type is T.F16
    d_dtype = np.int32 if op.d_type is T.S32 else np.float32
    c = rng.integers(-5, 6, (64, op.n)).astype(d_dtype)
    product = a.astype(np.float64) @ b.astype(np.float64).T
    d = fragment(c, f16)
    before = d.copy()
    operands = {
        "a_desc": None if a_in_registers else a_desc,
        "a_regs": a_fragment(a) if a_in_registers else None,
        "b_desc": b_desc,
        "mode": mode,
    }
    got = wgmma(op, smem, d=d, scale_d=True, **operands)
    np.testing.assert_array_equal(got, fragment((product + c).astype(d_dtype), f16))
    np.testing.assert_array_equal(d, before)
    poison = np.full_like(d, 0xFFFFFFFF)
    got = wgmma(op, smem, d=poison, scale_d=False, **operands)
    np.testing.assert_array_equal(got, fragment(product.astype(d_dtype), f16))
    if op.has_scale:
        got = wgmma(op, smem, d=d, scale_d=True, negate_a=True, **operands)
        np.testing.assert_array_equal(got, fragment((c - product).astype(d_dtype), f16))
        got = wgmma(op, smem, d=d, scale_d=True, negate_a=True, negate_b=True, **operands)
        np.testing.assert_array_equal(got, fragment((c + product).astype(d_dtype), f16))


@pytest.mark.parametrize("swizzle", MODES)
def test_transposed_operands(swizzle: SwizzleMode) -> None:
    """MN-major A and B with an f16 accumulator, as column-major matrices give them."""
    op = WgmmaOp.of(given("wgmma.mma_async.sync.aligned.m64n128k16.f16.f16.f16"))
    rng = np.random.default_rng(6)
    a, b = random_tile(rng, (64, 16), T.F16), random_tile(rng, (128, 16), T.F16)
    smem = np.full(1 << 16, 0xFF, np.uint8)
    a_desc = place(smem, 0, a, swizzle, True).encode("sm_90")
    b_desc = place(smem, 32768, b, swizzle, True).encode("sm_90")
    got = wgmma(
        op, smem, a_desc=a_desc, a_regs=None, b_desc=b_desc, d=np.zeros((128, 32), np.uint32),
        scale_d=False, trans_a=True, trans_b=True,
    )  # fmt: skip
    np.testing.assert_array_equal(got, fragment((a.astype(np.float64) @ b.astype(np.float64).T), True))


def test_bits_count_ones_in_common() -> None:
    opcode = "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc"
    op = WgmmaOp.of(given(opcode))
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, 256, (64, 32), dtype=np.uint8), rng.integers(0, 256, (16, 32), dtype=np.uint8)
    smem = np.zeros(8192, np.uint8)
    got = wgmma(
        op, smem, a_desc=place(smem, 0, a, SwizzleMode.B32, False).encode("sm_90"), a_regs=None,
        b_desc=place(smem, 4096, b, SwizzleMode.B32, False).encode("sm_90"),
        d=np.zeros((128, 8), np.uint32), scale_d=True,
    )  # fmt: skip
    want = np.bitwise_count(a[:, None, :] & b[None, :, :]).sum(axis=2, dtype=np.int32)
    np.testing.assert_array_equal(got, fragment(want, False))


def test_hopper_keeps_fewer_bits_of_8_bit_floats() -> None:
    """1 + 2^-14 keeps its tail in a Blackwell sum and loses it in Hopper's."""
    op = WgmmaOp.of(given("wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e5m2"))
    a, b = np.zeros((64, 32), ml_dtypes.float8_e5m2), np.zeros((8, 32), ml_dtypes.float8_e5m2)
    a[:, 0], a[:, 1], b[:, :2] = 1, 2.0**-14, 1
    smem = np.zeros(8192, np.uint8)
    operands = {
        "a_desc": place(smem, 0, a, SwizzleMode.B32, False).encode("sm_90"),
        "a_regs": None,
        "b_desc": place(smem, 4096, b, SwizzleMode.B32, False).encode("sm_90"),
        "d": np.zeros((128, 4), np.uint32),
        "scale_d": True,
        "mode": "exact",
    }
    assert set(wgmma(op, smem, **operands).view(np.float32).ravel()) == {1.0}
    assert set(wgmma(op, smem, rules="sm_100", **operands).view(np.float32).ravel()) == {1 + 2.0**-14}


def test_refusals() -> None:
    op = WgmmaOp.of(given("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"))
    d = np.zeros((128, 4), np.uint32)
    arguments = {"a_desc": 0, "a_regs": None, "b_desc": 0, "d": d, "scale_d": True}
    with pytest.raises(OperandError, match="K-major"):
        wgmma(op, np.zeros(4096, np.uint8), trans_b=True, **arguments)
    sparse = WgmmaOp.of(given("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"))
    with pytest.raises(OperandError, match="without metadata"):
        wgmma(sparse, np.zeros(1 << 16, np.uint8), **arguments)
    with pytest.raises(OperandError, match="selector 1 of 8-bit"):
        wgmma(sparse, np.zeros(1 << 16, np.uint8), metadata=np.zeros(128, np.uint32), selector=1, **arguments)


def test_wgmma_looks_at_no_bit_beside_its_fields() -> None:
    smem = np.arange(4096, dtype=np.uint8)
    word = SmemDescriptor(0, 16, 1024, SwizzleMode.B128).encode("sm_90")
    beside = sm90_to_sm100(word) | 0b11 << 14
    got, same = (read_smem_operand(smem, one, "sm_90", 8, 16, T.F16) for one in (beside, word))
    np.testing.assert_array_equal(got, same)
    with pytest.raises(OperandError, match="reserved"):
        read_smem_operand(smem, beside, "sm_100", 8, 16, T.F16)
