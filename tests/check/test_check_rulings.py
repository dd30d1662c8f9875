# SPDX-License-Identifier: Apache-2.0
"""docs/rulings.md says what the checker does: every ruling has a section, an ID in the code and a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from check_ptx import BULK, COMMIT, FILL, TENSOR, WGMMA, check, names, without
from test_check_tensor_lifetime import BLOCK, CLUSTER, FENCED, LOAD, STORE, WRONG, kernel

from porter.sim.check.rulings import Ruling

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rulings.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## ([a-z0-9-]+): .*\n((?:(?!^## ).*\n?)*)", PAGE, re.MULTILINE))
TESTS = "".join(p.read_text("utf-8") for p in (ROOT / "tests").glob("*/test_*.py"))
CHECKER = "".join(p.read_text("utf-8") for p in (ROOT / "porter" / "sim").rglob("*.py") if p.name != "rulings.py")


def test_there_is_a_section_for_every_ruling_and_no_other() -> None:
    assert list(SECTIONS) == sorted(r.value for r in Ruling)


@pytest.mark.parametrize("ruling", Ruling, ids=lambda r: r.value)
def test_a_section_has_all_parts(ruling: Ruling) -> None:
    text = SECTIONS[ruling]
    assert "*Question.*" in text
    assert "*Both levels*" in text or ("*Strict*" in text and "*Practice*" in text)
    assert "*Touches*" in text


@pytest.mark.parametrize("ruling", Ruling, ids=lambda r: r.value)
def test_the_checker_uses_it_and_a_test_names_it(ruling: Ruling) -> None:
    assert f"Ruling.{ruling.name}" in CHECKER or f"`{ruling.value}`" in CHECKER
    assert f"Ruling.{ruling.name}" in TESTS or f"`{ruling.value}`" in TESTS


KERNELS = [(k, t, n) for k, t in ((TENSOR, "sm_100a"), (BULK, "sm_90a"), (WGMMA, "sm_90a")) for n in names(k)]


@pytest.mark.parametrize(("kernel", "target", "name"), KERNELS, ids=lambda x: x if len(str(x)) < 30 else "")
def test_what_is_to_review_names_its_ruling(kernel: str, target: str, name: str) -> None:
    body = without(kernel, name)
    for h in check(body, target, level="practice").hazards:
        assert (h.severity == "review") == (h.ruling is not None), h.message
    assert all(h.ruling is not None for h in check(body, target).hazards if h.strict)


# Of every ruling that tolerates something one kernel ------------------------------------------------------------

SET = "@%p0 mbarrier.init.shared.b64 [%r8], {count}; {more} bar.sync 0;\n"
PUT = "mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0;\n"
OTHER = "xor.b32 %r20, %r0, {bit}; mad.lo.u32 %r20, %r20, 4, %r2; ld.shared.u32 %r4, [%r20]; ret;"
POLL = "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], {parity}; @!%p6 bra W;\n"
REMOTE = "mov.u32 %r10, %cluster_ctarank; setp.eq.and.u32 %p3, %r10, 1, %p0; mapa.shared::cluster.u32 %r11, %r8, 0;\n"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
COPY = """@%p0 mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 512;
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 512, [%r8];
"""
CP_ASYNC = """mad.lo.u32 %r3, %r0, 16, %r2; mul.wide.u32 %d2, %r0, 16; add.u64 %d6, %d0, %d2;
cp.async.cg.shared.global [%r3], [%d6], 16; cp.async.cg.shared.global [%r3+2048], [%d6], 16;
cp.async.commit_group; cp.async.wait_group 0;
"""
FREE = "bar.sync 0; @!%p1 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32; END: ret;"
TWICE = 2 * "tcgen05.cp.cta_group::1.128x128b [%r10], %d7;"
ACCESS = STORE + LOAD
PAIR = {"grid": 2, "cluster": 2}
EXAMPLES: dict[Ruling, tuple[str, str, dict[str, int]]] = {
    Ruling.ACCUMULATOR_COPIES: (
        WGMMA.replace("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; mov.b32 %r40, 0;"), "sm_90a", {},
    ),
    Ruling.ALLOCATED_WORD: (
        MEET + "@%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r9], 32;"
        + MEET.replace("arrive", "arrive.relaxed") + "ld.shared.u32 %r10, [%r9];" + MEET
        + "@%p1 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r10, 32; ret;", "sm_100a", PAIR,
    ),
    Ruling.BENIGN_RACE: ("mov.u32 %r4, 0; st.global.u32 [%d1], %r4; ret;", "sm_90a", {}),
    Ruling.BLOCK_END: (SET.format(count=1, more="fence.mbarrier_init.release.cluster;") + COPY + "ret;", "sm_90a", {}),
    Ruling.EMPTY_COMMIT: (
        TENSOR.replace("FIRST:", f"FIRST: setp.eq.u32 %p7, %r0, 96; @%p7 {COMMIT}")
        .replace("[%r8], 1;", "[%r8], 2;", 1).partition("tcgen05.fence::after")[0] + FREE, "sm_100a", {},
    ),
    Ruling.INIT_FENCE: (
        SET.format(count=1, more="") + COPY + POLL.format(parity=0) + "ret;", "sm_90a", {},
    ),
    Ruling.LOCKSTEP: (PUT + OTHER.format(bit=1), "sm_90a", {}),
    Ruling.MBARRIER_REUSE: (SET.format(count=1, more="") * 2 + "ret;", "sm_90a", {}),
    Ruling.MBARRIER_SCOPE: (
        SET.format(count=1, more="fence.mbarrier_init.release.cluster;") + MEET + REMOTE
        + "@%p3 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11]; setp.ne.u32 %p4, %r10, 0; @%p4 bra END;"
        + POLL.format(parity=0) + "END: " + MEET + "ret;", "sm_90a", PAIR,
    ),
    Ruling.NEVER_WRITTEN: (OTHER.format(bit=0), "sm_90a", {}),
    Ruling.ONE_LANE: (
        SET.format(count=4, more="") + PUT + "and.b32 %r5, %r0, 31; setp.eq.u32 %p5, %r5, 0;"
        "@%p5 mbarrier.arrive.shared.b64 %d9, [%r8];" + POLL.format(parity=0) + OTHER.format(bit=32), "sm_90a", {},
    ),
    Ruling.READ_ONLY_LOAD: (
        "mad.wide.u32 %d2, %r0, 4, %d1; st.global.u32 [%d2], %r0; bar.sync 0; xor.b32 %r4, %r0, 32;"
        "mad.wide.u32 %d2, %r4, 4, %d1; ld.global.nc.u32 %r5, [%d2]; ret;", "sm_90a", {},
    ),
    Ruling.SHARED_FLAG: (
        "@%p0 st.shared.u32 [%r8], 0; bar.sync 0; @%p0 st.shared.u32 [%r8], 1; ld.volatile.shared.u32 %r5, [%r8]; ret;",
        "sm_90a", {},
    ),
    Ruling.THREAD_SYNC_FENCE: (without(TENSOR, "after_overwrite"), "sm_100a", {}),
    Ruling.PROXY_FENCE: (without(TENSOR, "proxy_fence"), "sm_100a", {}),
    Ruling.LOAD_DEPENDENCE: (without(TENSOR, "wait_ld"), "sm_100a", {}),
    Ruling.TENSOR_PIPELINE: (TENSOR.replace(COMMIT, TWICE + COMMIT, 1), "sm_100a", {}),
    Ruling.PAIR_ALLOCATION: (kernel(before="bar.sync 0;", after=CLUSTER), "sm_100a", {"threads": 64, **PAIR}),
    Ruling.PAIR_FREE: (kernel(after=FENCED + ACCESS, end=BLOCK), "sm_100a", {"threads": 64, **PAIR}),
    Ruling.ALLOCATION_ORDER: (WRONG["growing_allocations"][0], "sm_100a", {"threads": 64, **PAIR}),
    Ruling.WARPGROUP_WAIT: (
        CP_ASYNC + "fence.proxy.async.shared::cta;\n" + WGMMA.partition(FILL)[2]
        .replace("fence.proxy.async.shared::cta; //@proxy_fence", "").replace("bar.sync 0; //@operand_barrier", ""),
        "sm_90a", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("ruling", EXAMPLES, ids=lambda r: r.value)
def test_an_example(ruling: Ruling) -> None:
    """To review at practice level with this ruling, and an error at strict level."""
    body, target, options = EXAMPLES[ruling]
    mild = check(body, target, level="practice", **options)
    assert mild.status == "ok", mild.findings
    assert ruling in {h.ruling for h in mild.hazards if h.severity == "review"}, [
        (h.kind.id, h.severity, h.ruling, h.missing) for h in mild.hazards
    ]
    assert any(h.severity == "error" for h in check(body, target, **options).hazards)
