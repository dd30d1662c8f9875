# SPDX-License-Identifier: Apache-2.0
"""Recorded words of tcgen05.mma beyond random ones: integers, subnormals, NaN and infinity.

Recorded on a B200 by sf-tensor/tcgen05 (MIT, tcgen05_model/validation.py), which says how inputs are drawn. Each
goes through a whole instruction: the first element of D of an M=64 tile whose rows and columns are all alike.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from test_datapath_wgmma import place
from umma_calls import empty_tmem, issue, padded, umma
from wgmma_as_umma import sm90_to_sm100

from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.types import ElementType as T
from porter.ptx.umma import Kind

KINDS = {T.TF32: Kind.TF32, T.BF16: Kind.F16, T.F16: Kind.F16, T.S8: Kind.I8, T.U8: Kind.I8}


def run(a_type: T, b_type: T, d_type: T, a: list[int], b: list[int], c: int, *, saturate: bool = False) -> int:
    """D of one dot product; elements as their bits."""
    kind = KINDS.get(a_type, Kind.F8F6F4)
    smem, memory = np.zeros(1 << 13, np.uint8), empty_tmem()
    descriptors = []
    for start, codes, element, rows in ((0, a, a_type, 64), (4096, b, b_type, 8)):
        tile = np.broadcast_to(np.array(codes, f"u{element.bits // 8}"), (rows, len(codes)))
        if element in (T.E2M1, T.E2M3, T.E3M2):
            tile = padded(tile, element)
        desc = place(smem, start, np.ascontiguousarray(tile), SwizzleMode.B32, False)
        descriptors.append(sm90_to_sm100(desc.encode("sm_90")))
    memory[:, :8] = c
    idesc = InstructionDescriptor(kind, 64, 8, d_type, a_type, b_type, saturate=saturate).encode()
    issue(
        umma(f"cta_group::1.kind::{kind}"), idesc, smem=[smem], tmem=[memory], d_addr=0, a_desc=descriptors[0],
        b_desc=descriptors[1], enable_d=True, mode="exact",
    )  # fmt: skip
    found = memory[np.arange(64) // 16 * 32 + np.arange(64) % 16, :8]
    assert (found == found[0, 0]).all()
    return int(found[0, 0]) & (0xFFFF if d_type is T.F16 else 0xFFFFFFFF)


@pytest.mark.parametrize(("a_type", "b_type", "saturate", "seed", "word"), [
    (T.U8, T.U8, False, 500, 0x078A5C64), (T.S8, T.U8, False, 501, 0xF66E2FA6),
    (T.U8, T.S8, False, 502, 0xD73F1A46), (T.S8, T.S8, True, 503, 0x8063D12F),
    (T.S8, T.S8, False, 504, 0xA4679E93), (T.U8, T.U8, True, 505, 0x55DB8BB8),
    (T.S8, T.U8, True, 506, 0xB47F6330), (T.U8, T.S8, True, 507, 0x8533C14D),
])  # fmt: skip
def test_integers(a_type: T, b_type: T, saturate: bool, seed: int, word: int) -> None:
    rng = random.Random(seed)
    a, b = ([rng.randrange(256) for _ in range(32)] for _ in range(2))
    c = rng.getrandbits(32)
    c = c & 0x807FFFFF if c & 0x7F800000 == 0x7F800000 else c
    assert run(a_type, b_type, T.S32, a, b, c, saturate=saturate) == word


# K, one, the least subnormal and one times it as f32, NaN, infinity.
SPECIAL = {
    T.TF32: (8, 0x3F800000, 0x00002000, 0x00002000, 0x7FC00000, 0x7F800000),
    T.BF16: (16, 0x3F80, 0x0001, 0x00010000, 0x7FC0, 0x7F80),
    T.F16: (16, 0x3C00, 0x0001, 0x33800000, 0x7E00, 0x7C00),
    T.E4M3: (32, 0x38, 0x01, 0x3B000000, 0x7F, None),
    T.E5M2: (32, 0x3C, 0x01, 0x37800000, 0x7F, 0x7C),
}


@pytest.mark.parametrize("element", SPECIAL)
def test_special_values(element: T) -> None:
    k, one, least, product, nan, infinity = SPECIAL[element]

    def first(a: int, b: int, c: int = 0) -> int:
        return run(element, element, T.F32, [a] + [0] * (k - 1), [b] + [0] * (k - 1), c)

    assert first(0, 0, 0x80000000) == 0
    assert first(least, one) == product
    assert first(nan, one) == 0x7FFFFFFF
    if infinity is not None:
        assert first(infinity, one) == 0x7F800000
        assert first(infinity, 0) == 0x7FFFFFFF


def test_a_nan_in_bits_that_are_cut_off_is_an_infinity() -> None:
    assert run(T.TF32, T.TF32, T.F32, [0x7F800001] + [0] * 7, [0x3F800000] + [0] * 7, 0) == 0x7F800000


def test_nan_of_an_f16_accumulator() -> None:
    assert run(T.E2M1, T.E4M3, T.F16, [1] * 32, [0x7F] + [0] * 31, 0) == 0x7FFF
    assert run(T.E2M1, T.E4M3, T.F16, [0] * 32, [0] * 32, 0x7E00) == 0x7FFF
