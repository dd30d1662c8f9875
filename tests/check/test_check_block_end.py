# SPDX-License-Identifier: Apache-2.0
"""Blocks that end before what they have issued (X1): the remedy is the wait of that kind of operation (ruling
`block-end`)."""

from __future__ import annotations

import pytest
from check_ptx import COMMIT, DESCRIPTORS, FILL, MMA, WGMMA, check, found

from porter.sim.check.rulings import Ruling

# wgmma: the kernel up to its wait, and nothing behind.
ISSUED = WGMMA.partition("wgmma.commit_group")[0]
GROUP, WAITED = "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned {};"
AGAIN = ISSUED[ISSUED.index("wgmma.mma_async") :]
OTHER = AGAIN.replace("%r40, %r41, %r42, %r43", "%r60, %r61, %r62, %r63")
WGMMAS = {
    # What stands between the first wgmma and the end; clean or not.
    "waited": (GROUP + WAITED.format(0), True),
    "two_groups_waited": (GROUP + OTHER + GROUP + WAITED.format(0), True),
    "waited_twice": (GROUP + WAITED.format(0) + WAITED.format(0), True),
    "waited_by_way_of_one": (GROUP + WAITED.format(1) + WAITED.format(0), True),
    "one_group_of_two_operations": (OTHER + GROUP + WAITED.format(0), True),
    "not_waited": (GROUP, False),
    "no_group": ("", False),
    "waited_before_the_group": (WAITED.format(0), False),
    "all_but_the_last_waited": (GROUP + WAITED.format(1), False),
    "last_of_two_not_waited": (GROUP + OTHER + GROUP + WAITED.format(1), False),
    "last_of_two_in_no_group": (GROUP + OTHER + WAITED.format(0), False),
    "barrier_is_no_wait": (GROUP + "bar.sync 0;", False),
    "fence_is_no_wait": (GROUP + "wgmma.fence.sync.aligned; fence.proxy.async;", False),
}


@pytest.mark.parametrize("name", WGMMAS)
def test_a_block_that_ends_before_its_wgmma(name: str) -> None:
    behind, right = WGMMAS[name]
    strict = check(ISSUED + behind + "ret;", "sm_90a")
    assert strict.status == "ok", strict.findings
    assert found(strict) == (set() if right else {"X1"})
    ungrouped = name in ("no_group", "waited_before_the_group", "last_of_two_in_no_group")
    remedy = "wgmma.commit_group, and a wait for the group" if ungrouped else "wgmma.wait_group"
    assert {h.remedy for h in strict.hazards} == (set() if right else {remedy})
    mild = check(ISSUED + behind + "ret;", "sm_90a", level="practice").hazards
    assert {(h.severity, h.ruling) for h in mild} == (set() if right else {("review", Ruling.BLOCK_END)})


def test_some_warps_that_do_not_wait() -> None:
    """Each warp has a part of its own."""
    skip = f"{GROUP} setp.gt.u32 %p4, %r1, 1; @%p4 bra OVER; {WAITED.format(0)} OVER: ret;"
    assert found(check(ISSUED + skip, "sm_90a")) == {"X1"}


INIT = "@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster; bar.sync 0;\n"
POLL = "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W;\n"
LOAD = """@!%p0 bra LOADED; mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 2048, [%r8]; LOADED:
"""
STORE = """mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0};
fence.proxy.async.shared::cta; bar.sync 0; @!%p0 bra STORED;
cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 2048; cp.async.bulk.commit_group;
"""
BULKS = {
    "load_waited": (INIT + LOAD + POLL + "ret;", None),
    "load_not_waited": (INIT + LOAD + "ret;", "mbarrier.try_wait"),
    "load_waited_by_another_warp": (INIT + LOAD + "@%p1 ret;\n" + POLL + "ret;", None),
    "load_of_the_phase_before": (INIT + LOAD + POLL.replace("[%r8], 0", "[%r8], 1") + "ret;", "mbarrier.try_wait"),
    "store_waited": (STORE + "cp.async.bulk.wait_group 0; STORED: ret;", None),
    # The source has been read; what is written is no memory of the block.
    "store_waited_for_its_source": (STORE + "cp.async.bulk.wait_group.read 0; STORED: ret;", None),
    "store_not_waited": (STORE + "STORED: ret;", "cp.async.bulk.wait_group"),
    "store_in_no_group": (
        STORE.replace("cp.async.bulk.commit_group;", "") + "cp.async.bulk.wait_group 0; STORED: ret;",
        "cp.async.bulk.commit_group, and a wait for the group",
    ),
    "one_more_group_allowed": (STORE + "cp.async.bulk.wait_group.read 1; STORED: ret;", "cp.async.bulk.wait_group"),
    "waited_by_another_thread": (
        STORE + "STORED: cp.async.bulk.wait_group 0; @%p0 bra END; cp.async.bulk.wait_group 0; END: ret;", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BULKS)
def test_a_block_that_ends_before_its_copies(name: str) -> None:
    body, remedy = BULKS[name]
    outcome = check(body, "sm_90a")
    assert outcome.status == "ok", outcome.findings
    # A wait for the phase before the first one may come when that one has ended.
    lapped = {"H33"} if name == "load_of_the_phase_before" else set()
    assert {h.kind.id for h in outcome.hazards} - {"X1"} == lapped
    assert {h.remedy for h in outcome.hazards if h.kind.id == "X1"} == (set() if remedy is None else {remedy})


TENSOR = (
    "@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster;\n"
    "@!%p1 bra HELD; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32; HELD: bar.sync 0;\n"
    "tcgen05.fence::after_thread_sync; ld.shared.u32 %r10, [%r9];\n"
    + FILL + DESCRIPTORS + "fence.proxy.async.shared::cta; bar.sync 0; @!%p0 bra ISSUED;\n" + MMA.format(enable="%p3")
    + "{commit}\nISSUED: {wait} tcgen05.fence::after_thread_sync; bar.sync 0; @!%p1 bra END;\n"
    "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32; END: ret;"
)  # fmt: skip


@pytest.mark.parametrize(
    ("commit", "wait", "remedy"),
    [
        (COMMIT, POLL, None),
        (COMMIT, "", "mbarrier.try_wait, and a wait on its mbarrier"),
        ("", "", "tcgen05.commit, and a wait on its mbarrier"),
    ],
)
def test_a_block_that_ends_before_its_mma(commit: str, wait: str, remedy: str | None) -> None:
    # As late as legal, the MMA would write to columns that are freed, which ends the run.
    outcome = check(TENSOR.replace("{commit}", commit).replace("{wait}", wait), schedule="eager")
    assert outcome.status == "ok", outcome.findings
    assert {h.remedy for h in outcome.hazards if h.kind.id == "X1"} == (set() if remedy is None else {remedy})
