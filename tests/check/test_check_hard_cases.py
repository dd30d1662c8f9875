# SPDX-License-Identifier: Apache-2.0
"""Cases that a reader would think of first to prove the checker wrong: fences in the wrong place or by the wrong warp,
warps that end early, flags, one-sided fences, initializations that another block uses, allocations of pairs."""

from __future__ import annotations

from typing import Any

import pytest
from check_ptx import check, found
from test_check_execution_order import AFTER, BEFORE, DEALLOC, HEAD, LD, ST, WAIT_LD, WAIT_ST
from test_check_tensor_lifetime import CLUSTER, HANDSHAKE, RELINQUISH, kernel

from porter.sim import Outcome

ARRIVE, WAIT = "barrier.cluster.arrive.relaxed.aligned;\n", "barrier.cluster.wait.aligned;\n"
USED = HEAD + ST + WAIT_ST + LD + WAIT_LD
FENCE_BEFORE, FENCE_AFTER = "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"
BARRIER = "bar.sync, or an mbarrier arrive and wait"
BY_OTHERS, BY_FIRST = "@%p1 bra NOF; {} NOF: ", "@!%p1 bra NOF; {} NOF: "
OTHERS_END = "@!%p1 ret; "
HALF = "and.b32 %r70, %r0, 16; setp.ne.u32 %p7, %r70, 0;\n"

# The accumulator is used by all four warps, and freed by the first: the remedy at strict level, None where it is clean.
# Where a fence is all that is missing, practice has it to review.
FREED: dict[str, tuple[str, str | None]] = {
    "fences_around_a_relaxed_barrier": (USED + BEFORE + ARRIVE + WAIT + AFTER + DEALLOC, None),
    "fence_ahead_of_the_access": (
        HEAD + BEFORE + ST + WAIT_ST + LD + WAIT_LD + ARRIVE + WAIT + AFTER + DEALLOC, FENCE_BEFORE,
    ),
    "fence_behind_the_arrival": (USED + ARRIVE + BEFORE + WAIT + AFTER + DEALLOC, FENCE_BEFORE),
    "fence_ahead_of_the_wait": (USED + BEFORE + ARRIVE + AFTER + WAIT + DEALLOC, FENCE_AFTER),
    "access_between_arrival_and_wait": (
        HEAD + ST + WAIT_ST + BEFORE + ARRIVE + LD + WAIT_LD + WAIT + AFTER + DEALLOC, BARRIER,
    ),
    "only_the_freeing_warp_fences": (
        USED + BY_FIRST.format(BEFORE) + ARRIVE + WAIT + AFTER + DEALLOC, FENCE_BEFORE,
    ),
    "all_others_fence": (USED + BY_OTHERS.format(BEFORE) + ARRIVE + WAIT + AFTER + DEALLOC, None),
    "fence_behind_it_by_the_wrong_warps": (
        USED + BEFORE + ARRIVE + WAIT + BY_OTHERS.format(AFTER) + DEALLOC, FENCE_AFTER,
    ),
    "named_barrier_of_all": (
        USED + BEFORE + "@%p1 bra SYN; bar.arrive 1, 128; ret; SYN: bar.sync 1, 128;\n" + AFTER + DEALLOC, None,
    ),
    "two_named_barriers": (
        USED + BEFORE + "bar.sync 1, 128; setp.gt.u32 %p7, %r1, 1; @%p7 ret; bar.sync 2, 64;\n" + AFTER + DEALLOC,
        None,
    ),
    "named_barrier_of_half_the_warps": (
        USED + BEFORE + "setp.gt.u32 %p7, %r1, 1; @%p7 bra END; bar.sync 1, 64;\n" + AFTER + DEALLOC, BARRIER,
    ),
    "others_end_behind_the_fence": (USED + BEFORE + OTHERS_END + "bar.sync 0;\n" + AFTER + DEALLOC, None),
    "others_end_relaxed_barrier": (USED + BEFORE + OTHERS_END + ARRIVE + WAIT + AFTER + DEALLOC, None),
    "others_end_three_phases_later": (
        USED + BEFORE + ARRIVE + WAIT + OTHERS_END + (ARRIVE + WAIT) * 3 + AFTER + DEALLOC, None,
    ),
    "others_end_without_the_fence": (USED + OTHERS_END + "bar.sync 0;\n" + AFTER + DEALLOC, FENCE_BEFORE),
    "others_end_and_nobody_waits": (USED + BEFORE + OTHERS_END + AFTER + DEALLOC, BARRIER),
}  # fmt: skip


