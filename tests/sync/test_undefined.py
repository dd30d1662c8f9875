# SPDX-License-Identifier: Apache-2.0
"""What decides an instruction and nobody has written: a register, or the shared memory that it is loaded from."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors, number, wait

from porter.sync.checked import Verdict

POINTER = number("data", 1 << 41, "u64", 8)
ALLOCATED = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3], 32;\nbar.sync 0;\n"
COLUMN = "ld.shared.b32 %r4, [%r3];\n"
# Computed from, as addresses of columns are.
LATER = COLUMN + "shl.b32 %r5, %r4, 0;\nadd.s32 %r5, %r5, 16;\nmov.b32 %r4, %r5;\n"
STORED = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r4], {%r0};\ntcgen05.wait::st.sync.aligned;\n"
FREED = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r6, 32;\n"


MASKED = COLUMN + "mov.b32 %r5, {mask};\nand.b32 %r4, %r4, %r5;\n"


@pytest.mark.parametrize("read", [COLUMN, LATER, MASKED.format(mask=0xFFFF)])
def test_columns_that_nobody_has_allocated(read: str) -> None:
    right = checked(ALLOCATED + "ld.shared.b32 %r6, [%r3];\n" + read + STORED + FREED)
    assert right.verdict in (Verdict.CLEAN, Verdict.STRICT)
    assert not errors(right)
    assert errors(checked(read + STORED)) == {"U1"}


def test_a_mask_that_leaves_nothing() -> None:
    found = checked(MASKED.format(mask=0) + STORED)
    assert found.verdict is Verdict.UNKNOWN
    assert not errors(found)


BY_OTHER = "@{guard} st.shared.b32 [%r3], 0;\n{between}ld.shared.b32 %r4, [%r3];\nbar.sync %r4, 64;\n"


@pytest.mark.parametrize("first", [True, False])
def test_an_order_in_which_it_is_read_first(first: bool) -> None:
    """The warp that stores may be executed first, or last."""
    setup = f"shr.u32 %r5, %r0, 5;\nsetp.eq.u32 %p1, %r5, {0 if first else 1};\n"
    text = setup + BY_OTHER.replace("{guard}", "%p1")
    assert not errors(checked(text.replace("{between}", "bar.sync 1, 64;\n"), 64)) - {"G8", "G1"}
    assert errors(checked(text.replace("{between}", ""), 64)) & {"U1", "G1"}


STATES = {
    "of an arrival": ("mbarrier.arrive.shared::cta.b64 %d1, [%r1];\n", Verdict.CLEAN),
    "of nothing": ("mbarrier.arrive.shared::cta.b64 _, [%r1];\n", Verdict.ERROR),
    "of another register": ("mbarrier.arrive.shared::cta.b64 _, [%r1];\nmov.b64 %d1, %d2;\n", Verdict.ERROR),
    "of memory": ("mbarrier.arrive.shared::cta.b64 _, [%r1];\nld.global.u64 %d1, [%d0];\n", Verdict.UNKNOWN),
    "of memory and more": (
        "mbarrier.arrive.shared::cta.b64 _, [%r1];\nld.global.u64 %d1, [%d0];\nadd.s64 %d1, %d1, %d2;\n",
        Verdict.UNKNOWN,
    ),
    "of a branch on data": (
        "ld.global.u32 %r5, [%d0];\nsetp.eq.u32 %p2, %r5, 0;\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n"
        "@%p2 bra BEHIND;\nmov.b64 %d1, 0;\nBEHIND:\n",
        Verdict.UNKNOWN,
    ),
    "of a guard that is data": (
        "ld.global.u32 %r5, [%d0];\nsetp.eq.u32 %p2, %r5, 0;\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n"
        "@%p2 mov.b64 %d1, 0;\n",
        Verdict.UNKNOWN,
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_the_state_that_a_wait_is_given(name: str) -> None:
    text, verdict = STATES[name]
    body = f"ld.param.u64 %d0, [data];\n@!%p0 bra OUT;\n{text}W:\n" + (
        "mbarrier.try_wait.shared::cta.b64 %p8, [%r1], %d1;\n@!%p8 bra W;\nOUT:\n"
    )
    found = checked(body, parameters=POINTER)
    assert found.verdict is verdict, found
    assert verdict is not Verdict.ERROR or errors(found) == {"register"}


def test_only_the_lanes_that_nothing_is_written_in() -> None:
    """Lane 0 has a state, the others have none, and all wait."""
    body = "@%p0 mbarrier.arrive.shared::cta.b64 %d1, [%r1];\nbar.warp.sync -1;\nW:\n"
    body += "{guard}mbarrier.try_wait.shared::cta.b64 %p8, [%r1], %d1;\n@!%p8 bra W;\n"
    assert errors(checked(body.replace("{guard}", ""))) == {"register"}
    alone = body.replace("W:\n", "@!%p0 bra OUT;\nW:\n").replace("{guard}", "") + "OUT:\n"
    assert not errors(checked(alone))


def test_what_is_stored_decides_nothing() -> None:
    """An address that is data is not understood, whatever is stored there."""
    body = "ld.param.u64 %d0, [data];\nld.global.u32 %r5, [%d0];\nst.shared.b32 [%r5], %r9;\n"
    found = checked(body, parameters=POINTER)
    assert found.verdict is Verdict.UNKNOWN
    assert not found.findings


def test_memory_that_a_store_to_an_unknown_place_may_have_written() -> None:
    body = "ld.param.u64 %d0, [data];\nld.global.u64 %d1, [%d0];\nst.b32 [%d1], 0;\n" + COLUMN + STORED
    found = checked(body, parameters=POINTER)
    assert found.verdict is Verdict.UNKNOWN
    assert not errors(found)


# Lane 0 waits for the phase that is over, and ends the next one, which the others wait for.
PHASES = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\nbar.warp.sync -1;\nselp.b32 %r4, 0, 1, %p0;\n"
NEXT = "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"


@pytest.mark.parametrize("behind", [NEXT, ""])
def test_lanes_wait_for_phases_of_their_own(behind: str) -> None:
    found = checked(PHASES + wait("%r1", "%r4", "W") + behind)
    assert not found.unknown
    assert ("deadlock" in errors(found)) is not bool(behind)
