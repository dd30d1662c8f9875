# SPDX-License-Identifier: Apache-2.0
"""Accesses that a later one does not take the place of: what atomics come after, sources of copies under way."""

from __future__ import annotations

import pytest
from check_ptx import check, found

ZERO, ADD = "@%p0 st.shared.u32 [%r9], 0;", "atom.shared.add.u32 %r5, [%r9], 1;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
CLUSTER = (
    """mov.u32 %r30, %cluster_ctarank; setp.eq.and.u32 %p4, %r30, 0, %p0; mov.u32 %r31, 0;
mapa.shared::cluster.u32 %r32, %r9, %r31; @%p4 st.shared.u32 [%r9], 0; {meet}
@%p0 atom.shared::cluster.add.u32 %r5, [%r32], 1; """
    + MEET
)
BLOCKS = """mov.u32 %r30, %ctaid.x; setp.eq.and.u32 %p4, %r30, 0, %p0; setp.eq.and.u32 %p5, %r30, 1, %p0;
@%p4 st{}.global.u32 [%d1], 0; @%p4 red.global.add.u32 [%d1], 1; @%p5 red.global.add.u32 [%d1], 1;"""
BULK = """mov.u32 %r30, %ctaid.x; setp.eq.and.u32 %p4, %r30, 0, %p0; @%p4 {first}.u32 [%d1], 1;
mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.u32 [%r3], {{%r0, %r0, %r0, %r0}}; fence.proxy.async; bar.sync 0;
@!%p0 bra END; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1], [%r2], 1024;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END:"""
TWICE = {"grid": 2}
PAIR = {"grid": 2, "cluster": 2}
ATOMICS = {
    "a counter set and used": (f"{ZERO} {ADD}", {}, {"G1"}),
    "a counter set and used behind a barrier": (f"{ZERO} bar.sync 0; {ADD}", {}, set()),
    "a counter set again": (f"{ZERO} bar.sync 0; {ADD} bar.sync 0; {ZERO} {ADD}", {}, {"G1"}),
    "a counter set again behind barriers": (2 * f"{ZERO} bar.sync 0; {ADD} bar.sync 0;", {}, set()),
    "reductions": (f"{ZERO} red.shared.add.u32 [%r9], 1;", {}, {"G1"}),
    "compare and swap": (f"{ZERO} atom.shared.cas.b32 %r5, [%r9], 0, 1;", {}, {"G1"}),
    "read and used": (f"{ZERO} bar.sync 0; ld.shared.u32 %r6, [%r9]; {ADD}", {}, {"G1"}),
    "another block's counter": (CLUSTER.format(meet=""), PAIR, {"G1", "H32"}),
    "another block's counter behind a meeting": (CLUSTER.format(meet=MEET), PAIR, set()),
    "global memory": (BLOCKS.format(""), TWICE, {"G2"}),
    "global memory, strong": (BLOCKS.format(".relaxed.gpu"), TWICE, set()),
    "bulk reductions": (BULK.format(first="st.global"), TWICE, {"G4"}),
    "bulk reductions alone": (BULK.format(first="red.global.add"), TWICE, set()),
}


@pytest.mark.parametrize("name", ATOMICS)
def test_what_atomics_come_after(name: str) -> None:
    body, launch, kinds = ATOMICS[name]
    outcome = check(body + " ret;", **launch)
    assert outcome.status == "ok", outcome.findings
    assert found(outcome) == kinds


COPY = """mad.lo.u32 %r3, %r0, 16, %r2; mul.wide.u32 %d2, %r0, 16; add.u64 %d6, %d1, %d2;
cp.async.cg.shared.global [%r3], [%d6], 16;"""
AGAIN = "cp.async.commit_group; cp.async.cg.shared.global [%r3+2048], [%d6], 16; cp.async.commit_group;"
STORE, ALL = "st.global.u32 [%d6], %r0;", "cp.async.wait_all;"
OTHER = "xor.b32 %r20, %r0, 32; mul.wide.u32 %d2, %r20, 16; add.u64 %d6, %d1, %d2;" + STORE
TOLD = (
    "@%p0 mbarrier.init.shared.b64 [%r8], 128; bar.sync 0;" + COPY + "cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];"
)
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W;"
SOURCES = {
    "stored before": (COPY.replace("cp.async", STORE + "st.global.v2.u32 [%d6+8], {%r0, %r0}; cp.async") + ALL, True),
    "loaded meanwhile": (COPY + "ld.global.u32 %r5, [%d6];" + ALL, True),
    "stored meanwhile": (COPY + STORE + ALL, False),
    "stored behind the wait": (COPY + ALL + STORE, True),
    "changed meanwhile": (COPY + "red.global.add.u32 [%d6], 1;" + ALL, False),
    "by another warp meanwhile": (COPY + "bar.sync 0;" + OTHER + ALL, False),
    "by another warp behind the wait": (COPY + ALL + "bar.sync 0;" + OTHER, True),
    "read twice, the first waited for": (COPY + AGAIN + "cp.async.wait_group 1;" + STORE + ALL, False),
    "read twice, both waited for": (COPY + AGAIN + "cp.async.wait_group 0;" + STORE, True),
    "told to an mbarrier": (TOLD + WAIT + STORE, True),
    "told to an mbarrier, not waited for": (TOLD + STORE + WAIT, False),
}


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("name", SOURCES)
def test_the_source_of_a_copy_by_threads(name: str, level: str) -> None:
    body, right = SOURCES[name]
    outcome = check(body + " ret;", level=level)
    assert outcome.status == "ok", outcome.findings
    assert found(outcome) == (set() if right else {"G5"})


BULKS = """mov.u32 %r9, dyn; add.u32 %r9, %r9, 4096; @%p0 mbarrier.init.shared.b64 [%r8], 1;
@%p0 mbarrier.init.shared.b64 [%r9], 1; @%p0 fence.mbarrier_init.release.cluster; bar.sync 0; @!%p0 bra END;
mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 16; mbarrier.arrive.expect_tx.shared.b64 _, [%r9], 16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], 16, [%r8];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+64], [%d1], 16, [%r9]; {} END: ret;"""
FIRST, SECOND = WAIT, WAIT.replace("W", "X").replace("%r8", "%r9")
CHANGE = "fence.proxy.async; st.global.u32 [%d1], 1;"


@pytest.mark.parametrize(
    ("waits", "right"),
    [(FIRST + SECOND + CHANGE, True), (SECOND + CHANGE + FIRST, False), (FIRST + CHANGE + SECOND, False)],
)
def test_one_source_of_two_copies(waits: str, right: bool) -> None:
    for level in ("strict", "practice"):
        assert found(check(BULKS.format(waits), level=level)) == (set() if right else {"G5"})