def run(body: str, level: Any = "strict", **options: Any) -> Outcome:
    outcome = check(body, level=level, **options)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome


@pytest.mark.parametrize("schedule", ["late", "eager", "random"])
@pytest.mark.parametrize("name", FREED)
def test_columns_that_all_warps_have_used(name: str, schedule: str) -> None:
    body, remedy = FREED[name]
    hazards = run(body, schedule=schedule).hazards
    assert {(h.kind.id, h.remedy, h.severity) for h in hazards} == (
        set() if remedy is None else {("H14", remedy, "error")}
    )
    mild = "review" if remedy in (FENCE_BEFORE, FENCE_AFTER) else "error"
    hazards = run(body, "practice", schedule=schedule).hazards
    assert {(h.kind.id, h.severity) for h in hazards} == (set() if remedy is None else {("H14", mild)})


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        # What is under way when a warp ends is still under way.
        (HEAD + ST + WAIT_ST + LD + BEFORE + OTHERS_END + "bar.sync 0;\n" + WAIT_LD + AFTER + DEALLOC, "freed"),
        (HEAD + ST + BEFORE + OTHERS_END + "bar.sync 0;\n" + WAIT_ST + AFTER + DEALLOC, "freed"),
        # A barrier with a number of threads counts no ends.
        (USED + BEFORE + OTHERS_END + "bar.sync 0, 128;\n" + AFTER + DEALLOC, "32 of 128 threads arrived"),
    ],
)
def test_ends_that_do_not_help(body: str, message: str, level: str) -> None:
    outcome = check(body, level=level)
    assert outcome.status == "error"
    assert message in outcome.findings[0].message


SOME_END = HALF + "@!%p1 bra GO; @%p7 ret; GO:\n"


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize(
    ("body", "opcode"),
    [
        (HEAD + SOME_END + ST + WAIT_ST + BEFORE + "bar.sync 0;\n" + AFTER + DEALLOC, "tcgen05.st"),
        (HEAD + ST + WAIT_ST + SOME_END + LD + WAIT_LD + BEFORE + "bar.sync 0;\n" + AFTER + DEALLOC, "tcgen05.ld"),
        (USED + BEFORE + SOME_END + "bar.sync 0;\n" + AFTER + DEALLOC, "tcgen05.dealloc"),
        (SOME_END + HEAD, "tcgen05.alloc"),
    ],
)
def test_a_warp_of_which_some_threads_have_ended(body: str, opcode: str, level: str) -> None:
    """PTX ISA 9.7.16.7.1, 9.7.16.8.3: undefined "if any thread in the warp has exited"."""
    outcome = check(body, level=level)
    assert [f.code.id for f in outcome.findings] == ["PT4014"], outcome.findings
    assert f"{opcode} by a warp of which threads have ended" in outcome.findings[0].message


@pytest.mark.parametrize("threads", [16, 128])
def test_a_warp_whose_threads_meet_again(threads: int) -> None:
    """Threads that were elsewhere, or that a block of half a warp never had, are none that have ended."""
    body = HALF + USED.replace(LD, "@%p7 bra MEET; add.u32 %r71, %r71, 1; MEET:\n" + LD)
    assert not run(body + BEFORE + "bar.sync 0;\n" + AFTER + DEALLOC, threads=threads).hazards


# One-sided fences beside relaxed flags (PTX ISA 8.8) ------------------------------------------------------------------

