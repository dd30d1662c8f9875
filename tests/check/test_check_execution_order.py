# SPDX-License-Identifier: Apache-2.0
"""Execution order and memory order are two edges (ruling `relaxed-order`): relaxed cluster barriers, mbarriers and
flags; and warps that end (ruling `cluster-exit`)."""

from __future__ import annotations

from typing import Any

import pytest
from check_ptx import COMMIT, DESCRIPTORS, FILL, MMA, check, found, try_wait, without

from porter.sim import Outcome
from porter.sim.check.rulings import Ruling

RELAXED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
BEFORE, AFTER = "tcgen05.fence::before_thread_sync;\n", "tcgen05.fence::after_thread_sync;\n"

HEAD = (
    """@%p0 mbarrier.init.shared.b64 [%r8], 1;
fence.mbarrier_init.release.cluster;
@!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32;
NOALLOC: bar.sync 0; ld.shared.u32 %r10, [%r9];
"""
    + AFTER
    + FILL
    + DESCRIPTORS
    + "fence.proxy.async.shared::cta; bar.sync 0;\n"
)
ISSUE = f"@!%p0 bra JOIN;\n{MMA.format(enable='%p3')}\n{COMMIT}\nJOIN:\n"
LD = "tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r40, %r41, %r42, %r43}, [%r13];\n"
ST = "tcgen05.st.sync.aligned.16x256b.x1.b32 [%r13], {%r4, %r4, %r4, %r4};\n"
WAIT_LD, WAIT_ST = "tcgen05.wait::ld.sync.aligned;\n", "tcgen05.wait::st.sync.aligned;\n"
DEALLOC = "@!%p1 bra END;\ntcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32;\nEND: ret;\n"
FREE = BEFORE + "bar.sync 0;\n" + AFTER + DEALLOC


def run(body: str, level: Any = "strict", **options: Any) -> Outcome:
    outcome = check(body, level=level, **options)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome


# What orders the two: (before the barrier, after it), by what comes first and second.
FIRST = {
    "st": (ST + WAIT_ST, "tcgen05.st"),
    "ld": (ST + WAIT_ST + LD + WAIT_LD, "tcgen05.ld"),
}
LIFE = BEFORE + " //@before\n" + RELAXED + " //@barrier\n" + AFTER + " //@after\n" + DEALLOC


def fenced(first: str, second: str, before: str, between: str, after: str) -> str:
    return HEAD + first + before + between + after + second


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("first", ["st", "ld"])
@pytest.mark.parametrize("between", [RELAXED, "bar.sync 0;", RELAXED.replace(".relaxed", "")])
def test_any_barrier_with_the_fences_orders_a_deallocation(first: str, between: str, level: str) -> None:
    assert not run(fenced(FIRST[first][0], DEALLOC, BEFORE, between + "\n", AFTER), level).hazards


@pytest.mark.parametrize("first", ["st", "ld"])
@pytest.mark.parametrize(("before", "after"), [("", AFTER), (BEFORE, ""), ("", "")])
def test_without_a_fence_the_finding_is_the_fence(first: str, before: str, after: str) -> None:
    body = fenced(FIRST[first][0], DEALLOC, before, RELAXED + "\n", after)
    hazards = run(body).hazards
    assert {h.kind.id for h in hazards} == {"H14"}
    wanted = "after_thread_sync" if before else "before_thread_sync"
    assert {h.remedy for h in hazards} == {f"tcgen05.fence::{wanted}"}
    mild = run(body, "practice").hazards
    assert {(h.severity, h.ruling) for h in mild} == {("review", Ruling.THREAD_SYNC_FENCE)}


@pytest.mark.parametrize("between", ["", "barrier.cluster.arrive.relaxed.aligned;", "bar.warp.sync 0xffffffff;"])
def test_without_a_wait_the_finding_is_the_synchronization(between: str) -> None:
    body = fenced(FIRST["ld"][0], DEALLOC, BEFORE, between + "\n", AFTER)
    for level in ("strict", "practice"):
        assert {(h.remedy, h.severity) for h in run(body, level).hazards} == {
            ("bar.sync, or an mbarrier arrive and wait", "error")
        }


AGAIN = f"@!%p0 bra AGAIN;\n{MMA.format(enable='%p3')}\n{COMMIT}\nAGAIN:\n" + try_wait("W2", 1, "again") + AFTER
DONE = ISSUE + try_wait("W1", 0, "wait") + AFTER


