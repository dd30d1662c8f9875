# SPDX-License-Identifier: Apache-2.0
"""Another block's shared memory is accessed once that block is known to run (ruling `peer-start`)."""

from __future__ import annotations

import pytest
from check_ptx import check, found

ARRIVE, WAIT = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
MEET = ARRIVE + WAIT
# Shared memory of the other block from %r22, its mbarrier at %r23, a word for each thread at %r24; block 0 has %p5.
BODY = """mov.u32 %r20, %cluster_ctarank; xor.b32 %r21, %r20, 1; setp.eq.u32 %p5, %r20, 0;
mapa.shared::cluster.u32 %r22, %r2, %r21; mapa.shared::cluster.u32 %r23, %r8, %r21;
mad.lo.u32 %r24, %r0, 4, %r22; mad.lo.u32 %r25, %r0, 16, %r22; cvt.u64.u32 %d5, %r24; cvta.shared.u64 %d5, %d5;
{before}
{use}
{after} ret;"""
STORE = "st.shared::cluster.u32 [%r24], %r0;"
USES = {
    "store": STORE,
    "generic": "st.u32 [%d5], %r0;",
    "volatile": "st.volatile.shared::cluster.u32 [%r24], %r0;",
    "relaxed": "st.relaxed.cluster.shared::cluster.u32 [%r24], %r0;",
    "vector": "st.shared::cluster.v4.u32 [%r25], {%r0, %r0, %r0, %r0};",
    "byte": "st.shared::cluster.u8 [%r24], %r0;",
    "one thread": f"@%p0 {STORE}",
    "one block": f"@%p5 {STORE}",
}
READS = {
    "load": "ld.shared::cluster.u32 %r40, [%r24];",
    "reduction": "red.shared::cluster.add.u32 [%r24], 1;",
    "atomic": "atom.shared::cluster.add.u32 %r40, [%r24], 1;",
}


