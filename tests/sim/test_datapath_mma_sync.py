# SPDX-License-Identifier: Apache-2.0
"""mma.sync against its element-wise definition."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from opcodes import given

from porter.ptx.mma import MmaOp, a_position, b_position, d_position
from porter.sim.datapath.mma_sync import mma_warps

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


def registers(op: MmaOp, rows: int) -> int:
    """Registers of a thread that hold rows of A or columns of B."""
    return rows * op.k * op.a_type.bits // (32 * op.register_bits)


@pytest.mark.parametrize(("shape", "dtype"), MMA_CASES)
@pytest.mark.parametrize("mode", ["float64", "exact"])
def test_mma_sync(shape: str, dtype: type, mode: str) -> None:
    op = MmaOp.of(given(f"mma.sync.aligned.{shape}"))
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

    a_registers, b_registers = pack(a, a_position, registers(op, op.m)), pack(b, b_position, registers(op, 8))
    got = mma_warps(op, a_registers[None], b_registers[None], accumulator(c)[None], mode=mode)[0]
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
    op = MmaOp.of(given(f"mma.sync.aligned.{shape}"))
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

    rows = packed(a, lambda *place: a_position(*place, op.m), registers(op, op.m))
    start = result(c)
    columns = packed(b, b_position, registers(op, 8))
    words = mma_warps(op, rows[None], columns[None], start.view(f"u{start.itemsize}")[None], mode="exact")[0]
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
    with pytest.raises(ValueError, match=r"quads of threads|in no row"):
        MmaOp.of(given(opcode))
