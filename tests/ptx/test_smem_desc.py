# SPDX-License-Identifier: Apache-2.0
"""Shared-memory matrix descriptors: fields, conversion, and the canonical layouts that CuTe states."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from cute_layout import CuteLayout, cute_header
from wgmma_as_umma import sm90_to_sm100

from porter.ptx.smem_desc import FIELDS_SM90, FIELDS_SM100, SWIZZLE_CODES, SmemDescriptor, element_offset, encode_offset
from porter.ptx.swizzle import SwizzleMode

SHARED_MODES = [SwizzleMode.NONE, SwizzleMode.B32, SwizzleMode.B64, SwizzleMode.B128]
# Atom widths in 16-byte units.
WIDTH = {SwizzleMode.NONE: 1, SwizzleMode.B32: 2, SwizzleMode.B64: 4, SwizzleMode.B128: 8}


def test_words_of_generated_code() -> None:
    """The constants that CuTe DSL kernels OR a K-major 128B tile's address into."""
    desc = SmemDescriptor(address=0, lbo=16, sbo=1024, swizzle=SwizzleMode.B128)
    assert desc.encode("sm_90") == 0x4000004000010000
    assert desc.encode("sm_100") == 0x4000404000010000


@pytest.mark.parametrize("mode", SHARED_MODES)
def test_conversion_equals_encoding_anew(mode: SwizzleMode) -> None:
    for address, lbo, sbo, base in itertools.product((0, 16, 0x3FFF0), (0, 16, 8192), (128, 1024), (0, 5)):
        desc = SmemDescriptor(address, lbo, sbo, mode, base)
        word = desc.encode("sm_90")
        assert sm90_to_sm100(word) == desc.encode("sm_100")
        assert SmemDescriptor.decode(word, "sm_90") == desc
        assert SmemDescriptor.decode(sm90_to_sm100(word), "sm_100") == desc


def test_bits_outside_the_window_are_dropped() -> None:
    """A peer's shared address carries its rank in bits 24 up, which a descriptor does not keep."""
    assert encode_offset((3 << 24) + 0x1230) == 0x123
    with pytest.raises(ValueError, match="16"):
        encode_offset(8)


def test_invalid_words_are_refused() -> None:
    good = SmemDescriptor(1024, 16, 1024, SwizzleMode.B128)
    with pytest.raises(ValueError, match="0b001"):
        SmemDescriptor.decode(good.encode("sm_90"), "sm_100")
    for bit in (14, 15, 30, 31, 46, 48, 52, 60, 61):
        assert SmemDescriptor.decode(good.encode("sm_90") | 1 << bit, "sm_90") == good
    for code in (3, 5, 7):
        with pytest.raises(ValueError, match=f"code {code}"):
            SmemDescriptor.decode(1 << 46 | code << 61, "sm_100")
    for bit in (14, 15, 30, 31, 53, 60):
        with pytest.raises(ValueError, match="reserved"):
            SmemDescriptor.decode(good.encode("sm_100") | 1 << bit, "sm_100")
    with pytest.raises(ValueError, match="B128_ATOM32"):
        SmemDescriptor(0, 0, 0, SwizzleMode.B128_ATOM32).encode("sm_90")
    with pytest.raises(ValueError, match="absolute"):
        SmemDescriptor(0, 0, 0, SwizzleMode.B128, lbo_absolute=True).encode("sm_90")


