# SPDX-License-Identifier: Apache-2.0
"""Barriers of every kind, clusters, and deadlocks."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import download, module_text, run

from porter.diagnostics import Code
from porter.sim import GlobalMemory, Options, Outcome
from porter.sim.results import Schedule

REGS = ".reg .b32 %r<24>; .reg .b64 %d<12>; .reg .pred %p<10>; mov.u32 %r0, %tid.x; mov.u32 %r1, %warpid;"
STORE = """mov.u32 %r20, %ctaid.x; mov.u32 %r21, %ntid.x; mad.lo.u32 %r20, %r20, %r21, %r0;
ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r20, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r10; ret;"""
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "late", "random"])


def launch(body: str, blocks: int = 1, threads: int = 32, cluster: int = 1, schedule: Schedule = "late", seed: int = 0,
           target: str = "sm_90a") -> tuple[Outcome, list[int]]:  # fmt: skip
    memory = GlobalMemory()
    out = memory.alloc(4 * blocks * threads)
    options = Options(schedule=schedule, seed=seed, max_warp_instructions=1_000_000)
    outcome = run(module_text(["out"], REGS + body, target), [out], memory, blocks, threads, cluster, options=options)
    return outcome, download(memory, out, blocks * threads, np.uint32).tolist()


def words(body: str, *args: object, **more: object) -> list[int]:
    outcome, got = launch(body, *args, **more)  # type: ignore[arg-type]
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return got


@SCHEDULES
def test_named_barriers_as_producer_and_consumer(schedule: Schedule) -> None:
    """Warp 0 waits at barrier 1 for arrivals of warps 1 to 3, twice over, handing back through barrier 2."""
    body = (
        """.shared .align 4 .b8 box[512]; mov.u32 %r2, box; mad.lo.u32 %r3, %r0, 4, %r2; mov.u32 %r4, 0;
    mov.u32 %r10, 0; setp.eq.u32 %p0, %r1, 0;
    ROUND: @%p0 bra CONSUME;
    mad.lo.u32 %r5, %r4, 1000, %r0; st.shared.u32 [%r3], %r5; bar.arrive 1, 128; bar.sync 2, 128; bra NEXT;
    CONSUME: bar.sync 1, 128; ld.shared.u32 %r6, [%r3+128]; ld.shared.u32 %r7, [%r3+384];
    add.u32 %r10, %r10, %r6; add.u32 %r10, %r10, %r7; bar.sync 2, 128;
    NEXT: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 3; @%p1 bra ROUND;"""
        + STORE
    )
    want = [3 * (2 * t + 32 + 96) + 2 * 3000 for t in range(32)] + [0] * 96
    assert words(body, 1, 128, schedule=schedule, seed=3) == want


def test_barrier_counts_only_live_threads() -> None:
    body = "mov.u32 %r10, 1; setp.lt.u32 %p0, %r0, 40; @%p0 exit; bar.sync 0; mov.u32 %r10, 2;" + STORE
    assert words(body, 2, 96) == ([0xFFFFFFFF] * 40 + [2] * 56) * 2


@SCHEDULES
def test_barrier_reductions(schedule: Schedule) -> None:
    body = (
        """setp.lt.u32 %p0, %r0, 70; bar.red.popc.u32 %r10, 0, %p0; bar.red.or.pred %p1, 0, !%p0;
    bar.red.and.pred %p2, 0, %p0; @%p1 add.u32 %r10, %r10, 1000; @%p2 add.u32 %r10, %r10, 5000;"""
        + STORE
    )
    assert words(body, 2, 96, schedule=schedule, seed=1) == [1070] * 192


@SCHEDULES
def test_cluster_barrier_and_remote_shared_memory(schedule: Schedule) -> None:
    """Each block writes to its right neighbour's shared memory, adds to its left one's, and reads both."""
    body = (
        """.shared .align 4 .b8 box[128]; .shared .align 4 .u32 sum; mov.u32 %r2, box; mov.u32 %r3, %cluster_ctarank;
    mov.u32 %r4, %cluster_nctarank; setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [sum], 0;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    add.u32 %r5, %r3, 1; rem.u32 %r5, %r5, %r4; mapa.shared::cluster.u32 %r6, %r2, %r5; mad.lo.u32 %r6, %r0, 4, %r6;
    mad.lo.u32 %r7, %r3, 100, %r0; st.shared::cluster.u32 [%r6], %r7;
    mov.u32 %r8, sum; mapa.shared::cluster.u32 %r8, %r8, 0; red.shared::cluster.add.u32 [%r8], 1;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    mad.lo.u32 %r9, %r0, 4, %r2; ld.shared.u32 %r10, [%r9]; ld.shared::cluster.u32 %r11, [%r8];
    mad.lo.u32 %r10, %r11, 1000, %r10; mov.u64 %d2, box; cvta.shared.u64 %d2, %d2; mapa.u64 %d3, %d2, %r5;
    ld.u32 %r12, [%d3]; mad.lo.u32 %r10, %r12, 1000000, %r10;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
        + STORE
    )
    got = words(body, 8, 32, 4, schedule=schedule, seed=2)
    want = []
    for block in range(8):
        rank = block % 4
        left = (rank - 1) % 4
        want += [left * 100 + t + 128 * 1000 + rank * 100 * 1000000 for t in range(32)]
    assert got == [w & 0xFFFFFFFF for w in want]


