# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory: MMA under every schedule, missing waits, and the life cycle."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import module_text, run, upload

from porter.diagnostics import Code
from porter.sim import GlobalMemory, Options, Outcome
from porter.sim.results import Schedule

REGS = ".reg .b32 %r<99>; .reg .b64 %d<20>; .reg .pred %p<10>; mov.u32 %r0, %tid.x; mov.u32 %r1, %warpid;"
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "late", "random"])

HEAD = """ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r2, dyn; mov.u32 %r8, bar; mov.u32 %r9, slot;
.shared .align 8 .b8 bar[8]; .shared .align 4 .b8 slot[4]; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0;
@%p0 mbarrier.init.shared.b64 [%r8], 1;
@!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], {columns};
{relinquish}
NOALLOC: bar.sync 0; ld.shared.u32 %r10, [%r9];"""
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
DEALLOC = """bar.sync 0; @!%p1 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, {columns};
END: ret;"""

# M=64 N=8 K=16, f16 inputs without swizzle, f32 accumulator in the even half lanes.
IDESC = 1 << 4 | 8 >> 3 << 17 | 64 >> 4 << 24
MMA = """mul.wide.u32 %d2, %r0, 16; mov.u32 %r11, 0;
COPY: mad.lo.u32 %r3, %r11, 2048, %r2; mad.lo.u32 %r3, %r0, 16, %r3; mul.wide.u32 %d5, %r11, 2048;
add.u64 %d6, %d0, %d2; add.u64 %d6, %d6, %d5; ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d6];
st.shared.v4.u32 [%r3], {{%r4, %r5, %r6, %r7}}; add.u32 %r11, %r11, 1; setp.lt.u32 %p2, %r11, 2; @%p2 bra COPY;
fence.proxy.async; bar.sync 0; shr.u32 %r3, %r2, 4; cvt.u64.u32 %d7, %r3; or.b64 %d7, %d7, {a_desc};
add.u32 %r3, %r2, 2048; shr.u32 %r3, %r3, 4; cvt.u64.u32 %d8, %r3; or.b64 %d8, %d8, {b_desc};
@!%p0 bra WAIT; setp.ne.u32 %p3, 0, 0; setp.ne.u32 %p4, 1, 0; mov.u32 %r12, {idesc};
tcgen05.mma.cta_group::1.kind::f16 [%r10], %d7, %d8, %r12, %p3;
tcgen05.mma.cta_group::1.kind::f16 [%r10], %d7, %d8, %r12, %p4;
tcgen05.mma.cta_group::1.kind::f16 [%r10], %d7, %d8, %r12, %p4;
{commit}
WAIT: {wait}
tcgen05.fence::after_thread_sync; shl.b32 %r13, %r1, 21; add.u32 %r13, %r13, %r10;
tcgen05.ld.sync.aligned.16x256b.x1.b32 {{%r40, %r41, %r42, %r43}}, [%r13]; tcgen05.wait::ld.sync.aligned;
mul.wide.u32 %d2, %r0, 16; add.u64 %d4, %d1, %d2; st.global.v4.u32 [%d4], {{%r40, %r41, %r42, %r43}};
bar.sync 0;"""
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];"
TRY = "mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra WAIT;"


def launch(
    body: str, source: np.ndarray, threads: int = 128, schedule: Schedule = "late"
) -> tuple[Outcome, np.ndarray]:
    memory = GlobalMemory()
    a, out = upload(memory, source), memory.alloc(4096)
    text = module_text(["in", "out"], REGS + body, "sm_100a", ".extern .shared .align 1024 .b8 dyn[];")
    outcome = run(text, [a, out], memory, 1, threads, smem=8192, options=Options(schedule=schedule, seed=3))
    return outcome, memory.read(out, 4096).view(np.uint32)


