# SPDX-License-Identifier: Apache-2.0
"""Allocation and deallocation of Tensor Memory by block pairs, the right to allocate (PTX ISA 9.7.16.5, 9.7.16.7.1).

Right and wrong kernels differ in the synchronization of the pair alone.
"""

from __future__ import annotations

import pytest
from check_ptx import check, found

from porter.sim import Outcome

CLUSTER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;"
FENCED = f"tcgen05.fence::before_thread_sync; {CLUSTER} tcgen05.fence::after_thread_sync;"
BLOCK = "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;"
ALLOC = "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r9], {columns};"
DEALLOC = "tcgen05.dealloc.cta_group::2.sync.aligned.b32 {where}, {columns};"
PLACE = """mov.u32 %r20, %cluster_ctarank; and.b32 %r21, %r20, 1; setp.ne.u32 %p5, %r21, 0; xor.b32 %r22, %r20, 1;
@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster;
mapa.shared::cluster.u32 %r23, %r8, %r22;
"""

# Each block's thread tells the peer's, and waits to be told.
TOLD = "SPIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p6, [%r8], 0; @!%p6 bra SPIN;"
TELL = "@%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r23];"
HANDSHAKE = f"{TELL} {TOLD} bar.warp.sync 0xffffffff;"
FLAG_TOLD = "SPIN: ld.acquire.cluster.global.u32 %r24, [%d3]; setp.eq.u32 %p6, %r24, 0; @%p6 bra SPIN;"
FLAGS = f"""mul.wide.u32 %d2, %r20, 4; add.u64 %d2, %d1, %d2; mul.wide.u32 %d3, %r22, 4; add.u64 %d3, %d1, %d3;
mov.u32 %r24, 1; @%p0 st.release.cluster.global.u32 [%d2], %r24; {FLAG_TOLD} bar.warp.sync 0xffffffff;"""


def kernel(before: str = CLUSTER, after: str = "", end: str = CLUSTER, last: str = "", columns: int = 32) -> str:
    """The first warp of each block allocates and deallocates; `after` comes between."""
    return f"""{PLACE} {before}
@!%p1 bra HELD; {ALLOC.format(columns=columns)} HELD:
{BLOCK} ld.shared.u32 %r10, [%r9]; shl.b32 %r13, %r1, 21; add.u32 %r13, %r13, %r10;
{after} {end}
@!%p1 bra FREE; {DEALLOC.format(where="%r10", columns=columns)} FREE: {last} ret;
"""


def run(body: str, level: str = "strict", threads: int = 64, blocks: int = 2, **more: str | int) -> Outcome:
    return check(body, level=level, threads=threads, grid=blocks, cluster=blocks, **more)


STORE = """tcgen05.st.sync.aligned.32x32b.x1.b32 [%r13], {%r0}; tcgen05.wait::st.sync.aligned;"""
LOAD = """tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r30}, [%r13]; tcgen05.wait::ld.sync.aligned;"""
BY_WARP_1 = "setp.ne.u32 %p8, %r1, 1;"
RELAXED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
RIGHT = {
    "barriers": kernel(),
    "relaxed_barrier_before_the_allocation": kernel(before=RELAXED),
    "relaxed_barrier_before_the_end": kernel(end=RELAXED),
    "relaxed_barrier_behind_accesses": kernel(
        after=STORE + LOAD,
        end=f"tcgen05.fence::before_thread_sync; {RELAXED} tcgen05.fence::after_thread_sync;",
    ),
    "relaxed_handshake": kernel(end=HANDSHAKE.replace("release", "relaxed").replace("acquire", "relaxed")),
    "relinquish": kernel(after=f"@!%p1 bra KEPT; {RELINQUISH} KEPT:"),
    "relinquish_last": kernel(last=f"@!%p1 bra END; {RELINQUISH} END:"),
    "handshake_before_the_end": kernel(end=HANDSHAKE),
    "flags_before_the_allocation": kernel(before=FLAGS),
    "flags_before_the_end": kernel(end=FLAGS),
    "accesses": kernel(after=STORE + LOAD, end=FENCED),
    "all_columns": kernel(columns=512),
    "barrier_also_behind": kernel(last=CLUSTER),
    "another_warp_frees": kernel().replace("@!%p1 bra FREE", f"{BY_WARP_1} @%p8 bra FREE"),
    "relinquish_by_another_warp": kernel(after=f"{BY_WARP_1} @%p8 bra KEPT; {RELINQUISH} KEPT:"),
    "twice": kernel(
        after=f"{FENCED} @!%p1 bra AGAIN; {DEALLOC.format(where='%r10', columns=32)} {ALLOC.format(columns=32)} AGAIN:"
    ),
}


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("name", RIGHT)
def test_a_pair_that_synchronizes_is_clean(name: str, blocks: int) -> None:
    for schedule in ("late", "eager", "random"):
        outcome = run(RIGHT[name], blocks=blocks, schedule=schedule)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        assert not outcome.hazards, [str(h.message) for h in outcome.hazards]


