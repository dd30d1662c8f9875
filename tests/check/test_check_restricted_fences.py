# SPDX-License-Identifier: Apache-2.0
"""Memory fences with `.sync_restrict`, whose effect "only applies to operations performed on objects in" the named
state space (PTX ISA 9.7.13.4): a release is of the own block's shared memory, an acquire of the cluster's."""

from __future__ import annotations

import pytest
from check_ptx import check, found

from porter.ptx.memory_order import fences_shared_alone
from porter.ptx.parser import parse_module

RELEASE, ACQUIRE = (
    "fence.release.sync_restrict::shared::cta.cluster;",
    "fence.acquire.sync_restrict::shared::cluster.cluster;",
)
WHOLE_RELEASE, WHOLE_ACQUIRE, INITS = (
    "fence.release.cluster;",
    "fence.acquire.cluster;",
    "fence.mbarrier_init.release.cluster;",
)
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"

# Block 1 stores data, a fence, and signals block 0, which fences and loads the data.
KERNEL = (
    """mov.u32 %r20, %cluster_ctarank; setp.ne.u32 %p5, %r20, 0; mov.u32 %r25, 0; mov.u32 %r29, 1; mov.u32 %r21, 7;
@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 st.shared.u32 [%r2], 0; @%p0 st.shared.u32 [%r2+256], 0;
fence.mbarrier_init.release.cluster; """
    + MEET
    + """mapa.shared::cluster.u32 %r26, %r2, %r25; mapa.shared::cluster.u32 %r27, %r8, %r25;
mapa.shared::cluster.u32 %r28, %r2, %r29; {first} @!%p0 bra END; @!%p5 bra READ;
{store} {released} {signal} bra END;
READ: {wait}
{acquired} {load} st.global.u32 [%d1+512], %r24;
END: bar.warp.sync 0xffffffff; """
    + MEET
    + " ret;"
)
STORES = {
    "own": ("st.shared.u32 [%r2+256], %r21;", "ld.shared::cluster.u32 %r24, [%r28+256];"),
    "reader's": ("st.shared::cluster.u32 [%r26+256], %r21;", "ld.shared.u32 %r24, [%r2+256];"),
    "global": ("st.global.u32 [%d1+256], %r21;", "ld.global.u32 %r24, [%d1+256];"),
}
SIGNALS = {
    "mbarrier": (
        "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r27];",
        "mbarrier.try_wait.parity.relaxed.cluster.shared.b64 %p6, [%r8], 0; @!%p6 bra READ;",
    ),
    "shared flag": (
        "st.relaxed.cluster.shared::cluster.u32 [%r26], %r21;",
        "ld.relaxed.cluster.shared.u32 %r22, [%r2]; setp.eq.u32 %p6, %r22, 0; @%p6 bra READ;",
    ),
    "global flag": (
        "st.relaxed.cluster.global.u32 [%d1], %r21;",
        "ld.relaxed.cluster.global.u32 %r22, [%d1]; setp.eq.u32 %p6, %r22, 0; @%p6 bra READ;",
    ),
    "released flag": (
        "st.release.cluster.global.u32 [%d1], %r21;",
        "ld.relaxed.cluster.global.u32 %r22, [%d1]; setp.eq.u32 %p6, %r22, 0; @%p6 bra READ;",
    ),
}
# Fences of the writer and of the reader; whose memory they order.
FENCES = [
    (WHOLE_RELEASE, WHOLE_ACQUIRE, {"own", "reader's", "global"}),
    (WHOLE_RELEASE, ACQUIRE, {"own", "reader's"}),
    (RELEASE, WHOLE_ACQUIRE, {"own"}),
    (RELEASE, ACQUIRE, {"own"}),
    (ACQUIRE, ACQUIRE, set()),
    (RELEASE, RELEASE, set()),
    (INITS, WHOLE_ACQUIRE, set()),
    (RELEASE + WHOLE_RELEASE, ACQUIRE + WHOLE_ACQUIRE, {"own", "reader's", "global"}),
    (WHOLE_RELEASE + RELEASE, WHOLE_ACQUIRE + ACQUIRE, {"own", "reader's", "global"}),
]


def run(place: str, signal: str, released: str, acquired: str, level: str, first: str = "") -> set[str]:
    (store, load), (tell, wait) = STORES[place], SIGNALS[signal]
    body = KERNEL.format(
        store="" if first else store,
        load=load,
        released=released,
        acquired=acquired,
        signal=tell,
        wait=wait,
        first=first,
    )
    outcome = check(body, threads=64, grid=2, cluster=2, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return found(outcome)


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize(("released", "acquired", "orders"), FENCES)
@pytest.mark.parametrize("place", STORES)
def test_what_they_order(place: str, released: str, acquired: str, orders: set[str], level: str) -> None:
    kind = "G2" if place == "global" else "G1"
    assert run(place, "mbarrier", released, acquired, level) == (set() if place in orders else {kind})


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("place", STORES)
def test_signals_of_all_kinds(place: str, signal: str) -> None:
    kind = "G2" if place == "global" else "G1"
    orders = ("own", "reader's") if signal == "released flag" else ("own",)
    assert run(place, signal, RELEASE, ACQUIRE, "practice") == (set() if place in orders else {kind})


@pytest.mark.parametrize(("barrier", "right"), [("bar.sync 0;", True), ("", False)])
def test_what_another_warp_has_stored(barrier: str, right: bool) -> None:
    """A release tells also of what its thread knows."""
    stored = "setp.eq.u32 %p7, %r0, 32; @%p7 st.shared.u32 [%r2+256], %r21; " + barrier
    assert run("own", "mbarrier", RELEASE, ACQUIRE, "strict", stored) == (set() if right else {"G1"})


@pytest.mark.parametrize("place", STORES)
def test_relaxed_cluster_barriers(place: str) -> None:
    store, load = STORES[place]
    meet = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;"
    start = KERNEL[: KERNEL.index("{first}")]
    body = f"{start} @!%p5 bra GO; @%p0 {store} GO: {RELEASE} {meet} @%p5 bra END; @%p0 {load} END: {MEET} ret;"
    kind = "G2" if place == "global" else "G1"
    assert found(check(body, threads=32, grid=2, cluster=2)) == (set() if place == "own" else {kind})


@pytest.mark.parametrize(
    ("fence", "alone"),
    [(RELEASE, True), (ACQUIRE, True), (WHOLE_RELEASE, False), (INITS, False), ("membar.gl;", False)],
)
def test_which_ones_they_are(fence: str, alone: bool) -> None:
    head = ".version 8.7\n.target sm_100a\n.address_size 64\n.visible .entry k() {\n"
    body = parse_module(f"{head}{fence}\nret;\n}}\n").function("k").body
    assert fences_shared_alone(next(s for s in body if getattr(s, "opcode", "").startswith(("fence", "mem")))) == alone