def operands() -> tuple[np.ndarray, np.ndarray]:
    """Shared memory image of A [64, 16] and B [8, 16], and the fragments of 3 A B^T."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 5, (64, 16)).astype(np.float16), rng.integers(-4, 5, (8, 16)).astype(np.float16)
    image = np.zeros(4096, np.uint8)
    image[:2048] = np.ascontiguousarray(a.reshape(8, 8, 2, 8).transpose(2, 0, 1, 3)).view(np.uint8).reshape(-1)
    image[2048:2304] = np.ascontiguousarray(b.reshape(8, 2, 8).transpose(1, 0, 2)).view(np.uint8).reshape(-1)
    product = 3 * (a.astype(float) @ b.astype(float).T)
    want = np.zeros((128, 4))
    for t in range(128):
        for v in range(4):
            want[t, v] = product[16 * (t // 32) + t % 32 // 4 + 8 * (v >> 1), 2 * (t % 4) + (v & 1)]
    return image, want


def mma(commit: str = COMMIT, wait: str = TRY, columns: int = 32, idesc: int = IDESC, end: str = DEALLOC) -> str:
    version = 1 << 46
    a_desc, b_desc = 1024 >> 4 << 16 | 128 >> 4 << 32 | version, 128 >> 4 << 16 | 128 >> 4 << 32 | version
    body = MMA.format(commit=commit, wait=wait, a_desc=a_desc, b_desc=b_desc, idesc=idesc)
    return HEAD.format(columns=columns, relinquish=RELINQUISH) + body + end.format(columns=columns)


@SCHEDULES
def test_mma_commit_wait_load(schedule: Schedule) -> None:
    image, want = operands()
    outcome, got = launch(mma(), image, schedule=schedule)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    np.testing.assert_array_equal(got[:512].view(np.float32).reshape(128, 4), want)


def assert_overtaken(outcome: Outcome, got: np.ndarray) -> None:
    """The loads saw poison, and the MMA completed after its columns were freed."""
    assert outcome.findings[0].code is Code.SIM_TMEM_UNALLOCATED
    assert "when it completes" in outcome.findings[0].message
    assert np.isnan(got[:512].view(np.float32)).all()


def test_unwaited_mma_reads_poison() -> None:
    assert_overtaken(*launch(mma(wait=""), operands()[0]))


def test_commit_of_another_thread_does_not_cover_the_mma() -> None:
    """Thread 32 commits, but thread 0 issued: the barrier completes while the MMA is still in flight."""
    wait = """setp.eq.u32 %p5, %r0, 32;
    @%p5 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];
    W2: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W2;"""
    assert_overtaken(*launch(mma(commit="", wait=wait), operands()[0]))


def test_missing_commit_is_a_deadlock() -> None:
    outcome, _ = launch(mma(commit=""), operands()[0])
    assert outcome.findings[0].code is Code.SIM_DEADLOCK
    assert "1 of 1 arrivals" in outcome.findings[0].message


STORE = """shl.b32 %r13, %r1, 21; add.u32 %r13, %r13, %r10; mad.lo.u32 %r20, %r0, 3, 1;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r13+{column}], {{%r20}}; {wait}
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r21}}, [%r13+{column}]; tcgen05.wait::ld.sync.aligned;
mul.wide.u32 %d2, %r0, 4; add.u64 %d4, %d1, %d2; st.global.u32 [%d4], %r21;"""


def store(column: int = 3, wait: str = "tcgen05.wait::st.sync.aligned;", end: str = DEALLOC, columns: int = 32) -> str:
    head = HEAD.format(columns=columns, relinquish=RELINQUISH)
    return head + STORE.format(column=column, wait=wait) + end.format(columns=columns)


@SCHEDULES
def test_store_wait_load(schedule: Schedule) -> None:
    outcome, got = launch(store(), np.zeros(4, np.uint32), schedule=schedule)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert got[:128].tolist() == [3 * t + 1 for t in range(128)]


def test_unwaited_store_is_not_seen() -> None:
    outcome, got = launch(
        store(wait="", end="bar.sync 0; tcgen05.wait::st.sync.aligned;" + DEALLOC), np.zeros(4, np.uint32)
    )
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert set(got[:128].tolist()) == {0xFFFFFFFF}


@pytest.mark.parametrize(("body", "code", "text"), [
    (store(end="ret;"), Code.SIM_TMEM_LEAK, "32 columns"),
    (store(column=40), Code.SIM_TMEM_UNALLOCATED, "column 40"),
    (store(columns=48), Code.SIM_TMEM_ALLOCATION, "power of two"),
    (store(end="bar.sync 0; @!%p1 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64; END: ret;"),
     Code.SIM_TMEM_ALLOCATION, "32 were allocated"),
    (store(end="bar.sync 0; @!%p1 bra END; add.u32 %r10, %r10, 32;"
           "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32; END: ret;"),
     Code.SIM_TMEM_ALLOCATION, "no alloc returned"),
    (store(end=DEALLOC.replace("END:", "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32; END:")),
     Code.SIM_TMEM_ALLOCATION, "no alloc returned"),
    (store(end="bar.sync 0; @!%p1 bra END;"
           "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32; END: ret;"),
     Code.SIM_TMEM_ALLOCATION, "after relinquish"),
    (store().replace("shl.b32 %r13, %r1, 21;", "add.u32 %r13, %r1, 1; and.b32 %r13, %r13, 3; shl.b32 %r13, %r13, 21;"),
     Code.SIM_TMEM_ACCESS, ""),
    (mma(idesc=IDESC | 1 << 23), Code.SIM_DESCRIPTOR, ""),
    (mma(idesc=IDESC + (20 << 17)), Code.SIM_TMEM_UNALLOCATED, "tcgen05.mma"),
    (mma().replace("tcgen05.mma.cta_group::1.kind::f16 [%r10]", "tcgen05.mma.cta_group::1.kind::f16 [%r13]")
     .replace("mov.u32 %r12,", "add.u32 %r13, %r10, 524288; mov.u32 %r12,"), Code.SIM_DESCRIPTOR, "lane 8"),
])  # fmt: skip
def test_life_cycle_and_access_errors(body: str, code: Code, text: str) -> None:
    outcome, _ = launch(body, operands()[0])
    assert outcome.status == "error"
    assert outcome.findings[0].code is code, str(outcome.findings[0])
    assert text in outcome.findings[0].message


def test_lane_field_of_zero_means_the_own_quarter() -> None:
    body = store().replace("shl.b32 %r13, %r1, 21;", "mov.u32 %r13, 0;")
    outcome, got = launch(body, np.zeros(4, np.uint32))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert got[:128].tolist() == [3 * t + 1 for t in range(128)]


def test_alloc_waits_for_free_columns() -> None:
    """Two warps take all 512 columns in turn."""
    body = """ld.param.u64 %d1, [out]; .shared .align 4 .b8 slot[8]; mov.u32 %r9, slot; mad.lo.u32 %r9, %r1, 4, %r9;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 512; ld.shared.u32 %r10, [%r9];
    mov.u32 %r20, 0;
    L: add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 50; @%p2 bra L;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 512; ret;"""
    outcome, _ = launch(body, np.zeros(4, np.uint32), 64)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    stuck, _ = launch(
        body.replace("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 512;", ""), np.zeros(4, np.uint32), 64
    )
    assert stuck.findings[0].code is Code.SIM_TMEM_WAIT
    assert "block 0,0,0 waits for 512 columns of 512, and holds 512 itself" in stuck.findings[0].message