def hazards(before: str, use: str, after: str = MEET, level: str = "strict", threads: int = 64) -> set[str]:
    text = BODY.format(before=before, use=use, after=after)
    outcome = check(text, threads=threads, grid=2, cluster=2, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return found(outcome)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_store_to_a_block_that_may_not_run(use: str) -> None:
    for level in ("strict", "practice"):
        assert hazards("bar.sync 0;", use, level=level) == {"H32"}
    assert not hazards(MEET, use)


@pytest.mark.parametrize("use", READS.values(), ids=READS)
def test_a_read_of_a_block_that_may_not_run(use: str) -> None:
    fill = "mad.lo.u32 %r31, %r0, 4, %r2; st.shared.u32 [%r31], %r0;"
    assert hazards(fill, use) == {"G1", "H32"}
    assert not hazards(fill + MEET, use)


# What tells that the other block runs --------------------------------------------------------------------------------

INIT = "@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster;"
EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 4;"
# Block 0 does not wait at the cluster barrier but for something that block 1 does behind it.
HANDSHAKE = "{init} bar.sync 0;" + ARRIVE + "@%p5 bra FIRST;" + WAIT + "{tell} bra GO; FIRST: {learn} GO:"
LATER = f"@!%p5 bra LAST; {WAIT} LAST: {MEET}"
ARRIVAL = "@%p0 mbarrier.arrive.{order}.cluster.shared::cluster.b64 _, [%r23];"
POLL = "W: mbarrier.try_wait.parity.{order}.cluster.shared.b64 %p6, [%r8], 0; @!%p6 bra W;"
SENT = "@%p0 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r22+2048], %r20, [%r23];"
COPIED = "@%p0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r22+2048], [%r2], 16, [%r23];"
FILL = "@%p0 st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0}; @%p0 fence.proxy.async;"
OVER_MBARRIERS = {
    "arrival": (INIT, ARRIVAL.format(order="release"), POLL.format(order="acquire")),
    "relaxed arrival": (INIT, ARRIVAL.format(order="relaxed"), POLL.format(order="relaxed")),
    "st.async": (INIT + EXPECT, SENT, POLL.format(order="acquire")),
    "bulk copy": (INIT + EXPECT.replace(", 4", ", 16"), FILL + COPIED, POLL.format(order="acquire")),
}


@pytest.mark.parametrize(("init", "tell", "learn"), OVER_MBARRIERS.values(), ids=OVER_MBARRIERS)
def test_what_comes_from_a_block_tells_that_it_runs(init: str, tell: str, learn: str) -> None:
    use = f"@%p5 {STORE.replace('%r24', '%r24+512')}"
    assert not hazards(HANDSHAKE.format(init=init, tell=tell, learn=learn), use, LATER)
    assert "H32" in hazards(HANDSHAKE.format(init=init, tell=tell, learn=""), use, LATER)


FLAG = "@%p5 bra FIRST; @%p0 {store} [%d1], 1; bra GO; FIRST: {poll} GO:"
LOOP = "L: {load} %r30, [%d1]; setp.eq.u32 %p6, %r30, 0; @%p6 bra L;"
FLAGS = [
    ("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32"),
    ("st.release.cluster.global.u32", "ld.relaxed.cluster.global.u32"),
    ("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32"),
    ("st.volatile.global.u32", "ld.volatile.global.u32"),
    ("red.global.add.u32", "ld.relaxed.sys.global.u32"),
]


@pytest.mark.parametrize(("store", "load"), FLAGS)
def test_a_flag_tells_that_a_block_runs(store: str, load: str) -> None:
    for level in ("strict", "practice"):
        polled = FLAG.format(store=store, poll=LOOP.format(load=load))
        assert not hazards(polled, f"@%p5 {STORE}", level=level)
    once = FLAG.format(store=store, poll="")
    assert hazards(once, f"@%p5 {STORE}") == {"H32"}


def test_a_barrier_of_the_block_passes_it_on() -> None:
    """Warp 1 waits for the cluster, and warp 0 for warp 1."""
    first = "barrier.cluster.arrive; @%p1 bra NO; barrier.cluster.wait; NO: {sync}"
    after = f"@!%p1 bra YES; barrier.cluster.wait; YES: {MEET}"
    assert not hazards(first.format(sync="bar.sync 0;"), f"@%p1 {STORE}", after)
    assert hazards(first.format(sync=""), f"@%p1 {STORE}", after) == {"H32"}


def test_the_arrival_alone_does_not_tell() -> None:
    assert hazards(ARRIVE, STORE, WAIT + MEET) == {"H32"}
    relaxed = ARRIVE.replace("arrive", "arrive.relaxed") + WAIT
    assert not hazards(relaxed, STORE)


def test_each_block_of_a_cluster_for_itself() -> None:
    """Block 0 knows of block 1 alone, whose flag it has read."""
    away = BODY.replace("xor.b32 %r21, %r20, 1", "mov.u32 %r21, {rank}")
    polled = FLAG.format(store="st.release.gpu.global.u32", poll=LOOP.format(load="ld.acquire.gpu.global.u32"))
    polled = polled.replace("@%p0 st", "setp.eq.and.u32 %p4, %r20, 1, %p0; @%p4 st")
    for rank, kinds in ((1, set()), (2, {"H32"}), (3, {"H32"})):
        text = away.format(rank=rank, before=polled, use=f"@%p5 {STORE}", after=MEET)
        outcome = check(text, threads=32, grid=4, cluster=4)
        assert found(outcome) == kinds


PAIR = """@!%p1 bra NOALLOC; tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r9], 32; NOALLOC: bar.sync 0;"""
FREE = """ld.shared.u32 %r10, [%r9]; @!%p1 bra END; tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r10, 32; END:"""


def test_an_allocation_of_the_pair_tells_of_its_peer() -> None:
    assert hazards(PAIR, STORE, MEET + FREE) == {"L1"}
    late = PAIR.replace("cta_group::2", "cta_group::1"), STORE, MEET + FREE.replace("cta_group::2", "cta_group::1")
    assert hazards(*late) == {"H32"}
