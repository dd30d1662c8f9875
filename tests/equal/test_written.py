# SPDX-License-Identifier: Apache-2.0
"""What small kernels leave: the same, made in another way, and something else."""

from __future__ import annotations

import numpy as np
import pytest
from written import are_equal, left

from porter.equal import words
from porter.equal.meanings import computing
from porter.equal.outcome import together
from porter.facts.events import NotUnderstood

OUT = "st.global.f32 [%d1], %f4;\n"
HALVES = "cvt.rn.bf16x2.f32 %r2, %f1, %f0;\nst.global.b32 [%d1], %r2;\n"
SHARED = (
    "mov.u32 %r5, room;\nshl.b32 %r6, %r0, 2;\nadd.u32 %r5, %r5, %r6;\nst.shared.f32 [%r5], %f0;\nbar.warp.sync -1;\n"
)
ROW = "mov.u32 %r7, room;\nxor.b32 %r8, %r0, {};\nshl.b32 %r8, %r8, 2;\nadd.u32 %r7, %r7, %r8;\n"
READ = SHARED + ROW + "ld.shared.f32 %f4, [%r7];\n" + OUT
BRANCH = "setp.lt.f32 %p1, %f0, %f1;\n@%p1 bra ON;\nmov.f32 %f4, %f2;\nbra MEET;\nON:\nmov.f32 %f4, %f3;\nMEET:\n" + OUT
LESS = "setp.lt.f32 %p1, %f0, %f1;\n"
ALL_LANES = LESS + "vote.sync.any.pred %p1, %p1, -1;\n"
LOCAL = "mov.b64 %d4, own;\nst.local.f32 [%d4+8], %f0;\nld.local.f32 %f4, [%d4+{}];\n" + OUT
EXTREME = "max.f32 %f4, %f{0}, %f{1};\nmax.f32 %f4, %f4, %f{2};\n" + OUT
REDUCED = "red.global.add.f32 [%d1], %f{};\n"
COUNTED = "mov.b32 %r2, %f{};\nred.global.add.u32 [%d1], %r2;\n"
# each pair of lanes adds to one place
PAIRED = "and.b32 %r7, %r0, 1;\nshl.b32 %r7, %r7, 4;\ncvt.u64.u32 %d5, %r7;\nsub.s64 %d1, %d1, %d5;\n" + REDUCED
SWAPPED = "shfl.sync.bfly.b32 %f5, %f0, 1, 31, -1;\n" + PAIRED.format(5)
SMALL = "ld.global.{} %r2, [%d0+3];\nst.global.b32 [%d1], %r2;\n"
MATCHED = (
    "mov.b32 %r2, %f0;\nmov.b32 %r3, %f1;\nmov.b32 %r4, %f2;\nmov.b64 %d4, {{%r2, {}}};\n"
    "match.any.sync.b64 %r5, %d4, -1;\nst.global.b32 [%d1], %r5;\n"
)

