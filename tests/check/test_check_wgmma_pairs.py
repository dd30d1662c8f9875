# SPDX-License-Identifier: Apache-2.0
"""Registers that two wgmma use, and registers of A that change while a wgmma reads them (PTX ISA 9.7.15.7)."""

from __future__ import annotations

import pytest
from check_ptx import FILL, check, found
from test_check_registers import COMMIT, DESCRIPTORS, FENCE, RS, SS, WAIT

from porter.sim.check.hazard import Level
from porter.sim.check.rulings import Ruling

ZERO = "".join(f"mov.b32 %r{i}, 0; " for i in range(40, 56)) + "\n"
DONE = COMMIT + WAIT


def product(shape: str, results: range, inputs: range | None = None) -> str:
    """A wgmma of f16 on registers of these numbers; its A in shared memory where there are no inputs."""
    d, a = (", ".join(f"%r{i}" for i in r or ()) for r in (results, inputs))
    rest = f"{{{a}}}, %d8, %p3, 1, 1, 0" if inputs else "%d7, %d8, %p3, 1, 1, 0, 0"
    return f"wgmma.mma_async.sync.aligned.{shape}.f32.f16.f16 {{{d}}}, {rest};\n"


WIDE = product("m64n16k16", range(40, 48))
FEEDS = product("m64n8k16", range(50, 54), range(40, 44))
OVER_A = product("m64n8k16", range(44, 48))
BYTES = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%r40, %r41, %r42, %r43}, %d7, %d8, %p3, 1, 1;\n"
LOOP = "mov.u32 %r61, 0;\nL:\n{body}add.u32 %r61, %r61, 1; setp.lt.u32 %p7, %r61, 3; @%p7 bra L;\n"


def hazards(steps: tuple[str, ...], level: Level) -> list[tuple[str, str, Ruling | None]]:
    outcome = check(FILL + DESCRIPTORS + ZERO + "".join(steps) + "ret;", "sm_90a", level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return [(h.kind.id, h.severity, h.ruling) for h in outcome.hazards]


RIGHT = {
    "one shape": (FENCE, SS, SS, DONE),
    "one shape in two groups": (FENCE, SS, COMMIT, SS, DONE),
    "one shape in a loop": (FENCE, LOOP.format(body=SS + COMMIT), WAIT),
    "A of both": (FENCE, RS, RS, DONE),
    "A of two shapes": (FENCE, RS, product("m64n16k16", range(20, 28), range(44, 48)), DONE),
    "another shape, waited for and fenced": (FENCE, SS, DONE, FENCE, WIDE, DONE),
    "other registers": (FENCE, SS, product("m64n16k16", range(44, 52)), DONE),
    "a result as A, waited for and fenced": (FENCE, SS, DONE, FENCE, FEEDS, DONE),
    "an older group waited for": (
        FENCE, SS, COMMIT, OVER_A, COMMIT, "wgmma.wait_group.sync.aligned 1;\n", FENCE, FEEDS, DONE,
    ),
    "A changed when it has been read": (FENCE, RS, DONE, "add.u32 %r45, %r4, 1;\n", FENCE, RS, DONE),
    "A read by others": (FENCE, RS, COMMIT, "add.u32 %r50, %r45, 1;\n", WAIT),
    "each turn of a loop": (LOOP.format(body=FENCE + SS + DONE + FENCE + WIDE + DONE),),
}  # fmt: skip


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("name", RIGHT)
def test_registers_that_two_wgmma_may_use(name: str, level: Level) -> None:
    assert hazards(RIGHT[name], level) == []


WRONG = {
    "another shape": (FENCE, SS, WIDE, DONE),
    "the narrower one second": (FENCE, WIDE, SS, DONE),
    "another shape in a group of its own": (FENCE, SS, COMMIT, WIDE, DONE),
    "a result as A": (FENCE, SS, FEEDS, DONE),
    "a result as A, fenced but not waited for": (FENCE, SS, COMMIT, FENCE, FEEDS, DONE),
    "the group after it waited for": (FENCE, OVER_A, COMMIT, SS, COMMIT, "wgmma.wait_group.sync.aligned 1;\n", FENCE,
                                      FEEDS, DONE),
    "A overwritten by the next": (FENCE, RS, OVER_A, DONE),
    "the next turn of a loop": (FENCE, LOOP.format(body=SS + WIDE + COMMIT), WAIT),
    "A changed while it is read": (FENCE, RS, COMMIT, "add.u32 %r45, %r4, 1;\n", WAIT),
    "A loaded while it is read": (FENCE, RS, COMMIT, "ld.shared.u32 %r46, [%r2];\n", WAIT),
    "A loaded ahead of the commit": (FENCE, RS, "ld.shared.v2.u32 {%r44, %r45}, [%r2];\n", DONE),
}  # fmt: skip


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("name", WRONG)
def test_registers_that_they_may_not(name: str, level: Level) -> None:
    assert set(hazards(WRONG[name], level)) == {("H29", "error", None)}


# One of the two that the text asks for is there.
HALF = {
    "fenced alone": (FENCE, SS, FENCE, WIDE, DONE),
    "waited for alone": (FENCE, SS, DONE, WIDE, DONE),
    "A overwritten behind a fence": (FENCE, RS, FENCE, OVER_A, DONE),
    "a result as A, waited for alone": (FENCE, SS, DONE, FEEDS, DONE),
    "one fragment, another K": (FENCE, SS, BYTES, DONE),
}


@pytest.mark.parametrize("name", HALF)
def test_what_only_the_letter_forbids(name: str) -> None:
    assert set(hazards(HALF[name], "practice")) == {("H29", "review", Ruling.WGMMA_REGISTERS)}
    assert found(check(FILL + DESCRIPTORS + ZERO + "".join(HALF[name]) + "ret;", "sm_90a")) == {"H29"}


def test_it_is_found_in_every_wave_of_blocks() -> None:
    body = FILL + DESCRIPTORS + ZERO + "".join(WRONG["another shape"]) + "ret;"
    outcome = check(body, "sm_90a", grid=3, resident=1)
    assert [(h.kind.id, h.count) for h in outcome.hazards] == [("H29", 12)]
