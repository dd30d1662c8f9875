# SPDX-License-Identifier: Apache-2.0
"""Global memory: races between blocks, within a block, and with bulk copies; flags with scopes; tensor maps."""

from __future__ import annotations

import numpy as np
import pytest
from check_ptx import HEADER, check, found

from porter.ptx.parser import parse_module
from porter.ptx.tensormap import TensorMap, TensorMapType
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.check.rulings import Ruling

# Every thread of block 0 writes out[tid]; block 1 reads the neighbour's when it has seen the flag at out+4096.
BLOCKS = """.reg .b32 %x; mov.u32 %x, %ctaid.x; setp.eq.u32 %p2, %x, 0;
mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2; add.u64 %d5, %d1, 4096;
xor.b32 %r20, %r0, 33; mul.wide.u32 %d2, %r20, 4; add.u64 %d4, %d1, %d2;
@!%p2 bra READER;
st.global.u32 [%d3], %r0;
{release}
bra END;
READER:
{acquire}
ld.global.u32 %r4, [%d4];
END: ret;
"""
SPIN = "W: {load} %r5, [%d5]; setp.eq.u32 %p6, %r5, 0; @%p6 bra W;"


def flag(store: str, load: str, before: str = "", after: str = "", level: str = "strict", **more: int) -> Outcome:
    """Thread 0 of block 0 sets the flag after a barrier, thread 0 of block 1 polls it before one."""
    release = f"bar.sync 0; @!%p0 bra END; {before} {store} [%d5], 1;"
    acquire = f"@!%p0 bra GO; {SPIN.format(load=load)} {after}\nGO: bar.sync 0;"
    return check(BLOCKS.format(release=release, acquire=acquire), "sm_90a", level=level, **{"grid": 2, **more})


def errors(outcome: Outcome) -> set[str]:
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return found(outcome)


def test_blocks_without_any_order_race() -> None:
    outcome = check(BLOCKS.format(release="", acquire=""), "sm_90a", grid=2)
    assert errors(outcome) == {"G2"}
    (hazard,) = outcome.hazards
    assert hazard.first is not None
    assert {hazard.first.block, hazard.second.block} == {(0, 0, 0), (1, 0, 0)}
    # The thread that reads the place named.
    assert hazard.second.warp is not None
    assert hazard.second.lane is not None
    word = int(hazard.where.split()[1], 16) // 4
    assert word == (32 * hazard.second.warp + hazard.second.lane) ^ 33
    assert hazard.where.startswith("byte 0x")
    assert " of out " in hazard.where
    assert ".gpu" in hazard.remedy


def test_blocks_of_different_waves_race_too() -> None:
    assert errors(check(BLOCKS.format(release="", acquire=""), "sm_90a", grid=2, resident=1)) == {"G2"}


@pytest.mark.parametrize(
    ("store", "load", "before", "after", "wanted"),
    [
        ("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32", "", "", set()),
        ("st.release.sys.global.u32", "ld.acquire.gpu.global.u32", "", "", set()),
        ("red.release.gpu.global.add.u32", "ld.acquire.gpu.global.u32", "", "", set()),
        ("st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32", "", "", {"G2"}),
        ("st.release.gpu.global.u32", "ld.relaxed.gpu.global.u32", "", "", {"G2"}),
        ("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32", "fence.acq_rel.gpu;", "fence.acq_rel.gpu;", set()),
        ("st.volatile.global.u32", "ld.volatile.global.u32", "membar.gl;", "membar.gl;", set()),
        ("red.global.add.u32", "ld.volatile.global.u32", "fence.sc.gpu;", "fence.sc.gpu;", set()),
        ("red.global.add.u32", "ld.volatile.global.u32", "", "fence.sc.gpu;", {"G2"}),
        ("red.global.add.u32", "ld.volatile.global.u32", "fence.sc.gpu;", "", {"G2"}),
        # The flag itself is accessed with too narrow a scope, and carries nothing.
        ("st.release.cta.global.u32", "ld.acquire.gpu.global.u32", "", "", {"G3"}),
        ("st.release.gpu.global.u32", "ld.acquire.cluster.global.u32", "", "", {"G3"}),
        ("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32", "membar.cta;", "fence.acq_rel.gpu;", {"G3"}),
        ("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32", "fence.acq_rel.gpu;", "membar.cta;", {"G2"}),
    ],
)  # fmt: skip
def test_which_flags_order_blocks(store: str, load: str, before: str, after: str, wanted: set[str]) -> None:
    assert errors(flag(store, load, before, after)) == wanted


