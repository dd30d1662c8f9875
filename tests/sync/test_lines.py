# SPDX-License-Identifier: Apache-2.0
"""Values as lines: against the values in each turn, and where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from turning_kernels import flow_of

from porter.ptx import ast
from porter.sync.lines import Line, Lines, NoLineError, Row
from porter.sync.sequences import EachTurn, NoSequenceError

PERIODS = 60
OPCODES = [
    "add.u32", "sub.s32", "add.s64", "neg.s32", "not.b32", "mov.u32", "and.b32", "and.b64", "shl.b32",
    "shr.u32", "shr.s32", "shr.u64", "mul.lo.s32", "mul.hi.u32", "mul.hi.s32", "mul.wide.u32", "mul.wide.s32",
    "mad.lo.u32", "div.u32", "rem.u32", "div.s32", "rem.s32", "min.u32", "max.s32", "min.s32", "xor.b32",
    "or.b32", "or.b64",
    "cvt.u64.u32", "cvt.s64.s32", "cvt.u32.u64",
]  # fmt: skip
NUMBERS = (1, 2, 3, 5, 12, 15, 31, 64, 240, 0x55555556, 0xAAAAAAAB, 0xFFFFFFF8, 0xFFFFFFFF)
STARTS = (0, 0, 0, 1, 7, (1 << 31) - 20, (1 << 32) - 20)
STEPS = (0, 1, 3, 6, 64, -1, -6, -64, 1 << 27)


def instruction(opcode: str) -> ast.Instruction:
    """With as many operands as it takes."""
    count = {"mad": 4, "neg": 2, "not": 2, "mov": 2, "cvt": 2}.get(opcode.partition(".")[0], 3)
    kind = ".reg .b32 %r<8>;\n.reg .b64 %d<8>;\n"
    text = f"{opcode} {', '.join(f'%r{i}' for i in range(count))};\n"
    flow = flow_of(f".version 8.7\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{{\n{kind}{text}ret;\n}}\n")
    return flow.code.code[0]


def values(row: Row, place: int) -> list[int]:
    line = row[place % len(row)]
    return [(line.first + line.step * m) % (1 << line.width) for m in range(PERIODS)]


INSTRUCTIONS = [instruction(opcode) for opcode in OPCODES]


@pytest.mark.parametrize("seed", range(4))
def test_lines_have_the_values_of_each_turn(seed: int) -> None:
    dice = Random(seed)
    compared = 0
    for _ in range(150):
        period, start = dice.choice((1, 2, 3, 6)), dice.choice(STARTS)
        each, lines = EachTurn(np.arange(period * PERIODS, dtype=np.uint64)), Lines(period, PERIODS - 1)
        counter = [start + dice.randrange(9) for _ in range(period)], dice.choice(STEPS) % (1 << 64)
        known = [(each.counted(*counter), lines.counted(*counter))]
        for _ in range(4):
            ins = dice.choice(INSTRUCTIONS)
            number = dice.choice(NUMBERS)
            pool = [known[-1], known[0], (each.number(number), lines.number(number))]
            given = [known[-1], *(dice.choice(pool) for _ in ins.operands[2:])]
            try:
                found = lines.computed(ins, [row for _, row in given])
                wanted = each.computed(ins, [row for row, _ in given])
            except (NoLineError, NoSequenceError):
                continue
            known.append((wanted, found))
            spread = np.broadcast_to(wanted, (period * PERIODS,))
            assert [values(found, p) for p in range(period)] == [spread[p::period].tolist() for p in range(period)]
            compared += 1
    assert compared > 200


TURNS = 1 << 31
LATE = {
    "a product that is too narrow": ("mul.lo.u32", [(Line(0, 2),), (Line(43691),)], "shr.u32", 17),
    "a counter beyond its register": ("add.u32", [(Line(0, 64),), (Line(1),)], "shr.u32", 6),
    "a divisor that does not divide the step": ("mov.u32", [(Line(0, 2),)], "shr.u32", 2),
}


@pytest.mark.parametrize("name", LATE)
def test_what_wraps_late_or_never_repeats_is_no_line(name: str) -> None:
    opcode, given, then, number = LATE[name]
    lines = Lines(1, TURNS)
    first: Sequence[Row] = [lines.computed(instruction(opcode), given), lines.number(number)]
    with pytest.raises(NoLineError):
        lines.computed(instruction(then), first)


def test_a_counter_of_each_turn_is_a_line_in_longer_periods() -> None:
    assert Lines(3, 9).counted((5,), 2) == (Line(5, 6), Line(7, 6), Line(9, 6))
    with pytest.raises(NoLineError):
        Lines(3, 9).counted((5, 6), 2)


def test_the_same_within_few_turns_is_one() -> None:
    lines = Lines(1, 1000)
    product = lines.computed(instruction("mul.lo.u32"), [(Line(0, 6),), lines.number(43691)])
    third = lines.computed(instruction("shr.u32"), [product, lines.number(17)])
    assert third == (Line(0, 2, 32),)
    assert lines.step(third) == 2
    with pytest.raises(NoLineError):
        Lines(1, TURNS).computed(instruction("shr.u32"), [product, lines.number(17)])
