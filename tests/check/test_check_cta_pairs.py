# SPDX-License-Identifier: Apache-2.0
"""Operations of one block on the Tensor Memory of its peer."""

from __future__ import annotations

import numpy as np
import pytest

from porter.ptx.parser import parse_module
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate

# Each block fills its shared memory with its rank, and one thread of the even block copies both to Tensor Memory.
KERNEL = """.version 8.7
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 dyn[];
.visible .entry kernel(.param .u64 out)
{{
.reg .b16 %h1; .reg .b32 %r<40>; .reg .b64 %d<20>; .reg .pred %p<10>;
.shared .align 8 .b8 bar[8]; .shared .align 4 .b8 slot[4];
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, dyn; mov.u32 %r8, bar; mov.u32 %r9, slot;
mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r5, 0;
@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster;
mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.u32 [%r3], {{%r5, %r5, %r5, %r5}}; fence.proxy.async;
{before} barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; {after}
tcgen05.fence::after_thread_sync; ld.shared.u32 %r10, [%r9];
@%p2 bra WAIT; @!%p0 bra WAIT;
shr.u32 %r3, %r2, 4; cvt.u64.u32 %d1, %r3; add.u64 %d1, %d1, {descriptor};
tcgen05.cp.cta_group::2.128x128b [%r10], %d1; mov.u16 %h1, 3;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r8], %h1;
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p6, [%r8], 0; @!%p6 bra WAIT;
tcgen05.fence::after_thread_sync; shl.b32 %r12, %r1, 21; add.u32 %r12, %r12, %r10;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r20}}, [%r12]; tcgen05.wait::ld.sync.aligned;
ld.param.u64 %d2, [out]; mad.lo.u32 %r21, %r5, 128, %r0; mul.wide.u32 %d3, %r21, 4; add.u64 %d2, %d2, %d3;
st.global.u32 [%d2], %r20; tcgen05.fence::before_thread_sync;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; tcgen05.fence::after_thread_sync;
@%p1 bra END; tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r10, 32;
END: ret;
}}
"""
ALLOC = """@%p1 bra NOALLOC; tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r9], 32; NOALLOC:
tcgen05.fence::before_thread_sync; bar.sync 0;"""


def launch(before: str = "", after: str = "") -> tuple[Outcome, np.ndarray]:
    memory = GlobalMemory()
    out = memory.alloc(1024)
    descriptor = SmemDescriptor(0, 16, 128, SwizzleMode.NONE).encode("sm_100")
    module = parse_module(KERNEL.format(before=before, after=after, descriptor=descriptor))
    params = pack_params(module.function("kernel"), [out])
    options = Options(mode="checking", level="strict", schedule="late")
    outcome = simulate(module, "kernel", Launch((2, 1, 1), (128, 1, 1), (2, 1, 1), 2048), params, memory, options)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome, memory.read(out, 1024).view(np.uint32)


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_allocation_of_a_pair_tells_of_both_blocks(place: str) -> None:
    """Neither block gets its columns before the other asks, so a barrier of the own block is enough for the other
    warps; but the peer has to run by then."""
    outcome, got = launch(**{place: ALLOC})
    assert {h.kind.id for h in outcome.hazards} == ({"L1"} if place == "before" else set())
    np.testing.assert_array_equal(got, np.repeat([0, 1], 128))


def test_without_a_barrier_the_other_warps_do_not_know_of_it() -> None:
    outcome, _ = launch(after=ALLOC.replace("bar.sync 0;", "bar.warp.sync 0xffffffff;"))
    assert "H15" in {h.kind.id for h in outcome.hazards}
