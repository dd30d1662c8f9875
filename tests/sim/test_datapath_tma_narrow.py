# SPDX-License-Identifier: Apache-2.0
"""Tensor copies of 4- and 6-bit elements: packed as they are, or padded to 16 bytes for 16 elements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from umma_calls import padded, pairs

from porter.ptx.operand_errors import OperandError, UnsupportedOperandError
from porter.ptx.tensormap import TensorMap, TensorMapSwizzle, TensorMapType
from porter.ptx.types import ElementType as T
from porter.sim import GlobalMemory
from porter.sim.datapath.operands import unpack_chunks
from porter.sim.datapath.tma import load_tile, store_tile

TYPES = {
    TensorMapType.U4_ALIGN8B: T.E2M1,
    TensorMapType.U4_ALIGN16B: T.E2M1,
    TensorMapType.U6_ALIGN16B: T.E2M3,
}


def problem(kind: TensorMapType, memory: GlobalMemory) -> tuple[TensorMap, np.ndarray]:
    """A tensor [64, 256] and its codes."""
    element = TYPES[kind]
    bits = kind.element_bits
    codes = np.random.default_rng(1).integers(0, 1 << bits, (64, 256), dtype=np.uint8)
    rows = padded(codes, element).reshape(64, -1, 16)[:, :, : 2 * bits].reshape(64, -1)
    address = memory.alloc(rows.size)
    memory.write(address, np.ascontiguousarray(rows).reshape(-1))
    return TensorMap(kind, address, (256, 64), (rows.shape[1],), (128, 16)), codes


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("swizzle", [TensorMapSwizzle.NONE, TensorMapSwizzle.B128])
@pytest.mark.parametrize("coords", [(0, 0), (128, 40), (128, 56), (0, -3)])
def test_loads(kind: TensorMapType, swizzle: TensorMapSwizzle, coords: tuple[int, int]) -> None:
    memory, smem = GlobalMemory(), np.full(8192, 0xCC, np.uint8)
    tensor_map, codes = problem(kind, memory)
    tensor_map = replace(tensor_map, swizzle=swizzle)
    assert not tensor_map.problems()
    assert load_tile(tensor_map, memory, coords, smem, 2048) == 16 * 128 * kind.element_bits // 8
    tile = np.zeros((16, 128), np.uint8)
    first, last = max(coords[1], 0), min(coords[1] + 16, 64)
    tile[first - coords[1] : last - coords[1]] = codes[first:last, coords[0] : coords[0] + 128]
    width = 128 if kind.padded else 64
    pitch = 128 if swizzle is TensorMapSwizzle.B128 else width
    for row in range(16):
        chunks = []
        for chunk in range(width // 16):
            place = chunk ^ row % 8 if swizzle is TensorMapSwizzle.B128 else chunk
            start = 2048 + row * pitch + 16 * place
            chunks.append(smem[start : start + 16])
        data = np.concatenate(chunks)
        if kind.padded:
            np.testing.assert_array_equal(unpack_chunks(data, kind.element_bits), tile[row])
            used = 2 * kind.element_bits
            assert not data.reshape(-1, 16)[:, used:].any()
        else:
            np.testing.assert_array_equal(data, pairs(tile[row][None])[0])
    assert tensor_map.shared_bytes == 16 * width


def test_packed_stores_and_refusals() -> None:
    memory, smem = GlobalMemory(), np.zeros(8192, np.uint8)
    tensor_map, codes = problem(TensorMapType.U4_ALIGN8B, memory)
    smem[:1024] = pairs(codes[8:24, 128:] ^ 5).reshape(-1)
    store_tile(tensor_map, memory, (128, 8), smem, 0)
    codes[8:24, 128:] ^= 5
    np.testing.assert_array_equal(memory.read(tensor_map.address, 64 * 128).reshape(64, 128), pairs(codes))
    with pytest.raises(OperandError, match="not on a byte"):
        load_tile(tensor_map, memory, (1, 0), smem, 0)
    wide, _ = problem(TensorMapType.U6_ALIGN16B, memory)
    with pytest.raises(UnsupportedOperandError, match="U6_ALIGN16B"):
        store_tile(wide, memory, (0, 0), smem, 0)


@pytest.mark.parametrize(("kind", "changes", "text"), [
    (TensorMapType.U4_ALIGN16B, {"box": (64, 16)}, "need a box of 128"),
    (TensorMapType.U6_ALIGN16B, {"sizes": (192, 64)}, "multiple of it as size"),
    (TensorMapType.U4_ALIGN16B, {"strides": (144,)}, "multiple of 32"),
    (TensorMapType.U6_ALIGN16B, {"address": 1 << 20 | 16}, "multiple of 32"),
    (TensorMapType.U4_ALIGN8B, {"sizes": (255, 64)}, "within a byte"),
    (TensorMapType.U4_ALIGN8B, {"oob_nan": True}, "no NaN"),
])  # fmt: skip
def test_illegal_maps(kind: TensorMapType, changes: dict[str, object], text: str) -> None:
    base = TensorMap(kind, 1 << 20, (256, 64), (192,), (128, 16))
    assert not base.problems()
    assert any(text in found for found in replace(base, **changes).problems())
    assert TensorMap.decode(base.encode()) == base
