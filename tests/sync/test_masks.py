# SPDX-License-Identifier: Apache-2.0
"""Member masks: of lanes that execute an instruction and are not in theirs, that never come, or that others read."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors, number

from porter.sync.checked import Verdict

LOW = "setp.lt.u32 %p1, %r0, 16;\n@!%p1 bra OUT;\n"
OUT = "OUT:\n"
OF_EIGHT = "shr.u32 %r5, %r0, 3;\nshl.b32 %r5, %r5, 3;\nmov.b32 %r6, 255;\nshl.b32 %r6, %r6, %r5;\n"
"""Each lane's mask is that of its eight."""

COLLECTIVES = {
    "shfl": "shfl.sync.idx.b32 %r5, %r0, 0, 31, {mask};\n",
    "shfl with a predicate": "shfl.sync.down.b32 %r5|%p2, %r0, 1, 31, {mask};\n",
    "bar.warp": "bar.warp.sync {mask};\n",
    "vote": "vote.sync.any.pred %p2, %p0, {mask};\n",
    "ballot": "vote.sync.ballot.b32 %r5, %p0, {mask};\n",
    "match": "match.any.sync.b32 %r5, %r0, {mask};\n",
    "match all": "match.all.sync.b32 %r5|%p2, %r0, {mask};\n",
    "redux": "redux.sync.add.s32 %r5, %r0, {mask};\n",
    "elect": "elect.sync %r5|%p2, {mask};\n",
    "in a register": "mov.b32 %r6, {mask};\nshfl.sync.bfly.b32 %r5, %r0, 1, 31, %r6;\n",
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_lane_that_its_mask_leaves_out(name: str) -> None:
    text = COLLECTIVES[name]
    assert checked(text.format(mask=-1)).verdict is Verdict.CLEAN
    assert checked(LOW + text.format(mask=0xFFFF) + OUT).verdict is Verdict.CLEAN
    for mask in (0, -2, 0x7FFFFFFF, 0xFFFF):
        found = checked(text.format(mask=mask))
        assert "mask" in errors(found), mask


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_lane_of_the_mask_that_never_comes(name: str) -> None:
    """Others wait for it, which it does not for them; one that ends is not waited for."""
    text = LOW + COLLECTIVES[name].format(mask=-1) + OUT
    assert not errors(checked(text))
    assert errors(checked(text + "bar.sync 0;\n")) == {"deadlock"}


def test_masks_of_parts_of_a_warp() -> None:
    """Each part goes on when it is complete."""
    apart = "setp.lt.u32 %p1, %r0, 8;\n@%p1 bra LAST;\n{text}bra OUT;\nLAST:\n{text}OUT:\n"
    text = "redux.sync.add.s32 %r7, %r0, %r6;\nbar.warp.sync %r6;\n"
    assert checked(OF_EIGHT + text).verdict is Verdict.CLEAN
    assert checked(OF_EIGHT + apart.format(text=text)).verdict is Verdict.CLEAN
    shifted = OF_EIGHT.replace("mov.b32 %r6, 255;", "mov.b32 %r6, 510;")
    assert "mask" in errors(checked(shifted + text))


def test_results_of_parts_of_a_warp() -> None:
    """Of eight lanes each as many as come arrive: their number is that of their ballot."""
    arrive = "setp.eq.u32 %p1, %r7, 8;\n@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
    ballot = "vote.sync.ballot.b32 %r7, 1, %r6;\npopc.b32 %r7, %r7;\nadd.u32 %r8, %r2, 4096;\n"
    store = "setp.ne.u32 %p1, %r7, 8;\n@%p1 st.shared.b32 [%r8+256], 1;\n"
    assert not errors(checked(OF_EIGHT + ballot + store + arrive))
    assert "outside" in errors(checked(OF_EIGHT + ballot.replace("%r6;", "-1;", 1) + store + arrive))


def test_another_mask_than_that_of_the_lanes_in_it() -> None:
    text = "mov.b32 %r6, -1;\n@%p0 mov.b32 %r6, 1;\nshfl.sync.idx.b32 %r5, %r0, 0, 31, %r6;\n"
    assert "mask" in errors(checked(text))


READS = {
    "a lane that does not execute it": (LOW, "shfl.sync.idx.b32 %r5, %r0, 20, 31, 0xFFFF;\n", OUT),
    "the same by a number": (LOW, "mov.b32 %r7, 5;\nshfl.sync.idx.b32 %r5, %r7, 20, 31, 0xFFFF;\n", OUT),
    "a lane that has ended": (LOW, "shfl.sync.idx.b32 %r5, %r0, 20, 31, -1;\n", OUT),
    "one above": (LOW, "shfl.sync.down.b32 %r5, %r0, 8, 31, 0xFFFF;\n", OUT),
    "across": (LOW, "shfl.sync.bfly.b32 %r5, %r0, 16, 31, 0xFFFF;\n", OUT),
}
USED = {
    "as an address": "shl.b32 %r5, %r5, 2;\nadd.u32 %r5, %r5, %r2;\nst.shared.b32 [%r5], 1;\n",
    "as a count": "mbarrier.arrive.shared::cta.b64 _, [%r1], %r5;\n",
    "as a condition": "setp.eq.u32 %p2, %r5, 3;\n@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1];\n",
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("use", USED)
def test_what_a_lane_without_a_part_has(read: str, use: str) -> None:
    """It may be read, and decides nothing."""
    before, text, behind = READS[read]
    assert checked(f"{before}{text}st.shared.b32 [%r2], %r5;\n{behind}").verdict in (Verdict.CLEAN, Verdict.REVIEW)
    assert "mask" in errors(checked(before + text + USED[use] + behind))


def test_masks_that_are_data() -> None:
    """Nobody knows who is in them, which is told."""
    body = "ld.param.u64 %d0, [data];\nld.global.u32 %r6, [%d0];\nshfl.sync.idx.b32 %r5, %r0, 0, 31, %r6;\n"
    found = checked(body, parameters=number("data", 1 << 41, "u64", 8))
    assert any("member masks" in text for text in found.assumed)
    barrier = checked(body + "bar.warp.sync %r6;\n", parameters=number("data", 1 << 41, "u64", 8))
    assert barrier.verdict is Verdict.UNKNOWN


BRANCH = "@%p0 bra A;\n{other}bra B;\nA:\n{one}B:\n"
PUT, GET = "st.shared.b32 [%r2], 1;\n", "ld.shared.b32 %r5, [%r2];\n"
BARRIER = "bar.warp.sync {};\n".format


@pytest.mark.parametrize(
    ("one", "other", "wrong"),
    [
        (BARRIER(-1), BARRIER(-1), set()),
        (PUT + BARRIER(-1), BARRIER(-1) + GET, set()),
        (PUT, BARRIER(-2) + GET, {"G8"}),
        (PUT + BARRIER(1), BARRIER(-2) + GET, {"G8"}),
        (BARRIER(-1) + PUT, BARRIER(-1) + GET, {"G8"}),
        (BARRIER(-1), "", {"deadlock"}),
        ("", BARRIER(-1), {"deadlock"}),
        (BARRIER(-1), BARRIER(-2), {"deadlock"}),
        (PUT + BARRIER(-1) + BARRIER(-1), BARRIER(-1) + GET + BARRIER(-1), set()),
        (BARRIER(-1) + BARRIER(-1), BARRIER(-1), {"deadlock"}),
        (BARRIER(1), BARRIER(-1), {"deadlock"}),
    ],
)
def test_lanes_that_meet_at_two_places(one: str, other: str, wrong: set[str]) -> None:
    found = checked(BRANCH.format(one=one, other=other) + "bar.sync 0;\n")
    assert not found.unknown
    assert {f.kind for f in found.findings} == wrong


def test_lanes_that_meet_at_two_places_and_are_not_in_their_mask() -> None:
    found = checked(BRANCH.format(one=BARRIER(-2), other=BARRIER(-2)))
    assert errors(found) == {"mask"}


@pytest.mark.parametrize("name", [n for n in COLLECTIVES if n not in ("bar.warp", "in a register")])
def test_lanes_that_give_each_other_something_at_two_places(name: str) -> None:
    """They may, and what they give is not followed."""
    text = COLLECTIVES[name].format(mask=-1)
    found = checked(BRANCH.format(one=text, other=text))
    assert found.verdict is Verdict.UNKNOWN
    assert "several places" in found.unknown