SAME = {
    "operands that commute": ("add.f32 %f4, %f0, %f1;\n" + OUT, "add.f32 %f4, %f1, %f0;\n" + OUT),
    "a product and a sum": ("fma.rn.f32 %f4, %f0, %f1, %f2;\n" + OUT, "fma.rn.f32 %f4, %f1, %f0, %f2;\n" + OUT),
    "the greatest, in any order": (EXTREME.format(0, 1, 2), EXTREME.format(2, 0, 1)),
    "the greatest of three": (EXTREME.format(0, 1, 2), "max.f32 %f4, %f0, %f1, %f2;\n" + OUT),
    "a comparison turned round": (
        "setp.lt.f32 %p1, %f0, %f1;\nselp.f32 %f4, %f2, %f3, %p1;\n" + OUT,
        "setp.gt.f32 %p1, %f1, %f0;\nselp.f32 %f4, %f2, %f3, %p1;\n" + OUT,
    ),
    "its opposite": (
        "setp.lt.f32 %p1, %f0, %f1;\nselp.f32 %f4, %f2, %f3, %p1;\n" + OUT,
        "setp.geu.f32 %p1, %f0, %f1;\nselp.f32 %f4, %f3, %f2, %p1;\n" + OUT,
    ),
    "a branch and a choice": (BRANCH, "setp.lt.f32 %p1, %f0, %f1;\nselp.f32 %f4, %f3, %f2, %p1;\n" + OUT),
    "more than a number": (
        "mov.b32 %r2, %f0;\nsetp.gt.u32 %p1, %r2, 7;\nselp.f32 %f4, %f2, %f3, %p1;\n" + OUT,
        "mov.b32 %r2, %f0;\nsetp.lt.u32 %p1, %r2, 8;\nselp.f32 %f4, %f3, %f2, %p1;\n" + OUT,
    ),
    "two halves and a pair": (
        HALVES,
        "cvt.rn.bf16.f32 %h0, %f0;\ncvt.rn.bf16.f32 %h1, %f1;\nmov.b32 %r2, {%h0, %h1};\nst.global.b32 [%d1], %r2;\n",
    ),
    "one put above the other": (
        HALVES,
        "cvt.rn.bf16.f32 %h0, %f0;\ncvt.rn.bf16.f32 %h1, %f1;\ncvt.u32.u16 %r2, %h0;\ncvt.u32.u16 %r3, %h1;\n"
        "mul.wide.u32 %d4, %r3, 65536;\ncvt.u64.u32 %d5, %r2;\nor.b64 %d4, %d4, %d5;\nst.global.b32 [%d1], %d4;\n",
    ),
    "one added above the other": (
        HALVES,
        "cvt.rn.bf16.f32 %h0, %f0;\ncvt.rn.bf16.f32 %h1, %f1;\ncvt.u32.u16 %r2, %h0;\ncvt.u32.u16 %r3, %h1;\n"
        "mad.lo.s32 %r2, 65536, %r3, %r2;\nst.global.b32 [%d1], %r2;\n",
    ),
    "stored one by one": (
        "st.global.v2.f32 [%d1], {%f0, %f1};\n", "st.global.f32 [%d1+4], %f1;\nst.global.f32 [%d1], %f0;\n",
    ),
    "bytes put in order": (HALVES, "cvt.rn.bf16x2.f32 %r3, %f0, %f1;\nprmt.b32 %r2, %r3, 0, 0x1032;\n"
                                   "st.global.b32 [%d1], %r2;\n"),
    "by way of shared memory and by shuffles": (
        READ.format(1), "shfl.sync.bfly.b32 %f4, %f0, 1, 31, -1;\n" + OUT,
    ),
    "by way of local memory": (LOCAL.format(8), "mov.f32 %f4, %f0;\n" + OUT),
    "a reduction behind a branch": (
        LESS + "@!%p1 bra ON;\n" + REDUCED.format(0) + "ON:\n", LESS + "@%p1 " + REDUCED.format(0),
    ),
    "a shuffle behind a branch of all lanes": (
        ALL_LANES + BRANCH.replace("mov.f32 %f4, %f2", "shfl.sync.bfly.b32 %f4, %f2, 1, 31, -1").replace(LESS, ""),
        ALL_LANES + "shfl.sync.bfly.b32 %f4, %f2, 1, 31, -1;\nselp.f32 %f4, %f3, %f4, %p1;\n" + OUT,
    ),
    "a parameter behind a branch": (
        BRANCH.replace("mov.f32 %f4, %f2;", "ld.param.f32 %f4, [n];"), BRANCH.replace("%f4, %f2;", "%f4, 0f00000004;"),
    ),
    "what is overwritten": (OUT.replace("%f4", "%f0"), OUT.replace("%f4", "%f1") + OUT.replace("%f4", "%f0")),
    "what is read back": (
        OUT.replace("%f4", "%f0"), OUT.replace("%f4", "%f0") + "ld.global.f32 %f5, [%d1];\nst.global.f32 [%d1], %f5;\n",
    ),
    "counts in any order": (COUNTED.format(0) + COUNTED.format(1), COUNTED.format(1) + COUNTED.format(0)),
    "reductions of lanes in any order": (PAIRED.format(0), SWAPPED),
}  # fmt: skip

