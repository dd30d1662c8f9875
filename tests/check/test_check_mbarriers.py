# SPDX-License-Identifier: Apache-2.0
"""mbarriers: scopes, relaxed waits, the life of the object; ends of blocks that others still use; deadlocks."""

from __future__ import annotations

import pytest
from check_ptx import COMMIT, DESCRIPTORS, FILL, MMA, check, found, try_wait

INIT = "@%p0 mbarrier.init.shared.b64 [%r8], {count}; @%p0 fence.mbarrier_init.release.cluster;\n"
CLUSTER_SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
RANK = ".reg .b32 %x; mov.u32 %x, %cluster_ctarank; setp.eq.u32 %p2, %x, 0;\n"

# Block 1 stores into block 0's shared memory and arrives on its mbarrier; block 0 waits and reads.
REMOTE = (
    RANK
    + INIT.format(count=32)
    + CLUSTER_SYNC
    + """@%p2 bra READER;
mapa.shared::cluster.u32 %r20, %r2, 0; mapa.shared::cluster.u32 %r21, %r8, 0;
mad.lo.u32 %r20, %r0, 4, %r20; st.shared::cluster.u32 [%r20], %r0;
{before} {arrive} _, [%r21];
bra JOIN;
READER:
W: {wait} %p6, [%r8], 0; @!%p6 bra W;
{after}
mad.lo.u32 %r3, %r0, 4, %r2; ld.shared.u32 %r4, [%r3];
JOIN:
"""
    + CLUSTER_SYNC
    + "ret;"
)
ARRIVE = "mbarrier.arrive.{}shared::cluster.b64"
WAIT = "mbarrier.try_wait.parity.{}shared::cta.b64"