FLAG = """mov.u32 %r20, %ctaid.x; setp.ne.u32 %p5, %r20, 0; mov.u32 %r21, 7; @!%p0 ret; @%p5 bra READ;
st.global.u32 [%d1+256], %r21; {released} st.relaxed.gpu.global.u32 [%d1], %r21; ret;
READ: ld.relaxed.gpu.global.u32 %r22, [%d1]; setp.eq.u32 %p6, %r22, 0; @%p6 bra READ;
{acquired} ld.global.u32 %r23, [%d1+256]; st.global.u32 [%d1+512], %r23; ret;"""
SIDES = [
    ("release", "acquire", True),
    ("acq_rel", "acquire", True),
    ("release", "acq_rel", True),
    ("sc", "acquire", True),
    ("acquire", "acquire", False),
    ("release", "release", False),
    ("acquire", "release", False),
    ("acq_rel", "release", False),
    ("acquire", "acq_rel", False),
]


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize(("released", "acquired", "right"), SIDES)
def test_a_fence_has_the_side_that_it_names(released: str, acquired: str, right: bool, level: str) -> None:
    body = FLAG.format(released=f"fence.{released}.gpu;", acquired=f"fence.{acquired}.gpu;")
    assert found(run(body, level, grid=2, threads=32)) == (set() if right else {"G2"})


ARRIVAL = """mov.u32 %r20, %cluster_ctarank; setp.ne.u32 %p5, %r20, 0; mov.u32 %r25, 0; mov.u32 %r21, 7;
@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mapa.shared::cluster.u32 %r26, %r2, %r25; mapa.shared::cluster.u32 %r27, %r8, %r25; @!%p0 bra END; @!%p5 bra READ;
st.shared::cluster.u32 [%r26+256], %r21; {released}
mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r27]; bra END;
READ: mbarrier.try_wait.parity.relaxed.cluster.shared.b64 %p6, [%r8], 0; @!%p6 bra READ;
{acquired} ld.shared.u32 %r24, [%r2+256]; st.global.u32 [%d1+512], %r24;
END: bar.warp.sync 0xffffffff; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""
CTA, REMOTE = ".sync_restrict::shared::cta.cluster", ".sync_restrict::shared::cluster.cluster"


@pytest.mark.parametrize(
    ("released", "acquired", "right"),
    [
        ("fence.release.cluster;", "fence.acquire.cluster;", True),
        ("fence.acq_rel.cluster;", "fence.acquire.cluster;", True),
        ("fence.release.cluster;", f"fence.acquire{REMOTE};", True),
        # What is stored is in the other block's memory, which a release of the own block's does not concern.
        (f"fence.release{CTA};", f"fence.acquire{REMOTE};", False),
        ("fence.acquire.cluster;", "fence.acquire.cluster;", False),
        ("fence.release.cluster;", "fence.release.cluster;", False),
        ("fence.release.cta;", "fence.acquire.cluster;", False),
    ],
)
def test_one_sided_fences_beside_relaxed_arrivals(released: str, acquired: str, right: bool) -> None:
    body = ARRIVAL.format(released=released, acquired=acquired)
    assert found(run(body, grid=2, threads=32, cluster=2)) == (set() if right else {"G1"})


# Initializations that another block uses (H21) ------------------------------------------------------------------------

INIT = """mov.u32 %r10, %cluster_ctarank; setp.eq.and.u32 %p2, %r10, 0, %p0; setp.eq.and.u32 %p3, %r10, 1, %p0;
@%p0 st.shared.u32 [%r2], 0; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@%p2 mbarrier.init.shared.b64 [%r8], 1; {told}
mapa.shared::cluster.u32 %r11, %r8, 0;
@%p3 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
@!%p2 bra DONE;
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r8], 0; @!%p4 bra WAIT;
DONE: bar.warp.sync 0xffffffff; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""
TELL = """mapa.shared::cluster.u32 %r12, %r2, 1; {fence} @%p2 st.{store}.cluster.shared::cluster.u32 [%r12], 1;
@!%p3 bra TOLD; P: ld.{load}.cluster.shared.u32 %r13, [%r2]; setp.ne.u32 %p7, %r13, 1; @%p7 bra P; TOLD: {acquired}"""


def flag(store: str, load: str, fence: str = "", acquired: str = "") -> str:
    return TELL.format(store=store, load=load, fence=fence, acquired=acquired)


