# SPDX-License-Identifier: Apache-2.0
"""Commits of one thread arrive in order: who has waited for the newest needs not wait for those before it."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of

from porter.facts.launched import Geometry, Launched
from porter.sync.checked import Rulings, check

HEAD = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k()
.reqntid 64
{
.reg .pred %p<9>;
.reg .b32 %r<9>;
.shared .align 8 .b64 a;
.shared .align 8 .b64 b;
mov.u32 %r1, %tid.x;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra $OUT;
mbarrier.init.shared::cta.b64 [a], 1;
mbarrier.init.shared::cta.b64 [b], 1;
fence.mbarrier_init.release.cluster;
"""


def commit(name: str) -> str:
    return f"tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [{name}];\n"


def wait(name: str, parity: int, label: str) -> str:
    return f"{label}:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [{name}], {parity};\n@!%p2 bra {label};\n"


def kinds(body: str) -> set[str]:
    """Errors, without what is strict alone: the thread has issued nothing that it commits."""
    found = check(Launched(flow_of(f"{HEAD}{body}$OUT:\nret;\n}}\n"), Geometry((64, 1, 1)), {}))
    return {f.kind for f in found.findings if f.level == "error"}


BOTH = commit("a") + commit("b")
RIGHT = {
    "the newest waited for": BOTH + wait("b", 0, "$1") + BOTH + wait("b", 1, "$2") + wait("a", 1, "$3"),
    "arrivals of an older one": BOTH + wait("a", 0, "$1") + BOTH + wait("a", 1, "$2") + wait("b", 1, "$3"),
}
WRONG = {
    "none waited for": BOTH + BOTH + wait("b", 1, "$1"),
    "an older one waited for": commit("a") + commit("b") + commit("b") + wait("a", 0, "$1") + wait("b", 1, "$2"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_newest_stands_for_those_before_it(name: str) -> None:
    assert kinds(RIGHT[name]) == set()


@pytest.mark.parametrize("name", WRONG)
def test_an_older_one_does_not_stand_for_it(name: str) -> None:
    """The phase before the first looks like the second one."""
    assert kinds(WRONG[name]) == {"H33"}


TO_BOTH = (
    "mov.u16 %h1, 3;\n@!%p1 "
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [b], %h1;\n@!%p1 "
)
TOGETHER = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"


def of_two_blocks(last: str, rulings: Rulings) -> set[tuple[str, str]]:
    """Both come to an end behind a cluster barrier, ahead of which their own newest commit is waited for."""
    head = HEAD.replace(".reg .pred", ".reg .b16 %h<9>;\n.reg .pred").replace("[b], 1", "[b], 2")
    head = head.replace("@%p1 bra $OUT;\n", "").replace("mbarrier.init", "@!%p1 mbarrier.init")
    text = f"{head}{TOGETHER}{TO_BOTH}{commit('a')}{wait('a', 0, '$1')}{TOGETHER}{last}ret;\n}}\n"
    checked = check(Launched(flow_of(text), Geometry((64, 1, 1), (2, 1, 1), (2, 1, 1)), {}), rulings=rulings)
    assert not checked.unknown
    return {(finding.kind, finding.level) for finding in checked.findings if finding.kind == "H26"}


def test_another_blocks_commit_may_arrive_behind_its_newer_ones() -> None:
    """Ruling commit-arrival."""
    assert of_two_blocks("", "strict") == {("H26", "strict")}
    assert of_two_blocks("", "practice") == {("H26", "review")}
    assert of_two_blocks(wait("b", 0, "$2"), "strict") == set()
