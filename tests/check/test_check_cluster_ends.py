# SPDX-License-Identifier: Apache-2.0
"""The end of a cluster's blocks: one warp of block 0 uses memory of block 1, the others meet at the cluster's barrier.
What proofs say, and runs: by what the warp does, and what the others do, the hazards of both."""

from __future__ import annotations

from functools import partial

import check_ptx
import pytest
from beside_runs import launched_by

from porter.sim import Outcome
from porter.sync.checked import check

ARRIVE, WAIT = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
RELAXED = "barrier.cluster.arrive.relaxed.aligned;"
TELL = "@%p4 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];"
STORE, LOAD = "@%p4 st.shared::cluster.u32 [%r6], %r0;", "@%p4 ld.shared::cluster.u32 %r7, [%r6];"
READ = "ld.shared.u32 %r8, [%r2];"
BEGIN = f"""mov.u32 %r3, %cluster_ctarank; mov.u32 %r10, 1; mov.u32 %r11, bar;
mapa.shared::cluster.u32 %r5, %r11, %r10; mapa.shared::cluster.u32 %r6, %r2, %r10;
setp.eq.u32 %p6, %r3, 0; and.pred %p4, %p0, %p6; and.pred %p5, %p1, %p6;
@%p0 mbarrier.init.shared::cta.b64 [%r11], 1; @%p0 fence.mbarrier_init.release.cluster;
{ARRIVE} {WAIT}
@%p5 bra ONE;
mov.u32 %r9, 0;
SLOW: add.u32 %r9, %r9, 1; setp.lt.u32 %p7, %r9, 40; @%p7 bra SLOW;
"""
MEET = ARRIVE + WAIT
ENDS: dict[str, tuple[tuple[str, ...], tuple[str, ...], set[str]]] = {
    "tells, and meets": ((TELL, MEET), (MEET,), set()),
    "tells, arrives, and ends": ((TELL, ARRIVE), (MEET,), set()),
    "tells and ends": ((TELL,), (MEET,), set()),
    "arrives ahead of what it tells": ((ARRIVE, TELL), (MEET,), {"H26"}),
    "arrives ahead of what it tells, and waits": ((ARRIVE, TELL, WAIT), (MEET,), {"H26"}),
    "arrives ahead of its store": ((ARRIVE, STORE), (MEET,), {"H26"}),
    "arrives ahead of its load": ((ARRIVE, LOAD), (MEET,), {"H26"}),
    "arrives ahead of a store that is read": ((ARRIVE, STORE), (MEET, READ), {"H26", "G1"}),
    "stores what is read": ((STORE, ARRIVE), (MEET, READ), set()),
    "stores what is read, relaxed": ((STORE, RELAXED), (MEET, READ), {"H26", "G1"}),
    "stores, relaxed": ((STORE, RELAXED), (MEET,), {"H26"}),
    "loads, relaxed": ((LOAD, RELAXED), (MEET,), {"H26"}),
    "tells, relaxed": ((TELL, RELAXED), (MEET,), set()),
    "behind the barrier": ((MEET, TELL), (MEET,), {"H26"}),
    "its end ahead of a second round": ((ARRIVE, STORE), (MEET, MEET, READ), set()),
    "others arrive, and end": ((TELL, MEET), (ARRIVE,), {"H26"}),
    "others end": ((TELL, MEET), (), {"H26"}),
}


@pytest.mark.parametrize("end", ENDS)
def test_who_may_have_ended(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, others, wanted = ENDS[end]
    body = f"{BEGIN}{''.join(others)} ret;\nONE: {''.join(one)} ret;"

    def run(target: str) -> Outcome:
        return check_ptx.check(body, target, 64, grid=2, cluster=2)

    for target in ("sm_90a", "sm_100a"):
        assert {f.kind for f in check(launched_by(monkeypatch, partial(run, target))).findings} == wanted
    # what nothing has written is data for a proof
    assert {h.kind.id for h in run("sm_100a").hazards} - {"U1"} == wanted
