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
        # As in CUTLASS's kernels for pairs of blocks.
        (("fence",), "practice", "review"),
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
