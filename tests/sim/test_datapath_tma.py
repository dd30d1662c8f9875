# SPDX-License-Identifier: Apache-2.0
"""Tiled TMA copies against a copy written element by element."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from porter.ptx.operand_errors import OperandError, UnsupportedOperandError
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.tensormap import TensorMap, TensorMapInterleave, TensorMapSwizzle, TensorMapType
from porter.ptx.types import ElementType
from porter.sim.datapath.operands import read_smem_operand
from porter.sim.datapath.tma import load_tile, reduce_tile, store_tile

BASE = 0x10000


class OneAllocation:
    """Global memory that holds one array at BASE."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data.view(np.uint8).reshape(-1)

    def view(self, address: int, nbytes: int) -> np.ndarray:
        start = address - BASE
        if start < 0 or start + nbytes > self.data.size:
            raise IndexError(f"{address:#x}")
        return self.data[start : start + nbytes]


def smem_place(swizzle: TensorMapSwizzle, address: int) -> int:
    """Where a byte of the unswizzled tile goes: chunks of 16 bytes permuted by the row of 128 bytes."""
    row = address // 128
    flip = {0: 0, 1: row % 2, 2: row % 4, 3: row % 8}.get(int(swizzle))
    if flip is None:
        return address ^ (row % 4) << 5
    return address ^ flip << 4


def slow_tile(tensor_map: TensorMap, data: np.ndarray, coords: tuple[int, ...], smem_address: int) -> dict:
    """{shared address: (element index in data or None)} of every byte of a box, by the definition."""
    size = tensor_map.dtype.element_bytes
    pitch = tensor_map.swizzle.span or tensor_map.inner_bytes
    steps = (1, *tensor_map.element_strides[1:])
    places = {}
    ranges = [range(0, box, step) for box, step in zip(tensor_map.box, steps, strict=True)]
    for row, outer in enumerate(itertools.product(*reversed(ranges[1:]))):
        for i in ranges[0]:
            position = [c + o for c, o in zip(coords, (i, *reversed(outer)), strict=True)]
            inside = all(0 <= p < n for p, n in zip(position, tensor_map.sizes, strict=True))
            offset = sum(p * s for p, s in zip(position, (size, *tensor_map.strides), strict=True))
            for byte in range(size):
                place = smem_place(tensor_map.swizzle, smem_address + row * pitch + i * size + byte)
                places[place] = (offset + byte if inside else None, byte)
    return places


MAPS = [
    TensorMap(TensorMapType.UINT8, BASE, (100,), (), (32,)),
    TensorMap(TensorMapType.BFLOAT16, BASE, (48, 20), (96,), (16, 8)),
    TensorMap(TensorMapType.FLOAT16, BASE, (80, 30), (160,), (64, 16), swizzle=TensorMapSwizzle.B128),
    TensorMap(TensorMapType.FLOAT16, BASE, (80, 30), (160,), (32, 16), swizzle=TensorMapSwizzle.B64),
    TensorMap(TensorMapType.FLOAT32, BASE, (20, 30), (96,), (8, 16), swizzle=TensorMapSwizzle.B32),
    TensorMap(TensorMapType.FLOAT32, BASE, (20, 30), (96,), (16, 8), swizzle=TensorMapSwizzle.B128),
    TensorMap(TensorMapType.FLOAT32, BASE, (40, 12), (160,), (32, 8), swizzle=TensorMapSwizzle.B128_ATOM_32B),
    TensorMap(TensorMapType.UINT16, BASE, (16, 5, 4), (32, 176), (8, 3, 2)),
    TensorMap(TensorMapType.FLOAT32, BASE, (8, 3, 3, 2), (32, 96, 304), (4, 2, 2, 2), oob_nan=True),
    TensorMap(TensorMapType.INT32, BASE, (8, 2, 3, 2, 2), (32, 64, 192, 384), (4, 2, 1, 2, 2)),
    TensorMap(TensorMapType.FLOAT16, BASE, (32, 20), (64,), (16, 7), (2, 3)),
    TensorMap(TensorMapType.UINT8, BASE, (64, 9, 9), (64, 576), (32, 4, 5), (1, 2, 3)),
    TensorMap(TensorMapType.FLOAT32, BASE, (8, 6), (0,), (8, 4)),
]


