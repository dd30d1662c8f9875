# SPDX-License-Identifier: Apache-2.0
"""clusterlaunchcontrol: blocks take over the work of blocks that have not started."""

from __future__ import annotations

import numpy as np
import pytest
from core_ptx import module_text, run

from porter.sim import GlobalMemory, Options, Outcome
from porter.sim.results import Schedule

# Work is a block index; whoever does it adds 1 to its count and writes its own index plus 1 as who did it.
BODY = """.reg .b32 %r<40>; .reg .b64 %d<20>; .reg .pred %p<10>; .reg .b128 %q<2>;
.shared .align 16 .b8 response[16]; .shared .align 8 .b8 bar[8];
ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, response; mov.u32 %r2, bar; setp.eq.u32 %p0, %r0, 0;
mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ctaid.y; mov.u32 %r12, %ctaid.z; mov.u32 %r20, %cluster_ctarank;
mov.u32 %r21, %r10; mov.u32 %r3, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
WORK:
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
setp.eq.and.u32 %p1, %r20, 0, %p0;
@%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{all}.b128 [%r1], [%r2];
mov.u32 %r13, %nctaid.x; mov.u32 %r14, %nctaid.y; mad.lo.u32 %r15, %r12, %r14, %r11; mad.lo.u32 %r15, %r15, %r13, %r10;
mul.wide.u32 %d1, %r15, 8; add.u64 %d2, %d0, %d1;
@%p0 red.global.add.u32 [%d2], 1; add.u32 %r16, %r21, 1; @%p0 st.global.u32 [%d2+4], %r16;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], %r3; @!%p2 bra WAIT;
ld.shared.b128 %q0, [%r1];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q0;
{first}
fence.proxy.async; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
xor.b32 %r3, %r3, 1; @%p3 bra WORK; ret;"""
VECTOR = """@%p3 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r10, %r11, %r12, %r17}, %q0;
@%p3 add.u32 %r10, %r10, %r20;"""
SINGLE = """@%p3 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r10, %q0;
@%p3 clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r11, %q0;
@%p3 clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %r12, %q0; @%p3 add.u32 %r10, %r10, %r20;"""


def launch(
    blocks: int, cluster: int, resident: int | None, first: str = VECTOR, schedule: Schedule = "late", **more: object
) -> tuple[Outcome, np.ndarray]:
    memory = GlobalMemory()
    out = memory.alloc(8 * blocks, fill=0)
    body = BODY.format(first=first, all=".multicast::cluster::all" if cluster > 1 else "")
    options = Options(schedule=schedule, resident=resident, seed=1, **more)  # type: ignore[arg-type]
    outcome = run(module_text(["out"], body, "sm_100a"), [out], memory, blocks, 32, cluster, options=options)
    return outcome, memory.read(out, 8 * blocks).view(np.uint32).reshape(blocks, 2)


@pytest.mark.parametrize("schedule", ["eager", "late", "random"])
@pytest.mark.parametrize(
    ("blocks", "cluster", "resident"), [(12, 1, 3), (12, 2, 4), (12, 4, 4), (5, 1, 8), (12, 2, 12)]
)
def test_all_work_is_done_once(blocks: int, cluster: int, resident: int, schedule: Schedule) -> None:
    outcome, work = launch(blocks, cluster, resident, schedule=schedule)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert work[:, 0].tolist() == [1] * blocks
    # Only blocks of the first wave have run: they took all other blocks' work over.
    assert set((work[:, 1] - 1).tolist()) == set(range(min(resident, blocks)))


def test_coordinates_one_by_one() -> None:
    assert launch(12, 2, 4, SINGLE)[1].tolist() == launch(12, 2, 4)[1].tolist()


def test_by_default_there_is_work_to_take_over() -> None:
    outcome, work = launch(12, 2, None, mode="checking", level="practice")
    assert (outcome.status, work[:, 0].tolist()) == ("ok", [1] * 12)
    assert set((work[:, 1] - 1).tolist()) == {0, 1, 2, 3}


NEXT = "fence.proxy.async; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\nxor"
WRONG = {
    "no wait": ("WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], %r3; @!%p2 bra WAIT;", "", "H17"),
    "relaxed wait": ("try_wait.parity.shared", "try_wait.parity.relaxed.cta.shared", "H17"),
    "the phase before": ("xor.b32 %r3, %r3, 1;", "", "H17"),
    "no bytes announced": ("arrive.expect_tx.shared::cta.b64 _, [%r2], 16", "arrive.shared::cta.b64 _, [%r2]", "H17"),
    "the response is not read by all": (NEXT, "fence.proxy.async;\nxor", "H20"),
    "a barrier of the block only": (NEXT, "fence.proxy.async; bar.sync 0;\nxor", "H20"),
    "a request of each block": ("setp.eq.and.u32 %p1, %r20, 0, %p0", "setp.eq.u32 %p1, %r0, 0", "H17"),
    "a request of each lane": ("setp.eq.and.u32 %p1, %r20, 0, %p0", "setp.eq.u32 %p1, %r20, 0", "H26"),
    "for one block of two": ("{all}", "", "PT4003"),
    "after one has failed": ("@%p3 bra WORK; ret", "bra WORK; ret", "PT4018"),
    "without looking whether": ("@%p3 bra WORK; ret", "setp.ne.u32 %p3, %r10, 0; @%p3 bra WORK; ret", "PT4018"),
    "no barrier behind the start": ("\nbarrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n", "\n", "H21"),
}  # fmt: skip


@pytest.mark.parametrize("name", [None, *WRONG])
def test_checking_mode_follows_requests_and_responses(name: str | None) -> None:
    """At practice level: right is clean, and each mistake an error."""
    old, new, wanted = ("", "", "") if name is None else WRONG[name]
    assert old in BODY
    memory = GlobalMemory()
    out = memory.alloc(96, fill=0)
    body = BODY.replace(old, new).format(first=VECTOR, all=".multicast::cluster::all")
    options = Options(mode="checking", level="practice", max_warp_instructions=20_000)
    outcome = run(module_text(["out"], body, "sm_100a"), [out], memory, 12, 64, 2, options=options)
    errors = {h.kind.id for h in outcome.hazards if h.severity == "error"} | {f.code.id for f in outcome.findings}
    assert wanted in errors if name is not None else not outcome.hazards + outcome.findings