ARRIVES_AND_ENDS = """setp.lt.u32 %p0, %r0, 32; mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r3, 0;
and.pred %p0, %p0, %p1; @%p0 bra EARLY; setp.ge.u32 %p2, %r0, 32; and.pred %p2, %p2, %p1; mov.u32 %r4, 0;
@!%p2 bra COME;
SLOW: add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 2000; @%p3 bra SLOW;
mov.u32 %r5, flag; mapa.shared::cluster.u32 %r5, %r5, 1; mov.u32 %r6, 1; st.shared::cluster.u32 [%r5], %r6;
COME: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ld.shared.u32 %r10, [flag];"""


@SCHEDULES
@pytest.mark.parametrize("early", ["barrier.cluster.arrive.aligned;", ""])
def test_threads_that_arrive_at_a_clusters_barrier_and_end_count_once(early: str, schedule: Schedule) -> None:
    """Else the barrier would be complete ahead of the slow warp, and the other block find no flag."""
    body = f".shared .align 4 .u32 flag; {ARRIVES_AND_ENDS} {STORE} EARLY: {early} ret;"
    assert words(body, 2, 64, 2, schedule=schedule)[64:] == [1] * 64


def test_foreign_shared_address_needs_the_cluster_window() -> None:
    body = """.shared .align 4 .b8 box[128]; mov.u32 %r2, box; mov.u32 %r3, 1; mapa.shared::cluster.u32 %r6, %r2, %r3;
    st.shared.u32 [%r6], %r3; ret;"""
    outcome, _ = launch(body, 2, 32, 2)
    assert outcome.findings[0].code is Code.SIM_OUT_OF_BOUNDS
    assert outcome.findings[0].block == (0, 0, 0)


@SCHEDULES
def test_mbarrier_ring(schedule: Schedule) -> None:
    """A producer warp and two consumer warps pass numbers through a ring of two slots."""
    body = (
        """.shared .align 8 .b8 full[16]; .shared .align 8 .b8 empty[16]; .shared .align 4 .b8 ring[256];
    setp.eq.u32 %p0, %r0, 0; mov.u32 %r2, full; mov.u32 %r3, empty; mov.u32 %r4, ring; @!%p0 bra READY;
    mbarrier.init.shared.b64 [%r2], 32; mbarrier.init.shared.b64 [%r2+8], 32;
    mbarrier.init.shared.b64 [%r3], 2; mbarrier.init.shared.b64 [%r3+8], 2;
    READY: bar.sync 0; mov.u32 %r5, 0; mov.u32 %r10, 0; setp.ne.u32 %p1, %r1, 0; and.b32 %r17, %r0, 31;
    elect.sync _|%p6, -1;
    LOOP: and.b32 %r6, %r5, 1; mad.lo.u32 %r7, %r6, 8, %r2; mad.lo.u32 %r8, %r6, 8, %r3; shr.u32 %r9, %r5, 1;
    and.b32 %r9, %r9, 1; mad.lo.u32 %r11, %r6, 128, %r4; mad.lo.u32 %r11, %r17, 4, %r11;
    @%p1 bra CONSUME;
    xor.b32 %r12, %r9, 1;
    W1: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], %r12; @!%p2 bra W1;
    mad.lo.u32 %r13, %r5, 10, %r0; st.shared.u32 [%r11], %r13; mbarrier.arrive.shared::cta.b64 _, [%r7]; bra NEXT;
    CONSUME:
    W2: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r7], %r9; @!%p2 bra W2;
    ld.shared.u32 %r14, [%r11]; mad.lo.u32 %r10, %r10, 3, %r14; bar.warp.sync -1;
    @%p6 mbarrier.arrive.shared::cta.b64 _, [%r8];
    NEXT: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 7; @%p3 bra LOOP;"""
        + STORE
    )
    want = []
    for t in range(32):
        x = 0
        for i in range(7):
            x = x * 3 + i * 10 + t
        want.append(x)
    assert words(body, 3, 96, schedule=schedule, seed=9) == ([0] * 32 + want * 2) * 3