def remote(arrive: str, wait: str, before: str = "", after: str = "", level: str = "strict"):
    body = REMOTE.format(arrive=ARRIVE.format(arrive), wait=WAIT.format(wait), before=before, after=after)
    outcome = check(body, "sm_90a", threads=32, grid=2, cluster=2, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome


@pytest.mark.parametrize(
    ("arrive", "wait", "wanted"),
    [
        ("release.cluster.", "acquire.cluster.", set()),
        ("release.cta.", "acquire.cluster.", {"M1"}),
        ("release.cluster.", "acquire.cta.", {"M1"}),
        ("", "acquire.cluster.", {"M1"}),
        ("", "", {"M1"}),
    ],
)
def test_arrivals_of_other_blocks_need_cluster_scope_on_both_sides(arrive: str, wait: str, wanted: set[str]) -> None:
    outcome = remote(arrive, wait)
    assert found(outcome) == wanted
    for hazard in outcome.hazards:
        assert hazard.first is not None
        assert (hazard.first.block, hazard.second.block) == ((1, 0, 0), (0, 0, 0))


def test_cutlass_leaves_the_scope_out() -> None:
    outcome = remote("", "", level="practice")
    assert not found(outcome)
    assert found(outcome, "review") == {"M1"}


@pytest.mark.parametrize(
    ("arrive", "wait", "before", "after", "wanted"),
    [
        ("release.cluster.", "relaxed.cluster.", "", "fence.acq_rel.cluster;", set()),
        ("release.cluster.", "relaxed.cluster.", "", "", {"G1"}),
        ("relaxed.cluster.", "acquire.cluster.", "fence.acq_rel.cluster;", "", set()),
        ("relaxed.cluster.", "acquire.cluster.", "", "", {"G1"}),
    ],
)
def test_relaxed_sides_need_a_fence(arrive: str, wait: str, before: str, after: str, wanted: set[str]) -> None:
    assert found(remote(arrive, wait, before, after)) == wanted


PRODUCED = """@%p0 mbarrier.init.shared.b64 [%r8], 128; bar.sync 0;
mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0;
{before} mbarrier.arrive{arrive}.shared::cta.b64 %d9, [%r8];
W: mbarrier.try_wait.parity{wait}.shared::cta.b64 %p6, [%r8], 0; @!%p6 bra W;
{after}
xor.b32 %r20, %r0, 33; mad.lo.u32 %r20, %r20, 4, %r2; ld.shared.u32 %r4, [%r20];
ret;
"""


@pytest.mark.parametrize(
    ("before", "arrive", "wait", "after", "wanted"),
    [
        ("", "", "", "", set()),
        ("", "", ".relaxed.cta", "", {"G1"}),
        ("", "", ".relaxed.cta", "fence.acq_rel.cta;", set()),
        ("", ".relaxed.cta", "", "", {"G1"}),
        ("fence.acq_rel.cta;", ".relaxed.cta", "", "", set()),
    ],
)
def test_relaxed_sides_within_a_block(before: str, arrive: str, wait: str, after: str, wanted: set[str]) -> None:
    outcome = check(PRODUCED.format(before=before, arrive=arrive, wait=wait, after=after), "sm_90a")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert found(outcome) - {"G8"} == wanted


# Two phases: each thread stores, arrives, waits; what it reads afterwards may be stored anew in the next phase.
PHASES = """@%p0 mbarrier.init.shared.b64 [%r8], 128; bar.sync 0;
mad.lo.u32 %r3, %r0, 4, %r2; xor.b32 %r20, %r0, 32; mad.lo.u32 %r20, %r20, 4, %r2;
st.shared.u32 [%r3], %r0; mbarrier.arrive.shared.b64 %d9, [%r8];
W0: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W0;
ld.shared.u32 %r4, [%r20];
{arrive}
{wait}
st.shared.u32 [%r3], %r4;
ret;
"""


def test_each_phase_orders_what_came_before_its_arrivals_only() -> None:
    arrive = "mbarrier.arrive.shared.b64 %d9, [%r8];"
    second = "W1: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 1; @!%p6 bra W1;"
    first = second.replace(", 1;", ", 0;")
    assert not found(check(PHASES.format(arrive=arrive, wait=second), "sm_90a"))
    # The phase before says nothing about the loads.
    assert found(check(PHASES.format(arrive="", wait=first), "sm_90a")) == {"G1"}


# Life cycle ---------------------------------------------------------------------------------------------

LIVE = """@%p0 mbarrier.init.shared.b64 [%r8], 128; bar.sync 0;
mbarrier.arrive.shared.b64 %d9, [%r8];
W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W;
{between}
{last}
ret;
"""


INVAL = "@%p0 mbarrier.inval.shared.b64 [%r8];"
OTHER = "setp.eq.u32 %p7, %r0, 32; @%p7"


@pytest.mark.parametrize(
    ("between", "last", "wanted"),
    [
        ("bar.sync 0;", "@%p0 mbarrier.inval.shared.b64 [%r8];", set()),
        ("", "@%p0 mbarrier.inval.shared.b64 [%r8];", {"M3"}),
        ("bar.sync 0;", "@%p0 mbarrier.inval.shared.b64 [%r8]; @%p0 mbarrier.init.shared.b64 [%r8], 1;", set()),
        ("bar.sync 0;", "@%p0 mbarrier.init.shared.b64 [%r8], 1;", {"M2"}),
        ("bar.sync 0;", "@%p0 mbarrier.inval.shared.b64 [%r8]; @%p0 st.shared.u32 [%r8], 1;", set()),
        # By another warp.
        ("bar.sync 0;", f"{INVAL} {OTHER} mbarrier.init.shared.b64 [%r8], 1;", {"M2"}),
        ("bar.sync 0;", f"{INVAL} bar.sync 0; {OTHER} mbarrier.init.shared.b64 [%r8], 1;", set()),
        ("bar.sync 0;", f"{INVAL} {OTHER} st.shared.u32 [%r8], 1;", {"M4"}),
        ("bar.sync 0;", f"{INVAL} bar.sync 0; {OTHER} st.shared.u32 [%r8], 1;", set()),
        ("bar.sync 0;", "@%p0 st.shared.u32 [%r8], 1;", {"M4"}),
        ("bar.sync 0;", "@%p0 st.shared.u32 [%r8], 1; bar.sync 0; mbarrier.arrive.shared.b64 %d9, [%r8];", {"M4"}),
    ],
)
def test_the_life_of_an_mbarrier(between: str, last: str, wanted: set[str]) -> None:
    outcome = check(LIVE.format(between=between, last=last), "sm_90a")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert found(outcome) == wanted


def test_in_practice_memory_of_mbarriers_that_nobody_uses_any_more_is_reused() -> None:
    store = "@%p0 st.shared.u32 [%r8], 1;"
    outcome = check(LIVE.format(between="bar.sync 0;", last=store), "sm_90a", level="practice")
    assert not found(outcome)
    assert found(outcome, "review") == {"M4"}
    later = store + " bar.sync 0; mbarrier.arrive.shared.b64 %d9, [%r8];"
    assert found(check(LIVE.format(between="bar.sync 0;", last=later), "sm_90a", level="practice")) == {"M4"}


COPY = """@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster; bar.sync 0;
@!%p0 bra JOIN;
mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 2048, [%r8];
{after}
JOIN: {wait} ret;
"""


@pytest.mark.parametrize("what", ["mbarrier.inval.shared.b64 [%r8];", "mbarrier.init.shared.b64 [%r8], 1;"])
def test_an_mbarrier_on_which_a_copy_completes_is_in_use(what: str) -> None:
    outcome = check(COPY.format(after=what, wait=""), "sm_90a", level="practice")
    assert found(outcome) & {"M2", "M3"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mbarrier.init.shared.b64 [%r8], 0;", "count 0"),
        ("mbarrier.init.shared.b64 [%r8], 1048576;", "count 1048576"),
        ("mbarrier.init.shared.b64 [%r8], 1; mbarrier.arrive.shared.b64 %d9, [%r8], 2;", "2 arrivals"),
        ("mbarrier.arrive.shared.b64 %d9, [%r8];", "before mbarrier.init"),
        ("mbarrier.init.shared.b64 [%r8], 1; mbarrier.inval.shared.b64 [%r8]; mbarrier.arrive.shared.b64 %d9, [%r8];",
         "after inval"),
        ("mbarrier.init.shared.b64 [%r8], 1; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r8], 1048575;\n"
         "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r8], 1;", "transaction count beyond"),
    ],
)  # fmt: skip
def test_counts_and_states_out_of_range_end_the_run(text: str, message: str) -> None:
    outcome = check(f"@!%p0 bra END; {text}\nEND: ret;", "sm_90a", threads=32)
    assert outcome.status == "error"
    assert outcome.findings[0].code.id == "PT4010"
    assert message in outcome.findings[0].message


