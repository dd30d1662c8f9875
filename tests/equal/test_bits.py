# SPDX-License-Identifier: Apache-2.0
"""What instructions leave that move bits of data: the same in another way, and something else."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from written import are_equal

from porter.equal import words
from porter.equal.meanings.moving import _by_table

BITS = "mov.b32 %r10, %f0;\nmov.b32 %r11, %f1;\nmov.b32 %r12, %f2;\nmov.b32 %r13, %f3;\n"
OUT = "st.global.b32 [%d1], %r9;\n"
WIDE = "st.global.b64 [%d1], %d9;\n"
COPY = "mov.b32 %r9, %r10;\n" + OUT
ZERO = "mov.b32 %r9, 0;\n" + OUT


def made(*lines: str) -> str:
    return ";\n".join(lines) + ";\n" + (WIDE if any("%d9" in line for line in lines) else OUT)


CHOICE = "lop3.b32 %r9, %r10, %r11, %r12, 0xCA"
SAME = {
    "lop3, and": (made("lop3.b32 %r9, %r10, %r11, %r12, 0xC0"), made("and.b32 %r9, %r10, %r11")),
    "lop3, or of three": (
        made("lop3.b32 %r9, %r10, %r11, %r12, 0xFE"),
        made("or.b32 %r9, %r10, %r11", "or.b32 %r9, %r9, %r12"),
    ),
    "lop3, and then xor": (
        made("lop3.b32 %r9, %r10, %r11, %r12, 0x6A"),
        made("and.b32 %r9, %r10, %r11", "xor.b32 %r9, %r9, %r12"),
    ),
    "lop3, or then and": (
        made("lop3.b32 %r9, %r10, %r11, %r12, 0xA8"),
        made("or.b32 %r9, %r10, %r11", "and.b32 %r9, %r9, %r12"),
    ),
    "lop3, and not": (
        made("lop3.b32 %r9, %r10, %r11, %r12, 0x30"),
        made("not.b32 %r9, %r11", "and.b32 %r9, %r9, %r10"),
    ),
    "lop3, a mask of bytes": (
        made("mov.b32 %r14, 0xFFFF", "lop3.b32 %r9, %r14, %r10, %r11, 0xCA"),
        made("prmt.b32 %r9, %r10, %r11, 0x7610"),
    ),
    "lop3, one alone": (made("lop3.b32 %r9, %r11, %r10, %r12, 0xCC"), COPY),
    "lop3, nothing": (made("lop3.b32 %r9, %r11, %r10, %r12, 0"), ZERO),
    "lop3, operands that are the same": (made("lop3.b32 %r9, %r10, %r10, %r10, 0x80"), COPY),
    "lop3, as written again": (made(CHOICE), made("lop3.b32 %r9, %r10, %r12, %r11, 0xAC")),
    "lop3 with a predicate": (
        made("setp.ne.b32 %p2, %r12, 0", "lop3.or.b32 %r9|%p1, %r10, %r11, %r12, 0xC0, %p2", "selp.b32 %r9, 1, 2, %p1"),
        made(
            "setp.ne.b32 %p2, %r12, 0",
            "and.b32 %r9, %r11, %r10",
            "setp.ne.or.b32 %p1, %r9, 0, %p2",
            "selp.b32 %r9, 1, 2, %p1",
        ),
    ),
    "what is inverted twice": (made("not.b32 %r9, %r10", "xor.b32 %r9, %r9, -1"), COPY),
    "what excludes itself": (made("not.b32 %r9, %r10", "and.b32 %r9, %r9, %r10"), ZERO),
    "prmt, a sign": (made("prmt.b32 %r9, %r10, 0, 0xBBB3"), made("shr.s32 %r9, %r10, 24")),
    "prmt, a half": (made("prmt.b32 %r9, %r10, 0, 0x4432"), made("shr.u32 %r9, %r10, 16")),
    "prmt, of two": (
        made("prmt.b32 %r9, %r10, %r11, 0x5410"),
        made("shl.b32 %r9, %r11, 16", "and.b32 %r14, %r10, 0xFFFF", "or.b32 %r9, %r9, %r14"),
    ),
    "bfe": (made("bfe.u32 %r9, %r10, 8, 16"), made("shr.u32 %r9, %r10, 8", "and.b32 %r9, %r9, 0xFFFF")),
    "bfe, a sign": (made("bfe.s32 %r9, %r10, 8, 8"), made("shl.b32 %r9, %r10, 16", "shr.s32 %r9, %r9, 24")),
    "bfe, a sign by cvt": (made("bfe.s32 %r9, %r10, 0, 8"), made("cvt.s32.s8 %r9, %r10")),
    "bfe, all": (made("bfe.u32 %r9, %r10, 0, 32"), COPY),
    "bfi": (made("bfi.b32 %r9, %r10, %r11, 8, 8"), made("prmt.b32 %r9, %r10, %r11, 0x7604")),
    "bfi, nothing": (made("bfi.b32 %r9, %r11, %r10, 8, 0"), COPY),
    "shf to the left": (made("shf.l.wrap.b32 %r9, %r10, %r11, 8"), made("prmt.b32 %r9, %r10, %r11, 0x6543")),
    "shf to the right": (made("shf.r.wrap.b32 %r9, %r10, %r11, 24"), made("prmt.b32 %r9, %r10, %r11, 0x6543")),
    "shf, clamped": (made("shf.r.clamp.b32 %r9, %r11, %r10, 40"), COPY),
    "cvt with a sign": (
        made("cvt.s64.s32 %d9, %r10"),
        made("prmt.b32 %r9, %r10, 0, 0xBBBB", "mov.b64 %d9, {%r10, %r9}"),
    ),
    "cvt of a small one": (made("cvt.s32.s16 %r9, %r10"), made("prmt.b32 %r9, %r10, 0, 0x9910")),
    "two comparisons": (
        made("setp.lt.f16x2 %p1|%p2, %r10, %r11", "selp.b32 %r9, 1, 2, %p2"),
        made(
            "mov.b32 {%h0, %h1}, %r10",
            "mov.b32 {%h2, %h3}, %r11",
            "setp.gt.f16 %p3, %h3, %h1",
            "selp.b32 %r9, 1, 2, %p3",
        ),
    ),
    "dp4a": (
        made("dp4a.u32.u32 %r9, %r10, %r11, %r12"),
        made("mov.b32 %r14, %r11", "dp4a.u32.u32 %r9, %r10, %r14, %r12"),
    ),
    "szext": (made("szext.wrap.s32 %r9, %r10, %r11"), made("mov.b32 %r14, %r10", "szext.wrap.s32 %r9, %r14, %r11")),
}
SUM = ("add.cc.u32 %r14, %r10, %r11", "addc.u32 %r9, %r12, %r13")
SAME |= {
    "a sum with a carry": (made(*SUM), made("mov.b32 %r15, %r12", SUM[0], "addc.u32 %r9, %r15, %r13")),
    "the lower half of a sum": (made(SUM[0], "mov.b32 %r9, %r14"), made("add.u32 %r9, %r11, %r10")),
    "a sum that leaves one as well": (made(*SUM), made(SUM[0], SUM[1].replace("addc", "addc.cc"))),
    "elements of four bits": (
        made("cvt.rn.satfinite.e2m1x2.f32 %c0, %f0, %f1", "cvt.u32.u8 %r9, %c0"),
        made("mov.b32 %f5, %r11", "cvt.rn.satfinite.e2m1x2.f32 %c0, %f0, %f5", "cvt.u32.u8 %r9, %c0"),
    ),
    "elements of eight bits": (
        made("cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1", "mov.b32 %r9, {%h0, %h0}", "and.b32 %r9, %r9, 0xFF"),
        made("cvt.rn.satfinite.e4m3x2.f32 %h0, %f2, %f1", "mov.b32 %r9, {%h0, %h0}", "and.b32 %r9, %r9, 0xFF"),
    ),
}
OTHER = {
    "the carry of other numbers": (made(*SUM), made(SUM[0].replace("%r11", "%r12"), SUM[1])),
    "no carry": (made(*SUM), made(SUM[0], "add.u32 %r9, %r12, %r13")),
    "the carry of numbers": (
        made("mov.b32 %r14, -1", "add.cc.u32 %r14, %r14, 1", SUM[1]),
        made("mov.b32 %r14, 1", "add.cc.u32 %r14, %r14, 1", SUM[1]),
    ),
    "the carry of a difference": (made(*SUM), made(SUM[0].replace("add.", "sub."), SUM[1])),
    "the carry that a carry has left": (
        made(*SUM, "addc.u32 %r9, %r9, 0"),
        made(SUM[0], SUM[1].replace("addc", "addc.cc"), "addc.u32 %r9, %r9, 0"),
    ),
    "elements of four bits": (
        made("cvt.rn.satfinite.e2m1x2.f32 %c0, %f0, %f1", "cvt.u32.u8 %r9, %c0"),
        made("cvt.rn.satfinite.e2m1x2.f32 %c0, %f1, %f0", "cvt.u32.u8 %r9, %c0"),
    ),
    "elements of eight bits": (
        made("cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1", "mov.b32 %r9, {%h0, %h0}"),
        made("cvt.rn.satfinite.e4m3x2.f32 %h0, %f2, %f1", "mov.b32 %r9, {%h0, %h0}"),
    ),
    "lop3, another table": (made(CHOICE), made(CHOICE.replace("CA", "CB"))),
    "lop3, other operands": (made(CHOICE), made("lop3.b32 %r9, %r10, %r12, %r11, 0xCA")),
    "lop3, and and or": (made("lop3.b32 %r9, %r10, %r11, %r12, 0xC0"), made("lop3.b32 %r9, %r10, %r11, %r12, 0xFC")),
    "lop3, another mask": (
        made("mov.b32 %r14, 0xFFFF", "lop3.b32 %r9, %r14, %r10, %r11, 0xCA"),
        made("mov.b32 %r14, 0xFFFE", "lop3.b32 %r9, %r14, %r10, %r11, 0xCA"),
    ),
    "lop3 with a predicate": (
        made("setp.ne.b32 %p2, %r12, 0", "lop3.or.b32 %r9|%p1, %r10, %r11, %r12, 0xC0, %p2", "selp.b32 %r9, 1, 2, %p1"),
        made("setp.ne.b32 %p2, %r12, 0", "lop3.or.b32 %r9|%p1, %r10, %r11, %r12, 0xFC, %p2", "selp.b32 %r9, 1, 2, %p1"),
    ),
    "lop3 with a predicate, or and and": (
        made("setp.ne.b32 %p2, %r12, 0", "lop3.or.b32 %r9|%p1, %r10, %r11, %r12, 0xC0, %p2", "selp.b32 %r9, 1, 2, %p1"),
        made(
            "setp.ne.b32 %p2, %r12, 0", "lop3.and.b32 %r9|%p1, %r10, %r11, %r12, 0xC0, %p2", "selp.b32 %r9, 1, 2, %p1"
        ),
    ),
    "prmt, another byte": (made("prmt.b32 %r9, %r10, %r11, 0x5410"), made("prmt.b32 %r9, %r10, %r11, 0x5411")),
    "prmt, a byte and its sign": (made("prmt.b32 %r9, %r10, 0, 0x3210"), made("prmt.b32 %r9, %r10, 0, 0xB210")),
    "prmt, another mode": (made("prmt.b32.f4e %r9, %r10, %r11, 1"), made("prmt.b32.b4e %r9, %r10, %r11, 1")),
    "bfe with and without a sign": (made("bfe.u32 %r9, %r10, 8, 8"), made("bfe.s32 %r9, %r10, 8, 8")),
    "bfe, another place": (made("bfe.u32 %r9, %r10, 8, 8"), made("bfe.u32 %r9, %r10, 16, 8")),
    "bfe, part of a byte": (made("bfe.u32 %r9, %r10, 8, 8"), made("bfe.u32 %r9, %r10, 8, 7")),
    "bfe, places that are data": (made("bfe.u32 %r9, %r10, %r11, 8"), made("bfe.u32 %r9, %r10, %r12, 8")),
    "bfi, another place": (made("bfi.b32 %r9, %r10, %r11, 8, 8"), made("bfi.b32 %r9, %r10, %r11, 16, 8")),
    "bfi, the other way": (made("bfi.b32 %r9, %r10, %r11, 8, 8"), made("bfi.b32 %r9, %r11, %r10, 8, 8")),
    "shf, another count": (made("shf.l.wrap.b32 %r9, %r10, %r11, 8"), made("shf.l.wrap.b32 %r9, %r10, %r11, 16")),
    "shf, the other way": (made("shf.l.wrap.b32 %r9, %r10, %r11, 8"), made("shf.r.wrap.b32 %r9, %r10, %r11, 8")),
    "shr with a sign": (made("shr.u32 %r9, %r10, 8"), made("shr.s32 %r9, %r10, 8")),
    "shl by bits": (made("shl.b32 %r9, %r10, 8"), made("shl.b32 %r9, %r10, 9")),
    "cvt without a sign": (made("cvt.s64.s32 %d9, %r10"), made("cvt.u64.u32 %d9, %r10")),
    "cvt, what stands above a small one": (
        made("cvt.s8.s32 %r9, %r10"),
        made("cvt.s8.s32 %r9, %r10", "and.b32 %r9, %r9, 0xFF"),
    ),
    "two comparisons, of other halves": (
        made("setp.lt.f16x2 %p1|%p2, %r10, %r11", "selp.b32 %r9, 1, 2, %p2"),
        made("setp.lt.f16x2 %p1|%p2, %r10, %r11", "selp.b32 %r9, 1, 2, %p1"),
    ),
    "dp4a with a sign": (made("dp4a.u32.u32 %r9, %r10, %r11, %r12"), made("dp4a.s32.u32 %r9, %r10, %r11, %r12")),
    "dp2a, the other half": (
        made("dp2a.lo.u32.u32 %r9, %r10, %r11, %r12"),
        made("dp2a.hi.u32.u32 %r9, %r10, %r11, %r12"),
    ),
    "szext, clamped": (made("szext.wrap.s32 %r9, %r10, %r11"), made("szext.clamp.s32 %r9, %r10, %r11")),
}


@pytest.mark.parametrize("name", SAME)
def test_bits_that_are_the_same(name: str) -> None:
    assert are_equal(*(BITS + body for body in SAME[name]))


@pytest.mark.parametrize("name", OTHER)
def test_bits_that_are_something_else(name: str) -> None:
    assert not are_equal(*(BITS + body for body in OTHER[name]))


def test_every_table_of_three_bits() -> None:
    """With numbers, and as many words as there are functions of three bits."""
    numbers = [np.array([[value]], np.uint64) for value in (0b11110000, 0b11001100, 0b10101010)]
    data = [words.mixed(words.word(name), np.zeros((1, 1), np.uint64)) for name in "abc"]
    seen = set()
    for table in range(256):
        assert int(np.broadcast_to(_by_table(table, numbers), (1, 1))[0, 0]) == table
        seen.add(int(np.broadcast_to(_by_table(table, data), (1, 1))[0, 0]))
    assert len(seen) == 256
    for bits, table in product(product((0, 255), repeat=2), (0x1B, 0x6A, 0xCA, 0xE8, 0x96)):
        held = [np.array([[bit]], np.uint64) for bit in bits]
        found = np.broadcast_to(_by_table(table, [*held, data[2]]), (1, 1))
        of_two = sum((table >> (4 * (bits[0] & 1) + 2 * (bits[1] & 1)) + row & 1) << row for row in (0, 1))
        assert (found == np.broadcast_to(_by_table(of_two, [data[2]]), (1, 1))).all()
