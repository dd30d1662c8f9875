# SPDX-License-Identifier: Apache-2.0
"""Barriers that a warp comes to in parts (PTX ISA 9.7.13.1, 9.7.13.3), and cluster barriers waited for by who has not
arrived."""

from __future__ import annotations

import pytest
from check_ptx import check, found

from porter.sim.check.hazard import Level
from porter.sim.check.rulings import Ruling
from porter.sim.results import Outcome

# Odd threads, thread 0, and warp 1.
SETUP = """and.b32 %r20, %r0, 1; setp.eq.u32 %p3, %r20, 1; setp.eq.u32 %p4, %r1, 1; and.b32 %r21, %r0, 31;
setp.eq.u32 %p5, %r21, 5;
"""


def branches(guard: str, one: str, other: str, behind: str = "") -> str:
    return f"@{guard} bra OTHER; {one} bra BEHIND; OTHER: {other} BEHIND: {behind}\n"


def run(body: str, level: Level = "strict") -> Outcome:
    return check(SETUP + body + "ret;", "sm_90a", threads=64, grid=2, cluster=2, level=level)


MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
WAIT = "barrier.cluster.wait.aligned;"
RIGHT = {
    "all threads at one": "bar.sync 0;",
    "behind a branch": branches("%p3", "mov.u32 %r4, 1;", "mov.u32 %r4, 2;", "bar.sync 0;"),
    "whole warps at two": branches("%p4", "bar.sync 0;", "bar.sync 0;"),
    "one warp waits, the other arrives": branches("%p4", "bar.sync 1, 64;", "bar.arrive 1, 64;"),
    "not aligned": branches("%p3", "barrier.sync 0;", "barrier.sync 0;"),
    "not aligned, with a count": branches("%p3", "barrier.sync 1, 64;", "barrier.sync 1, 64;"),
    "without threads that have ended": "@%p3 ret; bar.sync 0; bar.sync 0;",
    "without a warp that has ended": "@%p4 ret; bar.sync 0;" + MEET,
    # The threads leave the loop one after the other, and come to the barrier as they do.
    "one after the other": "mov.u32 %r22, 0; L: add.u32 %r22, %r22, 1; setp.lt.u32 %p6, %r22, %r21; @%p6 bra L;"
                           "bar.sync 0;",
    "a cluster's": MEET + MEET,
    "a cluster's, not aligned": branches("%p3", "barrier.cluster.arrive;", "barrier.cluster.arrive;", WAIT),
    "a cluster's, without threads that have ended": "@%p3 ret;" + MEET,
    "whole warps at two of a cluster": branches("%p4", MEET, MEET),
    "reduced": "bar.red.popc.u32 %r23, 0, %p3;",
}  # fmt: skip


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("name", RIGHT)
def test_threads_of_a_warp_that_come_together(name: str, level: Level) -> None:
    outcome = run(RIGHT[name], level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert not outcome.hazards, [h.message for h in outcome.hazards]


TWO = {
    "two of a block": branches("%p3", "bar.sync 0;", "bar.sync 0;"),
    "one thread apart": branches("%p5", "bar.sync 0;", "bar.sync 0;"),
    "two with a count": branches("%p3", "bar.sync 1, 64;", "barrier.sync.aligned 1, 64;"),
    "aligned and not": branches("%p3", "barrier.sync 0;", "bar.sync 0;"),
    "sync and arrive": branches("%p3", "bar.sync 1, 64;", "bar.arrive 1, 64;"),
    "by guards": "@%p3 bar.sync 0; @!%p3 bar.sync 0;",
    "two of a cluster": branches("%p3", "barrier.cluster.arrive.aligned;", "barrier.cluster.arrive.aligned;", WAIT),
    "a cluster's by guards": "@%p3 barrier.cluster.arrive.relaxed.aligned; @!%p3 barrier.cluster.arrive.aligned;"
    + WAIT,
}


@pytest.mark.parametrize("name", TWO)
def test_threads_of_a_warp_at_two_instructions(name: str) -> None:
    strict, mild = run(TWO[name]), run(TWO[name], "practice")
    assert strict.status == mild.status == "ok", [str(f) for f in strict.findings]
    assert found(strict) == {"B1"}
    assert [(h.kind.id, h.ruling) for h in mild.hazards if h.severity == "review"] == [("B1", Ruling.ALIGNED_BARRIER)]
    assert not found(mild)


@pytest.mark.parametrize("barrier", ["bar.sync 1, 32;", "barrier.sync 1, 32;", "bar.arrive 1, 32;"])
def test_a_count_that_parts_of_warps_add_up_to(barrier: str) -> None:
    """16 threads of each warp are not one warp."""
    for level in ("strict", "practice"):
        assert found(run(f"@%p3 {barrier} bar.sync 0;", level)) == {"B1"}


def test_it_is_found_again_in_the_next_phase() -> None:
    twice = (
        "mov.u32 %r22, 0; L:\n" + TWO["two of a block"] + "add.u32 %r22, %r22, 1; setp.lt.u32 %p6, %r22, 3; @%p6 bra L;"
    )
    outcome = run(twice)
    # In three turns, of two blocks' two warps.
    assert [(h.kind.id, h.count) for h in outcome.hazards] == [("B1", 12)]


@pytest.mark.parametrize(
    "body",
    [WAIT, MEET + WAIT, "@%p4 barrier.cluster.arrive.aligned;" + WAIT,
     "@%p3 barrier.cluster.arrive; barrier.cluster.wait;"],
    ids=["nobody arrives", "waits twice", "one warp arrives", "some threads arrive"],
)  # fmt: skip
def test_a_cluster_barrier_is_waited_for_by_who_has_arrived(body: str) -> None:
    for level in ("strict", "practice"):
        outcome = run(body, level)
        assert outcome.status == "error"
        assert "PT4016" in str(outcome.findings[0])
        assert "without an arrive" in str(outcome.findings[0])