def test_mbarrier_states_and_transactions() -> None:
    body = (
        """.shared .align 8 .b8 bar[8]; mov.u32 %r2, bar; setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
    mbarrier.init.shared.b64 [%r2], 2; mbarrier.arrive.shared.b64 %d2, [%r2];
    mbarrier.pending_count.b64 %r3, %d2; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 16;
    mbarrier.arrive.shared.b64 %d3, [%r2]; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 16;
    W: mbarrier.try_wait.shared.b64 %p1, [%r2], %d2; @!%p1 bra W;
    mbarrier.arrive_drop.shared.b64 _, [%r2]; mbarrier.arrive.shared.b64 %d4, [%r2];
    mbarrier.arrive.shared.b64 _, [%r2];
    mbarrier.test_wait.parity.shared.b64 %p2, [%r2], 0; selp.u32 %r4, 100, 200, %p2; add.u32 %r10, %r3, %r4;
    mbarrier.inval.shared.b64 [%r2]; END:"""
        + STORE
    )
    # Phases 0, 1 and (with one thread dropped) 2 are complete, so the current phase has parity 1.
    assert words(body)[0] == 102


@pytest.mark.parametrize(("count", "phases"), [(32, 1), (16, 2), (64, 0), (8, 4)])
def test_a_warps_arrivals_may_complete_several_phases(count: int, phases: int) -> None:
    body = (
        f""".shared .align 8 .b8 bar[8]; mov.u32 %r2, bar; setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared.b64 [%r2], {count}; bar.sync 0; mbarrier.arrive.shared.b64 _, [%r2];
    bar.sync 0; mov.b64 %d2, {max(phases - 1, 0)}; mov.b64 %d3, {phases};
    mbarrier.test_wait.shared.b64 %p1, [%r2], %d2; mbarrier.test_wait.shared.b64 %p2, [%r2], %d3;
    selp.u32 %r3, 1, 0, %p1; selp.u32 %r4, 2, 0, %p2; add.u32 %r10, %r3, %r4;"""
        + STORE
    )
    # The last complete phase is, the current one is not.
    assert words(body) == [min(phases, 1)] * 32


@pytest.mark.parametrize(("body", "text"), [
    ("mbarrier.arrive.shared.b64 _, [%r2];", "before mbarrier.init"),
    ("mbarrier.init.shared.b64 [%r2], 0;", "count 0"),
    ("mbarrier.init.shared.b64 [%r2+4], 1;", "aligned"),
    ("mbarrier.init.shared.b64 [%r2], 1; mbarrier.inval.shared.b64 [%r2]; mbarrier.arrive.shared.b64 _, [%r2];",
     "after inval"),
    ("mbarrier.init.shared.b64 [%r2], 2; mbarrier.arrive.shared.b64 _, [%r2], 3;", "3 arrivals"),
])  # fmt: skip
def test_mbarrier_misuse(body: str, text: str) -> None:
    head = ".shared .align 8 .b8 bar[16]; mov.u32 %r2, bar; setp.ne.u32 %p0, %r0, 0; @%p0 exit;"
    outcome, _ = launch(head + body + "ret;")
    assert outcome.status == "error"
    assert outcome.findings[0].code is Code.SIM_MBARRIER
    assert text in outcome.findings[0].message


@SCHEDULES
def test_mbarrier_deadlock_names_the_barrier_and_who_waits(schedule: Schedule) -> None:
    body = """.shared .align 8 .b8 pad[24]; .shared .align 8 .b8 ready[8]; mov.u32 %r2, ready; st.shared.u32 [pad], 0;
    setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r2], 5; bar.sync 0;
    setp.lt.u32 %p0, %r0, 3; @%p0 mbarrier.arrive.shared.b64 _, [%r2];
    setp.lt.u32 %p1, %r0, 32; @%p1 exit;
    W: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
    @!%p2 bra W; ret;"""
    outcome, _ = launch(body, 2, 96, schedule=schedule)
    assert outcome.status == "error"
    found = outcome.findings[0]
    assert found.code is Code.SIM_DEADLOCK
    assert "(ready+0)" in found.message
    assert "phase 0" in found.message
    assert "2 of 5 arrivals and 0 bytes pending" in found.message
    assert "warp 1, warp 2 of block 0,0,0" in found.message
    assert "PTX line" in found.message


