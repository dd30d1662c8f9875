# SPDX-License-Identifier: Apache-2.0
"""Stages that a division gives: they repeat for every number that a counter can be, or are found not to."""

from __future__ import annotations

import numpy as np
import pytest
from test_turns import is_proved, runs
from turning_kernels import flow_of, launched, ring

from porter.ptx import ast
from porter.sync.checked import Verdict, check
from porter.sync.sequences import Counted, EachTurn, Values
from porter.sync.turns import find_lasso

UNIT = 1 << 14
"""What a size grows by in each turn: 131,072 turns are all that there can be."""
THIRD = "mul.hi.u32 %r30, %r10, 0xAAAAAAAB;\nshr.u32 %r31, %r30, 1;\n"
REST = "mul.lo.u32 %r32, %r31, 3;\nsub.u32 %r11, %r10, %r32;\nand.b32 %r12, %r31, 1;\n"
ODD = "and.b32 %r33, %r10, 1;\nsetp.ne.u32 %p8, %r33, 0;\nmov.u32 %r34, %r10;\n"
TWICE = THIRD.replace("%r10,", "%r34,") + "@%p8 sub.u32 %r31, %r31, 2;\n"
QUOTIENTS = {
    "by the upper half of a product": THIRD,
    "by a wide product": "mul.wide.u32 %d1, %r10, 0xAAAAAAAB;\nshr.u64 %d2, %d1, 33;\ncvt.u32.u64 %r31, %d2;\n",
    "by a division": "div.u32 %r31, %r10, 3;\n",
    "behind copies": THIRD.replace("%r10,", "%r33,").replace("mul.hi", "mov.u32 %r33, %r10;\nmul.hi"),
    "of a sum": "add.u32 %r34, %r10, 3;\n"
    + THIRD.replace("%r10,", "%r34,").replace("%r31", "%r35")
    + "sub.u32 %r31, %r35, 1;\n",
    "with two definitions": ODD + "@%p8 add.u32 %r34, %r10, 6;\n" + TWICE,
    "of the greater one": "sub.u32 %r33, %r10, 2;\nmax.s32 %r34, %r33, %r10;\n" + THIRD.replace("%r10,", "%r34,"),
}
WRONG = {
    # right up to 98,303
    "a product that is too narrow": "mul.lo.u32 %r30, %r10, 43691;\nshr.u32 %r31, %r30, 17;\n",
    "a product of 16 bits": "and.b32 %r33, %r10, 0xFFFF;\n" + THIRD.replace("%r10,", "%r33,"),
    "one of two definitions": ODD + "@%p8 and.b32 %r34, %r10, 0xFFFF;\n@%p8 add.u32 %r34, %r34, 6;\n" + TWICE,
    "another divisor from 64 turns on": "shr.u32 %r33, %r10, 6;\nadd.u32 %r33, %r33, 3;\ndiv.u32 %r31, %r10, %r33;\n",
}


def divided(quotient: str) -> str:
    """A ring of three stages whose stage and parity are computed in each turn."""
    text = ring(stages=3).replace(".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b64 %d<8>;")
    text = text.replace("shl.b32 %r13, %r11, 3;\n", quotient + REST + "shl.b32 %r13, %r11, 3;\n")
    counted = ("add.u32 %r11, %r11, 1;", "setp.eq.u32 %p5, %r11, 3;", "selp.b32 %r11, 0, %r11, %p5;")
    for line in (*counted, "selp.b32 %r18, 1, 0, %p5;", "xor.b32 %r12, %r12, %r18;"):
        assert text.count(line) == 2
        text = text.replace(line + "\n", "")
    return text


@pytest.mark.parametrize("name", QUOTIENTS)
def test_a_remainder_repeats(name: str) -> None:
    found, verdicts = runs(divided(QUOTIENTS[name]))
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found, UNIT))


@pytest.mark.parametrize("name", WRONG)
def test_one_that_goes_wrong_late_does_not(name: str) -> None:
    found, verdicts = runs(divided(WRONG[name]))
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT))


QUOTIENT = "shr.u32 %r30, %r10, 2;\nsetp.eq.u32 %p7, %r30, {};\n@%p7 bra $GO;\n"


