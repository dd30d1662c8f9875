# SPDX-License-Identifier: Apache-2.0
"""ldmatrix, stmatrix, movmatrix and mma.sync against their element-wise definition."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from porter.ptx.mma import MmaOp, a_position, b_position, d_position
from porter.sim.datapath.errors import DatapathError
from porter.sim.datapath.matrix import ldmatrix, movmatrix, stmatrix
from porter.sim.datapath.mma_sync import mma_sync


def scattered_rows(rng: np.random.Generator) -> np.ndarray:
    """A row address for each thread, no two alike."""
    return rng.permutation(64)[:32].astype(np.uint32) * 16 + 512


@pytest.mark.parametrize("num", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix(num: int, trans: bool) -> None:
    rng = np.random.default_rng(1)
    smem = rng.integers(0, 256, 2048, dtype=np.uint8)
    addresses = scattered_rows(rng)
    got = ldmatrix(smem, addresses, num, trans)
    halves = smem.view(np.uint16)
    for thread in range(32):
        for matrix in range(num):
            pair = []
            for i in range(2):
                row, column = thread // 4, 2 * (thread % 4) + i
                if trans:
                    row, column = column, row
                pair.append(int(halves[addresses[8 * matrix + row] // 2 + column]))
            assert got[thread, matrix] == pair[0] | pair[1] << 16


@pytest.mark.parametrize("num", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_stmatrix_is_the_inverse(num: int, trans: bool) -> None:
    rng = np.random.default_rng(2)
    addresses = scattered_rows(rng)
    registers = rng.integers(0, 1 << 32, (32, num), dtype=np.uint32)
    smem = np.full(2048, 0xAB, np.uint8)
    stmatrix(smem, addresses, registers, trans)
    np.testing.assert_array_equal(ldmatrix(smem, addresses, num, trans), registers)
    written = np.zeros(2048, bool)
    for address in addresses[: 8 * num]:
        written[address : address + 16] = True
    assert (smem[~written] == 0xAB).all()


def test_movmatrix_transposes() -> None:
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    registers = np.ascontiguousarray(matrix).view(np.uint32).reshape(32)
    want = np.ascontiguousarray(matrix.T).view(np.uint32).reshape(32)
    np.testing.assert_array_equal(movmatrix(registers), want)


def test_row_addresses_are_checked() -> None:
    smem = np.zeros(256, np.uint8)
    addresses = np.arange(32, dtype=np.uint32) * 16
    assert ldmatrix(smem, addresses, 2, False).shape == (32, 2)
    with pytest.raises(DatapathError, match="outside"):
        ldmatrix(smem, addresses, 4, False)
    with pytest.raises(DatapathError, match="multiple of 16"):
        stmatrix(smem, addresses + 8, np.zeros((32, 1), np.uint32), False)


MMA_CASES = [
    ("m16n8k16.row.col.f32.f16.f16.f32", np.float16),
    ("m16n8k8.row.col.f32.bf16.bf16.f32", ml_dtypes.bfloat16),
    ("m16n8k16.row.col.f16.f16.f16.f16", np.float16),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", np.float32),
    ("m16n8k4.row.col.f32.tf32.tf32.f32", np.float32),
    ("m16n8k32.row.col.f32.e4m3.e4m3.f32", ml_dtypes.float8_e4m3fn),
    ("m16n8k32.row.col.s32.s8.s8.s32", np.int8),
    ("m16n8k16.row.col.satfinite.s32.u8.u8.s32", np.uint8),
]


@pytest.mark.parametrize(("shape", "dtype"), MMA_CASES)
@pytest.mark.parametrize("mode", ["float64", "exact"])
def test_mma_sync(shape: str, dtype: type, mode: str) -> None:
    op = MmaOp.parse(("mma", "sync", "aligned", *shape.split(".")))
    rng = np.random.default_rng(3)
    low = 0 if dtype is np.uint8 else -3
    a, b = (rng.integers(low, 4, (n, op.k)).astype(dtype) for n in (16, 8))
    d_dtype = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[op.d_type]
    c = rng.integers(-9, 10, (16, 8)).astype(d_dtype)
    lanes = np.arange(32)[:, None, None]

    def pack(matrix: np.ndarray, position: object, registers: int) -> np.ndarray:
        bits = 8 * matrix.dtype.itemsize
        register = np.arange(registers)[None, :, None]
        element = np.arange(32 // bits)[None, None, :]
        picked = matrix[position(lanes, register, element, bits)]
        return np.ascontiguousarray(picked).view(np.uint32)[:, :, 0]

    def accumulator(matrix: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(matrix[d_position(lanes[:, 0], np.arange(4)[None, :])]).view(np.uint32)

    a_registers, b_registers = pack(a, a_position, op.a_registers), pack(b, b_position, op.b_registers)
    got = mma_sync(op, a_registers, b_registers, accumulator(c), mode=mode)
    want = (a.astype(np.float64) @ b.astype(np.float64).T + c).astype(d_dtype)
    np.testing.assert_array_equal(got, accumulator(want))


@pytest.mark.parametrize(
    ("shape", "low", "high"),
    [
        ("m8n8k4.row.col.f64.f64.f64.f64", -9, 9),
        ("m16n8k4.row.col.f64.f64.f64.f64", -9, 9),
        ("m16n8k8.row.col.f64.f64.f64.f64", -9, 9),
        ("m16n8k16.row.col.f64.f64.f64.f64", -9, 9),
        ("m8n8k16.row.col.s32.s8.u8.s32", -128, 127),
        ("m8n8k32.row.col.s32.s4.s4.s32", -8, 7),
        ("m16n8k32.row.col.s32.s4.u4.s32", -8, 7),
        ("m16n8k64.row.col.s32.u4.u4.s32", 0, 15),
        ("m8n8k128.row.col.s32.b1.b1.s32.xor.popc", 0, 1),
        ("m16n8k128.row.col.s32.b1.b1.s32.and.popc", 0, 1),
        ("m16n8k256.row.col.s32.b1.b1.s32.xor.popc", 0, 1),
    ],
)
def test_mma_sync_of_other_shapes(shape: str, low: int, high: int) -> None:
    """Fragments packed element by element from the ISA's formulas, products in Python integers."""
    op = MmaOp.parse(("mma", "sync", "aligned", *shape.split(".")))
    rng = np.random.default_rng(4)
    a = rng.integers(low, high + 1, (op.m, op.k))
    b = rng.integers(0 if op.b_type in ("u4", "u8", "b1") else low, min(high, 15) + 1, (8, op.k))
    c = rng.integers(-9, 10, (op.m, 8))
    bits = op.a_type.bits

    def packed(matrix: np.ndarray, position: Callable[..., tuple[int, int]], registers: int) -> np.ndarray:
        found = np.zeros((32, registers), np.uint64 if bits == 64 else np.uint32)
        for lane in range(32):
            for register in range(registers):
                if bits == 64:
                    value = np.float64(matrix[position(lane, register, 0, bits)])
                    found[lane, register] = value.view(np.uint64)
                    continue
                word = 0
                for element in range(32 // bits):
                    code = int(matrix[position(lane, register, element, bits)]) & ((1 << bits) - 1)
                    word |= code << (bits * element)
                found[lane, register] = word
        return found

    def result(matrix: np.ndarray) -> np.ndarray:
        values = [[matrix[d_position(lane, v)] for v in range(op.m * 8 // 32)] for lane in range(32)]
        return np.array(values, np.float64 if bits == 64 else np.int32)

    rows = packed(a, lambda *place: a_position(*place, op.m), op.a_registers)
    start = result(c)
    words = mma_sync(op, rows, packed(b, b_position, op.b_registers), start.view(f"u{start.itemsize}"), mode="exact")
    if op.bits:
        pairs = (x != y if op.bits == "xor" else x & y for x, y in ((a[:, None, :], b[None, :, :]),))
        want = next(pairs).sum(axis=2) + c
    else:
        want = a @ b.T + c
    np.testing.assert_array_equal(words.view(start.dtype), result(want))


@pytest.mark.external
def test_mma_fragments_equal_cute() -> None:
    """SM80_16x8x16: A ((4,8),(2,2,2)):((32,1),(16,8,128)), B ((4,8),(2,2)):((16,1),(8,64))."""
    spec = importlib.util.find_spec("cutlass_library")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("nvidia-cutlass is not installed")
    path = Path(next(iter(spec.submodule_search_locations)))
    header = (path / "source/include/cute/atom/mma_traits_sm80.hpp").read_text()
    traits = header[header.index("struct MMA_Traits<SM80_16x8x16_F16F16F16F16_TN>") :]
    for name, position, rows, values in (
        ("ALayout", a_position, 16, 8),
        ("BLayout", b_position, 8, 4),
        ("CLayout", None, 16, 4),
    ):
        text = re.search(rf"using {name} = (Layout<.*?>>|\w+);", traits, re.DOTALL)
        assert text
        definition = text[1]
        if not definition.startswith("Layout"):
            definition = re.search(rf"using {definition} = (Layout<.*?>>);", header, re.DOTALL)[1]
        numbers = [int(n) for n in re.findall(r"_(\d+)", definition)]
        half = len(numbers) // 2
        shape, stride = numbers[:half], numbers[half:]
        for lane in range(32):
            for value in range(values):
                # Shape and stride list the two thread modes first, then the value modes.
                coordinates = [lane % 4, lane // 4]
                rest = value
                for extent in shape[2:]:
                    coordinates.append(rest % extent)
                    rest //= extent
                index = sum(c * s for c, s in zip(coordinates, stride, strict=True))
                if position is None:
                    row, k = d_position(lane, value)
                else:
                    row, k = position(lane, value // 2, value % 2, 16)
                assert index == row + rows * k


@pytest.mark.parametrize(
    "opcode",
    [
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.bf16.bf16.bf16.bf16",
        "mma.sync.aligned.m8n8k8.row.col.f64.f64.f64.f64",
        "mma.sp.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32",
    ],
)
def test_other_mma_forms_are_refused(opcode: str) -> None:
    with pytest.raises(ValueError, match="these families"):
        MmaOp.parse(tuple(opcode.split(".")))
