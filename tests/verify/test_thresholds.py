# SPDX-License-Identifier: Apache-2.0
"""Sizes at which a program does what it does at none of those that are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from porter.ptx.parser import parse_module
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.case_program import Program
from porter.verify.further import few_steps
from porter.verify.thresholds import Thresholds, UnreachedError, sizes_beyond

CASE = """version: 1
kernel: kernel.cu
entry: k
sizes: {K: 64, N: 64}
steps: {K: 16}
tensors:
  a: {dtype: f32, shape: [N, K], role: input}
  out: {dtype: f32, shape: [N, K], role: output}
launch: {grid: ["ceil_div(N, 32)", 1, 1], block: [32, 1, 1]}
params: [out, K / 16, N]
reduction: K
reference: "a"
"""
KERNEL = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 steps, .param .u32 n)
.reqntid 32
{{
.reg .pred %p<9>;
.reg .b32 %r<19>;
.reg .b64 %d<9>;
ld.param.u64 %d0, [out];
ld.param.u32 %r3, [steps];
ld.param.u32 %r4, [n];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
{ahead}
mov.u32 %r5, 0;
LOOP:
{turn}
add.u32 %r5, %r5, 1;
setp.lt.u32 %p1, %r5, %r3;
@%p1 bra LOOP;
ret;
}}
"""
CHOSEN = [{"K": 64, "N": 64}, {"K": 1072, "N": 96}]
ACT = "@%p2 st.global.u32 [%d0], %r5;"
LATE = {
    "more turns than a number": f"setp.gt.u32 %p2, %r5, 100; {ACT}",
    "one turn": f"setp.eq.u32 %p2, %r5, 100; {ACT}",
    "all but one turn": f"setp.ne.s32 %p2, %r5, 100; {ACT}",
    "a power of the turn": f"mul.lo.u32 %r6, %r5, %r5; setp.ge.u32 %p2, %r6, 10000; {ACT}",
    "a part of the turn": f"shr.u32 %r6, %r5, 3; setp.lo.u32 %p2, %r6, 12; {ACT}",
    "bits of the turn": f"and.b32 %r6, %r5, 127; setp.eq.u32 %p2, %r6, 127; {ACT}",
    "a turn of some lanes": f"add.u32 %r6, %r5, %r0; setp.le.u32 %p2, %r6, 120; {ACT}",
    "turns that are left": f"sub.u32 %r6, %r3, %r5; setp.gt.u32 %p2, %r6, 100; {ACT}",
}


@dataclass
class Given:
    """Gives a kernel that is built."""

    turn: str = ""
    ahead: str = ""

    def build(self, problem: Any, source: Path, arch: str) -> BuiltKernel:
        text = KERNEL.format(turn=self.turn, ahead=self.ahead)
        return BuiltKernel(arch, "k", parse_module(text), text)


def program(folder: Path, given: Given) -> Program:
    (folder / "kernel.cu").write_text("")
    (folder / "case.yaml").write_text(CASE)
    return Program(load_case(folder / "case.yaml"), given)


def found(folder: Path, given: Given, seconds: float = 60) -> list[Any]:
    return list(Thresholds(program(folder, given), CHOSEN, seconds).sizes())


@pytest.mark.parametrize("late", LATE)
def test_a_turn_that_no_size_comes_to(tmp_path: Path, late: str) -> None:
    (size,) = found(tmp_path, Given(LATE[late]))
    assert size["K"] // 16 > 100
    assert size["N"] == 96


@pytest.mark.parametrize("ahead", [
    "setp.gt.u32 %p2, %r3, 100;", "setp.hi.u32 %p2, %r3, 3000;",
    "mul.lo.u32 %r6, %r3, %r3; setp.gt.u32 %p2, %r6, 90000;",
])  # fmt: skip
def test_a_number_of_turns_that_no_size_has(tmp_path: Path, ahead: str) -> None:
    (size,) = found(tmp_path, Given(ahead=f"{ahead} @%p2 st.global.u32 [%d0], %r3;"))
    assert size["K"] // 16 > {"100": 100, "3000": 3000, "90000": 300}[ahead.rstrip(";").split()[-1]]


