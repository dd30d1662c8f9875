# SPDX-License-Identifier: Apache-2.0
"""Tests of mbarriers whose result code ignores or need not heed, and loops around them that wait."""

from __future__ import annotations

import pytest
from check_ptx import check

COPIED = """@%p0 mbarrier.init.shared.b64 [%r8], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
@!%p0 bra COPIED;
mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 2048, [%r8];
COPIED: mad.lo.u32 %r3, %r0, 16, %r2;
"""
READ = "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];\n"
END = "bar.sync 0; WAIT_LAST: mbarrier.try_wait.parity.shared.b64 %p9, [%r8], 0; @!%p9 bra WAIT_LAST; ret;\n"
TRY = "mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0;"
TEST = "mbarrier.test_wait.parity.shared.b64 %p6, [%r8], 0;"

WAITS = {
    "loop": f"W: {TRY} @!%p6 bra W;",
    "loop of tests": f"W: {TEST} @!%p6 bra W;",
    "cutlass": f"W: {TRY} @%p6 bra DONE; bra W; DONE:",
    "first try apart": f"{TRY} @%p6 bra DONE; W: {TRY} @!%p6 bra W; DONE:",
    "number": f"W: {TRY} selp.u32 %r20, 1, 0, %p6; setp.eq.s32 %p7, %r20, 0; @%p7 bra W;",
    "narrow number": f"W: {TRY} selp.u32 %r20, 1, 0, %p6; and.b32 %r20, %r20, 255;"
    " setp.ne.u32 %p7, %r20, 0; @!%p7 bra W;",
    "inverted": f"W: {TRY} not.pred %p7, %p6; @%p7 bra W;",
    "sleep": f"bra W; SLEEP: nanosleep.u32 32; W: {TEST} @!%p6 bra SLEEP;",
    "trap": f"mov.u32 %r20, 0; W: {TRY} @%p6 bra DONE; add.u32 %r20, %r20, 1; setp.lt.u32 %p7, %r20, 20;"
    " @%p7 bra W; trap; DONE:",
    "clock": f"mov.u64 %d10, %clock64; W: {TEST} @%p6 bra DONE; mov.u64 %d11, %clock64; sub.u64 %d11, %d11, %d10;"
    " setp.lt.u64 %p7, %d11, 100000000; @%p7 bra W; trap; DONE:",
    "trap behind a try": f"{TRY} @!%p6 trap;",
    "token": f"{TRY} selp.u32 %r20, 1, 0, %p6; add.u32 %r21, %r0, 1; setp.ne.u32 %p7, %r20, 0; @%p7 bra DONE;"
    f" W: {TRY} @!%p6 bra W; DONE:",
    "token in memory": f"{TRY} selp.u32 %r20, 1, 0, %p6; mad.lo.u32 %r21, %r0, 4, %r2; st.shared.u32 [%r21+4096], %r20;"
    " ld.shared.u32 %r20, [%r21+4096]; setp.ne.u32 %p7, %r20, 0; @%p7 bra DONE;"
    f" W: {TRY} @!%p6 bra W; DONE:",
    "work meanwhile": f"mov.u32 %r20, 0; W: {TEST} @%p6 bra DONE; add.u32 %r20, %r20, 1; mad.lo.u32 %r21, %r0, 4, %r2;"
    " st.shared.u32 [%r21+4096], %r20; bra W; DONE:",
    "state": "@%p0 st.shared.u64 [%r2+6144], %d9; bar.sync 0; ld.shared.u64 %d9, [%r2+6144];"
    " W: mbarrier.try_wait.shared.b64 %p6, [%r8], %d9; @!%p6 bra W;",
    "one waits for all": f"@%p1 bra W; bra JOIN; W: {TRY} @!%p6 bra W; JOIN: bar.sync 0; {TEST}",
    "one waits for all, the rest trap": f"@%p1 bra W; bra JOIN; W: {TRY} @!%p6 bra W; JOIN: bar.sync 0;"
    f" {TEST} @!%p6 trap;",
    "one of the warp waits": f"@!%p0 bra JOIN; W: {TRY} @!%p6 bra W; JOIN: bar.sync 0; {TEST} @%p6 bra GO; trap; GO:",
    "phase before the first": "@%p0 mbarrier.init.shared.b64 [%r2+6144], 1; @%p0 fence.mbarrier_init.release.cluster;"
    " bar.sync 0; mbarrier.try_wait.parity.shared.b64 %p7, [%r2+6144], 1; @%p7 bra FIRST; ret; FIRST:"
    f" W: {TRY} @!%p6 bra W;",
}  # fmt: skip

NO_WAITS = {
    "try": TRY,
    "test": TEST,
    "try with a limit": "mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0, 1000;",
    "unread number": f"{TRY} selp.u32 %r20, 1, 0, %p6; st.global.u32 [%d1], %r20;",
    "both ways": f"{TRY} @%p6 bra GO; nanosleep.u32 100; GO:",
    "inverted loop": f"W: {TRY} @%p6 bra GO; bra GO; GO:",
    "two tries": f"{TRY} @%p6 bra GO; {TRY} GO:",
    "ten tries": f"mov.u32 %r20, 0; W: {TRY} @%p6 bra GO; add.u32 %r20, %r20, 1; setp.lt.u32 %p7, %r20, 10;"
    " @%p7 bra W; GO:",
    "hundred tests": f"mov.u32 %r20, 100; W: {TEST} @%p6 bra GO; sub.u32 %r20, %r20, 1; setp.ne.u32 %p7, %r20, 0;"
    " @%p7 bra W; GO:",
    "other predicate": f"setp.eq.u32 %p7, %r20, 0; W: {TRY} @!%p7 bra W;",
    "always true": f"W: {TRY} setp.ge.u32 %p7, %r0, 0; or.pred %p7, %p7, %p6; @!%p7 bra W;",
    "some threads": f"setp.lt.u32 %p7, %r0, 64; W: {TRY} @%p6 bra GO; @%p7 bra W; GO:",
    "state": "@%p0 st.shared.u64 [%r2+6144], %d9; bar.sync 0; ld.shared.u64 %d9, [%r2+6144];"
    " mbarrier.test_wait.shared.b64 %p6, [%r8], %d9;",
}  # fmt: skip


def outcome_of(wait: str, level: str, schedule: str = "late", rest: str = READ):
    outcome = check(COPIED + wait + "\n" + rest + END, "sm_90a", level=level, schedule=schedule, seed=3)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome


@pytest.mark.parametrize("schedule", ["late", "random"])
@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("form", WAITS)
def test_code_that_heeds_the_result_has_waited(form: str, level: str, schedule: str) -> None:
    hazards = outcome_of(WAITS[form], level, schedule).hazards
    assert not hazards, [str(h) for h in hazards]


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("form", NO_WAITS)
def test_code_that_goes_on_without_it_has_not(form: str, level: str) -> None:
    hazards = outcome_of(NO_WAITS[form], level).hazards
    assert {(h.kind.id, h.severity) for h in hazards} >= {("H17", "error")}, [str(h) for h in hazards]
