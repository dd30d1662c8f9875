# SPDX-License-Identifier: Apache-2.0
"""Who waits for a phase of an mbarrier knows that the one before is over: else the phase ahead of that satisfies the
wait as well, and which one it was is a matter of the schedule (H33)."""

from __future__ import annotations

import pytest
from check_ptx import COMMIT, DESCRIPTORS, FILL, MMA, check, found

from porter.sim.check.hazard import Level

# Thread 0 has phases end, for which warp 1 waits; warp 2 may stand between them. `back` has two more mbarriers.
BODY = """.shared .align 8 .b8 back[16];
mov.u32 %r22, back; add.u32 %r21, %r2, 1024; and.b32 %r26, %r0, 31; setp.eq.u32 %p3, %r26, 0;
setp.eq.u32 %p4, %r1, 1;
@%p0 mbarrier.init.shared.b64 [%r8], {count};
@%p0 mbarrier.init.shared.b64 [%r22], 1;
@%p0 mbarrier.init.shared.b64 [%r22+8], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
@!%p1 bra OTHERS;
@!%p0 bra END;
{ends}
bra END;
OTHERS:
@!%p4 bra BETWEEN;
{waits}
bra END;
BETWEEN:
{between}
END:
bar.sync 1;
ret;
"""
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r8];"
COPY = (
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;"
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r21], [%d0], 256, [%r8];"
)


def wait(number: int, parity: int, at: str = "%r8", how: str = "try_wait.parity") -> str:
    return f"W{number}: mbarrier.{how}.shared.b64 %p6, [{at}], {parity}; @!%p6 bra W{number};"


LEARN = "L{n}: mbarrier.try_wait.parity.shared.b64 %p7, [%r22{offset}], {parity}; @!%p7 bra L{n};"
TELL = "@%p3 mbarrier.arrive.shared.b64 _, [%r22{offset}];"


def learns(number: int, parity: int, offset: str = "") -> str:
    return LEARN.format(n=number, parity=parity, offset=offset)


def tells(offset: str = "") -> str:
    return TELL.format(offset=offset)


def hazards(
    ends: str, waits: str, between: str = "", *, count: int = 1, level: str = "practice", schedule: str = "late"
) -> set[str]:  # fmt: skip
    text = BODY.format(ends=ends, waits=waits, between=between, count=count)
    outcome = check(text, threads=96, level=level, schedule=schedule)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return found(outcome)


UNHEEDED = {
    "phases that nobody acknowledges": (ARRIVE * 3, wait(1, 0)),
    "five of them": (ARRIVE * 5, wait(1, 0)),
    "an even number, and the odd parity": (ARRIVE * 4, wait(1, 1)),
    "test_wait": (ARRIVE * 3, wait(1, 0, how="test_wait.parity")),
    "relaxed": (ARRIVE * 3, wait(1, 0, how="try_wait.parity.relaxed.cta").replace(".relaxed.cta.shared",
                ".relaxed.cta.shared::cta")),
    "the third one, of which the first is known": (ARRIVE + wait(7, 0) + tells().replace("@%p3 ", "") + ARRIVE * 2,
                                                   learns(1, 0) + wait(1, 0)),
}  # fmt: skip


SLOW = "mov.u32 %r30, 0; S: add.u32 %r30, %r30, 1; setp.lt.u32 %p8, %r30, 400; @%p8 bra S;"


@pytest.mark.parametrize("schedule", ["late", "eager", "random"])
@pytest.mark.parametrize(("ends", "waits"), UNHEEDED.values(), ids=UNHEEDED)
def test_a_wait_that_two_phases_satisfy(ends: str, waits: str, schedule: str) -> None:
    assert "H33" in hazards(ends, SLOW + waits, schedule=schedule)


BY_COPIES = {
    "copies": COPY + wait(7, 0) + COPY + wait(8, 1) + COPY,
    "a copy, arrivals behind it": COPY + wait(7, 0) + ARRIVE * 2,
    "arrivals, a copy between": ARRIVE + COPY + wait(7, 1) + ARRIVE,
}