def test_cluster_scope_is_enough_within_a_cluster() -> None:
    store, load = "st.release.cluster.global.u32", "ld.acquire.cluster.global.u32"
    assert not errors(flag(store, load, cluster=2))
    assert errors(flag(store, load)) == {"G3"}


def test_cluster_barriers_order_global_memory() -> None:
    barrier = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    body = BLOCKS.format(release=barrier, acquire=barrier)
    assert not errors(check(body, "sm_90a", grid=2, cluster=2))


def test_a_flag_set_with_an_ordinary_store_is_for_review() -> None:
    outcome = flag("st.global.u32", "ld.volatile.global.u32", "membar.gl;", "membar.gl;", level="practice")
    assert not errors(outcome)
    assert found(outcome, "review") == {"G2"}
    assert "G2" in errors(flag("st.global.u32", "ld.volatile.global.u32", "membar.gl;", "membar.gl;"))


# Partial sums in a workspace, the last block to arrive adds them up (a ticket, as in stream-K fix-up).
TICKET = """.reg .b32 %x, %n; mov.u32 %x, %ctaid.x; mov.u32 %n, %nctaid.x;
shl.b32 %r20, %x, 7; add.u32 %r20, %r20, %r0; mul.wide.u32 %d2, %r20, 4; add.u64 %d3, %d1, %d2;
add.u64 %d5, %d1, 8192; st.global.u32 [%d3], %r0;
{early}
bar.sync 0;
@!%p0 bra JOIN;
{late} {ticket} %r5, [%d5], 1; {acquire} st.shared.u32 [%r9], %r5;
JOIN: bar.sync 0;
ld.shared.u32 %r5, [%r9]; sub.u32 %r6, %n, 1; setp.ne.u32 %p3, %r5, %r6; @%p3 bra END;
mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2;
ld.global.u32 %r10, [%d3]; ld.global.u32 %r11, [%d3+512]; ld.global.u32 %r12, [%d3+1024];
END: ret;
"""


@pytest.mark.parametrize("resident", [132, 1])
@pytest.mark.parametrize(
    ("early", "late", "ticket", "acquire", "wanted"),
    [
        ("", "membar.gl;", "atom.global.add.u32", "membar.gl;", set()),
        ("", "", "atom.acq_rel.gpu.global.add.u32", "", set()),
        ("", "", "atom.global.add.u32", "", {"G2"}),
        ("", "membar.cta;", "atom.global.add.u32", "membar.gl;", {"G3"}),
        # Every thread's fence before the barrier: only warp 0's own stores come before its fence.
        ("membar.gl;", "", "atom.global.add.u32", "membar.gl;", {"G2"}),
    ],
)
def test_tickets_of_a_last_block(
    early: str, late: str, ticket: str, acquire: str, wanted: set[str], resident: int
) -> None:
    """A thread takes the ticket, acquires and tells its block."""
    body = TICKET.format(early=early, late=late, ticket=ticket, acquire=acquire)
    assert errors(check(body, "sm_90a", grid=3, resident=resident)) == wanted


def test_fences_of_all_threads_before_the_barrier_are_to_review_in_practice() -> None:
    body = TICKET.format(early="membar.gl;", late="", ticket="atom.global.add.u32", acquire="membar.gl;")
    hazards = check(body, "sm_90a", grid=3, level="practice").hazards
    assert {(h.kind.id, h.severity, h.ruling) for h in hazards} == {("G2", "review", Ruling.FENCE_BEFORE_BARRIER)}
    late = body.replace("st.global.u32 [%d3], %r0;\nmembar.gl;", "membar.gl;\nst.global.u32 [%d3], %r0;")
    assert errors(check(late, "sm_90a", grid=3, level="practice")) == {"G2"}


def test_atomics_do_not_race_with_each_other() -> None:
    add = "mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2; red.global.add.u32 [%d3], 1;"
    assert not errors(check(add + "ret;", "sm_90a", grid=3))
    mixed = add + "ld.global.u32 %r4, [%d3]; ret;"
    assert errors(check(mixed, "sm_90a", grid=3)) == {"G2"}
    assert errors(check(add.replace("red.global", "red.relaxed.cta.global") + "ret;", "sm_90a", grid=2)) == {"G3"}