def coordinates(tensor_map: TensorMap) -> list[tuple[int, ...]]:
    """Inside, over each edge, before the start, and wholly outside."""
    inside = (0,) * tensor_map.rank
    edge = tuple(n - 2 for n in tensor_map.sizes)
    before = tuple(-1 - i for i in range(tensor_map.rank))
    outside = tuple(n for n in tensor_map.sizes)
    mixed = tuple(n - 1 if i % 2 else -2 for i, n in enumerate(tensor_map.sizes))
    return [inside, edge, before, outside, mixed]


@pytest.mark.parametrize("tensor_map", MAPS)
@pytest.mark.parametrize("smem_address", [0, 1024, 384])
def test_load_and_store(tensor_map: TensorMap, smem_address: int) -> None:
    rng = np.random.default_rng(1)
    source = rng.integers(0, 256, 4096 + 1024, dtype=np.uint8)
    nan = {2: 0x7FFF, 4: 0x7FFFFFFF}
    for coords in coordinates(tensor_map):
        smem = np.full(8192, 0xAB, np.uint8)
        count = load_tile(tensor_map, OneAllocation(source), coords, smem, smem_address)
        places = slow_tile(tensor_map, source, coords, smem_address)
        assert count == len(places)
        want = np.full(8192, 0xAB, np.uint8)
        for place, (offset, byte) in places.items():
            fill = nan[tensor_map.dtype.element_bytes] >> 8 * byte & 0xFF if tensor_map.oob_nan else 0
            want[place] = source[offset] if offset is not None else fill
        np.testing.assert_array_equal(smem, want)

        target = np.full_like(source, 0xCD)
        smem = rng.integers(0, 256, 8192, dtype=np.uint8)
        assert store_tile(tensor_map, OneAllocation(target), coords, smem, smem_address) == count
        want = np.full_like(source, 0xCD)
        if 0 not in tensor_map.strides:
            for place, (offset, _) in places.items():
                if offset is not None:
                    want[offset] = smem[place]
            np.testing.assert_array_equal(target, want)