MEET = "barrier.cluster.arrive.{0}aligned; barrier.cluster.wait.aligned;"
INIT_FENCE, MEMORY_FENCE = "fence.mbarrier_init.release.cluster;", "fence.acq_rel.cluster;"
TOLD: dict[str, tuple[str, bool]] = {
    "cluster_barrier": (MEET.format(""), True),
    "work_between_arrival_and_wait": (
        "barrier.cluster.arrive.release.aligned; bar.sync 0; barrier.cluster.wait.acquire.aligned;", True,
    ),
    "fence_and_relaxed_barrier": (INIT_FENCE + MEET.format("relaxed."), True),
    "memory_fence_and_relaxed_barrier": (MEMORY_FENCE + MEET.format("relaxed."), True),
    "flag": (flag("release", "acquire"), True),
    "relaxed_flag_with_fences": (flag("relaxed", "relaxed", MEMORY_FENCE, MEMORY_FENCE), True),
    "relaxed_flag_with_the_fence_for_initializations": (flag("relaxed", "relaxed", INIT_FENCE, MEMORY_FENCE), True),
    "fence_for_initializations_and_acquire": (flag("relaxed", "acquire", INIT_FENCE), True),
    "relaxed_barrier": (MEET.format("relaxed."), False),
    "relaxed_flag": (flag("relaxed", "relaxed"), False),
    "relaxed_flag_released_only": (flag("relaxed", "relaxed", MEMORY_FENCE), False),
    "relaxed_flag_acquired_only": (flag("relaxed", "relaxed", acquired=MEMORY_FENCE), False),
    "barrier_of_the_block": ("bar.sync 0;", False),
    "arrival_alone": ("barrier.cluster.arrive.aligned; nanosleep.u32 100; barrier.cluster.wait.aligned;", True),
    "nothing": ("", False),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_what_tells_another_block_of_an_initialization(name: str) -> None:
    told, right = TOLD[name]
    outcome = check(INIT.format(told=told), "sm_90a", 32, grid=2, cluster=2)
    assert outcome.status == "ok", outcome.findings
    assert found(outcome) == (set() if right else {"H21"})


def test_the_fence_for_initializations_releases_nothing_else() -> None:
    """A store ahead of it is not told of."""
    more = "@%p2 st.shared::cluster.u32 [%r12+64], 9; "
    read = MEMORY_FENCE + " @%p3 ld.shared.u32 %r14, [%r2+64];"
    for fence, wanted in ((INIT_FENCE, {"G1"}), (MEMORY_FENCE, set())):
        told = flag("relaxed", "relaxed", more + fence, read)
        assert found(run(INIT.format(told=told), target="sm_90a", threads=32, grid=2, cluster=2)) == wanted


# The life of a pair's Tensor Memory -----------------------------------------------------------------------------------

SECOND = "@!%p1 bra E2; tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r10, 32; E2:"
ENDS = {
    "relinquished_before": (kernel(before=CLUSTER + f"@!%p1 bra K; {RELINQUISH} K:"), "alloc after relinquish"),
    "freed_as_one_block": (kernel().replace("dealloc.cta_group::2", "dealloc.cta_group::1"), "cta_group::1 after"),
    "half_freed": (kernel(columns=64).replace("%r10, 64", "%r10, 32"), "dealloc of 32 columns, but 64"),
    "not_freed": (
        kernel().replace("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r10, 32;", ""), "are still allocated",
    ),
    "one_block_frees": (kernel().replace("@!%p1 bra FREE;", "@!%p1 bra FREE; @%p5 bra FREE;"), "deadlock"),
    "freed_twice": (kernel(last=SECOND), "which no alloc returned"),
}  # fmt: skip


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("name", ENDS)
def test_a_pair_that_breaks_the_rules_of_allocation(name: str, level: str) -> None:
    body, message = ENDS[name]
    outcome = check(body, level=level, threads=64, grid=2, cluster=2)
    assert outcome.status == "error"
    assert message in outcome.findings[0].message


def test_a_handshake_needs_its_own_initialization_told() -> None:
    """The warps that allocate meet by an mbarrier, which the peer has not been told of."""
    body = kernel(before=f"@!%p1 bra NB; {HANDSHAKE} NB:")
    assert found(run(body, threads=64, grid=2, cluster=2)) == {"H21"}
