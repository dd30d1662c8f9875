# SPDX-License-Identifier: Apache-2.0
"""A word for the other block of a pair: st.async and red.async, which an mbarrier counts, or a store and an arrival."""

from __future__ import annotations

import pytest
from check_ptx import check, found

MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
SENT = """mov.u32 %r20, %cluster_ctarank; setp.ne.u32 %p5, %r20, 0; @%p0 mbarrier.init.shared.b64 [%r8], 1;
fence.mbarrier_init.release.cluster; {meet} mov.u32 %r25, 0; mov.u32 %r21, 7;
mapa.shared::cluster.u32 %r26, %r2, %r25; mapa.shared::cluster.u32 %r27, %r8, %r25;
@!%p0 bra END; @!%p5 bra READ; {put} bra END;
READ: {expect} {wait} ld.shared.u32 %r24, [%r2]; st.global.u32 [%d1+512], %r24;
END: bar.warp.sync 0xffffffff; {end} ret;"""
ASYNC = "shared::cluster.mbarrier::complete_tx::bytes"
RIGHT = {
    "meet": MEET,
    "put": f"st.async.{ASYNC}.u32 [%r26], %r21, [%r27];",
    "expect": "mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 4;",
    "wait": "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W;",
    "end": MEET,
}
STORE = {
    "put": "st.shared::cluster.u32 [%r26], %r21; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r27];",
    "expect": "",
    "wait": "W: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p6, [%r8], 0; @!%p6 bra W;",
}
SENDS: dict[str, tuple[dict[str, str], set[str]]] = {
    "asynchronous_store": ({}, set()),
    "asynchronous_reduction": (
        {"put": f"red.async.relaxed.cluster.{ASYNC}.inc.u32 [%r26], %r21, [%r27];",
         "meet": "@%p0 st.shared.u32 [%r2], 0;" + MEET}, set(),
    ),
    "polled_with_test_wait": ({"wait": RIGHT["wait"].replace("try_wait", "test_wait")}, set()),
    "relaxed_meeting": ({"meet": MEET.replace("arrive", "arrive.relaxed")}, set()),
    "receiver_waited_before_the_end": ({"end": ""}, set()),
    "no_wait": ({"wait": ""}, {"H17", "H26"}),
    "other_parity": ({"wait": RIGHT["wait"].replace("], 0", "], 1")}, {"H17", "H26"}),
    "bytes_not_expected": ({"expect": "mbarrier.arrive.shared.b64 _, [%r8];"}, {"H17", "H26"}),
    "no_meeting": ({"meet": ""}, {"H21"}),
    "store_and_arrival": (STORE, set()),
    "store_and_relaxed_arrival": ({**STORE, "put": STORE["put"].replace("release", "relaxed")}, {"G1"}),
    "store_and_no_wait": ({**STORE, "wait": "", "end": ""}, {"G1", "H26"}),
}  # fmt: skip


@pytest.mark.parametrize("level", [pytest.param("strict", marks=pytest.mark.slow), "practice"])
@pytest.mark.parametrize("name", SENDS)
def test_a_word_for_the_other_block(name: str, level: str) -> None:
    other, kinds = SENDS[name]
    outcome = check(SENT.format(**{**RIGHT, **other}), threads=32, grid=2, cluster=2, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert found(outcome) == kinds
