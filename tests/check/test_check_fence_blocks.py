# SPDX-License-Identifier: Apache-2.0
"""A proxy fence of .shared::cta concerns the shared memory of its thread's own block alone (PTX ISA 9.7.13.4)."""

from __future__ import annotations

import pytest
from check_ptx import check, found

from porter.sim import Outcome
from porter.sim.check.rulings import Ruling

MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
ANY, GLOBAL = "fence.proxy.async;", "fence.proxy.async.global;"
CLUSTER, CTA = "fence.proxy.async.shared::cluster;", "fence.proxy.async.shared::cta;"
RELEASE = "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;"
ACQUIRE = "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;"

# Block 1 reaches into a block's shared memory, and block 0 issues what reads or overwrites it.
BEGIN = (
    """mov.u32 %r20, %cluster_ctarank; setp.eq.and.u32 %p5, %r20, 0, %p0; setp.eq.and.u32 %p7, %r20, 1, %p0;
mov.u32 %r25, {block}; mapa.shared::cluster.u32 %r26, %r2, %r25; mapa.shared::cluster.u32 %r27, %r8, %r25;
@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 st.shared.v4.u32 [%r2], {{%r0, %r0, %r0, %r0}};
@%p0 st.shared.v4.u32 [%r2+1024], {{%r0, %r0, %r0, %r0}}; fence.mbarrier_init.release.cluster; fence.proxy.async;
"""
    + MEET
)
PUT = "st.shared::cluster.v4.u32 [%r26], {%r20, %r20, %r20, %r20};"
GENERIC = "cvt.u64.u32 %d6, %r26; cvta.shared.u64 %d6, %d6; st.v4.u32 [%d6], {%r20, %r20, %r20, %r20};"
TAKE = "ld.shared::cluster.u32 %r28, [%r26];"
ADD = "atom.shared::cluster.add.u32 %r28, [%r26], 1;"
STORE = """cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 16; cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;"""
LOAD = """mbarrier.expect_tx.shared::cluster.b64 [%r27], 16;
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r26], [%r2+1024], 16, [%r27];"""
LANDED = """setp.eq.and.u32 %p3, %r20, {block}, %p0; @%p3 mbarrier.arrive.shared.b64 _, [%r8];
setp.ne.u32 %p4, %r20, {block}; @%p4 bra END;
W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W; END:"""
# Which block's memory; what block 1 does, its fence, that of block 0 behind the meeting; what block 0 issues.
KERNELS: dict[str, tuple[int, str, str, str, str, set[str]]] = {
    "everything": (0, PUT, ANY, "", STORE, set()),
    "the cluster": (0, PUT, CLUSTER, "", STORE, set()),
    "the own block": (0, PUT, CTA, "", STORE, {"H27"}),
    "the own block, released": (0, PUT, RELEASE, "", STORE, {"H27"}),
    "a generic address": (0, GENERIC, CTA, "", STORE, {"H27"}),
    "a generic address, everything": (0, GENERIC, ANY, "", STORE, set()),
    "an atomic": (0, ADD, CTA, "", STORE, {"H27"}),
    "an atomic, the cluster": (0, ADD, CLUSTER, "", STORE, set()),
    "the reader's block": (0, PUT, "", CTA, STORE, set()),
    "acquired by the reader": (0, PUT, CTA, ACQUIRE, STORE, set()),
    "global memory's": (0, PUT, GLOBAL, "", STORE, {"H27"}),
    "a load overwritten": (0, TAKE, CTA, "", LOAD, {"H20"}),
    "a load overwritten, the cluster": (0, TAKE, CLUSTER, "", LOAD, set()),
    "the issuer's block": (1, PUT, "", CTA, LOAD, {"H20"}),
    "the issuer's fence of the cluster": (1, PUT, "", CLUSTER, LOAD, set()),
    "the block of both": (1, PUT, CTA, "", LOAD, set()),
}  # fmt: skip


def run(name: str, level: str) -> Outcome:
    block, put, writer, reader, use, _ = KERNELS[name]
    body = BEGIN.format(block=block) + f"@!%p7 bra MET; {put} {writer}\nMET: bar.warp.sync 0xffffffff; {MEET}"
    body += f"@!%p5 bra USED; {reader} {use}\nUSED: bar.warp.sync 0xffffffff; "
    body += (LANDED.format(block=block) if use is LOAD else "") + MEET + "ret;"
    return check(body, threads=32, grid=2, cluster=2, level=level)


@pytest.mark.parametrize("name", KERNELS)
def test_the_memory_of_another_block(name: str) -> None:
    kinds = KERNELS[name][-1]
    outcome = run(name, "strict")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert found(outcome) == kinds
    if kinds and "global" not in name:
        assert all("other block" in h.missing for h in outcome.hazards)


def test_at_practice_level_it_is_as_a_fence_left_out() -> None:
    assert found(run("the own block", "practice")) == {"H27"}
    assert {h.ruling for h in run("a load overwritten", "practice").hazards} == {Ruling.PROXY_FENCE}
