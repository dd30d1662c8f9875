# SPDX-License-Identifier: Apache-2.0
"""Floats of a launch: comparisons with NaN, zeros of both signs and subnormals, products, and wider types."""

from __future__ import annotations

import struct

import pytest

from porter.facts import integers
from porter.facts.floats import bits_of, operation

NAN, SUBNORMAL, LEAST = 0x7FC00000, 0x00000001, 0x00800000


def f32(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


@pytest.mark.parametrize(
    ("opcode", "left", "right", "wanted"),
    [
        ("setp.eq.f32", f32(0.0), f32(-0.0), 1),
        ("setp.neu.f32", f32(1.5), f32(0.0), 1),
        ("setp.neu.f32", NAN, NAN, 1),
        ("setp.ne.f32", NAN, f32(1.0), 0),
        ("setp.ltu.f32", NAN, f32(1.0), 1),
        ("setp.lt.f32", f32(-2.0), f32(-1.0), 1),
        ("setp.gt.f32", SUBNORMAL, 0, 1),
        ("setp.gt.ftz.f32", SUBNORMAL, 0, 0),
        ("setp.gt.ftz.f32", LEAST, 0, 1),
        ("setp.num.f32", f32(1.0), NAN, 0),
        ("setp.nan.f32", f32(1.0), NAN, 1),
        ("setp.lt.f16", 0xBC00, 0x3C00, 1),
        ("setp.lt.bf16", 0xBF80, 0x3F80, 1),
        ("setp.gt.f64", 0x3FF0000000000000, 0xBFF0000000000000, 1),
        ("mul.f32", f32(1 / 3), f32(3.0), f32(1.0)),
        ("mul.rn.f32", f32(-0.0), f32(2.0), f32(-0.0)),
        ("mul.f32", LEAST, f32(0.5), 0x00400000),
        ("mul.ftz.f32", LEAST, f32(0.5), 0),
        ("mul.f32", f32(3e38), f32(10.0), 0x7F800000),
        ("add.f32", f32(16777216.0), f32(1.0), f32(16777216.0)),
        ("add.rn.f32", f32(0.5), f32(-0.5), f32(0.0)),
        ("add.ftz.f32", LEAST, LEAST | 1 << 31 | 1, f32(-0.0)),
        ("sub.f32", f32(1.0), f32(0.25), f32(0.75)),
        ("sub.f64", 0x3FF0000000000000, 0x3FF0000000000000, 0),
    ],
)
def test_of_two(opcode: str, left: int, right: int, wanted: int) -> None:
    found = operation(tuple(opcode.split(".")))
    assert found is not None
    assert found(left, right) == wanted


@pytest.mark.parametrize(
    ("opcode", "given", "wanted"),
    [
        ("cvt.rn.f32.s32", -3 & 0xFFFFFFFF, f32(-3.0)),
        ("cvt.rn.f32.u32", 0xFFFFFFFD, f32(4294967293.0)),
        ("cvt.rn.f32.s32", 16777217, f32(16777216.0)),
        ("cvt.rn.f32.s64", -(1 << 40) & (1 << 64) - 1, f32(-(2.0**40))),
        ("cvt.rn.f32.s64", (1 << 60) + 1, None),
        ("cvt.rn.f64.u16", 0xFFFF, 0x40EFFFE000000000),
        ("cvt.rn.f16.s32", 0, 0),
        ("cvt.rn.f16.s32", -2 & 0xFFFFFFFF, 0xC000),
        ("cvt.rn.f16.u32", 2049, 0x6800),
        ("cvt.rn.f16.u32", 65520, 0x7C00),
        ("cvt.rn.bf16.s32", 1, 0x3F80),
        ("cvt.rn.bf16.u32", 257, 0x4380),
        ("cvt.rn.bf16.u32", 259, 0x4382),
        ("cvt.rn.bf16.u32", (1 << 24) + 1, None),
        ("cvt.rn.f16.f32", f32(1 + 2.0**-11), 0x3C00),
        ("cvt.rn.f16.f32", f32(1 + 3 * 2.0**-11), 0x3C02),
        ("cvt.rn.f16.f32", f32(2.0**-24), 1),
        ("cvt.rn.f16.f32", f32(-0.0), 0x8000),
        ("cvt.rn.bf16.f32", f32(1 + 2.0**-8), 0x3F80),
        ("cvt.rn.bf16.f32", f32(3.4e38), 0x7F80),
        ("cvt.rn.bf16.f32", 0x7FC00000, None),
        ("cvt.rn.f32.f64", 0x3FF0000010000000, f32(1.0)),
    ],
)
def test_rounded_to_the_nearest(opcode: str, given: int, wanted: int | None) -> None:
    found = operation(tuple(opcode.split(".")))
    assert found is not None
    assert found(given) == wanted


@pytest.mark.parametrize("opcode", ["cvt.rz.f32.s32", "cvt.rn.ftz.f32.s32", "cvt.rni.s32.f32", "cvt.rn.sat.f32.s32"])
def test_what_is_no_such_conversion(opcode: str) -> None:
    assert operation(tuple(opcode.split("."))) is None


def test_with_a_predicate() -> None:
    found = operation(("setp", "lt", "and", "f32"))
    assert found is not None
    assert [found(f32(1.0), f32(2.0), p) for p in (0, 1)] == [0, 1]


def test_copies() -> None:
    copy, choice = integers.operation(("mov", "f32")), integers.operation(("selp", "f32"))
    assert copy is not None
    assert choice is not None
    assert copy(f32(-0.0)) == f32(-0.0)
    assert [choice(1, 2, p) for p in (0, 1)] == [2, 1]


def test_wider_types_are_exact() -> None:
    for opcode, bits, wanted in (("cvt.f32.f16", 0x0001, f32(2.0**-24)), ("cvt.f32.bf16", 0x3FC0, f32(1.5)),
                                 ("cvt.f64.f32", f32(1.0), 0x3FF0000000000000)):  # fmt: skip
        found = operation(tuple(opcode.split(".")))
        assert found is not None
        assert found(bits) == wanted


@pytest.mark.parametrize(
    "opcode", ["cvt.rz.f16.f32", "mul.rz.f32", "fma.rn.f32", "add.rz.f32", "sub.sat.f32", "setp.lt.f16x2"]
)
def test_what_nobody_computes(opcode: str) -> None:
    assert operation(tuple(opcode.split("."))) is None


def test_constants() -> None:
    assert bits_of(1.0, "f32") == bits_of(1.0, "b32") == 0x3F800000
    assert bits_of(1.0, "f64") == 0x3FF0000000000000
    assert bits_of(1.0, "f16") is None
    assert bits_of(float("nan"), "f32") is None