GRID_BARRIER = """.reg .b32 %x, %n; mov.u32 %x, %ctaid.x; mov.u32 %n, %nctaid.x;
shl.b32 %r20, %x, 7; add.u32 %r20, %r20, %r0; mul.wide.u32 %d2, %r20, 4; add.u64 %d3, %d1, %d2;
add.u64 %d5, %d1, 8192; st.global.u32 [%d3], %r0;
bar.sync 0;
@!%p0 bra JOIN;
{arrive}
W: {poll} %r5, [%d5]; setp.ne.u32 %p6, %r5, %n; @%p6 bra W;
JOIN: bar.sync 0;
xor.b32 %r20, %r20, 161; and.b32 %r20, %r20, 255; mul.wide.u32 %d2, %r20, 4; add.u64 %d3, %d1, %d2;
ld.global.u32 %r4, [%d3];
ret;
"""


def test_a_grid_barrier() -> None:
    good = GRID_BARRIER.format(arrive="red.release.gpu.global.add.u32 [%d5], 1;", poll="ld.acquire.gpu.global.u32")
    assert not errors(check(good, "sm_90a", grid=4))
    relaxed = GRID_BARRIER.format(arrive="red.global.add.u32 [%d5], 1;", poll="ld.acquire.gpu.global.u32")
    assert errors(check(relaxed, "sm_90a", grid=4)) == {"G2"}


def test_what_is_imported_is_passed_on_to_a_third_block() -> None:
    """Block 1 acquires from block 0 and releases to block 2, which reads what block 0 wrote."""
    body = """.reg .b32 %x; mov.u32 %x, %ctaid.x; mul.wide.u32 %d2, %x, 4; add.u64 %d5, %d1, 4096;
add.u64 %d5, %d5, %d2; @!%p0 bra END;
setp.eq.u32 %p2, %x, 0; @!%p2 bra NEXT; st.global.u32 [%d1], 7;
NEXT: @%p2 bra TELL; W: ld.acquire.gpu.global.u32 %r5, [%d5]; setp.eq.u32 %p6, %r5, 0; @%p6 bra W;
TELL: st.{how}.gpu.global.u32 [%d5+4], 1;
setp.ne.u32 %p3, %x, 2; @%p3 bra END; ld.global.u32 %r4, [%d1];
END: ret;
"""
    assert not errors(check(body.format(how="release"), "sm_90a", grid=3))
    assert errors(check(body.format(how="relaxed"), "sm_90a", grid=3)) == {"G2"}


WARPS = """mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2; st.global.u32 [%d3], %r0;
{between}
xor.b32 %r20, %r0, 33; mul.wide.u32 %d2, %r20, 4; add.u64 %d4, %d1, %d2; {load} %r4, [%d4];
ret;
"""


def test_warps_of_a_block() -> None:
    assert not errors(check(WARPS.format(between="bar.sync 0;", load="ld.global.u32"), "sm_90a"))
    assert errors(check(WARPS.format(between="", load="ld.global.u32"), "sm_90a")) == {"G2"}
    # Even a barrier does not make the non-coherent path see it.
    assert errors(check(WARPS.format(between="bar.sync 0;", load="ld.global.nc.u32"), "sm_90a")) == {"G7"}


def test_small_elements_side_by_side_do_not_race() -> None:
    store = "mul.wide.u32 %d2, %r0, {size}; add.u64 %d3, %d1, %d2; cvt.u16.u32 h, %r0; st.global.{kind} [%d3], h;"
    for kind, size in (("u8", 1), ("u16", 2)):
        body = ".reg .b16 h; " + store.format(kind=kind, size=size) + " ret;"
        # Warps of 31 threads' worth of data would share words.
        assert not errors(check(body, "sm_90a", threads=96, grid=1))
    shifted = ".reg .b16 h; add.u32 %r0, %r0, %r1; " + store.format(kind="u8", size=1) + " ret;"
    assert not errors(check(shifted, "sm_90a", threads=96))
    overlap = ".reg .b16 h; sub.u32 %r0, %r0, %r1; " + store.format(kind="u8", size=1) + " ret;"
    assert errors(check(overlap, "sm_90a", threads=96)) == {"G2"}