# Ends of blocks -----------------------------------------------------------------------------------------


def clustered(body: str, target: str = "sm_90a", level: str = "practice") -> set[str]:
    outcome = check(RANK + body + " ret;", target, threads=128, grid=2, cluster=2, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return found(outcome)


STORE_AWAY = """mapa.shared::cluster.u32 %r20, %r2, 1; mad.lo.u32 %r20, %r0, 4, %r20;
@%p2 st.shared::cluster.u32 [%r20], 1;
"""


def test_shared_memory_of_a_block_that_may_have_ended() -> None:
    assert clustered(CLUSTER_SYNC + STORE_AWAY) == {"H26"}
    assert not clustered(CLUSTER_SYNC + STORE_AWAY + CLUSTER_SYNC)
    # Block 1 is long gone.
    gone = "barrier.cluster.arrive.aligned; @!%p2 bra END; barrier.cluster.wait.aligned;\n" + STORE_AWAY * 2 + "END:"
    assert clustered(gone) == {"H26"}


def test_an_arrival_on_a_block_that_may_have_ended() -> None:
    arrive = """mapa.shared::cluster.u32 %r20, %r8, 1;
@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r20];
"""
    begin = INIT.format(count=128) + CLUSTER_SYNC + arrive
    assert clustered(begin) == {"H26"}
    wait = "@%p2 bra END; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p6, [%r8], 0; @!%p6 bra W; END:"
    assert not clustered(begin + wait)


MULTICAST = (
    ".reg .b16 h; mov.b16 h, 3;\n" + INIT.format(count=1) + """@!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 64;
NOALLOC: bar.sync 0; tcgen05.fence::after_thread_sync; ld.shared.u32 %r10, [%r9];
""" + FILL + DESCRIPTORS + "fence.proxy.async.shared::cta;\n" + CLUSTER_SYNC + """@!%p0 bra JOIN; @!%p2 bra JOIN;
""" + MMA.format(enable="%p3") + """
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r8], h;
JOIN: WAIT
tcgen05.fence::after_thread_sync; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
@!%p1 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64; END:
"""
)  # fmt: skip


def test_a_multicast_commit_on_a_block_that_may_have_ended() -> None:
    waiting = try_wait("W1", 0, "wait")
    assert not clustered(MULTICAST.replace("WAIT", waiting), "sm_100a")
    assert clustered(MULTICAST.replace("WAIT", "@!%p2 bra DONE;\n" + waiting + "DONE:"), "sm_100a") == {"H26"}


# Deadlocks ----------------------------------------------------------------------------------------------


def test_a_deadlock_names_the_barrier_its_state_who_waits_and_who_has_arrived() -> None:
    body = """@%p0 mbarrier.init.shared.b64 [%r8], 129; bar.sync 0;
mbarrier.arrive.shared.b64 %d9, [%r8];
W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W; ret;"""
    outcome = check(body, "sm_90a")
    assert outcome.status == "error"
    (finding,) = outcome.findings
    assert finding.code.id == "PT4003"
    for text in ("mbarrier 0x", "(bar+0)", "phase 0 (parity 0)", "1 of 129 arrivals", "warp 0", "warp 3",
                 "arrivals so far: mbarrier.arrive.shared.b64 at PTX line"):  # fmt: skip
        assert text in finding.message, finding.message


def test_a_commit_count_that_no_commit_reaches_is_a_deadlock_with_its_commits_named() -> None:
    """H24: the mbarrier counts the threads of the warpgroup, but one commit arrives."""
    body = MULTICAST.replace("multicast::cluster.b64 [%r8], h", "b64 [%r8]").replace(
        "mbarrier.init.shared.b64 [%r8], 1;", "mbarrier.init.shared.b64 [%r8], 128;"
    )
    outcome = check(RANK + body.replace("WAIT", try_wait("W1", 0, "wait")) + " ret;", grid=2, cluster=2)
    assert outcome.status == "error"
    assert "127 of 128 arrivals" in outcome.findings[0].message
    assert "tcgen05.commit" in outcome.findings[0].message


def test_a_count_that_one_of_two_commits_reaches_releases_too_early() -> None:
    """H24: the second commit is not waited for, or both are over when the wait looks for the first."""
    two = f"@%p0 {COMMIT}\n@%p0 {MMA.format(enable='%p4')}\n@%p0 {COMMIT}\n"
    start = MULTICAST.partition("@!%p0 bra JOIN")[0].replace(CLUSTER_SYNC, "bar.sync 0;\n")
    start = start.replace("mbarrier.init.shared.b64 [%r8], 1;", "mbarrier.init.shared.b64 [%r8], COUNT;")
    end = (
        try_wait("W1", 0, "wait")
        + """tcgen05.fence::after_thread_sync;
shl.b32 %r13, %r1, 21; add.u32 %r13, %r13, %r10;
tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r40, %r41, %r42, %r43}, [%r13]; tcgen05.wait::ld.sync.aligned;
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
@!%p1 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64; END: ret;"""
    )
    body = start + f"@%p0 {MMA.format(enable='%p3')}\n" + two + end
    assert not found(check(body.replace("COUNT", "2")))
    wrong = [check(body.replace("COUNT", "1"), schedule="random", seed=seed) for seed in range(4)]
    assert all(outcome.status == "error" or "H1" in found(outcome) for outcome in wrong)
    assert any("H1" in found(outcome) for outcome in wrong)


def test_named_barriers_and_livelocks_are_named() -> None:
    outcome = check("@%p1 bar.sync 3, 128; ret;", "sm_90a")
    assert outcome.findings[0].code.id == "PT4003"
    assert "barrier 3, 32 of 128 threads arrived: warp 0 of block 0,0,0" in outcome.findings[0].message
    spin = "W: ld.volatile.global.u32 %r5, [%d1]; setp.eq.u32 %p6, %r5, 0; @%p6 bra W; ret;"
    outcome = check(spin, "sm_90a", threads=32)
    assert outcome.findings[0].code.id == "PT4003"
    assert "poll memory" in outcome.findings[0].message
