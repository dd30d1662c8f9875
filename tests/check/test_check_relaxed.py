# SPDX-License-Identifier: Apache-2.0
"""Relaxed flags, arrivals, waits and cluster barriers: the fences beside them, and how far these reach (PTX ISA 8.5,
8.7, 9.7.13.3, 9.7.13.15). For tcgen05 the order of execution is enough (9.7.16.6.4)."""

from __future__ import annotations

import pytest
from check_ptx import TENSOR, check, found

RANK = "mov.u32 %r20, %cluster_ctarank; setp.ne.u32 %p5, %r20, 0;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
END = f"END: bar.warp.sync 0xffffffff; {MEET} ret;"


def fence(scope: str) -> str:
    return f"fence.acq_rel.{scope};" if scope else ""


# Flags: one block, or one warp, stores data and then a flag; the other polls the flag and loads the data.
def in_global_memory(store: str, load: str, released: str, acquired: str) -> str:
    return f"""mov.u32 %r20, %ctaid.x; setp.ne.u32 %p5, %r20, 0; mov.u32 %r21, 7; @!%p0 ret; @%p5 bra READ;
st.global.u32 [%d1+256], %r21; {released} st.{store}.global.u32 [%d1], %r21; ret;
READ: ld.{load}.global.u32 %r22, [%d1]; setp.eq.u32 %p6, %r22, 0; @%p6 bra READ;
{acquired} ld.global.u32 %r23, [%d1+256]; st.global.u32 [%d1+512], %r23; ret;"""


def in_shared_memory(store: str, load: str, released: str, acquired: str) -> str:
    return f"""@%p0 st.shared.u32 [%r2], 0; bar.sync 0; mov.u32 %r21, 7; @!%p0 bra OTHER;
st.shared.u32 [%r2+256], %r21; {released} st.{store}.shared.u32 [%r2], %r21; ret;
OTHER: setp.ne.u32 %p5, %r0, 32; @%p5 ret;
READ: ld.{load}.shared.u32 %r22, [%r2]; setp.eq.u32 %p6, %r22, 0; @%p6 bra READ;
{acquired} ld.shared.u32 %r23, [%r2+256]; st.global.u32 [%d1+512], %r23; ret;"""


def in_the_other_block(store: str, load: str, released: str, acquired: str) -> str:
    return f"""{RANK} @%p0 st.shared.u32 [%r2], 0; {MEET} mov.u32 %r25, 0; mapa.shared::cluster.u32 %r26, %r2, %r25;
mov.u32 %r21, 7; @!%p0 bra END; @!%p5 bra READ; st.shared::cluster.u32 [%r26+256], %r21; {released}
st.{store}.shared::cluster.u32 [%r26], %r21; bra END;
READ: ld.{load}.shared.u32 %r22, [%r2]; setp.eq.u32 %p6, %r22, 0; @%p6 bra READ;
{acquired} ld.shared.u32 %r23, [%r2+256]; st.global.u32 [%d1+512], %r23; {END}"""


PLACES = {
    "global": (in_global_memory, "gpu", {"grid": 2, "threads": 32}, "G2"),
    "shared": (in_shared_memory, "cta", {"threads": 64}, "G1"),
    "cluster": (in_the_other_block, "cluster", {"grid": 2, "threads": 32, "cluster": 2}, "G1"),
}
# store, load, fence after the data's store, fence ahead of its load; clean or not.
FLAGS = [
    ("release", "acquire", False, False, True),
    ("relaxed", "relaxed", True, True, True),
    ("release", "relaxed", False, True, True),
    ("relaxed", "acquire", True, False, True),
    ("relaxed", "relaxed", False, False, False),
    ("relaxed", "relaxed", True, False, False),
    ("relaxed", "relaxed", False, True, False),
    ("release", "relaxed", False, False, False),
    ("relaxed", "acquire", False, False, False),
]


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize(("store", "load", "released", "acquired", "right"), FLAGS)
@pytest.mark.parametrize("place", PLACES)
def test_flags(place: str, store: str, load: str, released: bool, acquired: bool, right: bool, level: str) -> None:
    kernel, scope, launch, kind = PLACES[place]
    fences = fence(scope) if released else "", fence(scope) if acquired else ""
    outcome = check(kernel(f"{store}.{scope}", f"{load}.{scope}", *fences), level=level, **launch)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert found(outcome) == (set() if right else {kind})