def test_blocks_that_store_the_same_value_are_for_review_in_practice() -> None:
    body = "st.global.u32 [%d1], 1; ret;"
    assert errors(check(body, "sm_90a", grid=2)) == {"G2"}
    outcome = check(body, "sm_90a", grid=2, level="practice")
    assert found(outcome, "review") | found(outcome) == {"G2"}


# Bulk copies --------------------------------------------------------------------------------------------

LOAD = """@%p0 mbarrier.init.shared.b64 [%r8], 1;
@%p0 fence.mbarrier_init.release.cluster;
mul.wide.u32 %d2, %r0, 16; add.u64 %d3, %d1, %d2; st.global.v4.u32 [%d3], {%r0, %r0, %r0, %r0};
FENCE
bar.sync 0;
ISSUER_FENCE
@!%p0 bra LOADED;
mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], 2048, [%r8];
LOADED:
WAIT
st.global.u32 [%d3], %r0;
END: ret;
"""


@pytest.mark.parametrize(
    ("fence", "issuer", "wait", "wanted"),
    [
        ("fence.proxy.async;", "", True, set()),
        ("fence.proxy.async.global;", "", True, set()),
        ("", "fence.proxy.async;", True, set()),
        ("fence.proxy.async.shared::cta;", "", True, {"G4"}),
        ("", "", True, {"G4"}),
        ("fence.proxy.async;", "", False, {"G5", "X1"}),
    ],
)
def test_bulk_loads_of_what_threads_have_stored(fence: str, issuer: str, wait: bool, wanted: set[str]) -> None:
    poll = "W1: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W1;"
    body = LOAD.replace("ISSUER_FENCE", issuer).replace("FENCE", fence).replace("WAIT", poll if wait else "")
    assert errors(check(body, "sm_90a")) == wanted


STORE = """mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0};
fence.proxy.async; bar.sync 0;
@!%p0 bra STORED;
COPY
cp.async.bulk.commit_group;
cp.async.bulk.wait_groupREAD 0;
STORED: BARRIER
mul.wide.u32 %d2, %r0, 16; add.u64 %d3, %d1, %d2; ld.global.u32 %r4, [%d3];
ret;
"""
BULK_STORE = "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 2048;"
BULK_ADD = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1], [%r2], 2048;"


@pytest.mark.parametrize("copy", [BULK_STORE, BULK_ADD])
def test_threads_read_what_a_bulk_store_wrote(copy: str) -> None:
    body = STORE.replace("COPY", copy)
    assert not errors(check(body.replace("READ", "").replace("BARRIER", "bar.sync 0;"), "sm_90a"))
    # .read has only read the source.
    assert errors(check(body.replace("READ", ".read").replace("BARRIER", "bar.sync 0;"), "sm_90a")) == {"G5"}
    assert errors(check(body.replace("READ", "").replace("BARRIER", ""), "sm_90a")) == {"G5"}


def test_bulk_reductions_of_blocks_and_atomics_do_not_race() -> None:
    body = STORE.replace("READ", "").replace("BARRIER", "bar.sync 0;").partition("STORED:")[0] + "STORED: ret;"
    assert not errors(check(body.replace("COPY", BULK_ADD), "sm_90a", grid=2))
    assert errors(check(body.replace("COPY", BULK_STORE), "sm_90a", grid=2)) == {"G5"}


@pytest.mark.parametrize(
    ("copy", "practice"),
    [
        (BULK_STORE, set()),
        # The same bytes from places of their own.
        (
            "mad.lo.u32 %r2, %r0, 16, %r2; mov.u32 %r4, 7; st.shared.v4.u32 [%r2], {%r4, %r4, %r4, %r4};"
            "fence.proxy.async; bar.warp.sync 0xffffffff;"
            "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 16;",
            set(),
        ),
        # Not the same bytes: each lane its own, to one place.
        ("mad.lo.u32 %r2, %r0, 16, %r2; cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 16;", {"G5"}),
        # The same bytes to places that overlap.
        ("mad.wide.u32 %d1, %r0, 16, %d1; cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 32;", {"G5"}),
        # Twice, with nothing between.
        (BULK_STORE + BULK_STORE, {"G5"}),
    ],
)
def test_a_warp_that_stores_a_tile_alike_is_to_review(copy: str, practice: set[str]) -> None:
    """As compiled CuTe DSL does it: every lane issues the store that one thread should."""
    body = STORE.replace("READ", "").partition("STORED:")[0] + "STORED: ret;"
    body = body.replace("@!%p0 bra STORED;", "@!%p1 bra STORED;").replace("COPY", copy)
    outcome = check(body, "sm_90a", level="practice")
    assert {h.kind.id for h in outcome.hazards if h.severity == "error"} == practice
    assert {h.kind.id for h in outcome.hazards} == {"G5"}
    assert {h.ruling for h in outcome.hazards if h.severity == "review"} <= {Ruling.SAME_BYTES}
    assert errors(check(body, "sm_90a", level="strict")) == {"G5"}


