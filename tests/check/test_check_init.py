# SPDX-License-Identifier: Apache-2.0
"""Initializations of mbarriers that another block of the cluster uses."""

from __future__ import annotations

import pytest
from check_ptx import check, without

# Block 0 initializes, block 1 arrives.
BODY = """mov.u32 %r10, %cluster_ctarank; setp.eq.and.u32 %p2, %r10, 0, %p0; setp.eq.and.u32 %p3, %r10, 1, %p0;
@%p2 mbarrier.init.shared.b64 [%r8], 1;
fence.mbarrier_init.release.cluster; //@fence
barrier.cluster.arrive.relaxed.aligned; //@arrive
barrier.cluster.wait.aligned; //@wait
mapa.shared::cluster.u32 %r11, %r8, 0;
@%p3 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
@!%p2 bra DONE;
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r8], 0; @!%p4 bra WAIT;
DONE: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""


@pytest.mark.parametrize(
    ("left_out", "level", "severity"),
    [
        ((), "strict", None),
        (("fence",), "strict", "error"),
        (("fence",), "practice", "error"),
        (("arrive", "wait"), "practice", "error"),
        (("fence", "arrive", "wait"), "practice", "error"),
    ],
)
def test_a_relaxed_cluster_barrier_needs_a_fence(left_out: tuple[str, ...], level: str, severity: str | None) -> None:
    # Threads come in order of blocks, so the mbarrier is there in time whatever is left out.
    outcome = check(without(BODY, *left_out), "sm_90a", 32, level, grid=2, cluster=2)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    found = {(h.kind.id, h.severity) for h in outcome.hazards if h.kind.id == "H21"}
    assert found == (set() if severity is None else {("H21", severity)})


GENERIC = BODY.replace("fence.mbarrier_init.release.cluster; //@fence\n", "").replace("arrive.relaxed", "arrive")
OWN_FENCE = BODY.replace("fence.mbarrier_init.release.cluster; //@fence", "fence.acq_rel.cluster;")


def hazards(body: str, level: str = "strict", threads: int = 32) -> set[tuple[str, str, str]]:
    outcome = check(body, "sm_90a", threads, level, grid=2, cluster=2)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return {(h.kind.id, h.severity, h.remedy) for h in outcome.hazards}


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("threads", [32, 128])
@pytest.mark.parametrize("body", [GENERIC, GENERIC.replace("arrive.aligned", "arrive.release.aligned"), OWN_FENCE])
def test_a_barrier_that_releases_orders_a_remote_arrival(body: str, threads: int, level: str) -> None:
    """The arrival is an access of the generic proxy, as the initialization is."""
    assert not hazards(body, level, threads)


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("body", [BODY, GENERIC])
def test_a_warp_that_has_not_waited_knows_of_no_initialization(body: str, level: str) -> None:
    """Also where the barrier is complete by then."""
    body = without(body, "wait").replace("DONE:", "DONE: barrier.cluster.wait.aligned;")
    wanted = ("H21", "error", "barrier.cluster.wait by this warp")
    assert wanted in hazards(body, level)


ISSUER = """@%p0 mbarrier.init.shared.b64 [%r8], 1;
setp.eq.u32 %p4, %r0, 32;
{fence}
barrier.cluster.arrive{relaxed}.aligned;
{wait}
@%p4 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 16;
@%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 16, [%r8];
W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W;
{late} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""
WAIT = "barrier.cluster.wait.aligned;"
# The warp of the initialization waits on the mbarrier too, with all of its lanes.
LATE = {("error", "bar.sync by this warp"), ("review", "bar.warp.sync")}


@pytest.mark.parametrize(
    ("fence", "relaxed", "early", "wanted"),
    [
        ("fence.mbarrier_init.release.cluster;", ".relaxed", True, set()),
        ("fence.mbarrier_init.release.cluster;", "", True, set()),
        ("fence.proxy.async;", "", True, set()),
        ("", "", True, {("review", "fence.mbarrier_init.release.cluster")}),
        ("", ".relaxed", True, {("error", "fence.mbarrier_init.release.cluster")}),
        ("fence.mbarrier_init.release.cluster;", ".relaxed", False, LATE),
        ("fence.mbarrier_init.release.cluster;", "", False, LATE),
        ("", ".relaxed", False, LATE),
    ],
)
def test_a_copy_asks_for_the_fence(fence: str, relaxed: str, early: bool, wanted: set[tuple[str, str]]) -> None:
    body = ISSUER.format(fence=fence, relaxed=relaxed, wait=WAIT if early else "", late="" if early else WAIT)
    found = {(severity, remedy) for kind, severity, remedy in hazards(body, "practice", 64) if kind == "H21"}
    assert found == wanted