@pytest.mark.parametrize("left_out", ["", "barrier", "before", "after"])
def test_an_overwritten_accumulator(left_out: str) -> None:
    sync = f"{BEFORE.strip()} //@before\n{RELAXED} //@barrier\n{AFTER.strip()} //@after\n"
    body = without(HEAD + DONE + LD + WAIT_LD + sync + AGAIN + FREE, *filter(None, [left_out]))
    lapped = {"H33"} if left_out == "barrier" else set()
    assert found(run(body)) == ({"H3"} if left_out else set()) | lapped
    assert found(run(body, "practice")) == ({"H3"} if left_out == "barrier" else set())


def test_a_relaxed_barrier_orders_no_memory() -> None:
    store, load = "mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0;\n", "ld.shared.u32 %r4, [%r20];\n"
    turn = "add.u32 %r20, %r0, 32; and.b32 %r20, %r20, 127; mad.lo.u32 %r20, %r20, 4, %r2;\n"
    for level in ("strict", "practice"):
        assert found(run(store + turn + BEFORE + RELAXED + AFTER + load + "ret;", level)) == {"G1"}
        assert not found(run(store + turn + "fence.acq_rel.cluster;" + RELAXED + load + "ret;", level))


def test_nor_what_an_mma_reads() -> None:
    """The operand is written again after a relaxed barrier alone: the MMA's completion is known to one warp."""
    wait = "@!%p1 bra OVER;\n" + try_wait("W1", 0, "wait").strip() + "\nOVER:\n"
    refill = "mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};\n"
    for between, wanted in ((RELAXED, {"H19"}), ("bar.sync 0;", set())):
        assert found(run(HEAD + ISSUE + wait + BEFORE + between + "\n" + AFTER + refill + FREE)) == wanted


RELAXED_WAIT = "{0}: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p6, [%r8], {1}; @!%p6 bra {0};\n"


@pytest.mark.parametrize("level", ["strict", "practice"])
def test_a_relaxed_wait_for_an_mma_orders_its_accumulator(level: str) -> None:
    read = RELAXED_WAIT.format("W1", 0) + AFTER + LD + WAIT_LD
    assert not run(HEAD + ISSUE + read + FREE, level).hazards
    hazards = run(HEAD + ISSUE + read.replace(AFTER, "") + FREE, level).hazards
    assert {h.kind.id for h in hazards} == {"H1"}
    assert {h.remedy for h in hazards} == {"tcgen05.fence::after_thread_sync"}


@pytest.mark.parametrize(("fence", "wanted"), [("", {"H19"}), ("fence.acq_rel.cta;", set())])
def test_and_not_its_operands(fence: str, wanted: set[str]) -> None:
    refill = "mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};\n"
    body = HEAD + ISSUE + RELAXED_WAIT.format("W1", 0) + AFTER + fence + refill + FREE
    assert found(run(body)) == found(run(body, "practice")) == wanted


# All warps load, and arrive for the thread that issues the next MMA.
ARRIVALS = """mov.u32 %r62, dyn; add.u32 %r62, %r62, 7680;
@%p0 mbarrier.init.shared.b64 [%r62], 128; bar.sync 0;
"""
RELEASED = """{before} mbarrier.arrive{relaxed}.shared::cta.b64 _, [%r62];
V: mbarrier.try_wait.parity{wait}.shared::cta.b64 %p6, [%r62], 0; @!%p6 bra V; {after}
"""


@pytest.mark.parametrize("relaxed", ["", ".relaxed.cta"])
@pytest.mark.parametrize("wait", ["", ".relaxed.cta"])
@pytest.mark.parametrize(("before", "after"), [(BEFORE, AFTER), ("", AFTER), (BEFORE, "")])
def test_relaxed_arrivals(before: str, after: str, relaxed: str, wait: str) -> None:
    sync = RELEASED.format(before=before, after=after, relaxed=relaxed, wait=wait)
    body = HEAD + ARRIVALS + DONE + LD + WAIT_LD + sync + AGAIN + FREE
    assert found(run(body)) == (set() if before and after else {"H3"})
    assert not found(run(body, "practice"))


# Flags: PTX ISA 9.7.16.11.1 has a relaxed store and load between a tcgen05.cp and a tcgen05.mma -----------------------

FLAG = """@%p0 st.shared.u32 [%r2+7168], 0; bar.sync 0;
setp.eq.u32 %p5, %r1, 1;
{first}
@!%p0 bra POLL;
{before}
{store}.shared.u32 [%r2+7168], 1; //@store
POLL:
@!%p5 bra PASSED;
W9: {load}.shared.u32 %r60, [%r2+7168]; setp.eq.u32 %p6, %r60, 0; @%p6 bra W9; //@load
{after}
elect.sync _|%p7, 0xffffffff;
@%p7 {second}
@%p7 {commit}
PASSED:
"""