# Last-block reductions: all store and fence, one thread does the atomic, its block reads what all blocks have stored.
LAST_BLOCK = """mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ntid.x; mad.lo.u32 %r12, %r10, %r11, %r0;
mul.wide.u32 %d2, %r12, 4; add.u64 %d2, %d2, %d1; add.u64 %d3, %d1, 32768;
st.global.u32 [%d2], %r12; {each} bar.sync 0; {before}
@!%p0 bra TOLD; {atomic} %r13, [%d3], 1; {after} st.shared.u32 [%r9], %r13;
TOLD: bar.sync 0; ld.shared.u32 %r13, [%r9]; setp.ne.u32 %p2, %r13, 3; @%p2 bra END; {late}
mul.wide.u32 %d4, %r0, 4; add.u64 %d4, %d4, %d1; ld.global.u32 %r14, [%d4]; ld.global.u32 %r15, [%d4+512];
END: ret;
"""
GPU, BLOCK, ATOMIC = "fence.acq_rel.gpu;", "fence.acq_rel.cta;", "atom.global.add.u32"


@pytest.mark.parametrize(
    ("each", "before", "atomic", "after", "late", "strict", "practice"),
    [
        ("", "", "atom.acq_rel.gpu.global.add.u32", "", "", set(), set()),
        ("", GPU, ATOMIC, GPU, "", set(), set()),
        (GPU, GPU, ATOMIC, GPU, "", set(), set()),
        (GPU, "", ATOMIC, GPU, "", {"G2"}, set()),
        (GPU, "", ATOMIC, "", "", {"G2"}, set()),
        (GPU, "", ATOMIC, "", GPU, {"G2"}, set()),
        ("membar.gl;", "", ATOMIC, "membar.gl;", "", {"G2"}, set()),
        ("membar.sys;", "", "atom.relaxed.sys.global.add.u32", "", "", {"G2"}, set()),
        ("", GPU, ATOMIC, "", "", {"G2"}, set()),
        ("", "", ATOMIC, "", "", {"G2"}, {"G2"}),
        ("", "", ATOMIC, GPU, GPU, {"G2"}, {"G2"}),
        (BLOCK, "", ATOMIC, GPU, "", {"G2", "G3"}, {"G2", "G3"}),
        (GPU, "", "atom.relaxed.cta.global.add.u32", GPU, "", {"G2", "G3"}, {"G2", "G3"}),
    ],
)
def test_all_store_and_fence_and_one_does_the_atomic(
    each: str, before: str, atomic: str, after: str, late: str, strict: set[str], practice: set[str]
) -> None:
    body = LAST_BLOCK.format(each=each, before=before, atomic=atomic, after=after, late=late)
    assert errors(check(body, grid=4)) == strict
    mild = check(body, grid=4, level="practice")
    assert errors(mild) == practice
    review = {(h.kind.id, h.ruling) for h in mild.hazards if h.severity == "review"}
    assert review == ({("G2", Ruling.FENCE_BEFORE_BARRIER)} if strict and not practice else set())