def test_a_quotient_is_compared_near_the_first_turn() -> None:
    """The first four stages are not waited for: they are empty."""
    found, verdicts = runs(ring(stages=4, before_wait=QUOTIENT.format(0)))
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found, UNIT))


@pytest.mark.parametrize("late", [16, 25, pytest.param(250, marks=pytest.mark.slow)])
def test_one_that_is_compared_late_is_stopped(late: int) -> None:
    text = ring(stages=4, before_wait=QUOTIENT.format(late))
    found, verdicts = runs(text)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT))
    assert check(launched(flow_of(text), 4 * late + 8)).verdict is Verdict.ERROR


def test_a_quotient_that_wraps_late_is_stopped() -> None:
    """The product is taken modulo 2^32: from turn 65,536 on the stage is not waited for."""
    wraps = "mul.lo.u32 %r31, %r10, 65536;\nshr.u32 %r30, %r31, 18;\nsetp.eq.u32 %p7, %r30, 0;\n@%p7 bra $GO;\n"
    found, verdicts = runs(ring(stages=4, before_wait=wraps))
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT))


def test_a_line_is_known_for_more_turns_than_can_be_looked_at() -> None:
    found, _ = runs(divided(THIRD))
    assert is_proved(find_lasso(found, 1))


def test_more_turns_than_can_be_looked_at_are_not_all() -> None:
    """An exclusive or with bits that a counter has is no line."""
    twice = "xor.b32 %r33, %r10, 1;\nxor.b32 %r33, %r33, 1;\n"
    found, _ = runs(divided(twice + THIRD.replace("%r10,", "%r33,")))
    assert is_proved(find_lasso(found, UNIT))
    assert not is_proved(find_lasso(found, 1))


PIECES = {
    "add.u32 %r20, %r10, 7;": lambda i: i + 7, "sub.s32 %r20, 5, %r10;": lambda i: 5 - i,
    "and.b32 %r20, %r10, 12;": lambda i: i & 12, "xor.b32 %r20, %r10, 85;": lambda i: i ^ 85,
    "shl.b32 %r20, %r10, 29;": lambda i: i << 29, "shr.u32 %r20, %r10, 2;": lambda i: i >> 2,
    "shr.s32 %r20, %r10, 1;": lambda i: i >> 1, "mul.lo.s32 %r20, %r10, -3;": lambda i: i * -3,
    "mul.hi.s32 %r20, %r10, 0x55555556;": lambda i: i * 0x55555556 >> 32,
    "mad.lo.u32 %r20, %r10, 5, 9;": lambda i: i * 5 + 9, "rem.u32 %r20, %r10, 7;": lambda i: i % 7,
    "max.u32 %r20, %r10, 700;": lambda i: max(i, 700), "min.s32 %r20, %r10, -1;": lambda i: -1,
    "rem.s32 %r20, %r10, -7;": lambda i: i % 7, "div.s32 %r20, %r10, -3;": lambda i: -(i // 3),
    "neg.s32 %r20, %r10;": lambda i: -i, "not.b32 %r20, %r10;": lambda i: ~i,
}  # fmt: skip
"""Instructions with what they compute."""


HEAD = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k()
{
.reg .pred %p<2>;
.reg .b32 %r<32>;
mov.u32 %r10, 0;
$L:
"""
TURN = "\nadd.u32 %r10, %r10, 1;\nsetp.lt.u32 %p1, %r10, %r20;\n@%p1 bra $L;\nret;\n}\n"


@pytest.mark.parametrize("line", PIECES)
def test_an_instruction_computes_what_it_does(line: str) -> None:
    flow = flow_of(HEAD + line + TURN)
    (loop,) = flow.heads.values()
    at = next(i for i, ins in enumerate(flow.code.code) if ins.parts[0] == "setp")
    heads = {"%r10": Counted((0, 1, 2), 3)}
    values = Values(flow, loop, heads, {}, EachTurn(np.arange(1000, dtype=np.uint64))).of(at, ast.Reg("%r20"), 0)
    assert [v.tolist() for v in values] == [[PIECES[line](i) & 0xFFFFFFFF for i in range(1000)]]
