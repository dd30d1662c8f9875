# SPDX-License-Identifier: Apache-2.0
"""Instruction descriptors of the block-scaled kinds of tcgen05.mma."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from cute_layout import cute_header

from porter.ptx.block_scale import ScaleType
from porter.ptx.idesc_scaled import SCALED_FIELDS, ScaledDescriptor
from porter.ptx.types import ElementType as T
from porter.ptx.umma import Kind

NVFP4 = ScaledDescriptor(Kind.MXF4NVF4, 128, 8, T.F32, T.E2M1, T.E2M1, scale_type=ScaleType.UE4M3)


def test_worked_values() -> None:
    """A dense and a sparse NVFP4 tile of 128 by 8, as sf-tensor/tcgen05 encodes them for its B200 runs."""
    assert NVFP4.encode() == 1 << 7 | 1 << 10 | 1 << 17 | 1 << 27
    assert replace(NVFP4, sparse=True).encode() == 1 << 2 | 1 << 7 | 1 << 10 | 1 << 17 | 1 << 27


def test_round_trip_and_position_of_every_field() -> None:
    narrow = {T.E4M3: 0, T.E5M2: 1, T.E2M3: 3, T.E3M2: 4, T.E2M1: 5}
    kinds = {Kind.MXF8F6F4: narrow, Kind.MXF4: {T.E2M1: 1}, Kind.MXF4NVF4: {T.E2M1: 1}}
    flags = list(itertools.product((False, True), repeat=4))
    for kind, types in kinds.items():
        for (a, b), m, n, bits, (scale, code), ids in itertools.product(
            itertools.product(types, types), (128, 256), (8, 256), flags,
            ((ScaleType.UE4M3, 0), (ScaleType.UE8M0, 1)), ((0, 0), (1, 2), (3, 3)),
        ):  # fmt: skip
            idesc = ScaledDescriptor(
                kind, m, n, T.F32, a, b, *bits, scale_type=scale, a_scale_id=ids[0], b_scale_id=ids[1]
            )
            want = types[a] << 7 | types[b] << 10 | n // 8 << 17 | m // 128 << 27 | code << 23
            want |= ids[0] << 29 | ids[1] << 4
            for flag, position in zip(bits, (13, 14, 15, 16), strict=True):
                want |= flag << position
            assert idesc.encode() == want
            assert ScaledDescriptor.decode(want, kind) == idesc


def test_bits_that_count_for_nothing_and_reserved_ones() -> None:
    word = NVFP4.encode()
    assert ScaledDescriptor.decode(word | 1 << 12 | 0b11, Kind.MXF4NVF4) == NVFP4
    assert ScaledDescriptor.decode(word | 1 << 31, Kind.MXF4).k96
    for bit in (3, 6):
        with pytest.raises(ValueError, match="reserved"):
            ScaledDescriptor.decode(word | 1 << bit, Kind.MXF4NVF4)
    with pytest.raises(ValueError, match="a_type code 0"):
        ScaledDescriptor.decode(word & ~(7 << 7), Kind.MXF4)
    with pytest.raises(ValueError, match="no block-scaled"):
        ScaledDescriptor.decode(word, Kind.F16)
    with pytest.raises(ValueError, match="no B type"):
        replace(NVFP4, b_type=T.E4M3).encode()
    with pytest.raises(ValueError, match="cannot be encoded"):
        replace(NVFP4, n=100).encode()


@pytest.mark.external
def test_fields_equal_cute() -> None:
    text = cute_header("arch/mma_sm100_desc.hpp")
    struct = text[text.index("union InstrDescriptorBlockScaled") :]
    found = {
        match[1]: (int(match[3]), int(match[2]))
        for match in re.finditer(r"(\w+)_\s*:\s*(\d+)\s*[,;]\s*//\s*bit \[\s*(\d+),", struct)
    }
    names = {
        "sparse": "sparse_flag", "b_scale_id": "b_sf_id", "a_type": "a_format", "b_type": "b_format",
        "negate_a": "a_negate", "negate_b": "b_negate", "a_major": "a_major", "b_major": "b_major", "n": "n_dim",
        "scale_type": "scale_format", "m": "m_dim", "a_scale_id": "a_sf_id", "k96": "k_size",
    }  # fmt: skip
    for name, field in SCALED_FIELDS.items():
        assert found[names[name]] == (field.shift, field.width), name
