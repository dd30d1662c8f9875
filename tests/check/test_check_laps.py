# SPDX-License-Identifier: Apache-2.0
"""A phase of an mbarrier ends once all who wait for the last one have seen its end (H33, ruling `lapped-wait`)."""

from __future__ import annotations

import pytest
from check_ptx import check, found

# Thread 0 has two phases end, and waits for the first; warp 1 (and warp 2) wait for both. A second mbarrier is at
# %r22, for what warps tell thread 0.
BODY = """.shared .align 8 .b8 back[8];
mov.u32 %r22, back; add.u32 %r21, %r2, 1024; setp.eq.u32 %p4, %r1, 2; and.b32 %r26, %r0, 31; setp.eq.u32 %p3, %r26, 0;
@%p0 mbarrier.init.shared.b64 [%r8], 1;
@%p0 mbarrier.init.shared.b64 [%r22], {count};
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
@!%p1 bra OTHERS;
@!%p0 bra JOIN;
{first}
P: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra P;
{learn}
{second}
JOIN:
{met}
bra END;
OTHERS:
{seen}
{tell}
{last}
END:
bar.sync 1;
ret;
"""
COPY = (
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;"
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r21], [%d0], 256, [%r8];"
)
EARLY = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r8], 256; mbarrier.arrive.shared.b64 _, [%r8];"
SENT = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r21], [%d0], 256, [%r8];"
PARITY = "W{n}: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], {parity}; @!%p6 bra W{n};"
TEST = "W{n}: mbarrier.test_wait.parity.shared.b64 %p6, [%r8], {parity}; @!%p6 bra W{n};"
RELAXED = "W{n}: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p6, [%r8], {parity}; @!%p6 bra W{n};"
WAITS = {"try_wait": PARITY, "test_wait": TEST, "relaxed": RELAXED}
LEARN = "L: mbarrier.try_wait.parity.shared.b64 %p7, [%r22], 0; @!%p7 bra L;"
TELLS = {
    "one lane": ("@%p3 mbarrier.arrive.shared.b64 _, [%r22];", 1),
    "all lanes": ("mbarrier.arrive.shared.b64 _, [%r22];", 32),
    "relaxed": ("@%p3 mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r22];", 1),
    "through a barrier": ("bar.warp.sync 0xffffffff; @%p3 mbarrier.arrive.shared.b64 _, [%r22];", 1),
}


def hazards(
    *,
    seen: str = PARITY.format(n=1, parity=0),
    last: str = PARITY.format(n=2, parity=1),
    first: str = COPY,
    second: str = COPY,
    learn: str = "",
    tell: str = "",
    met: str = "",
    count: int = 1,
    threads: int = 64,
    level: str = "strict",
    severity: str = "error",
) -> set[str]:
    body = BODY.format(
        seen=seen, last=last, first=first, second=second, learn=learn, tell=tell, met=met, count=count
    )  # fmt: skip
    outcome = check(body, threads=threads, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return found(outcome, severity)


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_phase_that_ends_whoever_still_waits_for_the_last_one(wait: str) -> None:
    assert hazards(seen=wait.format(n=1, parity=0)) == {"H33"}
    assert hazards(seen=wait.format(n=1, parity=0), level="practice") == set()
    assert hazards(seen=wait.format(n=1, parity=0), level="practice", severity="review") == {"H33"}


@pytest.mark.parametrize(("tell", "count"), TELLS.values(), ids=TELLS)
def test_a_waiter_tells_that_it_has_seen_the_end(tell: str, count: int) -> None:
    assert hazards(tell=tell, count=count, learn=LEARN) == set()
    # Whoever issues the next phase has to learn of it ahead of that.
    assert hazards(tell=tell, count=count, second=COPY + LEARN) == {"H33"}


def test_what_a_waiter_tells_ahead_of_its_wait_is_no_news() -> None:
    tell = TELLS["one lane"][0]
    assert hazards(seen=tell + PARITY.format(n=1, parity=0), learn=LEARN) == {"H33"}


def test_each_waiter_counts() -> None:
    """Two warps wait, and one of them tells."""
    tell = TELLS["one lane"][0]
    assert hazards(tell=tell, count=2, learn=LEARN, threads=96) == set()
    assert hazards(tell=tell.replace("@%p3", "@!%p4 bra T; bra U; T: @%p3") + "U:", learn=LEARN, threads=96) == {"H33"}


def test_a_barrier_between_the_phases() -> None:
    assert hazards(seen=PARITY.format(n=1, parity=0) + "bar.sync 2, 64;", learn="bar.warp.sync 1;", second="",
                   met=f"bar.sync 2, 64; @!%p0 bra S; {COPY} S:") == set()  # fmt: skip
    assert hazards(seen="bar.sync 2, 64;" + PARITY.format(n=1, parity=0), second="",
                   met=f"bar.sync 2, 64; @!%p0 bra S; {COPY} S:") == {"H33"}  # fmt: skip


def test_an_arrival_of_the_waiter_in_the_next_phase() -> None:
    """The phase cannot end without it. Each phase takes two arrivals: of thread 0, and of one lane of warp 1."""
    own = "@%p3 mbarrier.arrive.shared.b64 _, [%r8];"
    two = {"first": COPY, "seen": own + PARITY.format(n=1, parity=0), "last": PARITY.format(n=2, parity=1)}
    body = BODY.replace("[%r8], 1;", "[%r8], 2;", 1)
    for tell, expected in ((own, set()), ("", None)):
        text = body.format(**two, second=COPY, learn="", tell=tell, met="", count=1)
        outcome = check(text, threads=64)
        assert (outcome.status != "ok") == (expected is None)
        assert expected is None or found(outcome) == expected


def test_bytes_that_are_sent_behind_the_wait_hold_the_phase_back() -> None:
    """The arrival of the second phase comes early, its copy once warp 1 has told of the first one."""
    tell = TELLS["one lane"][0]
    assert hazards(first=COPY, second=EARLY + LEARN + SENT, tell=tell) == set()
    assert hazards(first=COPY, second=EARLY + SENT + LEARN, tell=tell) == {"H33"}


def test_a_wait_that_is_for_the_phase_before_the_first() -> None:
    """A producer's first wait, with parity 1, on an mbarrier whose first phase a copy ends that nobody holds back."""
    first = PARITY.format(n=1, parity=1)
    assert "H33" in hazards(seen=first, last="", second="")


def test_a_last_wait_needs_nobody() -> None:
    assert hazards(last="", second="") == set()


def test_a_thread_that_issues_the_next_phase_itself() -> None:
    assert hazards(seen="", last="", second=COPY + PARITY.format(n=3, parity=1)) == set()
