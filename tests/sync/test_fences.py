# SPDX-License-Identifier: Apache-2.0
"""What the asynchronous proxy sees of a thread's stores: what fence.proxy.async covers, and no other fence."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of

from porter.facts.launched import Geometry, Launched
from porter.sync.checked import Verdict, check

STORE = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k()
.reqntid 32
{{
.reg .pred %p<2>;
.reg .b32 %r<4>;
.reg .b64 %d<2>;
.shared .align 16 .b8 tile[128];
.shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra $OUT;
mbarrier.init.shared::cta.b64 [bar], 1;
st.shared.u32 [tile], %r1;
{fence}
mov.u64 %d1, 0x20000000000;
mov.u32 %r2, tile;
cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 16;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
$OUT:
ret;
}}
"""
FENCES = {
    "fence.proxy.async.shared::cta;": set(),
    "fence.proxy.async;": set(),
    "fence.mbarrier_init.release.cluster;": {"H27"},
    "fence.acq_rel.cta;": {"H27"},
    "": {"H27"},
}


@pytest.mark.parametrize("fence", FENCES)
def test_a_store_that_a_copy_reads(fence: str) -> None:
    found = check(Launched(flow_of(STORE.format(fence=fence)), Geometry((32, 1, 1)), {}))
    assert {f.kind for f in found.findings} == FENCES[fence]
    assert found.verdict is (Verdict.ERROR if FENCES[fence] else Verdict.CLEAN)