@pytest.mark.parametrize("ends", BY_COPIES.values(), ids=BY_COPIES)
def test_phases_that_copies_end(ends: str) -> None:
    assert "H33" in hazards(ends, SLOW + wait(1, 0), schedule="eager")
    for schedule in ("late", "random"):
        # a wait that sees the first phase is lapped
        assert "H33" in hazards(ends, SLOW + wait(1, 0), schedule=schedule, level="strict")


KNOWN = {
    "each phase is waited for, and acknowledged": (
        ARRIVE + learns(8, 0) + ARRIVE + learns(9, 1) + ARRIVE,
        wait(1, 0) + tells() + wait(2, 1) + tells() + wait(3, 0), "", 1,
    ),
    "the first phase alone": (ARRIVE, wait(1, 0), "", 1),
    "a warp between tells of it": (
        ARRIVE + learns(8, 0) + ARRIVE + learns(9, 0, "+8") + ARRIVE,
        learns(1, 0, "+8") + wait(3, 0), wait(4, 0) + tells() + wait(5, 1) + tells("+8"), 1,
    ),
    "a barrier of threads tells of it": (
        ARRIVE + learns(8, 0) + ARRIVE + learns(9, 0, "+8") + ARRIVE, "bar.sync 3, 64;" + wait(3, 0),
        wait(4, 0) + tells() + wait(5, 1) + tells("+8") + "bar.arrive 3, 64;", 1,
    ),
    "who ends it tells of it": (ARRIVE * 2 + tells().replace("@%p3 ", "") + ARRIVE, learns(1, 0) + wait(1, 0), "", 1),
    "the arrival of the waiter's own thread": (ARRIVE * 2 + wait(7, 1), "", "", 1),
    "a phase that takes one more arrival of the waiter": (
        ARRIVE * 1 + wait(7, 0) + ARRIVE + wait(8, 1), "@%p3 " + ARRIVE + wait(1, 0) + "@%p3 " + ARRIVE + wait(2, 1),
        "", 2,
    ),
    "the state of an arrival": (
        "", "@!%p3 bra END;" + ARRIVE.replace("_", "%d9") * 3 + wait(1, 0).replace("], 0;", "], %d9;")
        .replace(".parity", ""), "", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("ends", "waits", "between", "count"), KNOWN.values(), ids=KNOWN)
def test_a_wait_that_one_phase_satisfies(ends: str, waits: str, between: str, count: int) -> None:
    assert "H33" not in hazards(ends, waits, between, count=count)


OPENING = (
    """.shared .align 8 .b8 back[8]; mov.u32 %r22, back;
@%p0 mbarrier.init.shared.b64 [%r8], 1;
@%p0 mbarrier.init.shared.b64 [%r22], 1;
fence.mbarrier_init.release.cluster;
@!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32;
NOALLOC:
bar.sync 0;
ld.shared.u32 %r10, [%r9];
"""
    + FILL
    + DESCRIPTORS
    + "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
)
CLOSING = """bar.sync 0;
@!%p1 bra END;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32;
END: ret;
"""
BATCH = MMA.format(enable="%p3") + COMMIT
FURTHER = MMA.format(enable="%p4") + COMMIT.replace("%r8", "%r22")


def committed(first: str, between: str, second: str, last: str, level: Level, schedule: str = "late") -> set[str]:
    """Thread 0 issues two parts, with what all threads do behind each."""
    body = f"@!%p0 bra FIRST; {first} FIRST: {between} bar.sync 0; @!%p0 bra SECOND; {second} SECOND: {last}"
    outcome = check(f"{OPENING}{body}{CLOSING}", level=level, schedule=schedule)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return found(outcome)


@pytest.mark.parametrize("schedule", ["late", "eager", "random"])
def test_a_later_commit_of_the_same_thread_tells_of_the_one_before(schedule: str) -> None:
    """The phase of the first commit is waited for by nobody: that of the second one is over behind it."""
    seen = wait(1, 0, "%r22")
    assert "H33" not in committed(BATCH + FURTHER, seen, BATCH, wait(2, 1), "practice", schedule)
    assert "H33" not in committed(BATCH, wait(1, 0), BATCH, wait(2, 1), "practice", schedule)


@pytest.mark.parametrize("schedule", ["late", "eager", "random"])
def test_commits_of_which_nobody_has_seen_the_end(schedule: str) -> None:
    assert "H33" in committed(BATCH, "", BATCH * 2, SLOW + wait(2, 0), "strict", schedule)
