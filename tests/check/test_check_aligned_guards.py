# SPDX-License-Identifier: Apache-2.0
"""Guards of `.aligned` instructions, which all threads of a warp execute or none, and multicast masks that name no
block."""

from __future__ import annotations

import pytest
from check_ptx import TENSOR, check

from porter.sim.check.hazard import Level

SETUP = """and.b32 %r20, %r0, 1; setp.eq.u32 %p3, %r20, 1; setp.lt.u32 %p4, %r1, 2;
mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0; mov.u32 %r4, 0; bar.sync 0;
"""
ALIGNED = {
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r40}, [%r2];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r4};",
    "mma": "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r40, %r41, %r42, %r43}, {%r4, %r4}, {%r4}, "
           "{%r4, %r4, %r4, %r4};",
    "tcgen05.wait": "tcgen05.wait::ld.sync.aligned;",
    "setmaxnreg": "setmaxnreg.dec.sync.aligned.u32 40;",
}  # fmt: skip


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("name", ALIGNED)
def test_a_guard_of_an_aligned_instruction_is_one_for_the_warp(name: str, level: Level) -> None:
    instruction = ALIGNED[name]
    for guard in ("@%p4", "@!%p4", ""):
        outcome = check(f"{SETUP} {guard} {instruction} ret;", level=level)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
    for guard in ("@%p3", "@!%p3", "@%p0"):
        outcome = check(f"{SETUP} {guard} {instruction} ret;", level=level)
        assert outcome.status == "error"
        assert "PT4014" in str(outcome.findings[0]), str(outcome.findings[0])


def test_threads_that_have_ended_have_no_say() -> None:
    outcome = check(f"{SETUP} @!%p3 ret; @%p3 {ALIGNED['ldmatrix']} ret;")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]


def test_loads_of_tensor_memory_by_some_threads() -> None:
    load = "tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r40, %r41, %r42, %r43}, [%r13];"
    odd = f"and.b32 %r20, %r0, 1; setp.eq.u32 %p7, %r20, 1; @%p7 {load}"
    outcome = check(TENSOR.replace(load, odd, 1), level="practice")
    assert "PT4014" in str(outcome.findings[0])


# Masks ----------------------------------------------------------------------------------------------------

MASK = ".reg .b16 %h1; mov.u16 %h1, {mask};\n"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster{multicast}.b64 [%r8]{mask};"
COPY = """@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster; bar.sync 0;
@%p0 mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 512;
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%d0], 512, [%r8], %h1;
W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W; ret;
"""


@pytest.mark.parametrize("mask", [0, 1])
def test_a_commit_tells_the_blocks_of_its_mask(mask: int) -> None:
    """A mask without blocks tells nobody, which shows where the commit is waited for."""
    one, several = COMMIT.format(multicast="", mask=""), COMMIT.format(multicast=".multicast::cluster", mask=", %h1")
    assert one in TENSOR
    outcome = check(MASK.format(mask=mask) + TENSOR.replace(one, several), level="practice")
    assert outcome.status == ("ok" if mask else "error")
    assert mask or "PT4003" in str(outcome.findings[0])


@pytest.mark.parametrize("mask", [0, 1])
def test_a_copy_goes_to_the_blocks_of_its_mask(mask: int) -> None:
    outcome = check(MASK.format(mask=mask) + COPY, level="practice")
    assert outcome.status == ("ok" if mask else "error")
    assert mask or "PT4003" in str(outcome.findings[0])
