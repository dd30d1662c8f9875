# SPDX-License-Identifier: Apache-2.0
"""What a relaxed cluster barrier does not publish: initializations of mbarriers that nobody fenced, and the word that
tcgen05.alloc writes."""

from __future__ import annotations

from typing import Any

import pytest
from check_ptx import check, found

from porter.sim.check.rulings import Ruling

MEET = "barrier.cluster.arrive{relaxed}.aligned; barrier.cluster.wait.acquire.aligned;\n"
RELAXED, RELEASED = MEET.format(relaxed=".relaxed"), MEET.format(relaxed=".release")
FENCE = "@%p0 fence.mbarrier_init.release.cluster;\n"
INIT = "mov.u32 %r20, %cluster_ctarank; @%p0 mbarrier.init.shared::cta.b64 [%r8], 2;\n"
OTHER_INIT = "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n"
USE = """mapa.shared::cluster.u32 %r4, %r8, 0; setp.eq.u32 %p2, %r0, 32; setp.eq.u32 %p3, %r20, 0;
@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
@!%p3 bra $E;
$W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r8], 0; @!%p4 bra $W;
$E: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
ret;
"""


@pytest.mark.parametrize("level", ["practice", "strict"])
@pytest.mark.parametrize(
    ("before", "practice", "strict"),
    [
        (INIT + FENCE + RELAXED, "", ""),
        (INIT + RELEASED, "", ""),
        (INIT + RELAXED, "error", "error"),
        (INIT + RELAXED + RELAXED, "error", "error"),
        (OTHER_INIT + FENCE + INIT + RELAXED, "review", "error"),
    ],
)
def test_initializations_behind_a_relaxed_barrier(before: str, practice: str, strict: str, level: Any) -> None:
    """In practice a block that fences some of its initializations is believed of the others (ruling `init-fence`)."""
    outcome = check(before + USE, threads=64, level=level, grid=2, cluster=2)
    expected = practice if level == "practice" else strict
    assert {h.severity for h in outcome.hazards if h.kind.id == "H21"} == ({expected} if expected else set())


WORD = """@%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r9], 64;
{between}
ld.shared.u32 %r10, [%r9]; mad.wide.u32 %d2, %r0, 4, %d1; st.global.u32 [%d2], %r10;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@%p1 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r10, 64;
ret;
"""
CLEAN, REVIEW, ERROR = "", "review", "error"


@pytest.mark.parametrize(
    ("between", "practice"),
    [(RELAXED, REVIEW), (RELEASED, CLEAN), ("bar.sync 0;", CLEAN), ("", ERROR), ("bar.warp.sync 0xffffffff;", ERROR)],
)
def test_the_word_of_an_allocation(between: str, practice: str) -> None:
    body = RELEASED + WORD.format(between=between)
    outcome = check(body, threads=128, level="practice", grid=2, cluster=2)
    hazards = [h for h in outcome.hazards if h.kind.id == "H15"]
    assert {h.severity for h in hazards} == ({practice} if practice else set())
    if practice == REVIEW:
        assert {h.ruling for h in hazards} == {Ruling.ALLOCATED_WORD}
    strict = check(body, threads=128, level="strict", grid=2, cluster=2)
    assert ("H15" in found(strict)) == bool(practice)


@pytest.mark.parametrize("count", [1, 3, 31])
def test_a_count_that_an_instruction_of_a_warp_passes_is_an_error(count: int) -> None:
    body = f"""@%p0 mbarrier.init.shared.b64 [%r8], {count};
    bar.sync 0;
    @%p1 mbarrier.arrive.shared.b64 _, [%r8];
    ret;
    """
    assert found(check(body, threads=64, level="practice")) == {"H24"}