@pytest.mark.parametrize("mode", [SwizzleMode.NONE, SwizzleMode.B32, SwizzleMode.B64, SwizzleMode.B128])
@pytest.mark.parametrize("mn_major", [False, True])
def test_matrix_descriptor_reads_what_tma_wrote(mode: SwizzleMode, mn_major: bool) -> None:
    """A tile with swizzle S is described by a descriptor with swizzle S, in both directions."""
    rng = np.random.default_rng(2)
    matrix = rng.integers(-8, 9, (96, 80)).astype(ml_dtypes.bfloat16)
    swizzle = TensorMapSwizzle({"NONE": 0, "B32": 1, "B64": 2, "B128": 3}[mode.name])
    width = mode.span // 2
    smem = np.full(65536, 0xFF, np.uint8)
    tensor_map = TensorMap(
        TensorMapType.BFLOAT16, BASE, (80, 96), (160,), (width, 64 if not mn_major else 16), swizzle=swizzle
    )
    rows = tensor_map.box[1]
    panel = rows * mode.span
    for i in range(64 // width):
        load_tile(tensor_map, OneAllocation(matrix), (8 + i * width, 24), smem, 2048 + i * panel)
    if mn_major:
        lbo, sbo = (8 * mode.span, panel) if mode is SwizzleMode.NONE else (panel, 8 * mode.span)
        desc = SmemDescriptor(2048, lbo, sbo, mode)
        want = matrix[24:40, 8:72].T
    else:
        desc = SmemDescriptor(2048, panel, 8 * mode.span, mode)
        want = matrix[24:88, 8:24]
    got = read_smem_operand(smem, desc.encode("sm_90"), "sm_90", 64, 16, ElementType.BF16, mn_major)
    np.testing.assert_array_equal(got, want.astype(np.float64))


REDUCTIONS = [
    (TensorMapType.UINT32, np.uint32, ["add", "min", "max", "inc", "dec", "and", "or", "xor"]),
    (TensorMapType.INT32, np.int32, ["add", "min", "max", "and", "or", "xor"]),
    (TensorMapType.UINT64, np.uint64, ["add", "min", "max", "and", "or", "xor"]),
    (TensorMapType.FLOAT16, np.float16, ["add", "min", "max"]),
    (TensorMapType.BFLOAT16, ml_dtypes.bfloat16, ["add", "min", "max"]),
    (TensorMapType.FLOAT32, np.float32, ["add"]),
]


@pytest.mark.parametrize(("kind", "dtype", "ops"), REDUCTIONS)
def test_reduce(kind: TensorMapType, dtype: type, ops: list[str]) -> None:
    rng = np.random.default_rng(3)
    size = np.dtype(dtype).itemsize
    low = -5 if dtype not in (np.uint32, np.uint64) else 0
    old = rng.integers(low, 12, (6, 64)).astype(dtype)
    new = rng.integers(low, 12, (4, 16)).astype(dtype)
    tensor_map = TensorMap(kind, BASE, (40, 6), (64 * size,), (16, 4))
    smem = np.zeros(4096, np.uint8)
    smem[128 : 128 + new.nbytes] = new.view(np.uint8).reshape(-1)
    for op in ops:
        target = old.copy()
        reduce_tile(tensor_map, OneAllocation(target), (32, 4), smem, 128, op)
        want = old.copy()
        for r, c in itertools.product(range(2), range(8)):
            x, y = old[4 + r, 32 + c], new[r, c]
            want[4 + r, 32 + c] = {
                "add": lambda x, y: x + y,
                "min": min,
                "max": max,
                "inc": lambda x, y: 0 if x >= y else x + 1,
                "dec": lambda x, y: y if x == 0 or x > y else x - 1,
                "and": lambda x, y: x & y,
                "or": lambda x, y: x | y,
                "xor": lambda x, y: x ^ y,
            }[op](x, y)
        np.testing.assert_array_equal(target, want)


def test_refusals() -> None:
    memory = OneAllocation(np.zeros(4096, np.uint8))
    smem = np.zeros(1024, np.uint8)
    good = TensorMap(TensorMapType.FLOAT16, BASE, (64, 8), (128,), (64, 8))
    assert load_tile(good, memory, (0, 0), smem, 0) == 1024
    cases = [
        (good, (0,), 0, "1 coordinates"),
        (good, (0, 0), 64, "multiple of 128"),
        (good, (0, 0), 128, "passes the end"),
        (TensorMap(TensorMapType.FLOAT16, BASE + 8, (64, 8), (128,), (64, 8)), (0, 0), 0, "multiple of 16"),
    ]
    for tensor_map, coords, address, complaint in cases:
        with pytest.raises(OperandError, match=complaint):
            load_tile(tensor_map, memory, coords, smem, address)
    with pytest.raises(OperandError, match=r"no reduction \.and"):
        reduce_tile(good, memory, (0, 0), smem, 0, "and")
    interleaved = TensorMap(
        TensorMapType.FLOAT16, BASE, (8, 4, 4), (16, 64), (8, 4, 4), interleave=TensorMapInterleave.B16
    )
    with pytest.raises(UnsupportedOperandError):
        load_tile(interleaved, memory, (0, 0, 0), smem, 0)
    too_long = TensorMap(TensorMapType.FLOAT16, BASE, (64, 4096), (128,), (64, 8))
    with pytest.raises(IndexError):
        load_tile(too_long, memory, (0, 4000), smem, 0)


def test_addresses_wrap_around() -> None:
    """Rows 5 to 7 as a sequence of its own, by two dimensions that cancel out but for the first row."""
    data = np.arange(16 * 64, dtype=np.uint16)
    row, many = 128, 1 << 30
    map_ = TensorMap(
        TensorMapType.UINT16, BASE, (64, many, 2 * many - 1, 2 * many - 1), (row, 2**64 // many * 2 - row, row),
        (64, 8, 1, 1),
    )  # fmt: skip
    smem = np.full(8 * row, 255, np.uint8)
    load_tile(map_, OneAllocation(data), (0, many - 3, many, 5 + 3), smem, 0)
    found = smem.view(np.uint16).reshape(8, 64)
    assert (found[:3] == data.reshape(16, 64)[5:8]).all()
    assert not found[3:].any()
