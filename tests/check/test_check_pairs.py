# SPDX-License-Identifier: Apache-2.0
"""Single pairs of accesses: which keep an order by themselves, and what is reported of the others."""

from __future__ import annotations

import pytest
from check_ptx import COMMIT, DESCRIPTORS, FILL, MMA, check, found, try_wait

from porter.sim.check.rulings import Ruling

ALLOC = """@%p0 mbarrier.init.shared.b64 [%r8], 1;
fence.mbarrier_init.release.cluster;
@!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 64;
NOALLOC: bar.sync 0; ld.shared.u32 %r10, [%r9];
"""
AFTER_ALLOC = "tcgen05.fence::after_thread_sync;\n"
READY = FILL + DESCRIPTORS + "fence.proxy.async.shared::cta; bar.sync 0;\n"
FREE = """tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync; @!%p1 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64;
END: ret;
"""
WAIT = try_wait("W1", 0, "wait") + "tcgen05.fence::after_thread_sync;\n"
LD = "tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r40, %r41, %r42, %r43}, [%r13];\n"
ST = "tcgen05.st.sync.aligned.16x256b.x1.b32 [%r13], {%r4, %r4, %r4, %r4};\n"
WAIT_LD, WAIT_ST = "tcgen05.wait::ld.sync.aligned;\n", "tcgen05.wait::st.sync.aligned;\n"
FIRST, MORE = MMA.format(enable="%p3"), MMA.format(enable="%p4")
SHIFTED = "add.u32 %r20, %r10, {columns}; tcgen05.mma.cta_group::1.kind::f16 [%r20], %d7, %d8, %r12, %p3;"


def tensor(*steps: str) -> set[str]:
    outcome = check(ALLOC + AFTER_ALLOC + READY + "".join(steps) + FREE)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return found(outcome)


def issued(text: str) -> str:
    """Steps of thread 0."""
    return f"@!%p0 bra JOIN;\n{text}\n{COMMIT}\nJOIN:\n"


def test_asynchronous_operations_of_other_warps_need_a_fence_after_the_allocation() -> None:
    steps = READY + ST + WAIT_ST
    assert not found(check(ALLOC + AFTER_ALLOC + steps + FREE))
    missing = check(ALLOC + steps + FREE)
    assert {(h.kind.id, h.remedy) for h in missing.hazards} == {("H15", "tcgen05.fence::after_thread_sync")}
    assert not found(check(ALLOC + steps + FREE, level="practice"))


def test_mmas_on_one_accumulator_keep_their_order() -> None:
    assert not tensor(issued(FIRST + MORE + MORE), WAIT, LD, WAIT_LD)


def test_mmas_on_overlapping_accumulators_do_not() -> None:
    assert tensor(issued(FIRST + SHIFTED.format(columns=4)), WAIT) == {"H7"}


def test_mmas_on_accumulators_side_by_side_need_no_order() -> None:
    assert not tensor(issued(FIRST + SHIFTED.format(columns=8)), WAIT)


FROM_TMEM = "tcgen05.mma.cta_group::1.kind::f16 [{d}], [{a}], %d8, %r12, %p3;"


@pytest.mark.parametrize(
    ("first", "second", "practice"),
    [
        # A of the first is overwritten by the second: MMAs run in the order of their issue.
        (FROM_TMEM.format(d="%r20", a="%r10"), FIRST, set()),
        # The accumulator of the first is A of the second, or lies askew over its accumulator.
        (FIRST, FROM_TMEM.format(d="%r20", a="%r10"), {"H7"}),
        (FIRST, SHIFTED.format(columns=4), {"H7"}),
    ],
)
def test_an_mma_on_what_another_reads(first: str, second: str, practice: set[str]) -> None:
    steps = ST + WAIT_ST + "add.u32 %r20, %r10, 32; tcgen05.fence::before_thread_sync; bar.sync 0;\n" + AFTER_ALLOC
    body = ALLOC + AFTER_ALLOC + READY + steps + issued(first + second) + WAIT + FREE
    assert found(check(body)) == {"H7"}
    mild = check(body, level="practice")
    assert found(mild) == practice
    assert practice or {h.ruling for h in mild.hazards} == {Ruling.TENSOR_PIPELINE}


def test_a_load_after_a_store_needs_the_stores_wait() -> None:
    assert not tensor(ST, WAIT_ST, LD, WAIT_LD)
    assert tensor(ST, LD, WAIT_LD, WAIT_ST) == {"H5"}


def test_a_store_after_a_load_needs_the_loads_wait() -> None:
    assert not tensor(ST, WAIT_ST, LD, WAIT_LD, ST, WAIT_ST)
    assert "H6" in tensor(ST, WAIT_ST, LD, ST, WAIT_ST, WAIT_LD)


def test_a_loaded_register_used_before_the_wait_also_through_a_copy() -> None:
    use = "mov.b32 %r60, %r41; add.u32 %r61, %r60, %r60;\n"
    assert tensor(ST, WAIT_ST, LD, use, WAIT_LD) == {"H31"}
    assert not tensor(ST, WAIT_ST, LD, WAIT_LD, use)


