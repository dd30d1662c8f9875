# SPDX-License-Identifier: Apache-2.0
"""Instructions at random: bytes that have one word are the same number whatever the inputs are, and a byte that is a
number is this one. Which numbers come out is computed apart from words, by what decides about control."""

from __future__ import annotations

import random
import re
from collections import defaultdict

import numpy as np
import pytest
from written import left

FIRST, INPUTS, LINES, RUNS = 10, 4, 12, 6
SPECIAL = (
    0,
    1,
    4,
    7,
    8,
    12,
    16,
    24,
    31,
    32,
    40,
    255,
    0xFF00,
    0xFFFF,
    1 << 16,
    1 << 24,
    0x7610,
    0x9180,
    1 << 31,
    -1,
    -128,
)
EDGES = (0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x80, 0xFF, 0x8000, 0xFFFF, 0xFF00FF, 0x12345678, 0xFEDCBA98)
SHAPES = (
    "(and.b32|or.b32|xor.b32|add.s32|sub.s32|mul.lo.s32|mul.hi.u32|min.s32|max.u32) D, R, S;",
    "(not.b32|neg.s32|cvt.s8.s32|cvt.u8.s32|cvt.s16.u32|cvt.u32.s8|cvt.s32.u16|cvt.u32.s16) D, R;",
    "lop3.b32 D, R, S, S, T;",
    "(shl.b32|shr.u32|shr.s32) D, R, S;",
    "shf.(l|r).(wrap|clamp).b32 D, R, R, S;",
    "prmt.b32 D, R, S, S;",
    "bfe.(u32|s32) D, R, S, S;",
    "bfi.b32 D, R, R, S, S;",
    "mad.lo.s32 D, R, S, S;",
    "setp.(lt|le|gt|ge|eq|ne).(s32|u32) %p1, R, S;\nselp.b32 D, S, S, %p1;",
    "setp.(lo|ls|hi|hs).u32 %p1|%p2, R, S;\nselp.b32 D, S, S, (%p1|%p2);",
    "setp.(lt|eq).s32 %p1, R, S;\nsetp.(gt|ne).(and|or|xor).s32 %p2, R, S, (%p1|!%p1);\nselp.b32 D, S, S, %p2;",
    "cvt.(s64.s32|u64.u32) %d9, R;\nmul.wide.(s32|u32) %d8, R, S;\n(add.s64|or.b64) %d9, %d9, %d8;\n"
    "(shr.u64|shr.s64|shl.b64) %d9, %d9, (8|16|32|63);\ncvt.u32.u64 D, %d9;",
    "mov.b32 {%h1, %h2}, R;\n(shl.b16|shr.s16|add.s16|mul.lo.s16) %h1, %h1, 8;\nmov.b32 D, {%h2, %h1};",
    "st.shared.b32 [room], R;\nld.shared.(s8|u8|s16|u16) D, [room];",
    "mov.u32 D, R;\nsetp.gt.s32 %p1, R, S;\n@%p1 (mov.u32|not.b32) D, R;",
)


def _operand(dice: random.Random, letter: str, number: int) -> str:
    """D: the register that is made, R: one that is there, S: that or a number, T: a table of three bits."""
    if letter == "T":
        return str(dice.randrange(256))
    if letter == "S" and dice.random() < 0.6:
        return str(dice.choice(SPECIAL))
    return f"%r{number if letter == 'D' else dice.randrange(FIRST, number)}"


def _lines(dice: random.Random) -> list[str]:
    found = []
    for number in range(FIRST + INPUTS, FIRST + INPUTS + LINES):
        text = re.sub(r"\(([^()]*)\)", lambda ways: dice.choice(ways[1].split("|")), dice.choice(SHAPES))
        found.append("".join(_operand(dice, c, number) if c in "DRST" else c for c in text))
    return found


def _left(lines: list[str], inputs: list[int] | None = None) -> np.ndarray:
    """The words [registers, 4] of inputs, data where they are no numbers, and of what lines make of them."""
    given = [f"mov.b32 %r{FIRST + i}, {f'%f{i}' if inputs is None else inputs[i]};" for i in range(INPUTS)]
    stores = [f"st.global.b32 [%d1+{64 * i}], %r{FIRST + i};" for i in range(INPUTS + LINES)]
    return left("\n".join([*given, *lines, *stores, ""]), threads=1).words.reshape(-1, 4)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 80))])
def test_one_word_is_one_number(seed: int) -> None:
    dice = random.Random(seed)
    lines = _lines(dice)
    words, places = _left(lines), defaultdict(list)
    for place, word in np.ndenumerate(words):
        places[int(word)].append(place)
    for _ in range(RUNS):
        inputs = [dice.choice(EDGES) if dice.random() < 0.6 else dice.getrandbits(32) for _ in range(INPUTS)]
        found = _left(lines, inputs)
        for word, of_word in places.items():
            numbers = {int(found[place]) for place in of_word if found[place] < 256}
            assert len(numbers) < 2, (lines, inputs, of_word)
            assert word >= 256 or numbers <= {word}, (lines, inputs, of_word)
