# SPDX-License-Identifier: Apache-2.0
"""MMAs that are issued a stage ahead, and sums that are waited for a stage later: what is read of PTX, and how long a
stage takes then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from grade.test_warps import HEAD, IDESC, LOADS

from porter.grade.model import grade, timeline
from porter.grade.reading import Launch, read_shape
from porter.grade.shape import Mma, Residency, Shape, Work
from porter.ptx.parser import parse_module

FIRST = f"tcgen05.mma.cta_group::1.kind::f16 [%r4], %rd1, %rd2, {IDESC}, %p3;\n"
SECOND = f"tcgen05.mma.cta_group::1.kind::f16 [%r4], [%r5], %rd2, {IDESC}, %p3;\n"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r14];\n"
FULL = "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r12], 0;\n"
LOADED = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r4];\n"
WORK = "ex2.approx.f32 %f1, %f2;\n" * 6


def done(number: int) -> str:
    """A wait for MMAs."""
    return (f"$W{number}:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r14], {number % 2};\n@!%p2 bra $W{number};\n"
            "tcgen05.fence::after_thread_sync;\n")  # fmt: skip


SYNC = "tcgen05.fence::before_thread_sync;\nbar.sync 1, 256;\ntcgen05.fence::after_thread_sync;\n"
BODIES = {
    "in its turn": (FULL, SYNC, FIRST, COMMIT, done(1), LOADED, WORK, FULL, SYNC, SECOND, COMMIT, done(2)),
    "ahead": (done(1), LOADED, FULL, SYNC, FIRST, COMMIT, WORK, FULL, SYNC, SECOND, COMMIT, done(2)),
    "ahead, and sums late": (done(1), LOADED, FULL, SYNC, FIRST, COMMIT, WORK, done(2), WORK, SYNC, SECOND, COMMIT),
}


def shape(name: str) -> Shape:
    text = HEAD + LOADS + "mov.u32 %r9, 0;\n$TOP:\n" + "".join(BODIES[name])
    text += "add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p9, %r9, %r10;\n@%p9 bra $TOP;\n$OUT:\nret;\n}\n"
    module = parse_module(text)
    found = read_shape(module, module.entries()[0], Launch(384, 65536)).shape
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "ahead", "late"), [
    ("in its turn", False, False), ("ahead", True, False), ("ahead, and sums late", True, True),
])  # fmt: skip
def test_what_is_issued_ahead_is_read(name: str, ahead: bool, late: bool) -> None:
    found = shape(name)
    assert found.ahead == (((Mma(128, 64), 1),) if ahead else ())
    assert (0.2 < found.late < 0.6) is late
    assert late or found.late == 0


GIVEN = Shape("sm_100a", ((Mma(128, 64), 8), (Mma(128, 128, a="tensor"), 4)), None, None, 32768, 2, "specialized", 128,
              waits_each=True, work=Work(4000, 8704, True), batches=2,
              residency=Residency(150000, 256, 384, 168))  # fmt: skip


def test_what_runs_beside_the_work_costs_no_time() -> None:
    """Of a stage that threads hold: first all MMAs are in its time, then the second ones, then none."""
    first = replace(GIVEN, ahead=GIVEN.mmas[:1], batches=1)
    late = replace(first, late=0.25)
    found = [grade(shape, None, lifts=False).stage_clocks for shape in (GIVEN, first, late)]
    threads = GIVEN.work.instructions / 4
    assert found[0] - found[1] > 300
    assert found[1] - found[2] > 300
    assert threads <= found[2] < 1.2 * threads


def test_a_stage_that_the_tensor_core_holds_takes_no_less_than_its_mmas() -> None:
    busy = replace(GIVEN, ahead=GIVEN.mmas[:1], batches=1, late=0.25, work=Work(100, 32, True))
    found = grade(busy, None, lifts=False)
    mmas = sum(a.end - a.start for a in timeline(found, 1).activities if a.lane == "tensor core")
    steps = sum(a.lane == "issue" for a in timeline(found, 1).activities)
    assert found.stage_clocks >= mmas / steps * 0.99


def test_operands_that_come_late_hold_whoever_issues_ahead() -> None:
    """K of the next stage has to have landed ahead of what threads compute in this one."""
    late = replace(GIVEN, ahead=GIVEN.mmas[:1], batches=1, late=0.25)
    slow = replace(late, load_bytes=4 * 32768)
    assert grade(slow, None, lifts=False).stage_clocks > 1.5 * grade(late, None, lifts=False).stage_clocks