@pytest.mark.parametrize("place", ["global", "cluster"])
@pytest.mark.parametrize("narrow", [0, 1])
@pytest.mark.parametrize("fenced", [True, False])
def test_a_scope_that_leaves_the_other_block_out(place: str, narrow: int, fenced: bool) -> None:
    """Of the fence, or of the release or acquire itself."""
    kernel, scope, launch, _ = PLACES[place]
    scopes = [scope, scope]
    scopes[narrow] = "cta"
    if fenced:
        body = kernel(f"relaxed.{scope}", f"relaxed.{scope}", fence(scopes[0]), fence(scopes[1]))
    else:
        body = kernel(f"release.{scopes[0]}", f"acquire.{scopes[1]}", "", "")
    assert found(check(body, level="practice", **launch)) & {"G1", "G2", "G3"}


# Arrivals on another block's mbarrier.
def arrival(arrive: str, wait: str, released: str = "", acquired: str = "") -> str:
    return f"""{RANK} @%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster; {MEET}
mov.u32 %r25, 0; mapa.shared::cluster.u32 %r26, %r2, %r25; mapa.shared::cluster.u32 %r27, %r8, %r25; mov.u32 %r21, 7;
@!%p0 bra END; @!%p5 bra READ; st.shared::cluster.u32 [%r26+256], %r21; {released}
mbarrier.arrive.{arrive}.shared::cluster.b64 _, [%r27]; bra END;
READ: mbarrier.try_wait.parity.{wait}.shared.b64 %p6, [%r8], 0; @!%p6 bra READ;
{acquired} ld.shared.u32 %r24, [%r2+256]; st.global.u32 [%d1+512], %r24; {END}"""


R, A, X = "release.cluster", "acquire.cluster", "relaxed.cluster"
ARRIVALS = [
    (R, A, "", "", set()), (X, X, "cluster", "cluster", set()), (X, X, "gpu", "sys", set()),
    (X, A, "cluster", "", set()), (R, X, "", "cluster", set()),
    (X, X, "", "", {"G1"}), (X, X, "cluster", "", {"G1"}), (X, X, "", "cluster", {"G1"}), (R, X, "", "", {"G1"}),
    (X, A, "", "", {"G1"}),
    # A fence of .cta scope does not reach the other block.
    (X, X, "cta", "cluster", {"G1"}), (X, X, "cluster", "cta", {"G1"}), (X, X, "cta", "cta", {"G1"}),
    (X, A, "cta", "", {"G1"}), (R, X, "", "cta", {"G1"}),
]  # fmt: skip
PAIR = {"grid": 2, "threads": 32, "cluster": 2}


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize(("arrive", "wait", "released", "acquired", "kinds"), ARRIVALS)
def test_arrivals(arrive: str, wait: str, released: str, acquired: str, kinds: set[str], level: str) -> None:
    body = arrival(arrive, wait, fence(released), fence(acquired))
    assert found(check(body, level=level, **PAIR)) == kinds


@pytest.mark.parametrize("wait", ["acquire.cta", "relaxed.cta"])
def test_a_wait_that_is_narrower_than_its_release(wait: str) -> None:
    body = arrival(R, wait, "", "fence.acq_rel.cluster;")
    assert found(check(body, **PAIR)) == {"M1"}
    assert found(check(body, level="practice", **PAIR), "review") == {"M1"}


@pytest.mark.parametrize(("before", "kinds"), [
    ("fence.acq_rel.cluster;", set()), ("fence.sc.cluster;", set()), ("fence.acq_rel.gpu;", set()),
    ("membar.gl;", set()), ("", {"G1"}), ("fence.acq_rel.cta;", {"G1"}), ("fence.sc.cta;", {"G1"}),
    ("membar.cta;", {"G1"}), ("fence.proxy.async;", {"G1"}), ("bar.sync 0;", {"G1"}),
])  # fmt: skip
def test_relaxed_cluster_barriers(before: str, kinds: set[str]) -> None:
    body = f"""barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
{RANK} mov.u32 %r25, 0; mapa.shared::cluster.u32 %r26, %r2, %r25; @!%p5 bra GO;
@%p0 st.shared::cluster.u32 [%r26+256], %r0; GO: {before} barrier.cluster.arrive.relaxed.aligned;
barrier.cluster.wait.acquire.aligned; @%p5 bra END; @%p0 ld.shared.u32 %r24, [%r2+256];
@%p0 st.global.u32 [%d1+512], %r24; {END}"""
    assert found(check(body, **PAIR)) == kinds


