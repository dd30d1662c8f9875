# SPDX-License-Identifier: Apache-2.0
"""Kernels in the idioms of different authors: right is clean, and what somebody may forget is an error."""

from __future__ import annotations

import dataclasses
import re

import pytest
import sm100_idiom_kernels
import sm100_idiom_loads
import sm100_reported
from sm100_idioms import MEET, checked

from porter.sim.check.rulings import Ruling
from porter.sim.results import Schedule

KERNELS = {**sm100_idiom_kernels.KERNELS, **sm100_idiom_loads.KERNELS, **sm100_reported.KERNELS}
WRONG = [(name, mistake) for name, kernel in KERNELS.items() for mistake in kernel.wrong]
FIRST = {name: next(iter(kernel.wrong)) for name, kernel in KERNELS.items()}


@pytest.mark.parametrize("name", KERNELS)
def test_right_is_clean(name: str) -> None:
    """At practice level, with right values."""
    outcome, right = checked(KERNELS[name])
    assert (outcome.status, right, outcome.hazards) == ("ok", True, [])


BRANCH = re.compile(r"setp.ne.u32 %p1, %warp, (\d); @%p1 bra (?:ALLOCATED|OUT);\n")
LIFE = re.compile(r"^(tcgen05.(?:alloc|dealloc|relinquish))", re.MULTILINE)


@pytest.mark.parametrize("name", ["specialized", "pair"])
@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_a_predicate_may_stand_for_a_branch(name: str, schedule: Schedule) -> None:
    """As in what Triton writes."""
    body = LIFE.sub(r"@!%p1 \1", BRANCH.sub(r"setp.ne.u32 %p1, %warp, \1;\n", KERNELS[name].body))
    assert body.count("@!%p1 tcgen05.") == 3
    outcome, right = checked(dataclasses.replace(KERNELS[name], body=body), schedule=schedule)
    assert (outcome.status, right, outcome.hazards) == ("ok", True, [])
    body = body.replace("%p1, %warp, 5", "%p1, %r0, 160")
    outcome, _ = checked(dataclasses.replace(KERNELS[name], body=body), schedule=schedule)
    assert [f.code.id for f in outcome.findings] == ["PT4003"]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["eager", "late", "random"])
@pytest.mark.parametrize("name", KERNELS)
def test_right_is_no_error_at_strict_level(name: str, schedule: Schedule) -> None:
    outcome, right = checked(KERNELS[name], None, "strict", schedule)
    assert (outcome.status, right) == ("ok", True)
    # Whether a wait of block scope meets the peer's commit, no text says (docs/rulings.md, mbarrier-scope).
    assert {h.kind.id for h in outcome.hazards} <= ({"M1"} if name == "pair" else set())
    assert not [h for h in outcome.hazards if h.severity == "error"]


FENCED = ("gathered", "waited for", "copied")
FENCE = re.compile(r"^fence\.proxy\.async.*\n", re.MULTILINE)


@pytest.mark.parametrize("name", FENCED)
def test_what_threads_bring_needs_a_proxy_fence(name: str) -> None:
    """By the threads that store it or by the one that multiplies; what cp.async writes is generic too."""
    kernel = KERNELS[name]
    without = dataclasses.replace(kernel, body=FENCE.sub("", kernel.body))
    for level, severity in (("strict", "error"), ("practice", "review")):
        outcome, right = checked(without, level=level)
        assert right
        assert {(h.kind.id, h.severity, h.ruling) for h in outcome.hazards} == {("H16", severity, Ruling.PROXY_FENCE)}


@pytest.mark.parametrize("name", ["multicast", "pair"])
def test_a_block_waits_for_the_stages_that_others_give_back(name: str) -> None:
    """Values and the accumulators' order are right without: the blocks meet at the end."""
    for level, severity in (("strict", "error"), ("practice", "review")):
        outcome, right = checked(KERNELS[name], "tail1", level)
        assert right
        assert {(h.kind.id, h.severity, h.ruling) for h in outcome.hazards if h.kind.id != "M1"} == {
            ("H26", severity, Ruling.COMMIT_ARRIVAL)
        }


def test_blocks_that_neither_meet_nor_wait_for_their_stages() -> None:
    """Gone before the other block is done."""
    kernel = KERNELS["multicast"]
    body = kernel.body.replace(f"sync;\n{MEET} //@end_barrier", "sync;\nbar.sync 0;")
    assert body != kernel.body
    kernel = dataclasses.replace(kernel, body=body)
    assert not checked(kernel)[0].hazards
    found = checked(kernel, "tail1")[0].hazards
    assert ("H26", "error") in {(h.kind.id, h.severity) for h in found}


@pytest.mark.parametrize(
    ("name", "mistake"),
    [pytest.param(n, m, marks=() if m == FIRST[n] else pytest.mark.slow, id=f"{n}-{m}") for n, m in WRONG],
)
def test_mistakes_are_errors(name: str, mistake: str) -> None:
    change, wanted = KERNELS[name].wrong[mistake]
    outcome, _ = checked(KERNELS[name], change)
    errors = {h.kind.id for h in outcome.hazards if h.severity == "error"} | {f.code.id for f in outcome.findings}
    assert wanted in errors
