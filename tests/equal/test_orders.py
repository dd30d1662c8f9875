# SPDX-License-Identifier: Apache-2.0
"""Accesses to global memory, and lanes of a warp, whose order decides what is left: one execution does not tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL
from porter.ptx.parser import parse_module
from porter.verify import equality
from porter.verify.equality import MOST_CLUSTERS, _clusters, _compared_with, _spread
from porter.verify.program.compare import counts_in
from porter.verify.program.device import LaunchRecord
from porter.verify.proved_program import Launches, prove_programs

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 input, .param .u64 output)
{{
.reg .pred %p<9>;
.reg .b32 %r<20>;
.reg .f32 %f<20>;
.reg .b64 %d<20>;
.shared .align 1024 .b8 room[4096];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
and.b32 %r3, %r0, 31;
setp.lt.u32 %p1, %r0, 32;
setp.eq.u32 %p2, %r1, 0;
ld.param.u64 %d0, [input];
ld.param.u64 %d1, [output];
mad.lo.u32 %r2, %r1, {threads}, %r0;
mul.wide.u32 %d2, %r2, 16;
add.s64 %d3, %d0, %d2;
add.s64 %d4, %d1, %d2;
mul.wide.u32 %d5, %r3, 4;
add.s64 %d6, %d1, %d5;
ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [%d3];
"""
"""%d4 is a thread's own place, %d6 one for each lane, %p1 holds in the first warp, %p2 in the first block."""
OUTPUT, BYTES = GLOBAL + (1 << 34), 1 << 20
OWN = "st.global.f32 [%d4], %f0;\n"
BARRIER = "bar.sync 0;\n"


