# SPDX-License-Identifier: Apache-2.0
"""What copies of tensors bring, in all modes: the same as loads do, and something else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from written import INPUT, MAPS, left

from porter.equal.outcome import difference
from porter.ptx.tensormap import TensorMap, TensorMapSwizzle, TensorMapType

F32 = TensorMapType.FLOAT32
TILE = TensorMap(F32, INPUT, (16, 8), (64,), (16, 8))
"""Rows of 64 bytes, of which each lane of the kernel has loaded a fourth."""
ROWS = replace(TILE, box=(16, 1))
NAN = replace(TILE, oob_nan=True)
PIXELS = TensorMap(F32, INPUT, (4, 8, 4), (16, 128), (4, 8), lower=(0,), upper=(-2,))
"""Four images of eight pixels of 16 bytes; a filter of three."""
PADDED = TensorMap(TensorMapType.U4_ALIGN16B, INPUT, (128, 8), (64,), (128, 4))
MAPPED = (TILE, ROWS, NAN, PIXELS, PADDED, replace(TILE, swizzle=TensorMapSwizzle.B64))
BEGIN = (
    "mov.u32 %r5, room;\nmov.u32 %r8, room;\nadd.u32 %r8, %r8, 8192;\nsetp.eq.u32 %p1, %r0, 0;\n"
    "@%p1 mbarrier.init.shared.b64 [%r8], 1;\nbar.sync 0;\nshl.b32 %r6, %r0, 4;\nadd.u32 %r6, %r5, %r6;\n"
)
OUT = "st.global.v4.f32 [%d1], {%f4, %f5, %f6, %f7};\n"
GIVEN = OUT.replace("%f4, %f5, %f6, %f7", "%f0, %f1, %f2, %f3")
FOUND = "bar.sync 0;\nld.shared.v4.f32 {%f4, %f5, %f6, %f7}, [%r6];\n" + OUT
EIGHT_BYTES = "st.global.v2.f32 [%d1], {%f4, %f5};\n"


def copied(number: int, *coords: int, mode: str = "tile", offsets: str = "") -> str:
    place = ", ".join(map(str, coords))
    dimensions = {"im2col": 3}.get(mode, 2)
    return (
        f"mov.u64 %d10, {MAPS + 128 * number};\n"
        f"@%p1 cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes "
        f"[%r5], [%d10, {{{place}}}], [%r8]{offsets};\n"
    )


def where(lanes: int, value: str) -> str:
    """Four values from here on, and in lanes from `lanes` on another one."""
    loaded = "ld.global.v4.f32 {%f4, %f5, %f6, %f7}, [%d0+256];\n"
    return (
        loaded + f"setp.ge.u32 %p2, %r0, {lanes};\n" + "".join(f"@%p2 mov.b32 %f{i}, {value};\n" for i in range(4, 8))
    )


FROM_PIXEL = (
    "setp.ge.u32 %p2, %r0, 6;\nadd.u32 %r7, %r0, 1;\n@%p2 add.u32 %r7, %r7, 2;\nmul.wide.u32 %d5, %r7, 16;\n"
    "ld.param.u64 %d6, [input];\nadd.s64 %d5, %d6, %d5;\nsetp.lt.u32 %p3, %r0, 8;\n"
    "ld.global.v4.f32 {%f4, %f5, %f6, %f7}, [%d5];\n@%p3 " + OUT
)
OF_PIXELS = FOUND.replace("st.global", "setp.lt.u32 %p3, %r0, 8;\n@%p3 st.global")
PACKED = (
    "ld.param.u64 %d6, [input];\nmul.wide.u32 %d5, %r0, 8;\nadd.s64 %d5, %d6, %d5;\n"
    "ld.global.v2.f32 {%f4, %f5}, [%d5];\n" + EIGHT_BYTES
)
UNPACKED = "bar.sync 0;\nld.shared.v2.f32 {%f4, %f5}, [%r6];\n" + EIGHT_BYTES
FOURTH = (
    "ld.param.u64 %d6, [input];\nshr.u32 %r7, %r0, 2;\nsub.u32 %r7, 3, %r7;\nand.b32 %r9, %r0, 3;\n"
    "shl.b32 %r7, %r7, 2;\nadd.u32 %r7, %r7, %r9;\nmul.wide.u32 %d5, %r7, 16;\nadd.s64 %d5, %d6, %d5;\n"
    "setp.lt.u32 %p3, %r0, 16;\n@%p3 ld.global.v4.f32 {%f4, %f5, %f6, %f7}, [%d5];\n@%p3 " + OUT
)
OF_ROWS = FOUND.replace("st.global", "setp.lt.u32 %p3, %r0, 16;\n@%p3 st.global")
GATHER = "tile::gather4"
SAME = {
    "a tile": (copied(0, 0, 0) + FOUND, GIVEN),
    "a tile with zeros behind it": (copied(0, 0, 4) + FOUND, where(16, "0") + OUT),
    "a tile with NaN behind it": (copied(2, 0, 4) + FOUND, where(16, "0x7FFFFFFF") + OUT),
    "rows in another order": (copied(1, 0, 3, 2, 1, 0, mode=GATHER) + OF_ROWS, FOURTH),
    "pixels": (copied(3, 0, 0, 0, mode="im2col", offsets=", {1}") + OF_PIXELS, FROM_PIXEL),
    "packed elements": (copied(4, 0, 0) + UNPACKED, PACKED),
    "packed rows from the second on": (
        copied(4, 0, 1) + UNPACKED,
        PACKED.replace("[%d5]", "[%d5+64]"),
    ),
}
OTHER = {
    "another place": (copied(0, 0, 0) + FOUND, copied(0, 4, 0) + FOUND),
    "zeros and NaN": (copied(0, 0, 4) + FOUND, copied(2, 0, 4) + FOUND),
    "another row": (copied(1, 0, 3, 2, 1, 0, mode=GATHER) + OF_ROWS, copied(1, 0, 3, 2, 0, 1, mode=GATHER) + OF_ROWS),
    "another offset": (
        copied(3, 0, 0, 0, mode="im2col", offsets=", {1}") + OF_PIXELS,
        copied(3, 0, 0, 0, mode="im2col", offsets=", {2}") + OF_PIXELS,
    ),
    "another image": (
        copied(3, 0, 0, 0, mode="im2col", offsets=", {1}") + OF_PIXELS,
        copied(3, 0, 0, 1, mode="im2col", offsets=", {1}") + OF_PIXELS,
    ),
    "padding and zeros": (
        copied(4, 0, 0) + UNPACKED.replace("[%r6]", "[%r6+8]"),
        "mov.b32 %f4, 0;\nmov.b32 %f5, 0;\n" + EIGHT_BYTES,
    ),
    "another swizzle": (copied(0, 0, 0) + FOUND, copied(5, 0, 0) + FOUND),
}


def are_equal(one: str, other: str) -> bool:
    first, second = (left(BEGIN + body, maps=MAPPED) for body in (one, other))
    return difference(first, second) is None


@pytest.mark.parametrize("name", SAME)
def test_copies_that_bring_the_same(name: str) -> None:
    assert are_equal(*SAME[name])


@pytest.mark.parametrize("name", OTHER)
def test_copies_that_bring_something_else(name: str) -> None:
    assert not are_equal(*OTHER[name])
