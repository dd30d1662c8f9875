# SPDX-License-Identifier: Apache-2.0
"""Numbers that lanes of a warp exchange: what they come to decides whether a barrier is waited for."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors

LANES = range(32)
UNLESS = "setp.eq.u32 %p1, %r9, {wanted};\n@%p1 bra DONE;\nbar.sync 1, 64;\nDONE:\n"
WEIGHED = "add.u32 %r7, %r0, 1;\nmul.lo.u32 %r8, %r6, %r7;\nredux.sync.add.u32 %r9, %r8, -1;\n"


def is_decided(text: str, wanted: int) -> bool:
    """Whether a proof finds this number, and no other one."""
    right, wrong = (checked(text + UNLESS.format(wanted=number)) for number in (wanted, wanted + 1))
    assert not right.unknown
    return not errors(right) and errors(wrong) == {"deadlock"}


def segments(width: int) -> list[list[int]]:
    return [list(range(start, start + width)) for start in range(0, 32, width)]


def shuffled(mode: str, by: int, width: int) -> list[int]:
    """What lanes have of 100 + the lane that they read from."""
    found = [0] * 32
    for lanes in segments(width):
        for number, lane in enumerate(lanes):
            other = {"up": number - by, "down": number + by, "bfly": number ^ by, "idx": by}[mode]
            found[lane] = 100 + (lanes[other] if 0 <= other < width else lane)
    return found


@pytest.mark.parametrize("width", [32, 8])
@pytest.mark.parametrize(("mode", "by"), [("up", 3), ("down", 5), ("bfly", 4), ("idx", 6)])
def test_shuffles(mode: str, by: int, width: int) -> None:
    bound = 32 - width << 8 | (0 if mode == "up" else 31)
    text = f"add.u32 %r5, %r0, 100;\nshfl.sync.{mode}.b32 %r6, %r5, {by}, {bound}, -1;\n" + WEIGHED
    wanted = sum(value * (lane + 1) for lane, value in zip(LANES, shuffled(mode, by, width), strict=True))
    assert is_decided(text, wanted)


def test_a_lane_of_each_lanes_own() -> None:
    text = "sub.u32 %r4, 31, %r0;\nadd.u32 %r5, %r0, 100;\nshfl.sync.idx.b32 %r6, %r5, %r4, 31, -1;\n" + WEIGHED
    assert is_decided(text, sum((131 - lane) * (lane + 1) for lane in LANES))


@pytest.mark.parametrize(
    ("opcode", "wanted"),
    [("add.s32", -496 & 0xFFFFFFFF), ("min.s32", -31 & 0xFFFFFFFF), ("max.s32", 0), ("max.u32", 0xFFFFFFFF),
     ("or.b32", 0xFFFFFFFF), ("and.b32", 0)],
)  # fmt: skip
def test_reductions(opcode: str, wanted: int) -> None:
    assert is_decided(f"neg.s32 %r5, %r0;\nredux.sync.{opcode} %r9, %r5, -1;\n", wanted)


def test_the_first_lane_that_a_ballot_has() -> None:
    """As a scheduler of groups of tiles finds the group of a tile."""
    text = (
        "setp.gt.u32 %p2, %r0, 4;\nvote.sync.ballot.b32 %r5, %p2, -1;\nbrev.b32 %r5, %r5;\n"
        "bfind.shiftamt.u32 %r4, %r5;\nmul.lo.u32 %r5, %r0, 7;\nshfl.sync.idx.b32 %r9, %r5, %r4, 31, -1;\n"
    )
    assert is_decided(text, 35)


def test_lanes_of_a_mask_need_no_others() -> None:
    text = "setp.ge.u32 %p2, %r0, 8;\nmov.u32 %r9, 7;\n@%p2 bra REST;\nshfl.sync.idx.b32 %r9, %r0, 7, 31, 255;\nREST:\n"
    assert is_decided(text, 7)


def test_data_stay_data() -> None:
    text = "ld.global.u32 %r5, [%d0];\nshfl.sync.up.b32 %r9, %r5, 1, 0, -1;\n" + UNLESS.format(wanted=1)
    assert checked(text).unknown
