# SPDX-License-Identifier: Apache-2.0
"""Tensor maps: the 128-byte form and what makes a map illegal."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from porter.ptx.tensormap import (
    TensorMap,
    TensorMapInterleave,
    TensorMapL2Promotion,
    TensorMapSwizzle,
    TensorMapType,
)

MATRIX = TensorMap(TensorMapType.BFLOAT16, 0x7E0000001000, (256, 128), (512,), (64, 32), swizzle=TensorMapSwizzle.B128)
LARGEST = TensorMap(
    TensorMapType.FLOAT32,
    (1 << 57) - 16,
    (1, 2, 3, 4, 1 << 32),
    (16, 32, 48, (1 << 40) - 16),
    (4, 256, 1, 2, 3),
    (1, 2, 3, 4, 8),
    TensorMapSwizzle.B32,
    TensorMapInterleave.NONE,
    True,
    TensorMapL2Promotion.B256,
)


@pytest.mark.parametrize("tensor_map", [MATRIX, LARGEST, TensorMap(TensorMapType.UINT8, 0, (64,), (), (16,))])
def test_round_trip(tensor_map: TensorMap) -> None:
    data = tensor_map.encode()
    assert len(data) == 128
    assert TensorMap.decode(data) == tensor_map


def test_documented_offsets() -> None:
    """The positions that other programs write, by the table of the module's docstring."""
    data = MATRIX.encode()
    assert data[:2] == b"T\x02"
    assert list(data[2:8]) == [2, 9, 3, 0, 0, 0]
    assert struct.unpack_from("<Q", data, 8) == (0x7E0000001000,)
    assert struct.unpack_from("<5I", data, 16) == (255, 127, 0, 0, 0)
    assert [int.from_bytes(data[i : i + 5], "little") for i in (36, 41, 46, 51)] == [512 // 16, 0, 0, 0]
    assert list(data[56:61]) == [63, 31, 0, 0, 0]
    assert int.from_bytes(data[61:64], "little") == 0x11111
    assert not any(data[64:])


def test_a_tiled_map_lies_in_its_first_64_bytes() -> None:
    """Kernels that keep a map of their own copy these alone."""
    assert TensorMap.decode(MATRIX.encode()[:64] + b"\xa5" * 64) == MATRIX


def test_bytes_that_hold_no_map() -> None:
    good = MATRIX.encode()
    other_form, rank_6 = good[:1] + b"\x07" + good[2:], good[:2] + b"\x06" + good[3:]
    for bad in (bytes(128), good[:127], b"XXXX" + good[4:], other_form, rank_6):
        with pytest.raises(ValueError, match="tensor map"):
            TensorMap.decode(bad)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"address": 0x1008}, "multiple of 16"),
        ({"strides": (520,)}, "stride 520"),
        ({"strides": (1 << 40,)}, "2.40"),
        ({"box": (64, 257)}, "box size 257"),
        ({"box": (64, 0)}, "box size 0"),
        ({"box": (72, 32)}, "144 bytes wide, more than the 128"),
        ({"box": (4, 32)}, "8 bytes wide, not a multiple"),
        ({"sizes": (0, 128)}, "size 0"),
        ({"element_strides": (1, 9)}, "element stride 9"),
        ({"dtype": TensorMapType.UINT16, "oob_nan": True}, "no NaN"),
        ({"strides": ()}, "need"),
        ({"sizes": (1,) * 6}, "rank 6"),
        ({"interleave": TensorMapInterleave.B16}, "three dimensions"),
    ],
)
def test_illegal_maps(change: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(MATRIX, **change).encode()


def test_sizes_of_a_copy() -> None:
    assert MATRIX.inner_bytes == 128
    assert MATRIX.box_bytes == 64 * 32 * 2
    strided = replace(MATRIX, element_strides=(2, 3))
    assert strided.box_counts == (64, 11)
    assert strided.box_bytes == 64 * 11 * 2