# Kinds at strict level, and those of them that are errors at practice level too.
WRONG = {
    # The tutorials 04 and 05 of CUTLASS before NVIDIA/cutlass pull request 3316.
    "barrier_after_the_allocation_only": (kernel(before="", after=CLUSTER), {"L1"}, set()),
    "barrier_of_the_block_before": (kernel(before="bar.sync 0;", after=CLUSTER), {"L1"}, set()),
    "barrier_of_the_warp_before": (kernel(before="bar.warp.sync 0xffffffff;", after=CLUSTER), {"L1"}, set()),
    "arrival_without_wait": (
        kernel(before="barrier.cluster.arrive.aligned;", end="barrier.cluster.wait.aligned;" + CLUSTER),
        {"L1"}, set(),
    ),
    # NVIDIA/cutlass issue 3435.
    "no_synchronization": (kernel(before="", end=""), {"L1", "L2"}, {"L2"}),
    "relinquished_at_once": (
        kernel(before="", after=f"@!%p1 bra KEPT; {RELINQUISH} KEPT:", end=""), {"L1", "L2"}, {"L2"},
    ),
    "peer_comes_late": (
        kernel(before="@!%p5 bra EARLY; nanosleep.u32 10000; EARLY:", end=""), {"L1", "L2"}, {"L2"},
    ),
    "barrier_before_the_allocation_only": (kernel(end=""), {"L2"}, {"L2"}),
    "barrier_of_the_block_at_the_end": (kernel(end="bar.sync 0;"), {"L2"}, {"L2"}),
    "only_one_block_waits": (kernel(end=f"@%p5 bra SENT; {TOLD} SENT: @%p5 bra TELL; bra FREED; TELL: {TELL} FREED:"),
                             {"L2"}, {"L2"}),
    "barrier_behind_the_deallocation": (kernel(end="", last=CLUSTER), {"L2"}, {"L2"}),
    # The peer has its columns, and is still at work on them.
    "accesses_after_the_barrier": (
        kernel(after=FENCED + STORE + LOAD, end=BLOCK), {"L2"}, set(),
    ),
    "stores_after_the_barrier": (kernel(after=FENCED + STORE, end=BLOCK), {"L2"}, set()),
    "relinquish_by_an_unordered_warp": (
        kernel().replace(ALLOC.format(columns=32) + " HELD:",
                         f"{ALLOC.format(columns=32)} HELD: {BY_WARP_1} @%p8 bra KEPT; {RELINQUISH} KEPT:"),
        {"L3"}, {"L3"},
    ),
    "growing_allocations": (
        kernel(after=f"@!%p1 bra MORE; {ALLOC.format(columns=64).replace('%r9', '%r2')} MORE: {BLOCK}"
                     f"ld.shared.u32 %r11, [%r2];",
               end=f"{FENCED} @!%p1 bra LESS; {DEALLOC.format(where='%r11', columns=64)} LESS:"),
        {"L4"}, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_pair_that_does_not_is_found(name: str) -> None:
    body, strict, practice = WRONG[name]
    for schedule in ("late", "eager", "random"):
        outcome = run(body, schedule=schedule)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        assert found(outcome) == strict
        outcome = run(body, level="practice", schedule=schedule)
        assert found(outcome) == practice
        assert found(outcome, "review") == strict - practice


HANGS = {
    "peer_ends_without_allocating": (kernel(after="@%p5 ret;").replace("@!%p1 bra HELD", "@%p5 ret; @!%p1 bra HELD"),
                                     "the peer block's tcgen05.alloc, but it has ended"),
    "only_one_deallocates": (kernel(last="").replace("@!%p1 bra FREE", "@%p5 ret; @!%p1 bra FREE"),
                             "the peer block's tcgen05.dealloc"),
    "only_one_relinquishes": (kernel(after=f"@%p5 bra KEPT; @!%p1 bra KEPT; {RELINQUISH} KEPT:"),
                              "the peer block's tcgen05.relinquish_alloc_permit"),
    # PTX ISA 9.7.16.5, table 48.
    "barrier_on_either_side": (
        kernel(end=f"{CLUSTER} @%p5 bra ODD; {CLUSTER}", last=f"ret; ODD: @!%p1 bra JOIN; "
               f"{DEALLOC.format(where='%r10', columns=32)} JOIN: {CLUSTER}"),
        "the peer block's tcgen05.dealloc",
    ),
    "relinquish_on_either_side": (
        kernel(end=f"{CLUSTER} @!%p1 bra ODD; @%p5 bra ODD; {RELINQUISH} ODD:",
               last=f"@!%p5 ret; @!%p1 ret; {RELINQUISH}"),
        "the peer block's tcgen05.relinquish_alloc_permit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("name", HANGS)
def test_what_may_block_for_ever_is_a_deadlock(name: str, level: str) -> None:
    body, text = HANGS[name]
    outcome = run(body, level=level)
    assert outcome.status == "error"
    assert text in outcome.findings[0].message


def test_the_pair_may_not_allocate_after_it_has_relinquished() -> None:
    again = f"@!%p1 bra KEPT; {RELINQUISH} {ALLOC.format(columns=32)} KEPT:"
    outcome = run(kernel(after=again))
    assert outcome.status == "error"
    assert "alloc after relinquish_alloc_permit" in outcome.findings[0].message


COMMIT = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%r8];"


@pytest.mark.parametrize("wait", [True, False])
def test_an_operation_of_a_pair_needs_the_peer_to_be_there(wait: bool) -> None:
    at_work = f"@!%p0 bra DONE; @%p5 bra DONE; tcgen05.shift.cta_group::2.down [%r10]; {COMMIT} {TOLD} DONE: "
    stored = (
        "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r13], {%r0,%r0,%r0,%r0,%r0,%r0,%r0,%r0};tcgen05.wait::st.sync.aligned;"
    )
    gone = "" if wait else f"@%p5 ret; @!%p0 bra WAIT; {COMMIT} WAIT:"
    body = kernel(after=stored + FENCED + at_work, end=FENCED, last=gone)
    outcome = run(body, threads=128)
    assert found(outcome) == (set() if wait else {"H26"}), [h.message for h in outcome.hazards]
