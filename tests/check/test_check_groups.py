# SPDX-License-Identifier: Apache-2.0
"""Copies that nobody commits: no wait is for them. They land all the same, at the latest when their grid ends, and what
is missing is told to be the commit (PTX ISA 9.7.9.25.2, 9.7.9.25.6)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from check_ptx import HEADER, check

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.results import Schedule

BYTES = 2048
FILLED = """mad.lo.u32 %r3, %r0, 16, %r2; add.u32 %r4, %r0, 1; st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};
mov.u32 %r20, %ctaid.x; mul.wide.u32 %d5, %r20, 2048; add.u64 %d1, %d1, %d5;
fence.proxy.async.shared::cta; bar.sync 0;
"""
COPIES = {
    "copy": "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 2048;",
    "sum": "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1], [%r2], 2048;",
    "largest": "cp.reduce.async.bulk.global.shared::cta.bulk_group.max.u32 [%d1], [%r2], 2048;",
    "bits": "cp.reduce.async.bulk.global.shared::cta.bulk_group.or.b32 [%d1], [%r2], 2048;",
}
COMMIT, WAIT = "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group{} 0;"
# What threads do, the first of which issues the copy: none of it commits what it has issued.
UNCOMMITTED = {
    "nothing": "@!%p0 bra STORED; {copy} STORED: ret;",
    "exit": "@!%p0 exit; {copy} exit;",
    "a wait": "@!%p0 bra STORED; {copy} cp.async.bulk.wait_group 0; STORED: ret;",
    "a wait for the source": "@!%p0 bra STORED; {copy} cp.async.bulk.wait_group.read 0; STORED: ret;",
    "a commit ahead": "@!%p0 bra STORED; cp.async.bulk.commit_group; {copy} cp.async.bulk.wait_group 0; STORED: ret;",
    "a commit of another warp": "@!%p0 bra STORED; {copy} STORED: setp.eq.u32 %p5, %r0, 32;\n"
    "@%p5 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;",
    "a commit of another lane": "@!%p0 bra STORED; {copy} STORED: setp.eq.u32 %p5, %r0, 1;\n"
    "@%p5 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;",
    "a commit that its guard leaves out": "@!%p0 bra STORED; {copy} setp.eq.u32 %p5, %r0, 9;\n"
    "@%p5 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; STORED: ret;",
    "a commit of another kind": "@!%p0 bra STORED; {copy} cp.async.commit_group; cp.async.wait_all; STORED: ret;",
    "a barrier": "@!%p0 bra STORED; {copy} STORED: bar.sync 0; ret;",
}


def run(
    body: str, schedule: Schedule = "late", level: Literal["strict", "practice"] = "strict"
) -> tuple[Outcome, list[int]]:
    """Five blocks, two at a time, each with 2048 bytes of its own in global memory; the words that they leave."""
    memory = GlobalMemory()
    values = [memory.alloc(4096, name="in"), memory.alloc(5 * BYTES, fill=0, name="out")]
    module = parse_module(HEADER.format(target="sm_90a") + FILLED + body + "\n}\n")
    options = Options(mode="checking", level=level, schedule=schedule, resident=2)
    launch = Launch((5, 1, 1), (128, 1, 1), dynamic_smem=8192)
    outcome = simulate(module, "kernel", launch, pack_params(module.function("kernel"), values), memory, options)
    assert outcome.status == "ok", outcome.findings
    return outcome, memory.read(values[1], 5 * BYTES).view(np.uint32).tolist()


@pytest.mark.spread(7)
@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("schedule", ["late", "eager", "random"])
@pytest.mark.parametrize("name", UNCOMMITTED)
def test_a_copy_that_nobody_commits_lands_and_is_told(name: str, schedule: Schedule, copy: str) -> None:
    outcome, words = run(UNCOMMITTED[name].replace("{copy}", COPIES[copy]), schedule)
    assert words == [i // 4 + 1 for i in range(512)] * 5
    assert {(h.kind.id, h.remedy) for h in outcome.hazards} == {
        ("X1", "cp.async.bulk.commit_group, and a wait for the group")
    }


def test_no_level_passes_over_a_copy_that_nobody_commits() -> None:
    """Code that counts on a store without a wait has a group, for the wait ahead of the next one."""
    levels = {}
    for name in ("nothing", "a wait"):
        for commit in ("", COMMIT):
            outcome, _ = run(UNCOMMITTED[name].replace("{copy}", COPIES["copy"] + commit), level="practice")
            levels[name, commit != ""] = [h.severity for h in outcome.hazards]
    assert levels == {
        ("nothing", False): ["error"],
        ("nothing", True): ["review"],
        ("a wait", False): ["error"],
        ("a wait", True): [],
    }


AGAIN = "@!%p0 bra STORED; {copy} STORED: bar.sync 0; st.shared.u32 [%r3], 0; bar.sync 0; ret;"
BACK = "@!%p0 bra STORED; {copy} STORED: bar.sync 0; ld.global.u32 %r9, [%d1]; ret;"
# What comes behind the copy, and which instruction is missing by which kind of hazard.
AFTER = {
    "used again, no commit": (AGAIN, WAIT.format(".read"), "H27", "cp.async.bulk.commit_group"),
    "used again, a commit ahead": (AGAIN, WAIT.format(".read"), "H27", "cp.async.bulk.commit_group"),
    "used again, no wait": (AGAIN, COMMIT, "H27", "cp.async.bulk.wait_group.read"),
    "read back, no commit": (BACK, WAIT.format(""), "G5", "cp.async.bulk.commit_group"),
    "read back, no wait": (BACK, COMMIT, "G5", "cp.async.bulk.wait_group"),
    "read back, a wait for the source": (BACK, COMMIT + WAIT.format(".read"), "G5", "cp.async.bulk.wait_group"),
    "used again": (AGAIN, COMMIT + WAIT.format(".read"), None, ""),
    "read back": (BACK, COMMIT + WAIT.format(""), None, ""),
}


@pytest.mark.parametrize("name", AFTER)
@pytest.mark.parametrize("copy", ["copy", "sum"])
def test_what_lacks_behind_a_copy(name: str, copy: str) -> None:
    body, behind, kind, remedy = AFTER[name]
    ahead = COMMIT if "ahead" in name else ""
    outcome, _ = run(body.replace("{copy}", ahead + COPIES[copy] + behind))
    found = {(h.kind.id, h.remedy) for h in outcome.hazards if h.kind.id != "X1"}
    assert found == (set() if kind is None else {(kind, remedy)})


THREADS = "shl.b32 %r3, %r0, 4; cvt.u64.u32 %d3, %r3; add.u64 %d3, %d3, %d0; add.u32 %r3, %r3, %r2;\n"
CP_ASYNC = THREADS + "cp.async.ca.shared.global [%r3], [%d3], 16; {} bar.sync 0; ld.shared.u32 %r5, [%r2]; ret;"


@pytest.mark.parametrize(
    ("behind", "remedy"),
    [
        ("cp.async.wait_group 0;", "cp.async.commit_group"),
        ("", "cp.async.commit_group"),
        ("cp.async.commit_group;", "cp.async.wait_group"),
        ("cp.async.commit_group; cp.async.wait_group 1;", "cp.async.wait_group"),
        ("cp.async.commit_group; cp.async.wait_group 0;", None),
        ("cp.async.wait_all;", None),
    ],
)
def test_what_lacks_behind_a_copy_of_threads(behind: str, remedy: str | None) -> None:
    outcome = check(CP_ASYNC.format(behind), "sm_90a")
    assert outcome.status == "ok", outcome.findings
    assert {(h.kind.id, h.remedy) for h in outcome.hazards} == (set() if remedy is None else {("H17", remedy)})


def test_the_source_of_a_copy_to_shared_memory_waits_for_its_mbarrier() -> None:
    """It completes by no group."""
    body = (
        "@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster;\n" + FILLED
        + "@!%p0 bra SENT; mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 2048; add.u32 %r5, %r2, 4096;\n"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [%r2], 2048, [%r8]; SENT:\n"
        "{} bar.sync 0; st.shared.u32 [%r3], 0; bar.sync 0; ret;"
    )  # fmt: skip
    poll = "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W;\n"
    assert not check(body.replace("{}", poll), "sm_90a").hazards
    outcome = check(body.replace("{}", ""), "sm_90a")
    assert {(h.kind.id, h.remedy) for h in outcome.hazards} == {
        ("H27", "mbarrier.try_wait"), ("X1", "mbarrier.try_wait"),
    }  # fmt: skip