@pytest.mark.parametrize("ahead", ["setp.gt.u32 %p2, %r1, 20;", "setp.eq.u32 %p2, %r4, 1632;",
                                   "sub.u32 %r6, 40, %r1; setp.lt.s32 %p2, %r6, 8;"])  # fmt: skip
def test_a_block_that_no_size_has(tmp_path: Path, ahead: str) -> None:
    (size,) = found(tmp_path, Given(ahead=f"{ahead} @%p2 st.global.u32 [%d0], %r1;"))
    assert size["N"] > 640
    assert size["K"] == 1072


@pytest.mark.parametrize("turn", [
    "", f"setp.gt.u32 %p2, %r5, 30; {ACT}", f"and.b32 %r6, %r5, 3; setp.eq.u32 %p2, %r6, 3; {ACT}",
    f"setp.lt.u32 %p2, %r0, 7; {ACT}", f"mad.lo.u32 %r6, %r1, 32, %r0; setp.lt.u32 %p2, %r6, %r4; {ACT}",
])  # fmt: skip
def test_what_is_seen_at_the_sizes_that_are_looked_at(tmp_path: Path, turn: str) -> None:
    assert found(tmp_path, Given(turn)) == []


def test_what_there_is_no_time_for_is_said(tmp_path: Path) -> None:
    late = Given(ahead="setp.gt.u32 %p2, %r3, 50000; @%p2 st.global.u32 [%d0], %r3;")
    with pytest.raises(UnreachedError, match="the port has no time for K="):
        sizes_beyond({"port": program(tmp_path, late)}, CHOSEN, 1e-3)


FLIPS = {
    "with more turns than a number": ("setp.gt.u32 %p2, %r3, {}; @%p2 st.global.u32 [%d0], %r3;", "", [10, 11, 14, 15]),
    "with a number of turns": ("setp.eq.u32 %p2, %r3, {}; @%p2 st.global.u32 [%d0], %r3;", "", [9, 10, 13, 14]),
    "in later turns": ("", f"setp.gt.u32 %p2, %r5, {{}}; {ACT}", [11, 12, 15, 16]),
}


@pytest.mark.parametrize("name", FLIPS)
def test_where_one_of_two_programs_begins_to_do_something(tmp_path: Path, name: str) -> None:
    """Three, four and 67 turns are looked at."""
    ahead, turn, turns = FLIPS[name]
    chosen = [{"K": 16 * count, "N": 64} for count in (3, 4, 67)]
    one, other = (program(tmp_path, Given(turn.format(n), ahead.format(n))) for n in (10, 14))
    assert sizes_beyond({"original": one, "port": one}, chosen, 60, True) == []
    found = sizes_beyond({"original": one, "port": other}, chosen, 60, True)
    assert [s["K"] // 16 for s in found] == turns
    assert {s["N"] for s in found} == {64}


def test_the_block_of_a_number_comes_last_at_another_size(tmp_path: Path) -> None:
    one, other = (
        program(tmp_path, Given(ahead=f"setp.eq.u32 %p2, %r1, {n}; @%p2 st.global.u32 [%d0], %r1;")) for n in (100, 50)
    )
    assert sizes_beyond({"original": one, "port": one}, CHOSEN, 60, True, True) == []
    found = {s["N"] for s in sizes_beyond({"original": one, "port": other}, CHOSEN, 60, True, True)}
    assert {101 * 32, 51 * 32} <= found


def test_loops_of_few_turns(tmp_path: Path) -> None:
    sizes = few_steps(program(tmp_path, Given()).case)
    assert [s["K"] for s in sizes] == [16, 32, 48, 272, 0]