def test_bounded_wait_ends_by_its_time_limit() -> None:
    """try_wait gives up after a while, so a kernel that counts its attempts goes on."""
    body = (
        """.shared .align 8 .b8 bar[8]; mov.u32 %r2, bar; setp.eq.u32 %p0, %r0, 0; mov.u32 %r10, 0;
    @%p0 mbarrier.init.shared.b64 [%r2], 1; bar.sync 0;
    W: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 2;
    @%p2 bra END; @%p3 bra W; END:"""
        + STORE
    )
    assert words(body) == [2] * 32


def test_barrier_deadlock() -> None:
    outcome, _ = launch("setp.lt.u32 %p0, %r0, 32; @%p0 bar.sync 3, 128; bar.sync 0; ret;", 1, 64)
    found = outcome.findings[0]
    assert found.code is Code.SIM_DEADLOCK
    assert "barrier 3, 32 of 128 threads arrived" in found.message


@SCHEDULES
def test_more_threads_than_a_barrier_expects_wait_for_its_next_phase(schedule: Schedule) -> None:
    """Of four warps a barrier of three holds the last one back; one of two lets them through in pairs."""
    left = launch("bar.sync 1, 96; mov.u32 %r10, 1;" + STORE, 1, 128, schedule=schedule)[0]
    assert left.findings[0].code is Code.SIM_DEADLOCK
    assert "barrier 1, 32 of 96 threads arrived" in left.findings[0].message
    assert launch("bar.sync 1, 64; mov.u32 %r10, 1;" + STORE, 1, 128, schedule=schedule)[0].status == "ok"


@pytest.mark.parametrize(("body", "text"), [
    ("bar.sync 16; ret;", "0 to 15"), ("bar.sync 1, 33; ret;", "multiple of 32"),
    ("setp.lt.u32 %p0, %r0, 32; @%p0 bar.arrive 1, 64; @!%p0 bar.arrive 1, 96; bar.sync 0; ret;", "waiting for"),
])  # fmt: skip
def test_barrier_misuse(body: str, text: str) -> None:
    outcome, _ = launch(body, 1, 64)
    assert outcome.findings[0].code is Code.SIM_BARRIER
    assert text in outcome.findings[0].message


def test_random_schedules_replay() -> None:
    """Atomic arrival order depends on the schedule; one seed always gives the same order."""
    body = (
        """.shared .u32 c; setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [c], 0; bar.sync 0; mov.u32 %r4, 0;
    mul.lo.u32 %r5, %r1, 7; and.b32 %r5, %r5, 3;
    L: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r5; @%p1 bra L; atom.shared.add.u32 %r10, [c], 1;"""
        + STORE
    )
    orders = {tuple(words(body, 1, 256, schedule="random", seed=s)) for s in range(6)}
    assert len(orders) > 1
    assert words(body, 1, 256, schedule="random", seed=4) == words(body, 1, 256, schedule="random", seed=4)


@pytest.mark.parametrize("poll", ["ld.acquire.gpu.global.u32 %r4, [%d0];", "atom.global.cas.b32 %r4, [%d0], 0, 0;"])
@pytest.mark.parametrize("schedule", ["late", "random"])
def test_endless_polling_is_found(poll: str, schedule: Schedule) -> None:
    """A flag that nobody sets; other warps end or wait at a barrier."""
    body = f"""ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; mov.u32 %r4, 0;
    st.global.u32 [%d0], %r4; bar.sync 0;
    setp.ge.u32 %p0, %r1, 2; @%p0 bar.sync 1, 96; @%p0 exit;
    L: {poll} setp.eq.u32 %p1, %r4, 0; @%p1 bra L; bar.sync 1, 96; ret;"""
    outcome, _ = launch(body, 1, 96, schedule=schedule)
    assert outcome.status == "error", [str(f) for f in outcome.findings]
    assert outcome.findings[0].code is Code.SIM_DEADLOCK
    assert "poll" in outcome.findings[0].message
    assert outcome.findings[0].ptx_line


def test_long_loops_are_not_taken_for_polling() -> None:
    body = (
        """mov.u32 %r4, 0; mov.u32 %r10, 0; ld.param.u64 %d0, [out];
    L: ld.global.u32 %r5, [%d0]; and.b32 %r6, %r4, 1; add.u32 %r10, %r10, %r6; add.u32 %r4, %r4, 1;
    setp.lt.u32 %p1, %r4, 60000; @%p1 bra L;"""
        + STORE
    )
    assert words(body) == [30000] * 32
