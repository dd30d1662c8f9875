# SPDX-License-Identifier: Apache-2.0
"""Reductions in shared memory: asynchronous ones of several threads at one place, what they find there, and the proxy
of st.async and red.async."""

from __future__ import annotations

import pytest
from check_ptx import check, found

from porter.sim.check.hazard import Level
from porter.sim.check.rulings import Ruling
from porter.sim.results import Outcome

MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
ASYNC = "shared::cluster.mbarrier::complete_tx::bytes"
# Blocks 1 and 2 add to a word of block 0, each counted by an mbarrier of its own.
SUM = """.reg .b32 %x, %own; mov.u32 %x, %cluster_ctarank; add.u32 %r9, %r2, 4096; mov.u32 %r22, 0; mov.u32 %r21, 5;
@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 mbarrier.init.shared.b64 [%r9], 1; fence.mbarrier_init.release.cluster;
{first} {meet}
setp.eq.u32 %p3, %x, 1; setp.eq.u32 %p4, %x, 0; selp.u32 %own, %r8, %r9, %p3;
mapa.shared::cluster.u32 %r20, %r2, %r22; mapa.shared::cluster.u32 %own, %own, %r22;
@!%p0 bra END; @%p4 bra READ; {put} bra END;
READ: mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {bytes}; mbarrier.arrive.expect_tx.shared.b64 _, [%r9], {bytes};
{one} {other} ld.shared.u32 %r24, [%r2]; st.global.u32 [%d1], %r24;
END: bar.warp.sync 0xffffffff; {meet} ret;"""
ZERO = (
    "@%p0 st.shared.v4.u32 [%r2], {%r22, %r22, %r22, %r22}; @%p0 st.shared.v4.u32 [%r2+512], {%r21, %r21, %r21, %r21};"
)
FENCED = ZERO + "fence.proxy.async.shared::cta;"
ADD = f"red.async.relaxed.cluster.{ASYNC}.add.u32 [%r20], %r21, [%own];"
STORE = f"st.async.{ASYNC}.u32 [%r20], %r21, [%own];"
BULK = "add.u32 %r25, %r2, 512; cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32"
BULK += " [%r20], [%r25], 16, [%own];"


def summed(put: str = ADD, first: str = FENCED, bytes: int = 4, level: Level = "strict", **other: str) -> Outcome:
    one, last = (
        f"W{i}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p6, [%r{8 + i}], 0; @!%p6 bra W{i};"
        for i in range(2)
    )
    text = {"one": one, "other": last, "meet": MEET} | other
    outcome = check(SUM.format(put=put, first=first, bytes=bytes, **text), threads=32, grid=3, cluster=3, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome


BULKS = {"put": BULK, "bytes": 16}


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("put", [{}, BULKS], ids=["by threads", "bulk"])
def test_reductions_of_two_blocks_at_one_place(put: dict[str, object], level: Level) -> None:
    assert not summed(level=level, **put).hazards


@pytest.mark.parametrize("left_out", ["one", "other"])
@pytest.mark.parametrize("put", [{}, BULKS], ids=["by threads", "bulk"])
def test_each_of_them_is_waited_for(put: dict[str, object], left_out: str) -> None:
    """The later one does not stand for the earlier."""
    outcome = summed(level="practice", **put, **{left_out: ""})
    assert "H17" in found(outcome)


def test_stores_at_one_place_do_race() -> None:
    assert "H17" in found(summed(STORE, level="practice"))


@pytest.mark.parametrize("put", [{}, BULKS], ids=["by threads", "bulk"])
def test_reductions_read_what_is_there(put: dict[str, object]) -> None:
    source = "@%p0 st.shared.v4.u32 [%r2+512], {%r21, %r21, %r21, %r21}; fence.proxy.async.shared::cta;"
    assert found(summed(first=source, **put)) == {"U1"}
    mild = summed(first=source, level="practice", **put)
    assert {(h.kind.id, h.ruling) for h in mild.hazards} == {("U1", Ruling.NEVER_WRITTEN)}


@pytest.mark.parametrize(
    ("instruction", "reads"),
    [("red.shared.add.u32 [%r3], 1;", True), ("atom.shared.add.u32 %r4, [%r3], 1;", True),
     ("atom.shared.cas.b32 %r4, [%r3], 0, 1;", True), ("atom.shared.exch.b32 %r4, [%r3], 1;", False)],
)  # fmt: skip
def test_atomics_read_what_is_there(instruction: str, reads: bool) -> None:
    place = "mad.lo.u32 %r3, %r0, 4, %r2;"
    assert found(check(f"{place} {instruction} ret;", threads=32)) == ({"U1"} if reads else set())
    assert not found(check(f"{place} st.shared.u32 [%r3], 0; {instruction} ret;", threads=32))


@pytest.mark.parametrize("put", [ADD, STORE], ids=["red.async", "st.async"])
def test_stores_of_threads_and_their_asynchronous_stores(put: str) -> None:
    """The text names no proxy for these, unlike for bulk copies."""
    asked = {("H20", "review", Ruling.STORE_ASYNC)}
    for level, wanted in (("strict", asked), ("practice", set())):
        outcome = summed(put, first=ZERO, level=level)
        assert {(h.kind.id, h.severity, h.ruling) for h in outcome.hazards if h.kind.id == "H20"} == wanted
    assert "H20" in found(summed(BULK, first=ZERO, bytes=16))


def test_a_store_beside_them_is_a_race() -> None:
    wait = "W0: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p6, [%r8], 0; @!%p6 bra W0;"
    assert found(summed(level="practice", one="st.shared.u32 [%r2], %r22;" + wait)) & {"H17", "H20"}


OWN = """mov.u32 %r9, %cluster_ctarank; mapa.shared::cluster.u32 %r20, %r2, {target};
mapa.shared::cluster.u32 %r21, %r8, {target};
@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 st.shared.u32 [%r2], 0; fence.mbarrier_init.release.cluster; {meet}
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 4; @%p0 {put}
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p6, [%r8], 0; @!%p6 bra W; {meet} ret;"""


@pytest.mark.parametrize(
    ("put", "target", "cluster", "wrong"),
    [(ADD, "%r9", 2, True), (ADD, "%r10", 2, False), (STORE, "%r9", 2, False), (STORE, "%r10", 2, False),
     (STORE, "%r9", 1, True)],
    ids=["own sum", "sum next door", "own store", "store next door", "store of a lone block"],
)  # fmt: skip
def test_the_own_block(put: str, target: str, cluster: int, wrong: bool) -> None:
    text = put.replace("%own", "%r21").replace("%r21, [", "5, [")
    body = OWN.format(target=target, put=text, meet=MEET).replace(";", "; xor.b32 %r10, %r9, 1;", 1)
    for level, severity in (("strict", "error"), ("practice", "review")):
        outcome = check(body, threads=32, grid=cluster, cluster=cluster, level=level)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        rest = [(h.kind.id, h.severity, h.ruling) for h in outcome.hazards if h.kind.id == "A3"]
        assert rest == ([("A3", severity, Ruling.OWN_BLOCK)] if wrong else [])