@pytest.mark.parametrize("mode", SHARED_MODES)
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_k_major_offsets(mode: SwizzleMode, bits: int) -> None:
    """((8,m),(T,2)):((WT,SBO),(1,T)), without swizzle ((8,m),(T,2)):((1T,SBO),(1,LBO)), in elements."""
    t, size, groups = 128 // bits, bits // 8, 8
    lbo, sbo = 4096 + 16, 1024 + 32
    canonical = CuteLayout(
        ((8, groups), (t, 2)),
        ((WIDTH[mode] * t, sbo // size), (1, lbo // size if mode is SwizzleMode.NONE else t)),
    )
    mn, k = np.arange(8 * groups)[:, None], np.arange(2 * t)[None, :]
    offset = element_offset(mn, k, element_bits=bits, mn_major=False, swizzle=mode, lbo=lbo, sbo=sbo)
    np.testing.assert_array_equal(offset, canonical(mn, k) * size)


@pytest.mark.parametrize("mode", SHARED_MODES)
@pytest.mark.parametrize("bits", [8, 16])
def test_mn_major_offsets(mode: SwizzleMode, bits: int) -> None:
    """((T,W,m),(8,k)):((1,T,LBO),(WT,SBO)), without swizzle ((T,1,m),(8,k)):((1,T,SBO),(T,LBO))."""
    t, size, spans = 128 // bits, bits // 8, 4
    width = WIDTH[mode]
    lbo, sbo = 4096 + 16, 1024 + 32
    outer, inner = (sbo, lbo) if mode is SwizzleMode.NONE else (lbo, sbo)
    canonical = CuteLayout(((t, width, spans), (8, 32 // 8)), ((1, t, outer // size), (width * t, inner // size)))
    mn, k = np.arange(t * width * spans)[:, None], np.arange(32)[None, :]
    offset = element_offset(mn, k, element_bits=bits, mn_major=True, swizzle=mode, lbo=lbo, sbo=sbo)
    np.testing.assert_array_equal(offset, canonical(mn, k) * size)


def test_mn_major_tf32_offsets() -> None:
    """128-byte spans of MN, four K to an atom: ((32,m),(4,k)):((1,LBO),(32,SBO))."""
    canonical = CuteLayout(((32, 4), (4, 2)), ((1, 512), (32, 128)))
    mn, k = np.arange(128)[:, None], np.arange(8)[None, :]
    offset = element_offset(mn, k, element_bits=32, mn_major=True, swizzle=SwizzleMode.B128_ATOM32, lbo=2048, sbo=512)
    np.testing.assert_array_equal(offset, canonical(mn, k) * 4)


def _descriptor_struct(header: str, name: str) -> dict[str, tuple[int, int]]:
    """Fields of `union <name>`: members of one declaration are separated by commas."""
    start = header.index(f"union {name}")
    body = re.search(r"struct\s*\{([^{}]*:[^{}]*)\}", header[start:])
    assert body
    position, fields = 0, {}
    for declaration in re.findall(r"uint\d+_t([^;]*);", re.sub(r"//.*", "", body[1])):
        for member in declaration.split(","):
            field, width = member.split(":")
            if field.strip():
                fields[field.strip()] = (position, int(width))
            position += int(width)
    assert position == 64
    return fields


@pytest.mark.external
def test_fields_equal_cute() -> None:
    names = {
        "start_address_": "start",
        "leading_byte_offset_": "lbo",
        "stride_byte_offset_": "sbo",
        "base_offset_": "base_offset",
        "layout_type_": "swizzle",
        "version_": "version",
        "lbo_mode_": "lbo_absolute",
    }
    for path, union, fields in (
        ("arch/mma_sm90_desc.hpp", "GmmaDescriptor", FIELDS_SM90),
        ("arch/mma_sm100_desc.hpp", "SmemDescriptor", FIELDS_SM100),
    ):
        found = _descriptor_struct(cute_header(path), union)
        for cute_name, name in names.items():
            if name in fields:
                shift, width = found[cute_name]
                assert fields[name].shift == shift, name
                # CuTe gives the version two of its three bits.
                assert fields[name].width == (3 if name == "version" else width), name


@pytest.mark.external
def test_swizzle_codes_equal_cute() -> None:
    names = {
        "INTERLEAVE": SwizzleMode.NONE,
        "SWIZZLE_NONE": SwizzleMode.NONE,
        "B128": SwizzleMode.B128,
        "B64": SwizzleMode.B64,
        "B32": SwizzleMode.B32,
        "SWIZZLE_128B_BASE32B": SwizzleMode.B128_ATOM32,
        "SWIZZLE_128B": SwizzleMode.B128,
        "SWIZZLE_64B": SwizzleMode.B64,
        "SWIZZLE_32B": SwizzleMode.B32,
    }
    for path, generation in (("arch/mma_sm90_desc.hpp", "sm_90"), ("arch/mma_sm100_desc.hpp", "sm_100")):
        body = re.search(r"enum class LayoutType[^{]*\{([^}]*)\}", cute_header(path))
        assert body
        codes = {names[name]: int(code) for name, code in re.findall(r"(\w+)\s*=\s*(\d+)", body[1])}
        assert codes == SWIZZLE_CODES[generation]
