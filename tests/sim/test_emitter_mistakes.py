# SPDX-License-Identifier: Apache-2.0
"""A mistake of the simulator's own is no verdict on a kernel."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from core_ptx import module_text, run

from porter.diagnostics import Code
from porter.sim import GlobalMemory, Options
from porter.sim.codegen import EMITTERS
from porter.sim.kinds import Unsupported

BODY = ".reg .b32 %r<4>; mov.u32 %r0, 1; popc.b32 %r1, %r0; ret;"
MISTAKES = [AssertionError("odd"), IndexError("list index out of range"), KeyError("u32"), ValueError("odd"),
            AttributeError("'Imm' object has no attribute 'name'"), TypeError("odd")]  # fmt: skip
MODES: tuple[Literal["functional", "checking"], ...] = ("functional", "checking")


def raising(problem: Exception) -> Any:
    def emitter(cg: Any, ins: Any) -> None:
        raise problem

    return emitter


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("problem", MISTAKES, ids=lambda p: type(p).__name__)
def test_a_mistake_of_an_emitter_is_raised(
    problem: Exception, mode: Literal["functional", "checking"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EMITTERS, "popc", raising(problem))
    with pytest.raises(type(problem)):
        run(module_text([], BODY), [], GlobalMemory(), options=Options(mode=mode))


def test_what_is_not_modelled_leaves_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EMITTERS, "popc", raising(Unsupported("not this one")))
    outcome = run(module_text([], BODY), [], GlobalMemory())
    assert outcome.status == "incomplete"
    assert outcome.findings[0].code is Code.SIM_UNKNOWN_INSTRUCTION
    assert "not this one" in str(outcome.findings[0])


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("mov.b128 %r1, %r0;", "mov.b128 of what is no vector"),
        ("mov.b128 {%rd0, %rd1}, %r0;", "mov.b128 of what is no vector"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f9x}, %rd0, %rd0, 1, 1, 1, 0, 0;",
         "register %f9x is not declared"),
    ],
)  # fmt: skip
def test_registers_that_an_instruction_cannot_take_leave_no_verdict(instruction: str, why: str) -> None:
    outcome = run(module_text([], f".reg .b64 %rd<2>; .reg .f32 %f<4>; {instruction} {BODY}"), [], GlobalMemory())
    assert outcome.status == "incomplete"
    assert why in str(outcome.findings[0])


@pytest.mark.parametrize("instruction", ["popc.b32 %r1;", "add.s32 %r1, %r0;", "cvt.rn.e9m9.f32 %r1, %r0;"])
def test_what_the_instruction_table_does_not_have_leaves_no_verdict(instruction: str) -> None:
    outcome = run(module_text([], BODY.replace("popc.b32 %r1, %r0;", instruction)), [], GlobalMemory())
    assert outcome.status == "incomplete"
    assert outcome.findings[0].code is Code.SIM_UNKNOWN_INSTRUCTION