# tcgen05: the canonical patterns of PTX ISA 9.7.16.6.4 have relaxed waits and arrivals.
WAIT = "mbarrier.try_wait.parity.shared.b64"
RELAXED = "mbarrier.try_wait.parity.relaxed.cluster.shared.b64"


@pytest.mark.parametrize("level", ["strict", "practice"])
def test_a_relaxed_wait_for_a_commit(level: str) -> None:
    """9.7.16.6.4.2, example 2."""
    assert TENSOR.count(WAIT)
    assert not check(TENSOR.replace(WAIT, RELAXED), level=level).hazards


@pytest.mark.parametrize("name", ["after_mma", "after_second"])
def test_a_relaxed_wait_without_the_fence_of_tcgen05(name: str) -> None:
    lines = [line for line in TENSOR.replace(WAIT, RELAXED).splitlines() if not line.endswith(f"//@{name}")]
    outcome = check("\n".join(lines))
    assert found(outcome) <= {"H1", "H2"}
    assert found(outcome)
    assert all("after_thread_sync" in h.remedy for h in outcome.hazards)


STORED = """@%p0 mbarrier.init.shared.b64 [%r8], {count}; fence.mbarrier_init.release.cluster; @!%p1 bra HELD;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32; HELD: bar.sync 0;
tcgen05.fence::after_thread_sync; ld.shared.u32 %r10, [%r9]; shl.b32 %r13, %r1, 21; add.u32 %r13, %r13, %r10;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r13], {{%r0}}; {completed} {before}
mbarrier.arrive.{arrive}.shared.b64 _, [%r8];
SPIN: mbarrier.try_wait.parity.{wait}.shared.b64 %p6, [%r8], 0; @!%p6 bra SPIN; {after} @!%p1 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32; END: ret;"""
ORDERS = [("release.cta", "acquire.cta"), (X, X), (R, X), (X, A)]


@pytest.mark.parametrize(("arrive", "wait"), ORDERS)
@pytest.mark.parametrize("left_out", ["", "completed", "before", "after"])
def test_relaxed_arrivals_with_the_fences_of_tcgen05(arrive: str, wait: str, left_out: str) -> None:
    """9.7.16.6.4.4: accesses of all warps before the deallocation by one."""
    parts = {
        "completed": "tcgen05.wait::st.sync.aligned;", "before": "tcgen05.fence::before_thread_sync;",
        "after": "tcgen05.fence::after_thread_sync;",
    }  # fmt: skip
    if left_out:
        parts[left_out] = ""
    body = STORED.format(arrive=arrive, wait=wait, count=128, **parts)
    assert found(check(body)) == ({"H14"} if left_out else set())
    practice = check(body, level="practice")
    assert found(practice) == ({"H14"} if left_out == "completed" else set())


@pytest.mark.parametrize(("wait", "kinds"), [
    ("", {"M1"}), ("acquire.cta.", {"M1"}), ("acquire.cluster.", set()), ("relaxed.cluster.", set()),
])  # fmt: skip
def test_a_wait_for_the_commit_of_another_block(wait: str, kinds: set[str]) -> None:
    """The arrival of a commit is of cluster scope (9.7.16.12.1); no text says what a wait of .cta scope sees of it."""
    body = f"""{RANK} .reg .b16 %h1; mov.u16 %h1, 3;
@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster; {MEET} @!%p0 bra SPIN; @%p5 bra SPIN;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r8], %h1;
SPIN: mbarrier.try_wait.parity.{wait}shared.b64 %p6, [%r8], 0; @!%p6 bra SPIN; {MEET} ret;"""
    strict = check(body, **PAIR)
    assert found(strict, "review") == kinds
    assert found(strict) == {"H22"}
    assert not found(check(body, level="practice", **PAIR), "review") - {"H22"}
