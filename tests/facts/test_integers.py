# SPDX-License-Identifier: Apache-2.0
"""Integer instructions as functions: against what the PTX ISA says, and against the simulator's own."""

from __future__ import annotations

import pytest

from porter.facts.integers import operation
from porter.facts.values import ALL, apply, merged, squeezed

LOW = 0xFFFFFFFF
COMPUTED = [
    ("add.s32", (LOW, 2), 1),
    ("sub.s32", (1, 2), LOW),
    ("mul.lo.s32", (LOW, 3), LOW - 2),
    ("mul.hi.u32", (1 << 31, 6), 3),
    ("mul.hi.s32", (LOW, 1 << 30), LOW),
    ("mul.wide.u32", (LOW, 2), 2 * LOW),
    ("mul.wide.s32", (LOW, 2), (1 << 64) - 2),
    ("mad.lo.s32", (3, 4, LOW), 11),
    ("mad.wide.u32", (LOW, 2, 5), 2 * LOW + 5),
    ("div.s32", (LOW - 6, 2), LOW - 2),
    ("rem.s32", (LOW - 6, 2), LOW),
    ("div.u32", (7, 0), None),
    ("shl.b32", (1, 31), 1 << 31),
    ("shl.b32", (1, 32), 0),
    ("shr.u32", (1 << 31, 31), 1),
    ("shr.s32", (1 << 31, 31), LOW),
    ("shr.s32", (1 << 31, 99), LOW),
    ("bfi.b32", (0b101, 0, 4, 3), 0b1010000),
    ("bfe.u32", (0xF0, 4, 4), 0xF),
    ("bfe.s32", (0xF0, 4, 4), LOW),
    ("lop3.b32", (0b1100, 0b1010, 0b1111, 0x80), 0b1000),
    ("lop3.b32", (0b1100, 0b1010, 0, 0x3C), 0b0110),
    ("shf.l.wrap.b32", (1 << 31, 1, 1), 3),
    ("shf.r.clamp.b32", (1, 1, 40), 1),
    ("prmt.b32", (0x33221100, 0x77665544, 0x0123), 0x00112233),
    ("prmt.b32", (0x80, 0, 0x8888), LOW),
    ("popc.b32", (0xFF,), 8),
    ("clz.b32", (1,), 31),
    ("bfind.u32", (0x10,), 4),
    ("bfind.u32", (0,), LOW),
    ("bfind.shiftamt.u32", (0x10,), 27),
    ("bfind.shiftamt.u32", (0,), LOW),
    ("bfind.shiftamt.s32", (LOW,), LOW),
    ("brev.b32", (0b110,), 0b011 << 29),
    ("abs.s32", (LOW,), 1),
    ("not.b32", (0,), LOW),
    ("not.pred", (1,), 0),
    ("cvt.u64.s32", (LOW,), (1 << 64) - 1),
    ("cvt.u64.u32", (LOW,), LOW),
    ("cvt.u32.u64", (1 << 32 | 7,), 7),
    ("cvt.s32.s8", (0xFF,), LOW),
    ("selp.b32", (1, 2, 0), 2),
    ("setp.lt.s32", (LOW, 0), 1),
    ("setp.lt.u32", (LOW, 0), 0),
    ("setp.lo.u32", (0, LOW), 1),
    ("setp.ge.and.s32", (1, 0, 0), 0),
    ("setp.ge.or.s32", (0, 1, 1), 1),
    ("min.s32", (LOW, 1), LOW),
    ("max.u32", (LOW, 1), LOW),
]


@pytest.mark.parametrize(("opcode", "given", "result"), COMPUTED)
def test_what_an_instruction_computes(opcode: str, given: tuple[int, ...], result: int | None) -> None:
    function = operation(tuple(opcode.split(".")))
    assert function is not None
    assert function(*given) == result


@pytest.mark.parametrize("opcode", ["add.rz.f32", "cvt.rz.f32.s32", "cvt.u32.f32", "add.sat.s32", "ex2.approx.f32"])
def test_what_is_no_integer_is_not_known(opcode: str) -> None:
    assert operation(tuple(opcode.split("."))) is None


def test_lanes_are_computed_each_for_itself() -> None:
    lanes = tuple(range(32))
    assert apply(("add", "s32"), [lanes, 1], ALL) == tuple(range(1, 33))
    assert apply(("and", "b32"), [lanes, 0], ALL) == 0
    assert apply(("add", "s32"), [lanes, None], ALL) is None
    assert apply(("and", "pred"), [None, 0], ALL) == 0
    assert apply(("or", "pred"), [None, 1], ALL) == 1
    assert apply(("and", "pred"), [None, 1], ALL) is None
    assert apply(("selp", "b32"), [7, None, 1], ALL) == 7


def test_lanes_that_agree_are_one_number() -> None:
    assert squeezed((3,) * 32, ALL) == 3
    assert squeezed((3, 4) * 16, 0b101) == 3
    assert merged(1, 2, 0b1, 0b1) == 2
    assert merged(1, 2, 0b1, 0b11) == (2,) + (1,) * 31