def said(
    original: str, port: str, grid: int = 1, threads: int = 32, differing: frozenset[int] = frozenset(),
    held: Sequence[tuple[int, bytes]] = (),
) -> tuple[str, str]:  # fmt: skip
    """What is said of two kernels whose run shows nothing, but other bits at `differing` launches, where memory
    is known to hold what is `held`."""

    def launches(body: str) -> Launches:
        ptx = f"{HEAD.format(threads=threads)}{body}ret;\n}}\n"
        params = tuple(address.to_bytes(8, "little") for address in (GLOBAL, OUTPUT))
        room = ((GLOBAL, BYTES), (OUTPUT, BYTES))
        record = LaunchRecord("k", (grid, 1, 1), (threads, 1, 1), (1, 1, 1), 0, params, room, ptx=ptx)
        return Launches(Path("k.cu"), [record], [dict(held)] if held else ())

    (found,) = prove_programs(launches(original), launches(port), differing, 5)
    assert found.equality is not None
    return found.equality.status, found.equality.why


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three clusters one is not looked at."""
    monkeypatch.setattr(equality, "MOST_CLUSTERS", 2)


BOTH = "@%p1 st.global.f32 [%d6], %f0;\n{}@!%p1 st.global.f32 [%d6], %f1;\n"
HANDED_ON = "@%p1 st.global.f32 [%d4], %f0;\n{}@!%p1 ld.global.f32 %f9, [%d4+-512];\n@!%p1 st.global.f32 [%d4], %f9;\n"
OVERWRITTEN = "@%p1 ld.global.f32 %f9, [%d4+512];\n{}@!%p1 st.global.f32 [%d4], %f0;\n@%p1 st.global.f32 [%d4], %f9;\n"
SUMMED = "@%p1 st.global.f32 [%d6], 0f00000000;\n{}@!%p1 red.global.add.f32 [%d6], %f0;\n"


@pytest.mark.parametrize("body", [BOTH, HANDED_ON, OVERWRITTEN, SUMMED], ids=["both", "on", "over", "summed"])
def test_warps_take_turns_at_a_place_by_a_barrier(body: str) -> None:
    ordered, unordered = body.format(BARRIER), body.format("")
    assert said(ordered, ordered, threads=64) == ("equal", "")
    status, why = said(ordered, unordered, threads=64)
    assert (status, "one place of global memory in no order" in why) == ("unknown", True)


BESIDE = "{}xor.b32 %r5, %r1, 1;\nmad.lo.u32 %r5, %r5, 32, %r0;\nmul.wide.u32 %d7, %r5, 16;\nadd.s64 %d7, %d1, %d7;\n"
NEIGHBOUR = BESIDE.format(OWN) + "ld.global.f32 %f9, [%d7];\nst.global.f32 [%d4+4], %f9;\n"
BACK = OWN + "ld.global{}.f32 %f9, [%d4];\nst.global.f32 [%d4+4], %f9;\n"
TICKET = "setp.eq.u32 %p3, %r0, 0;\n@%p3 atom.global.add.u32 %r6, [%d1+65536], 1;\n" + OWN
IN_SHARED = "st.shared.f32 [room], {};\nbar.sync 0;\nld.shared.f32 %f9, [room];\nst.global.f32 [%d4], %f9;\n"


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("body", "grid", "why"),
    {
        "lanes": ("st.global.f32 [%d1], %f0;\n", 1, "in no order"),
        "lanes and shared memory": (IN_SHARED.format("%f0"), 1, "lanes that store different things"),
        "another block's": (NEIGHBOUR, 2, "a block loads what another one may store to"),
        "a block's that is not looked at": (NEIGHBOUR, 4, "a block loads what another one may store to"),
        "from a cache": (BACK.format(".nc"), 1, "may not find what the kernel itself stores"),
        "a sum on what another block stores": (
            "@%p2 st.global.f32 [%d6], %f0;\n@!%p2 red.global.add.f32 [%d6], %f0;\n", 2, "what another one stores",
        ),
        "what nobody has written": ("add.f32 %f9, %f15, %f0;\nst.global.f32 [%d4], %f9;\n", 1, "something else"),
        "shared memory that nobody has written": (
            "ld.shared.f32 %f9, [room+64];\nst.global.f32 [%d4], %f9;\n", 1, "something else",
        ),
        "a ticket": (TICKET + "mov.b32 %f9, %r6;\n@%p3 st.global.f32 [%d4], %f9;\n", 2, "the result of atom"),
    }.values(),
)  # fmt: skip
def test_what_depends_on_the_schedule_is_not_known(body: str, grid: int, why: str) -> None:
    status, told = said(body, body, grid)
    assert (status, why in told) == ("unknown", True), told


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("body", "grid"),
    [
        (BACK.format(""), 1),
        ("ld.global.f32 %f9, [%d4];\nadd.f32 %f9, %f9, %f0;\nst.global.f32 [%d4], %f9;\n", 4),
        ("st.global.f32 [%d1], 0f00000000;\n", 2),
        ("red.global.add.f32 [%d6], %f0;\n", 2),
        ("st.global.f32 [%d4], 0f00000000;\n" + OWN, 2),
        (IN_SHARED.format("0f3F800000"), 1),
    ],
)
def test_one_threads_own_order_and_the_same_thing_are_fine(body: str, grid: int) -> None:
    assert said(body, body, grid) == ("equal", "")


@pytest.mark.parametrize(
    "asks",
    [
        "setp.eq.u32 %p3, %r1, 22;\n",
        "setp.ne.u32 %p3, %r1, 22;\nnot.pred %p3, %p3;\n",
        "setp.gt.u32 %p3, %r1, 21;\nsetp.lt.and.u32 %p3, %r1, 23, %p3;\n",
        "shl.b32 %r5, %r1, 7;\nsetp.eq.u32 %p3, %r5, 2816;\n",
    ],
)
def test_a_block_that_is_asked_for_is_looked_at(asks: str) -> None:
    module = parse_module(f"{HEAD.format(threads=32)}{asks}{OWN}ret;\n}}\n")
    numbers = _compared_with(Flow(Code(module, module.function("k"))))
    for shape in ((40, 1, 1), (40, 2, 1), (2, 40, 1)):
        clusters = list(_clusters(shape, (1, 1, 1)))
        asked_for = {first for first in clusters if 22 in first}
        chosen = _spread(clusters, (1, 1, 1), numbers)
        assert asked_for & set(chosen)
        assert len(chosen) <= 2 * MOST_CLUSTERS
        assert {clusters[0], clusters[-1]} <= set(chosen)


NEGATIVE = "setp.lt.f32 %p3, %f0, 0f00000000;\n"
WAITS = "griddepcontrol.wait;\nld.global.f32 %f0, [%d3];\n"


@pytest.mark.parametrize(
    ("original", "port", "why"),
    {
        "a trap": (OWN, f"{NEGATIVE}@%p3 trap;\n{OWN}", "written by the port alone"),
        "a branch to a trap": (OWN, f"{NEGATIVE}@!%p3 bra ON;\ntrap;\nON:\n{OWN}", "written by the port alone"),
        "no trap": (f"{NEGATIVE}@%p3 trap;\n{OWN}", OWN, "not written by the port"),
        "no wait for the grid ahead": (WAITS + OWN, OWN, "made of something else"),
        "a wait behind loads": (WAITS + OWN, f"griddepcontrol.wait;\n{OWN}", "made of something else"),
        "what a barrier finds": (
            NEGATIVE + "barrier.cta.red.and.pred %p4, 0, %p3;\n@%p4 mov.f32 %f0, %f1;\n" + OWN,
            NEGATIVE + "barrier.cta.red.or.pred %p4, 0, %p3;\n@%p4 mov.f32 %f0, %f1;\n" + OWN,
            "the result of barrier",
        ),
        "nothing that is left": (OWN, OWN + "discard.global.L2 [%d1], 128;\n", "what is left there"),
        "a slot": (
            "shr.u32 %r5, %r0, 5;\nst.global.u32 [%d4], %r5;\n",
            "mov.u32 %r5, %warpid;\nst.global.u32 [%d4], %r5;\n",
            "an operand",
        ),
    }.values(),
)
def test_what_else_decides_what_is_left(original: str, port: str, why: str) -> None:
    status, told = said(original, port)
    assert (status, why in told) == ("unknown", True), told
    assert said(port, port)[0] == ("unknown" if why[:2] in ("th", "wh", "an") else "equal")


def test_programs_that_are_given_something_else_are_not_equal() -> None:
    assert said(OWN, OWN) == ("equal", "")
    status, why = said(OWN, OWN, differing=frozenset({0}))
    assert (status, "of other inputs" in why) == ("unknown", True)


SHARED = "mul.wide.u32 %d8, %r3, 4;\nmov.b64 %d9, room;\nadd.s64 %d8, %d8, %d9;\ncvt.u32.u64 %r7, %d8;\n"
LATER_WARP = SHARED + (
    "@!%p1 st.shared.f32 [%r7], %f0;\n{}@%p1 ld.shared.f32 %f9, [%r7];\n@%p1 st.global.f32 [%d4], %f9;\n"
)
"""The first warp stores what the second one has put in shared memory."""


def test_a_race_of_the_original_decides_what_it_leaves() -> None:
    """Of the original nothing puts the store ahead of the load; in its port a barrier does."""
    racy, right = LATER_WARP.format(""), LATER_WARP.format(BARRIER)
    assert said(right, right, threads=64) == ("equal", "")
    status, why = said(racy, right, threads=64)
    assert status == "unknown"
    assert why.startswith("equal for one schedule, the last warp first; the original's own hazards:")
    assert why.endswith("the port has none")
    other = right.replace("%f9;", "%f1;")
    assert said(racy, other, threads=64)[1].startswith("allocation 1, byte 0: made of something else")
    assert (
        said(right, racy, threads=64)[1]
        == "allocation 1, byte 0: made of something else; the run of both leaves the same bits"
    )


TURNS = """ld.global.u32 %r6, [%d0];
AGAIN:
bar.sync 0;
sub.u32 %r6, %r6, 1;
setp.ne.u32 %p4, %r6, 0;
@%p4 bra AGAIN;
st.global.f32 [%d4], %f0;
"""
FILLED, UNFILLED, FLOATS = (number.to_bytes(4, "little") * 1024 for number in (3, 0x7F0012345678 >> 16, 0x3F800000))


def test_counts_of_the_launch_decide_who_waits() -> None:
    """Both what is left and the synchronization are looked at with them, where nothing is known without."""
    assert said(TURNS, TURNS)[0] == "unknown"
    assert said(TURNS, TURNS, held=counts_in(GLOBAL, FILLED + UNFILLED)) == ("equal", "")
    fewer = TURNS.replace("bar.sync 0;", "@%p4 bar.sync 0;")
    assert said(TURNS, fewer, held=counts_in(GLOBAL, FILLED)) != ("equal", "")


def test_counts_may_be_in_a_part_of_what_is_allocated() -> None:
    assert counts_in(GLOBAL, FILLED + UNFILLED + FILLED) == [(GLOBAL, FILLED), (GLOBAL + 8192, FILLED)]
    assert counts_in(GLOBAL, FILLED + FILLED[:8]) == [(GLOBAL, FILLED + FILLED[:8])]
    assert not counts_in(GLOBAL, FLOATS + FLOATS + FILLED)
