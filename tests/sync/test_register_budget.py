# SPDX-License-Identifier: Apache-2.0
"""setmaxnreg moves registers between the warps of a block: who waits for more than there are waits for ever."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of

from porter.facts.launched import Geometry, Launched
from porter.sync.checked import Checked, Verdict, check

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k()
.maxntid {threads}
.minnctapersm 1
{{
.reg .pred %p<9>;
.reg .b32 %r<9>;
mov.u32 %r1, %tid.x;
setp.lt.u32 %p1, %r1, 128;
@%p1 bra $PRODUCER;
"""


def checked(consumers: str, producers: str, threads: int = 384) -> Checked:
    text = f"{HEAD.format(threads=threads)}{consumers}ret;\n$PRODUCER:\n{producers}$OUT:\nret;\n}}\n"
    return check(Launched(flow_of(text), Geometry((threads, 1, 1)), {}))


def move(action: str, count: int) -> str:
    return f"setmaxnreg.{action}.sync.aligned.u32 {count};\n"


# 65,536 registers, a block of 384 threads: 168 a thread, 64,512 in all
RIGHT = {
    "in balance": (move("inc", 240), move("dec", 24)),
    "fewer than there are": (move("inc", 232), move("dec", 40)),
    "only given": (move("dec", 160), move("dec", 24)),
    "taken in two steps": (move("inc", 200) + "bar.sync 1, 256;\n" + move("inc", 240), move("dec", 24)),
    "given first by all": (move("dec", 24) + "bar.sync 0;\n" + move("inc", 240), move("dec", 24) + "bar.sync 0;\n"),
}
WRONG = {
    "nobody gives": (move("inc", 240), "", "deadlock"),
    "too little is given": (move("inc", 240), move("dec", 40), "deadlock"),
    "given when they have ended": (move("inc", 240) + "bar.sync 0;\n", "bar.sync 0;\n" + move("dec", 24), "deadlock"),
    "more than it has": (move("inc", 240), move("dec", 24) + "bar.sync 2, 128;\n" + move("dec", 40), "registers"),
    "fewer than it has": (move("inc", 240) + "bar.sync 1, 256;\n" + move("inc", 232), move("dec", 24), "registers"),
    "taken by two warpgroups, given for one": (move("inc", 240), move("dec", 96), "deadlock"),
    "given back and taken twice": (
        move("dec", 160) + "bar.sync 1, 256;\n" + move("inc", 240),
        move("dec", 40),
        "deadlock",
    ),
}
ONE_WARP = "setp.ge.u32 %p2, %r1, 32;\n@%p2 bra $OUT;\n"
REVIEWED = {
    "one warp of four": (move("dec", 160), ONE_WARP + move("dec", 24)),
    "warps that differ": (move("dec", 160), ONE_WARP.replace("$OUT", "$MORE") + move("dec", 24) + "ret;\n$MORE:\n"
                          + move("dec", 32)),
    "warps that do not meet": (move("dec", 160), move("dec", 40) + move("dec", 24)),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_taken_is_there(name: str) -> None:
    assert checked(*RIGHT[name]).verdict is Verdict.CLEAN


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_had_is_found(name: str) -> None:
    consumers, producers, kind = WRONG[name]
    found = checked(consumers, producers)
    assert found.verdict is Verdict.ERROR
    assert kind in {f.kind for f in found.findings}
    if kind == "deadlock":
        assert any("waits for" in one.awaited and "registers" in one.awaited for one in found.waiting)


@pytest.mark.parametrize("name", REVIEWED)
def test_a_warpgroup_moves_as_one(name: str) -> None:
    found = checked(*REVIEWED[name])
    assert found.verdict is Verdict.REVIEW
    assert {f.kind for f in found.findings} == {"R1"}


def test_without_a_bound_nothing_is_moved() -> None:
    text = HEAD.replace(".maxntid {threads}\n.minnctapersm 1\n", ".reqntid {threads}\n").format(threads=384)
    flow = flow_of(f"{text}{move('inc', 240)}ret;\n$PRODUCER:\n$OUT:\nret;\n}}\n")
    assert check(Launched(flow, Geometry((384, 1, 1)), {})).verdict is not Verdict.ERROR


def test_an_order_that_decides_is_told() -> None:
    given_behind = "bar.sync 1, 384;\n" + move("dec", 24)
    found = checked(move("inc", 168) + "bar.sync 1, 384;\n", given_behind)
    assert not found.assumed
    two = checked(move("dec", 160) + "bar.sync 0;\n", move("inc", 176) + "bar.sync 0;\n" + move("dec", 168))
    assert "registers are taken in the order that was executed" in two.assumed