def flagged(store: str, load: str, before: str, after: str, level: str = "strict") -> set[str]:
    text = FLAG.format(
        first=f"@%p0 {MMA.format(enable='%p3')}\n@%p0 {COMMIT}", before=before, store=store, load=load, after=after,
        second=MMA.format(enable="%p4"), commit=COMMIT,
    )  # fmt: skip
    # Each of the two threads commits its own.
    head = HEAD.replace("[%r8], 1;", "[%r8], 2;")
    return found(run(head + text + try_wait("W1", 0, "wait") + AFTER + FREE, level))


@pytest.mark.parametrize(
    ("store", "load"),
    [
        ("st.relaxed.cta", "ld.relaxed.cta"),
        ("st.relaxed.cluster", "ld.relaxed.cluster"),
        ("st.release.cta", "ld.acquire.cta"),
        ("st.release.cta", "ld.relaxed.cta"),
        ("st.volatile", "ld.volatile"),
    ],
)
def test_a_flag_with_the_fences_orders_issue(store: str, load: str) -> None:
    assert not flagged(store, load, BEFORE, AFTER)


@pytest.mark.parametrize(("before", "after"), [("", AFTER), (BEFORE, ""), ("", "")])
def test_a_flag_without_the_fences_does_not(before: str, after: str) -> None:
    assert flagged("st.relaxed.cta", "ld.relaxed.cta", before, after) == {"H8"}


# Warps that end ------------------------------------------------------------------------------------------------------

# When both run, block 1 writes to block 0 and ends; block 0 arrives, waits and reads.
EXIT = """barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
mov.u32 %r10, %cluster_ctarank; setp.eq.u32 %p2, %r10, 1;
@%p2 bra OTHER;
{arrive}
{wait}
ld.shared.u32 %r4, [%r2];
ret;
OTHER: mapa.shared::cluster.u32 %r11, %r2, 0; @%p0 st.shared::cluster.u32 [%r11], 7;
{end}
"""
ARRIVE, WAIT = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"


@pytest.mark.parametrize("threads", [32, 128])
@pytest.mark.parametrize("end", ["ret;", "exit;", f"{ARRIVE} ret;", f"{ARRIVE} {WAIT} ret;"])
def test_a_warp_that_ends_has_arrived(end: str, threads: int) -> None:
    body = EXIT.format(arrive=ARRIVE, wait=WAIT, end=end)
    assert not run(body, grid=2, cluster=2, threads=threads).hazards


@pytest.mark.parametrize(("arrive", "wait"), [("", ""), (ARRIVE, "")])
def test_only_those_who_pass_know_of_it(arrive: str, wait: str) -> None:
    """Block 0 does not wait, or waits for something else."""
    body = EXIT.format(arrive=arrive, wait=wait + "bar.sync 0;", end="ret;")
    for level in ("strict", "practice"):
        assert found(check(body, grid=2, cluster=2, level=level)) & {"G1", "H26"}


LATE = """setp.ge.u32 %p2, %r1, 2; setp.lt.u32 %p3, %r1, 2;
@%p2 st.shared.u32 [%r2], %r0; @%p2 exit;
{between}
ld.shared.u32 %r4, [%r2]; ret;
"""


@pytest.mark.parametrize(
    ("between", "wanted"),
    [("bar.sync 0;", set()), ("barrier.sync 1;", set()), ("bar.sync 0, 64;", {"G1"}), ("", {"G1"})],
)
def test_a_barrier_of_all_threads_lets_go_of_those_that_have_ended(between: str, wanted: set[str]) -> None:
    one = LATE.replace("setp.ge.u32 %p2, %r1, 2;", "setp.eq.u32 %p2, %r1, 3;").replace("exit;", "exit;", 1)
    one = one.replace("{between}", "setp.eq.u32 %p4, %r1, 2; @%p4 exit; {between}")
    assert found(run(one.format(between=between))) == wanted


@pytest.mark.parametrize("between", ["", "bar.sync 0;", "nanosleep.u32 20;"])
def test_two_arrivals_without_a_wait_are_an_error_of_the_thread(between: str) -> None:
    for first in (ARRIVE, ARRIVE.replace("arrive", "arrive.relaxed")):
        outcome = check(f"{first} {between} {ARRIVE} {WAIT} ret;", "sm_90a")
        assert [f.code.id for f in outcome.findings] == ["PT4016"], outcome.findings
        assert "second barrier.cluster.arrive" in outcome.findings[0].message


def test_an_arrival_after_each_wait_is_none() -> None:
    assert not run(f"{ARRIVE} {WAIT} {ARRIVE} {WAIT} {ARRIVE} {WAIT} ret;").hazards
    assert not run(f"{ARRIVE} ret;").hazards
