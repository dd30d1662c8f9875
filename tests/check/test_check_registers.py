# SPDX-License-Identifier: Apache-2.0
"""Registers of wgmma and tcgen05.st, and the life of Tensor Memory, in checking mode."""

from __future__ import annotations

import pytest
from check_ptx import A_DESC, B_DESC, FILL, VERSION, check, found

from porter.sim.check.rulings import Ruling

DESCRIPTORS = f"""shr.u32 %r3, %r2, 4; cvt.u64.u32 %d7, %r3; or.b64 %d7, %d7, {A_DESC ^ VERSION};
add.u32 %r3, %r2, 2048; shr.u32 %r3, %r3, 4; cvt.u64.u32 %d8, %r3; or.b64 %d8, %d8, {B_DESC ^ VERSION};
fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p3, 0, 1;
"""
FENCE = "wgmma.fence.sync.aligned;\n"
SS = """wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
{%r40, %r41, %r42, %r43}, %d7, %d8, %p3, 1, 1, 0, 0;
"""
RS = """wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
{%r40, %r41, %r42, %r43}, {%r44, %r45, %r46, %r47}, %d8, %p3, 1, 1, 0;
"""
DONE = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
ZERO = "mov.b32 %r40, 0; mov.b32 %r41, 0; mov.b32 %r42, 0; mov.b32 %r43, 0;\n"
SCALE = "mul.f32 %r41, %r41, 0f40000000;\n"


def wgmma(*steps: str) -> set[str]:
    outcome = check(FILL + DESCRIPTORS + "".join(steps) + "ret;", "sm_90a")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return found(outcome)


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ((ZERO, FENCE, SS, SS, DONE), set()),
        ((ZERO, SS, DONE), {"H29"}),
        ((SS, DONE), {"H29"}),
        ((FENCE, ZERO, SS, DONE), {"H29"}),
        # Rescaled between two groups.
        ((ZERO, FENCE, SS, DONE, SCALE, FENCE, SS, DONE), set()),
        ((ZERO, FENCE, SS, DONE, SCALE, SS, DONE), {"H29"}),
        # Nothing of it is written between.
        ((ZERO, FENCE, SS, DONE, "add.u32 %r50, %r40, %r41;\n", SS, DONE), set()),
        # A in registers.
        ((ZERO, "mov.b32 %r44, %r4; mov.b32 %r45, %r5;\n", FENCE, RS, DONE), set()),
        ((ZERO, FENCE, "add.u32 %r45, %r4, 1;\n", RS, DONE), {"H29"}),
        # By way of a copy, which compilers put anywhere.
        ((ZERO, "add.u32 %r60, %r4, 1;\n", FENCE, "mov.b32 %r45, %r60;\n", RS, DONE), set()),
        ((ZERO, FENCE, "add.u32 %r60, %r4, 1; mov.b32 %r45, %r60;\n", RS, DONE), {"H29"}),
        # In a branch, and around a loop.
        ((ZERO, FENCE, "setp.eq.u32 %p7, %r1, 9; @%p7 bra OVER;\n", SCALE, "OVER:\n", SS, DONE), {"H29"}),
        ((ZERO, "mov.u32 %r61, 0;\n", FENCE, "L:\n", SS, DONE, SCALE, "add.u32 %r61, %r61, 1;",
          "setp.lt.u32 %p7, %r61, 2; @%p7 bra L;\n"), {"H29"}),
    ],
)  # fmt: skip
def test_wgmma_needs_a_fence_after_its_registers_are_written(steps: tuple[str, ...], wanted: set[str]) -> None:
    assert wgmma(*steps) == wanted


def test_registers_are_watched_in_every_wave_of_blocks() -> None:
    """Later waves run the code that was compiled for the first."""
    steps = (ZERO, FENCE, SS, DONE, SCALE, SS, DONE)
    outcome = check(FILL + DESCRIPTORS + "".join(steps) + "ret;", "sm_90a", grid=3, resident=1)
    assert outcome.status == "ok"
    assert [(h.kind.id, h.count) for h in outcome.hazards if h.severity == "error"] == [("H29", 12)]