def test_cells_that_were_never_written() -> None:
    assert tensor(LD, WAIT_LD) == {"U2"}
    assert tensor(issued(MORE), WAIT) == {"U2"}


def test_an_mma_by_every_thread_of_a_warp() -> None:
    outcome = check(ALLOC + READY + f"@!%p1 bra JOIN;\n{FIRST}\n@%p0 {COMMIT}\nJOIN:\n" + WAIT + FREE)
    assert "H23" in found(outcome)


def test_a_commit_by_another_thread_covers_nothing() -> None:
    other = f"setp.eq.u32 %p5, %r0, 32;\n@%p0 {FIRST}\n@%p5 {COMMIT}\n"
    assert {"H22", "H14"} <= found(check(ALLOC + READY + other + WAIT + LD + WAIT_LD + FREE, schedule="eager"))


STORE, LOAD = "mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0;\n", "ld.shared.u32 %r4, [%r20];\n"
NEIGHBOUR = "add.u32 %r20, %r0, 32; and.b32 %r20, %r20, 127; mad.lo.u32 %r20, %r20, 4, %r2;\n"


@pytest.mark.parametrize(
    ("between", "wanted"),
    [
        ("bar.sync 0;", set()),
        ("barrier.sync 0;", set()),
        ("bar.sync 3, 128;", set()),
        ("bar.arrive 1, 256; bar.sync 1, 256;", set()),
        ("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", set()),
        ("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;", {"G1"}),
        ("fence.acq_rel.cta; barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;", set()),
        ("bar.warp.sync 0xffffffff;", {"G1"}),
        ("", {"G1"}),
    ],
)  # fmt: skip
def test_which_barriers_order_warps(between: str, wanted: set[str]) -> None:
    assert found(check(STORE + NEIGHBOUR + between + LOAD + "ret;", "sm_90a")) == wanted


def test_neighbours_in_one_word_do_not_race() -> None:
    for kind, size in (("u8", 1), ("u16", 2)):
        store = f"mad.lo.u32 %r3, %r0, {size}, %r2; cvt.u16.u32 h, %r0; st.shared.{kind} [%r3], h;"
        assert not found(check(".reg .b16 h; " + store + " ret;", "sm_90a", threads=96))


def test_shared_memory_that_was_never_written() -> None:
    assert found(check(NEIGHBOUR + LOAD + "ret;", "sm_90a")) == {"U1"}


PRODUCED = (
    """@%p0 mbarrier.init.shared.b64 [%r8], {count};
bar.sync 0;
"""
    + STORE
    + """mbarrier.arrive{relaxed}.shared.b64 %d9, [%r8];
W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], {parity}; @!%p6 bra W;
"""
    + NEIGHBOUR
    + LOAD
    + "ret;"
)


def test_mbarriers_order_arrivals_before_waits_of_their_phase() -> None:
    assert not found(check(PRODUCED.format(count=128, parity=0, relaxed=""), "sm_90a"))


def test_a_wait_for_the_wrong_parity_orders_nothing() -> None:
    assert "G1" in found(check(PRODUCED.format(count=256, parity=1, relaxed=""), "sm_90a"))


# Thread 0 stores a word and sets a flag in shared memory; the other warps poll the flag, then read the word.
SHARED_FLAG = """@%p0 st.shared.u32 [%r8], 0; bar.sync 0;
@!%p0 bra POLL;
st.shared.u32 [%r2], 7;
{store} [%r8], 1;
POLL: W: {load} %r5, [%r8]; setp.eq.u32 %p6, %r5, 0; @%p6 bra W;
{after}
ld.shared.u32 %r4, [%r2];
ret;
"""


@pytest.mark.parametrize(
    ("store", "load", "after", "wanted"),
    [
        ("st.release.cta.shared.u32", "ld.acquire.cta.shared.u32", "", set()),
        ("st.release.cta.shared.u32", "ld.acquire.cta.shared.u32", "bar.warp.sync 0xffffffff;", set()),
        ("membar.cta; st.volatile.shared.u32", "ld.volatile.shared.u32", "membar.cta;", set()),
        ("st.volatile.shared.u32", "ld.volatile.shared.u32", "membar.cta;", {"G1"}),
        ("membar.cta; st.volatile.shared.u32", "ld.volatile.shared.u32", "", {"G1"}),
        ("membar.cta; red.shared.add.u32", "ld.volatile.shared.u32", "membar.cta;", set()),
    ],
)
def test_flags_in_shared_memory(store: str, load: str, after: str, wanted: set[str]) -> None:
    outcome = check(SHARED_FLAG.format(store=store, load=load, after=after), "sm_90a")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert found(outcome) - {"G8"} == wanted


REMOTE = """mapa.shared::cluster.u32 %r20, %r8, 0; @%p0 {how}.shared::cluster.add.u32 [%r20], 1;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;
"""


def test_atomics_on_another_blocks_memory_need_cluster_scope() -> None:
    before = "@%p0 st.shared.u32 [%r8], 0; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
    assert not found(check(before + REMOTE.format(how="red.relaxed.cluster"), "sm_90a", grid=2, cluster=2))
    assert found(check(before + REMOTE.format(how="red.relaxed.cta"), "sm_90a", grid=2, cluster=2)) == {"G3"}