SAME_LANES = "mov.b32 %r2, %f0;\nmatch.any.sync.b32 %r3, %r2, -1;\n"
OTHER = {
    "another value": (OUT.replace("%f4", "%f0"), OUT.replace("%f4", "%f1")),
    "another place": ("st.global.f32 [%d1], %f0;\n", "st.global.f32 [%d1+4], %f0;\n"),
    "one place more": ("st.global.f32 [%d1], %f0;\n", "st.global.v2.f32 [%d1], {%f0, %f0};\n"),
    "sums in another order": (
        "add.f32 %f4, %f0, %f1;\nadd.f32 %f4, %f4, %f2;\n" + OUT,
        "add.f32 %f4, %f1, %f2;\nadd.f32 %f4, %f4, %f0;\n" + OUT,
    ),
    "a difference turned round": ("sub.f32 %f4, %f0, %f1;\n" + OUT, "sub.f32 %f4, %f1, %f0;\n" + OUT),
    "one rounding less": (
        "fma.rn.f32 %f4, %f0, %f1, %f2;\n" + OUT, "mul.rn.f32 %f4, %f0, %f1;\nadd.rn.f32 %f4, %f4, %f2;\n" + OUT,
    ),
    "another rounding": (HALVES, HALVES.replace(".rn.", ".rz.")),
    "halves exchanged": (HALVES, HALVES.replace("%f1, %f0", "%f0, %f1")),
    "one put above by its half": (
        HALVES,
        "cvt.rn.bf16.f32 %h0, %f0;\ncvt.rn.bf16.f32 %h1, %f1;\ncvt.u32.u16 %r2, %h0;\ncvt.u32.u16 %r3, %h1;\n"
        "mad.lo.s32 %r2, 32768, %r3, %r2;\nst.global.b32 [%d1], %r2;\n",
    ),
    "one added with its sign": (
        HALVES,
        "cvt.rn.bf16.f32 %h0, %f0;\ncvt.rn.bf16.f32 %h1, %f1;\ncvt.s32.s16 %r2, %h0;\ncvt.u32.u16 %r3, %h1;\n"
        "mad.lo.s32 %r2, 65536, %r3, %r2;\nst.global.b32 [%d1], %r2;\n",
    ),
    "a sum in place of either": (
        "mov.b32 %r2, %f0;\nmov.b32 %r3, %f1;\nadd.s32 %r2, %r2, %r3;\nst.global.b32 [%d1], %r2;\n",
        "mov.b32 %r2, %f0;\nmov.b32 %r3, %f1;\nor.b32 %r2, %r2, %r3;\nst.global.b32 [%d1], %r2;\n",
    ),
    "NaN otherwise": (
        "setp.lt.f32 %p1, %f0, %f1;\nselp.f32 %f4, %f2, %f3, %p1;\n" + OUT,
        "setp.ge.f32 %p1, %f0, %f1;\nselp.f32 %f4, %f3, %f2, %p1;\n" + OUT,
    ),
    "a sign of what is loaded": (SMALL.format("s8"), SMALL.format("u8")),
    "a sign of what is converted": (
        "mov.b32 %r2, %f0;\ncvt.s8.s32 %r3, %r2;\nst.global.b32 [%d1], %r3;\n",
        "mov.b32 %r2, %f0;\ncvt.u8.u32 %r3, %r2;\nst.global.b32 [%d1], %r3;\n",
    ),
    "upper halves that are matched": (MATCHED.format("%r3"), MATCHED.format("%r4")),
    "a parameter behind a branch": (BRANCH.replace("mov.f32 %f4, %f2;", "ld.param.f32 %f4, [n];"), BRANCH),
    "a branch the other way": (BRANCH, BRANCH.replace("@%p1", "@!%p1")),
    "another lane": (READ.format(1), READ.format(2)),
    "another value in local memory": (LOCAL.format(8), LOCAL.format(8).replace("%f0;", "%f1;")),
    "the greatest and the least": (EXTREME.format(0, 1, 2), EXTREME.format(0, 1, 2).replace("max", "min")),
    "the greatest of others": (EXTREME.format(0, 1, 2), EXTREME.format(0, 1, 3)),
    "a reduction less": (REDUCED.format(0) + REDUCED.format(1), REDUCED.format(0)),
    "reductions of one lane in another order": (
        REDUCED.format(0) + REDUCED.format(1), REDUCED.format(1) + REDUCED.format(0),
    ),
    "a reduction where something else holds": (
        LESS + "@%p1 " + REDUCED.format(0), LESS.replace("%f1;", "%f2;") + "@%p1 " + REDUCED.format(0),
    ),
    "a reduction that always is": (LESS + "@%p1 " + REDUCED.format(0), REDUCED.format(0)),
    "lanes that have the same, of another lane": (
        SAME_LANES + "st.global.b32 [%d1], %r3;\n",
        SAME_LANES + "shfl.sync.idx.b32 %r3, %r3, 0, 31, -1;\nst.global.b32 [%d1], %r3;\n",
    ),
    "time that passes": (
        "mov.u32 %r2, %clock;\nmov.u32 %r3, %clock;\nxor.b32 %r2, %r2, %r3;\nst.global.b32 [%d1], %r2;\n",
        "st.global.b32 [%d1], 0;\n",
    ),
    "another reduction": ("red.global.add.u32 [%d1], %r0;\n", "red.global.max.u32 [%d1], %r0;\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_the_same_made_in_another_way(name: str) -> None:
    assert are_equal(*SAME[name])


@pytest.mark.parametrize("name", OTHER)
def test_something_else(name: str) -> None:
    assert not are_equal(*OTHER[name])


WHOLE = "mov.b32 %r2, %f0;\ncvt.u16.u32 %h0, %r2;\ncvt.s64.s32 %d4, %r2;\n"
SECOND_BYTE = WHOLE + "bfe.s32 %r3, %r2, 8, 8;\ncvt.rn.f32.s32 %f4, %r3;\n" + OUT
WITH_ITS_SIGN = {
    "shifts": "shl.b32 %r3, %r2, 16;\nshr.s32 %r3, %r3, 24;\ncvt.rn.f32.s32 %f4, %r3;\n",
    "a conversion": "shr.u32 %r3, %r2, 8;\ncvt.s32.s8 %r3, %r3;\ncvt.rn.f32.s32 %f4, %r3;\n",
    "one that gives a byte": "shr.s32 %r3, %r2, 8;\ncvt.s8.s32 %h1, %r3;\ncvt.rn.f32.s16 %f4, %h1;\n",
    "the byte alone": "shr.s32 %r3, %r2, 8;\ncvt.rn.f32.s8 %f4, %r3;\n",
    "a shift of half of it": "shr.s16 %h1, %h0, 8;\ncvt.rn.f32.s16 %f4, %h1;\n",
    "half of it, and its sign": "shr.s16 %h1, %h0, 8;\ncvt.s32.s16 %r3, %h1;\ncvt.rn.f32.s32 %f4, %r3;\n",
    "a field of twice as much": "bfe.s64 %d5, %d4, 8, 8;\ncvt.u32.u64 %r3, %d5;\ncvt.rn.f32.s32 %f4, %r3;\n",
    "one that is converted so": "bfe.s64 %d5, %d4, 8, 8;\ncvt.rn.f32.s64 %f4, %d5;\n",
    "bytes and signs": "prmt.b32 %r3, %r2, 0, 0x9991;\ncvt.rn.f32.s32 %f4, %r3;\n",
    "its sign twice": "prmt.b32 %r3, %r2, 0, 0x9991;\nprmt.b32 %r3, %r3, 0, 0x9990;\ncvt.rn.f32.s16 %f4, %r3;\n",
    "a field put on top": "bfe.u32 %r3, %r2, 8, 8;\nbfi.b32 %r3, %r3, 0, 24, 8;\nshr.s32 %r3, %r3, 24;\n"
                          "cvt.rn.f32.s32 %f4, %r3;\n",
}  # fmt: skip
OTHERWISE = {
    "no sign": "bfe.u32 %r3, %r2, 8, 8;\ncvt.rn.f32.s32 %f4, %r3;\n",
    "a sign that is cut off": "shr.s32 %r3, %r2, 8;\ncvt.s8.s32 %h1, %r3;\nand.b16 %h1, %h1, 255;\n"
                              "cvt.rn.f32.s16 %f4, %h1;\n",
    "one that is no sign": "bfe.s32 %r3, %r2, 8, 8;\ncvt.rn.f32.u32 %f4, %r3;\n",
    "another byte": "bfe.s32 %r3, %r2, 16, 8;\ncvt.rn.f32.s32 %f4, %r3;\n",
    "two bytes": "bfe.s32 %r3, %r2, 8, 16;\ncvt.rn.f32.s32 %f4, %r3;\n",
    "the sign of another byte": "prmt.b32 %r3, %r2, 0, 0xaaa1;\ncvt.rn.f32.s32 %f4, %r3;\n",
    "another rounding": "bfe.s32 %r3, %r2, 8, 8;\ncvt.rz.f32.s32 %f4, %r3;\n",
    "not all of a byte": "bfe.s32 %r3, %r2, 8, 7;\ncvt.rn.f32.s32 %f4, %r3;\n",
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_ITS_SIGN)
def test_a_byte_with_its_sign(name: str) -> None:
    assert are_equal(SECOND_BYTE, WHOLE + WITH_ITS_SIGN[name] + OUT)


@pytest.mark.parametrize("name", OTHERWISE)
def test_another_number_than_a_byte_with_its_sign(name: str) -> None:
    other = WHOLE + OTHERWISE[name] + OUT
    assert not are_equal(SECOND_BYTE, other)
    assert not are_equal(WHOLE + WITH_ITS_SIGN["one that gives a byte"] + OUT, other)


@pytest.mark.parametrize("size", ["16", "16, 8", "8"])
def test_what_a_copy_brings_is_no_number_that_was_there(size: str) -> None:
    zeros = "st.shared.v4.b32 [%r2], {0, 0, 0, 0};\n"
    copied = (
        f"cp.async.ca.shared.global [%r2], [%d0], {size};\ncp.async.wait_all;\n"
        "ld.shared.v4.f32 {%f4, %f5, %f6, %f7}, [%r2];\nst.global.v4.f32 [%d1], {%f4, %f5, %f6, %f7};\n"
    )
    place = "mov.u32 %r2, room;\nmad.lo.s32 %r2, %r0, 16, %r2;\n" + zeros
    assert not are_equal(place + copied, place + copied.split("\n", 2)[2])
    whole = "st.global.v4.f32 [%d1], {%f0, %f1, %f2, %f3};\n"
    assert are_equal(place + copied, whole) == (size == "16")


def test_numbers_of_the_launch_count() -> None:
    guarded = "setp.lt.u32 %p1, %r0, %r1;\n@%p1 st.global.f32 [%d1], %f0;\n"
    assert are_equal(guarded, guarded.replace("%r1;", "4;"))
    assert not are_equal(guarded, guarded.replace("%r1;", "4;"), n=5)


@pytest.mark.parametrize(
    "loads",
    ["ld.param.s8 %r3, [n]", "ld.param.s16 %r3, [n]", "ld.param.s8 %h0, [n];\ncvt.s32.s16 %r3, %h0",
     "cvt.s8.s32 %r3, %r1", "st.shared.b32 [room], %r1;\nld.shared.s8 %r3, [room]",
     "ld.param.s32 %d4, [n];\nshr.s64 %d4, %d4, 1;\nshl.b64 %d4, %d4, 1;\ncvt.u32.u64 %r3, %d4",
     "st.local.b32 [own], %r1;\nld.local.s8 %r3, [own]", "ld.param.s8 %h0, [n];\nsetp.lt.s16 %p1, %h0, 0;\n"
     "selp.s32 %r3, -2, 2, %p1"],
)  # fmt: skip
def test_a_number_stands_with_its_sign_in_a_wider_register(loads: str) -> None:
    out = "st.global.b32 [%d1], {};\n"
    assert are_equal(f"{loads};\n{out.format('%r3')}", out.format(-2), n=0xFFFFFFFE)


IN_BRANCH = BRANCH.replace("mov.f32 %f4, %f2", "{};\nmov.b32 %f4, %r2")
BITS = "mov.b32 %r2, %f0;\nmov.b32 %r3, %f1;\n"
NOT_UNDERSTOOD = {
    "a loop by data": "setp.lt.f32 %p1, %f0, %f1;\nAGAIN:\nadd.f32 %f0, %f0, %f2;\nsetp.lt.f32 %p1, %f0, %f1;\n"
                      "@%p1 bra AGAIN;\nst.global.f32 [%d1], %f0;\n",
    "an index of local memory": BITS + "mov.b64 %d4, own;\nst.local.f32 [%d4], %f1;\nand.b32 %r2, %r2, 12;\n"
                                "cvt.u64.u32 %d5, %r2;\nadd.s64 %d4, %d4, %d5;\nld.local.f32 %f4, [%d4];\n" + OUT,
    "what others have left": BITS + "mov.b64 %d4, {%r2, %r3};\nld.acquire.gpu.global.f32 %f4, [%d4];\n" + OUT,
    "a parameter by data": BITS + "and.b32 %r2, %r2, 4;\nmov.b64 %d4, input;\ncvt.u64.u32 %d5, %r2;\n"
                           "add.s64 %d4, %d4, %d5;\nld.param.u32 %r4, [%d4];\nst.global.b32 [%d1], %r4;\n",
    "a shuffle of lanes that data part": BRANCH.replace("mov.f32 %f4, %f2", "shfl.sync.bfly.b32 %f4, %f2, 1, 31, -1"),
    "a vote of lanes that data part": IN_BRANCH.format("vote.sync.ballot.b32 %r2, %p1, -1"),
    "lanes that are there, where data part them": IN_BRANCH.format("activemask.b32 %r2"),
    "a sum and a greatest one in one place": "red.global.add.u32 [%d1], %r0;\nred.global.max.u32 [%d1], %r1;\n",
    "a store behind a reduction": REDUCED.format(0) + OUT,
    "a load behind a reduction": REDUCED.format(0) + "ld.global.f32 %f4, [%d1];\nst.global.f32 [%d1+4], %f4;\n",
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_what_is_not_understood_is_told(name: str) -> None:
    with pytest.raises(NotUnderstood):
        left(NOT_UNDERSTOOD[name])


def test_the_opposite_of_a_comparison_has_the_further_predicate_as_well() -> None:
    both = "setp.lt.f32 %p2, %f2, %f3;\nsetp.lt.and.f32 %p1|%p3, %f0, %f1, %p2;\nselp.f32 %f4, %f2, %f3, {};\n" + OUT
    alone = "setp.lt.f32 %p2, %f2, %f3;\nsetp.geu.f32 %p3, %f0, %f1;\nand.pred %p3, %p3, %p2;\n"
    assert are_equal(both.format("%p3"), alone + "selp.f32 %f4, %f2, %f3, %p3;\n" + OUT)
    assert not are_equal(both.format("%p3"), both.format("%p1").replace("%f2, %f3, %p1", "%f3, %f2, %p1"))


def test_two_blocks_that_write_one_place_are_not_understood() -> None:
    one, other = (left(OUT.replace("%f4", name)) for name in ("%f0", "%f1"))
    with pytest.raises(NotUnderstood):
        together([one, other])
    assert len(together([one, one]).addresses) == len(one.addresses)


def test_a_wrong_normal_form_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences that commute, and opposites that forget NaN: planted, and told by the pairs above."""
    monkeypatch.setattr(computing, "_COMMUTE", computing._COMMUTE | {"sub"})
    assert are_equal(*OTHER["a difference turned round"])
    monkeypatch.undo()
    monkeypatch.setitem(computing._OPPOSITES, "le", "lt")
    assert are_equal(*OTHER["NaN otherwise"])


def test_words_of_bytes_that_are_numbers_are_these() -> None:
    assert words.constant(0x1234, 4)[0].tolist() == [0x34, 0x12, 0, 0]
    made = words.spread(words.mixed(words.word("a"), np.arange(1000, dtype=np.uint64)), 4)
    assert not words.is_number(made).any()
    assert len(np.unique(made)) == made.size


@pytest.mark.parametrize("head", ["and", "or", "xor"])
def test_predicates_and_their_opposites(head: str) -> None:
    """With each value of two predicates, which are data."""
    first, second = (words.mixed(words.word(n), np.zeros((1, 1), np.uint64)) for n in "ab")
    truth = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}[head]
    for value in (0, 1):
        known = np.full((1, 1), value, np.uint64)
        found = words.of_predicates(head, known, second)
        expected = {(0, 0): 0, (1, 1): 1}.get((truth(value, 0), truth(value, 1)))
        if expected is not None:
            assert found.tolist() == [[expected]]
        else:
            assert (found == (second if truth(value, 1) else words.opposite(second))).all()
    assert (words.of_predicates(head, first, second) == words.of_predicates(head, second, first)).all()
    assert words.of_predicates(head, first, words.opposite(first)).tolist() == [[truth(0, 1)]]
    assert (words.opposite(words.opposite(first)) == first).all()
    one, two = (words.mixed(words.word(n), np.zeros((1, 1), np.uint64)) for n in "xy")
    assert (words.chosen(first, one, two) == words.chosen(words.opposite(first), two, one)).all()
    assert (words.chosen(first, one, two) != words.chosen(first, two, one)).all()