COMMIT, WAIT = "wgmma.commit_group.sync.aligned;\n", "wgmma.wait_group.sync.aligned 0;\n"
HALVES = "{.reg .b16 %h<2>; mov.b32 {%h0, %h1}, %r41; mov.b32 %r50, {%h1, %h0};}\n"


@pytest.mark.parametrize(
    ("use", "wanted"),
    [
        ("add.u32 %r50, %r41, 1;\n", {"H29"}),
        # Halves of a register are no copy of it.
        (HALVES, {"H29"}),
        (HALVES.replace("%r41", "%r50"), set()),
        ("{.reg .b16 %h<2>; mov.b32 {%h0, %h1}, %r50; mov.b32 %r41, {%h1, %h0};}\n", {"H29"}),
        ("{.reg .b64 %q; mov.b64 %q, {%r40, %r41};}\n", {"H29"}),
        # Compilers make copies anywhere.
        ("mov.b32 %r50, %r41;\n", set()),
    ],
)
def test_an_accumulator_is_used_before_its_group_is_waited_for(use: str, wanted: set[str]) -> None:
    assert wgmma(ZERO, FENCE, SS, COMMIT, use, WAIT) == wanted
    assert wgmma(ZERO, FENCE, SS, COMMIT, WAIT, use) == set()


ALLOC = """@!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 64;
NOALLOC: bar.sync 0; tcgen05.fence::after_thread_sync; ld.shared.u32 %r10, [%r9];
shl.b32 %r13, %r1, 21; add.u32 %r13, %r13, %r10;
"""
ST = "tcgen05.st.sync.aligned.16x256b.x1.b32 [%r13], {%r4, %r5, %r6, %r7};\n"
WAIT_ST = "tcgen05.wait::st.sync.aligned;\n"
FREE = """tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync; @!%p1 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64;
END: ret;
"""
CHANGE = "add.u32 %r5, %r5, 1;\n"


def test_sources_of_a_store_under_way_are_for_review() -> None:
    """The ISA does not say when tcgen05.st has read its registers."""
    for steps, doubtful in (((ST, WAIT_ST, CHANGE), False), ((ST, CHANGE, WAIT_ST), True)):
        outcome = check(ALLOC + "".join(steps) + FREE)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        assert not found(outcome)
        assert found(outcome, "review") == ({"H30"} if doubtful else set())
        assert {h.ruling for h in outcome.hazards if h.severity == "review"} <= {Ruling.STORE_SOURCES}
        assert not check(ALLOC + "".join(steps) + FREE, level="practice").hazards


# The life of Tensor Memory: these end the run, in either mode.

AGAIN = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32;"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64;"
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (f"@!%p1 bra X; {RELINQUISH} {AGAIN} X: bar.sync 0;" + FREE, "PT4006"),
        ("@!%p1 bra X; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32; X: ret;", "PT4006"),
        (f"@!%p1 bra X; {DEALLOC} {DEALLOC} X: ret;", "PT4006"),
        ("ret;", "PT4008"),
        (f"bar.sync 0; @!%p1 bra X; {DEALLOC} X: bar.sync 0; {ST} {WAIT_ST} ret;", "PT4007"),
        (f"add.u32 %r13, %r13, 62; {ST} {WAIT_ST}" + FREE, "PT4007"),
        # H28: the lanes of the next warp.
        ("add.u32 %r14, %r1, 1; and.b32 %r14, %r14, 3; shl.b32 %r14, %r14, 21; add.u32 %r13, %r14, %r10;" + ST + FREE,
         "PT4009"),
        ("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
         "@!%p1 bra X; tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r10, 64; X: ret;", "PT4006"),
    ],
    ids=["alloc after relinquish", "wrong size", "twice", "leak", "after dealloc", "bounds", "lane quarter",
         "mixed cta_group"],
)  # fmt: skip
def test_the_life_of_tensor_memory(body: str, code: str) -> None:
    outcome = check(ALLOC + body)
    assert outcome.status == "error"
    assert outcome.findings[0].code.id == code, str(outcome.findings[0])


def test_an_allocation_size_that_is_no_power_of_two() -> None:
    outcome = check(ALLOC.replace("[%r9], 64", "[%r9], 48") + FREE)
    assert outcome.findings[0].code.id == "PT4006"