FENCED = LAST_BLOCK.format(each=GPU, before="", atomic=ATOMIC, after=GPU, late="")
CHANGED = {
    # What is done to the pattern; whether it is still no more than to review.
    "another_warp_does_the_atomic": (("@!%p0 bra TOLD", "setp.ne.u32 %p3, %r0, 32; @%p3 bra TOLD"), True),
    "another_barrier": (("bar.sync 0;", "bar.sync 1;"), True),
    "sequentially_consistent": (("fence.acq_rel.gpu;", "fence.sc.gpu;"), True),
    "one_sided": (("fence.acq_rel.gpu; bar", "fence.release.gpu; bar"), True),
    "of_the_wrong_side": (("fence.acq_rel.gpu; bar", "fence.acquire.gpu; bar"), False),
    "no_barrier": (("bar.sync 0;", "bar.warp.sync 0xffffffff;"), False),
    "barrier_of_half_the_block": (
        ("bar.sync 0;", "setp.gt.u32 %p8, %r1, 1; @%p8 bra TOLD; bar.sync 1, 64;"), False,
    ),
    "one_warp_fences": (("fence.acq_rel.gpu; bar", "@!%p1 bra NF; fence.acq_rel.gpu; NF: bar"), False),
    "fence_ahead_of_the_store": (("st.global.u32 [%d2], %r12; fence.acq_rel.gpu;",
                                  "fence.acq_rel.gpu; st.global.u32 [%d2], %r12;"), False),
    "another_store_behind_the_fence": (("fence.acq_rel.gpu; bar", "fence.acq_rel.gpu; st.global.u32 [%d2], %r0; bar"),
                                       False),
    "fence_of_the_cluster": (("fence.acq_rel.gpu; bar", "fence.acq_rel.cluster; bar"), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_what_may_be_changed_in_a_last_block_reduction(name: str) -> None:
    (old, new), review = CHANGED[name]
    text = FENCED.replace("  bar.sync", " bar.sync").replace(GPU + " bar", "fence.acq_rel.gpu; bar")
    assert old in text
    body = text.replace(old, new, 1)
    assert "G2" in errors(check(body, grid=4))
    mild = check(body, grid=4, level="practice")
    assert mild.status == "ok", mild.findings
    assert bool(errors(mild)) is not review
    assert not review or {h.ruling for h in mild.hazards} == {Ruling.FENCE_BEFORE_BARRIER}


@pytest.mark.parametrize(("fence", "wanted"), [(GPU, "review"), ("", "error"), (BLOCK, "error")])
def test_a_third_block_learns_of_it_by_a_second_atomic(fence: str, wanted: str) -> None:
    body = LAST_BLOCK.format(each=fence, before="", atomic=ATOMIC, after=fence, late="")
    more = f"{fence} bar.sync 0; add.u64 %d5, %d3, 4; @%p0 atom.global.add.u32 %r16, [%d5], 1; END: ret;"
    outcome = check(body.replace("END: ret;", more), grid=4, level="practice")
    assert {h.severity for h in outcome.hazards if h.kind.id == "G2"} == {wanted}


# Tensor maps --------------------------------------------------------------------------------------------

MAPPED = """@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster;
setp.lt.u32 %p2, %r0, 32; @!%p2 bra COPIED;
mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d0, %d2; ld.global.u32 %r4, [%d3];
add.u64 %d5, %d1, 1024; add.u64 %d3, %d5, %d2; st.global.u32 [%d3], %r4;
fence.proxy.tensormap::generic.release.cta;
COPIED: BARRIER
add.u64 %d5, %d1, 1024;
ACQUIRE
@!%p0 bra LOADED;
mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 1024;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d5, {0, 0}], [%r8];
LOADED:
W1: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W1;
ret;
"""


def mapped(body: str) -> Outcome:
    memory = GlobalMemory()
    source, out = memory.alloc(4096, name="in"), memory.alloc(65536, name="out")
    data = memory.alloc(65536, fill=0, name="data")
    encoded = TensorMap(TensorMapType.FLOAT32, data, (64, 64), (256,), (16, 16)).encode()
    memory.write(source, np.frombuffer(encoded, np.uint8))
    module = parse_module(HEADER.format(target="sm_90a") + body + "\n}\n")
    params = pack_params(module.function("kernel"), [source, out])
    launch = Launch((1, 1, 1), (128, 1, 1), dynamic_smem=8192)
    return simulate(module, "kernel", launch, params, memory, Options(mode="checking", level="strict"))


@pytest.mark.parametrize(
    ("barrier", "acquire", "wanted"),
    [
        ("bar.sync 0;", "fence.proxy.tensormap::generic.acquire.gpu [%d5], 128;", set()),
        ("bar.sync 0;", "", {"G6"}),
        ("bar.sync 0;", "add.u64 %d6, %d5, 128; fence.proxy.tensormap::generic.acquire.gpu [%d6], 128;", {"G6"}),
        ("bar.sync 0;", "fence.proxy.async;", {"G6"}),
    ],
)
def test_a_tensor_map_that_the_kernel_has_written(barrier: str, acquire: str, wanted: set[str]) -> None:
    assert errors(mapped(MAPPED.replace("BARRIER", barrier).replace("ACQUIRE", acquire))) == wanted


ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%d5], 128;"


def test_the_writer_of_a_tensor_map_releases_it() -> None:
    body = MAPPED.replace("BARRIER", "bar.sync 0;").replace("ACQUIRE", ACQUIRE)
    outcome = mapped(body.replace("fence.proxy.tensormap::generic.release.cta;", ""))
    assert errors(outcome) == {"G6"}
    assert {h.ruling for h in outcome.hazards} == {Ruling.TENSORMAP_RELEASE}


# A map is copied to shared memory, given another address there, copied to global memory and used.
REPLACED = """@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster; bar.sync 0;
add.u64 %d5, %d1, 1024; add.u32 %r20, %r2, 4096; @!%p1 bra JOIN;
mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d0, %d2; ld.global.u32 %r4, [%d3];
mad.lo.u32 %r3, %r0, 4, %r20; st.shared.u32 [%r3], %r4;
bar.warp.sync 0xffffffff;
@!%p0 bra CHANGED;
ld.global.u64 %d6, [%d0+128];
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r20], %d6;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r20], 0, 32;
CHANGED: BEFORE
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d5], [%r20], 128;
bar.warp.sync 0xffffffff;
ACQUIRE
@!%p0 bra JOIN;
mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 1024;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d5, {16, 0}], [%r8];
JOIN:
W1: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W1;
ld.shared.u32 %r4, [%r2+64];
@%p0 st.global.u32 [%d1], %r4; ld.shared.u32 %r4, [%r2]; @%p0 st.global.u32 [%d1+4], %r4;
ret;
"""


def replaced(body: str) -> tuple[Outcome, list[int]]:
    """The map of one tensor is changed to another one of half the width, whose rows 0 and 1 hold 7."""
    memory = GlobalMemory()
    source, out = memory.alloc(4096, name="in"), memory.alloc(65536, name="out")
    data, other = memory.alloc(65536, fill=0, name="data"), memory.alloc(65536, fill=7, name="other")
    encoded = TensorMap(TensorMapType.FLOAT32, data, (64, 64), (256,), (16, 16)).encode()
    memory.write(source, np.frombuffer(encoded, np.uint8))
    memory.write(source + 128, np.array([other], np.uint64).view(np.uint8))
    module = parse_module(HEADER.format(target="sm_90a") + body + "\n}\n")
    params = pack_params(module.function("kernel"), [source, out])
    launch = Launch((1, 1, 1), (128, 1, 1), dynamic_smem=8192)
    outcome = simulate(module, "kernel", launch, params, memory, Options(mode="checking", level="strict"))
    return outcome, memory.read(out, 8).view(np.uint32).tolist()


def test_a_replaced_tensor_map() -> None:
    sync = "bar.warp.sync 0xffffffff;"
    outcome, values = replaced(REPLACED.replace("BEFORE", sync).replace("ACQUIRE", ACQUIRE))
    assert not errors(outcome)
    assert values == [0x07070707, 0x07070707]
    # Column 16 is outside once the tensor is 16 wide: zeros.
    narrow = REPLACED.replace("[%r20], 0, 32", "[%r20], 0, 16")
    assert replaced(narrow.replace("BEFORE", sync).replace("ACQUIRE", ACQUIRE))[1] == [0, 0]
    assert errors(replaced(REPLACED.replace("BEFORE", sync).replace("ACQUIRE", ""))[0]) == {"G6"}


# The map is changed once more, back to the first tensor, behind the copy that uses it.
AGAIN = """L2: {before} bar.warp.sync 0xffffffff; @!%p0 bra C2;
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r20], %d6; C2: bar.warp.sync 0xffffffff;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d5], [%r20], 128;
JOIN:
W1"""
LANDED = "W9: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W9;"


@pytest.mark.parametrize(
    ("before", "wanted"),
    [(LANDED, set()), ("", {None}),
     ("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;", {Ruling.MAP_IN_FLIGHT})],
    ids=["landed", "in flight", "no group waits for a load"],
)  # fmt: skip
def test_a_tensor_map_is_not_changed_while_a_copy_uses_it(before: str, wanted: set[Ruling | None]) -> None:
    body = REPLACED.replace("BEFORE", "bar.warp.sync 0xffffffff;").replace("ACQUIRE", ACQUIRE)
    body = body.replace("@!%p0 bra JOIN;\nmbarrier", "@!%p0 bra L2;\nmbarrier").replace("JOIN:\nW1", AGAIN)
    outcome, _ = replaced(body.replace("{before}", before))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert errors(outcome) == ({"G6"} if wanted else set())
    assert {h.ruling for h in outcome.hazards} == wanted


# The same of a store to global memory, which a bulk group tells of.
KEPT = MAPPED.replace("BARRIER", "bar.sync 0;").replace("ACQUIRE", ACQUIRE).partition("mbarrier.arrive.expect_tx")[0]
KEPT += """cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d5, {{0, 0}}], [%r2];
cp.async.bulk.commit_group; {wait}
tensormap.replace.tile.global_dim.global.b1024.b32 [%d5], 0, 32;
cp.async.bulk.wait_group 0;
LOADED: ret;
"""


@pytest.mark.parametrize(
    ("wait", "wanted"),
    [("cp.async.bulk.wait_group.read 0;", set()), ("cp.async.bulk.wait_group 0;", set()), ("", {"G6"}),
     ("cp.async.bulk.wait_group.read 1;", {"G6"})],
)  # fmt: skip
def test_nor_while_a_store_uses_it(wait: str, wanted: set[str]) -> None:
    outcome = mapped(KEPT.replace("{wait}", wait).replace("{{", "{").replace("}}", "}"))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert errors(outcome) - {"U1"} == wanted


# A table that all threads read in an order of their own, as generators of random numbers do; then thread 0 of block 1
# writes a word of it.
TABLE = """.reg .b32 %x; mov.u32 %x, %ctaid.x; mad.lo.u32 %r3, %x, 977, %r0; mov.u32 %r4, 0;
NEXT: mad.lo.u32 %r3, %r3, 1664525, 1013904223; shr.u32 %r5, %r3, 10; and.b32 %r6, %r5, 1024; setp.eq.u32 %p2, %r6, 0;
@%p2 bra SKIP;
and.b32 %r5, %r5, 1020; cvt.u64.u32 %d2, %r5; add.u64 %d3, %d1, %d2; ld.global.u32 %r6, [%d3];
{sync}
SKIP: add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 60; @%p3 bra NEXT;
{meet}
setp.eq.and.u32 %p2, %x, 1, %p0; @%p2 st.global.u32 [%d1+{word}], %r0;
ret;
"""


def table(threads: int = 128, sync: str = "", meet: str = "", word: int = 256) -> Outcome:
    return check(TABLE.format(sync=sync, meet=meet, word=word), "sm_90a", threads, grid=2, cluster=2)


@pytest.mark.parametrize(("threads", "sync"), [(32, ""), (32, "bar.warp.sync 0xffffffff;"), (128, "")])
def test_what_is_remembered_of_reads_of_a_table_does_not_grow_with_them(
    threads: int, sync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("porter.sim.check.global_shadow._SETS_KEPT", 500)
    outcome = table(threads, sync)
    # Other lanes of the warp may have read the word too.
    assert errors(outcome) - ({"G10"} if not sync else set()) == {"G2"}
    assert outcome.grid is not None
    # As many as the table has words, at most twice as many before those not in use are given anew.
    assert len(outcome.grid.sets) < 1200


@pytest.mark.parametrize("kept", [1, 1 << 14])
@pytest.mark.parametrize("word", range(0, 1024, 256))
def test_races_with_reads_of_a_table_are_found_in_every_word(
    word: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("porter.sim.check.global_shadow._SETS_KEPT", kept)
    outcome = table(word=word)
    assert errors(outcome) == {"G2"}
    assert {h.first.opcode for h in outcome.hazards if h.first} == {"ld.global.u32"}
    assert not errors(table(word=word, meet="barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"))
