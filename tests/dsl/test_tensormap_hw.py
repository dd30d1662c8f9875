# SPDX-License-Identifier: Apache-2.0
"""The hardware's tensor-map words, as host code of CuTe DSL 4.8 wrote them for known tensors."""

from __future__ import annotations

import struct

import pytest

from porter.ptx.tensormap import TensorMap, TensorMapL2Promotion, TensorMapSwizzle, TensorMapType
from porter.ptx.tensormap_hw import decode_hardware

A = 0x123456780000


def words(*values: int) -> bytes:
    """What lies behind the eighth word is not written by the host code, so it may hold anything."""
    return struct.pack("<8Q", *values) + b"\xa5" * 64


def expect(dtype: str, sizes: tuple, strides: tuple, box: tuple, swizzle: str = "B128") -> TensorMap:
    return TensorMap(
        TensorMapType[dtype],
        A,
        sizes,
        strides,
        box,
        swizzle=TensorMapSwizzle[swizzle],
        l2_promotion=TensorMapL2Promotion.B128,
    )


CASES = {
    "f16": ((0x1000046312, 0, 0, 0xFF0000007F, 0, 0x3F << 56, 0x7F),
            expect("FLOAT16", (128, 256), (256,), (64, 128))),
    "bf16": ((0x1000046512, 0, 0, 0xFF0000007F, 0, 0x3F << 56, 0x7F),
             expect("BFLOAT16", (128, 256), (256,), (64, 128))),
    "fp8 travels as bytes": ((0x0800046012, 0, 0, 0xFF0000007F, 0, 0x7F << 56, 0x7F),
                             expect("UINT8", (128, 256), (128,), (128, 128))),
    "f32": ((0x2000246392, 0, 0, 0xFF0000007F, 0, 0x1F << 56, 0x7F),
            expect("FLOAT32", (128, 256), (512,), (32, 128))),
    "tf32": ((0x2000256392, 0, 0, 0xFF0000007F, 0, 0x1F << 56, 0x7F),
             expect("TFLOAT32", (128, 256), (512,), (32, 128))),
    "f64": ((0x4000246492, 0, 0, 0xFF0000007F, 0, 0x0F << 56, 0x7F),
            expect("FLOAT64", (128, 256), (1024,), (16, 128))),
    "64B": ((0x1000044312, 0, 0, 0xFF0000007F, 0, 0x1F << 56, 0x7F),
            expect("FLOAT16", (128, 256), (256,), (32, 128), "B64")),
    "32B": ((0x1000042312, 0, 0, 0xFF0000007F, 0, 0x0F << 56, 0x7F),
            expect("FLOAT16", (128, 256), (256,), (16, 128), "B32")),
    "32-byte atoms": ((0x80002C6392, 0, 0, 0xFF000001FF, 0, 0x1F << 56, 0x1F),
                      expect("FLOAT32", (512, 256), (2048,), (32, 32), "B128_ATOM_32B")),
    "no swizzle, rank 3": ((0x40322, 0x10, 0, 0x7F0000000F, 0xFF, 0x01 << 56, 0xF07),
                           expect("FLOAT16", (16, 128, 256), (0, 256), (2, 8, 16), "NONE")),
    "rank 5": ((0x1000246342, 0x400000001000, 0x20000, 0xFF0000007F, 0x400000002, 0x3F << 56 | 6, 0x7F),
               expect("FLOAT16", (128, 256, 3, 5, 7), (256, 1 << 16, 1 << 18, 1 << 21), (64, 128, 1, 1, 1))),
    "stride of 2^37 bytes in dimension 1": ((0x246312, 0, 2 << 32, 0xFF0000007F, 0, 0x3F << 56, 0x7F),
                                            expect("FLOAT16", (128, 256), (1 << 37,), (64, 128))),
    "and in dimension 2": ((0x1000246322, 0, 2 << 36, 0xFF0000007F, 2, 0x3F << 56, 0x7F),
                           expect("FLOAT16", (128, 256, 3), (256, 1 << 37), (64, 128, 1))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_decodes(name: str) -> None:
    parts, wanted = CASES[name]
    assert decode_hardware(words(A, *parts)) == wanted


@pytest.mark.parametrize(
    "parts",
    [
        (0x1000046313, 0, 0, 0xFF0000007F, 0, 0x3F << 56, 0x7F),
        (0x1000047B12, 0, 0, 0xFF0000007F, 0, 0x3F << 56, 0x7F),
        (0x1000046612 | 0xF << 7, 0, 0, 0xFF0000007F, 0, 0x3F << 56, 0x7F),
        (0x1000046312, 0, 0, 0xFF0000007F, 0, 0x3F << 56 | 1 << 47, 0x7F),
        (0x1000056512, 0, 0, 0xFF0000007F, 0, 0x3F << 56, 0x7F),
    ],
    ids=["im2col", "unknown interleave", "unknown type", "stray bits", "bf16 as tf32"],
)
def test_refuses_what_it_does_not_know(parts: tuple) -> None:
    with pytest.raises(ValueError, match="tensor map"):
        decode_hardware(words(A, *parts))
