# SPDX-License-Identifier: Apache-2.0
"""Recorded words of block-scaled tcgen05.mma, and the rule of packed 4-bit operands in whole numbers.

The words were recorded on a B200 by sf-tensor/tcgen05 (MIT, tcgen05_model/validation.py), which says how their
inputs are drawn; the reference of the rule follows its MODEL.md §5.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from porter.ptx.block_scale import ScaleType
from porter.ptx.mma_numerics import FourBitRule, dot_rule, four_bit_rule
from porter.ptx.types import ElementType as T
from porter.sim.datapath.four_bit import decode_scales, four_bit_dot
from porter.sim.datapath.mma_arith import decode_accumulator, fused_dot
from porter.sim.datapath.operands import decode

UE8M0, UE4M3 = ScaleType.UE8M0, ScaleType.UE4M3
Case = tuple[ScaleType, list[int], list[int], int, list[int], list[int]]


def finite_f32(rng: random.Random) -> int:
    word = rng.getrandbits(32)
    return word & 0x807FFFFF if word & 0x7F800000 == 0x7F800000 else word


def draw(rng: random.Random, count: int, *limits: int) -> list[int]:
    return [rng.randrange(*limits) for _ in range(count)]


def nibbles(text: str) -> list[int]:
    return [int(digit, 16) for digit in text]


def recorded() -> list[tuple[Case, int]]:
    found: list[tuple[Case, int]] = []
    rng = random.Random(700)
    for word in (0x4429730B, 0xC30545D3):
        a, b, c = draw(rng, 64, 16), draw(rng, 64, 16), finite_f32(rng)
        found.append(((UE4M3, a, b, c, draw(rng, 4, 0x77), draw(rng, 4, 0x77)), word))
    for seed, count, word in ((920, 2, 0x46BA8000), (921, 2, 0x40580000), (922, 4, 0xC6A88896)):
        rng = random.Random(seed)
        a, b = draw(rng, 64, 16), draw(rng, 64, 16)
        found.append(((UE8M0, a, b, 0, draw(rng, count, 115, 140), draw(rng, count, 115, 140)), word))
    found.append(((UE4M3, [1] * 64, [1] * 64, 0, [0x7F, 0x38, 0x38, 0x38], [0x38] * 4), 0x7FFFFFFF))
    # Products truncated one by one, not in fours, lose the carry of this one.
    carry_a = nibbles("eeb608f9ab39f7e02615a8647c6b1c6dbb86c8c5041f16f52465a7b701adbfe7")
    carry_b = nibbles("6cb289b43d299c187263d29a59f5a8608dd2cc52834ff11aba5bf3bea571178a")
    scales = [0x09, 0x7C, 0x6D, 0x44], [0x07, 0x78, 0x26, 0x79]
    found.append(((UE4M3, carry_a, carry_b, 0x094E5986, *scales), 0x49FCAFB7))
    return found


def model(case: Case, rule: FourBitRule | None = None, mode: str = "exact") -> int:
    scale_type, a, b, c, scales_a, scales_b = case
    rows = [decode(np.array([codes], np.uint8), T.E2M1) for codes in (a, b)]
    factors = [decode_scales(np.array([codes], np.uint8), scale_type) for codes in (scales_a, scales_b)]
    start = decode_accumulator(np.array([[c]], np.uint32), T.F32)
    rule = rule or four_bit_rule(scale_type is UE4M3, False)
    return int(four_bit_dot(*rows, *factors, start, rule, scale_type, mode)[0, 0])


@pytest.mark.parametrize("case", range(len(recorded())))
def test_recorded_words(case: int) -> None:
    inputs, word = recorded()[case]
    assert model(inputs) == word, hex(model(inputs))


@pytest.mark.parametrize("changes", [{"window": 20, "scale_window": 16}, {"merge": 1}])
def test_other_rules_miss_recorded_words(changes: dict[str, int]) -> None:
    missed = [
        inputs
        for inputs, word in recorded()
        if model(inputs, replace(four_bit_rule(inputs[0] is UE4M3, False), **changes)) != word
    ]
    assert missed


def test_recorded_word_of_scaled_bytes() -> None:
    """kind::mxf8f6f4 adds as the unscaled kind does; its scale factor may be NaN."""
    rng = random.Random(910)
    a, b = (decode(np.array([draw(rng, 32, 16)], np.uint8), T.E2M1) for _ in range(2))
    rule = dot_rule("sm_100", "tcgen05", T.E2M1, T.E2M1, T.F32)
    for codes, word in (((rng.randrange(115, 140), rng.randrange(115, 140)), 0x3F094000), ((255, 127), 0x7FFFFFFF)):
        scales = [decode_scales(np.array([code], np.uint8), UE8M0) for code in codes]
        got = fused_dot(a, b, np.zeros((1, 1)), rule, "exact", scales=(scales[0], scales[1]))
        assert int(got[0, 0]) == word


# The rule in whole numbers ----------------------------------------------------------------------------


def minifloat(code: int, exponent_bits: int, mantissa_bits: int, bias: int) -> tuple[Fraction, int]:
    """Value and encoded exponent of a code without its sign."""
    exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    encoded = max(exponent, 1) - bias
    whole = mantissa + ((1 << mantissa_bits) if exponent else 0)
    return whole * Fraction(2) ** (encoded - mantissa_bits), encoded


def factor(code: int, scale_type: ScaleType) -> tuple[Fraction, int]:
    if scale_type is UE8M0:
        return Fraction(2) ** (code - 127), code - 127
    return minifloat(code & 0x7F, 4, 3, 7)


def cut(value: Fraction, q: int) -> int:
    units = value / Fraction(2) ** q
    return int(abs(units)) * (1 if units >= 0 else -1)


def to_f32(units: int, q: int) -> int:
    if not units:
        return 0
    exponent = max(abs(units).bit_length() - 1 + q, -126)
    mantissa = abs(cut(units * Fraction(2) ** q, exponent - 23))
    sign = 0x80000000 if units < 0 else 0
    return sign | (0x7F800000 if exponent > 127 else mantissa + ((exponent + 126) << 23))


def reference(case: Case, sparse: bool = False) -> int:
    scale_type, a, b, c_word, scales_a, scales_b = case
    terms = []
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        parts = [minifloat(code & 7, 2, 1, 1) for code in (x, y)]
        parts += [factor(codes[k * len(codes) // len(a)], scale_type) for codes in (scales_a, scales_b)]
        value = parts[0][0] * parts[1][0] * parts[2][0] * parts[3][0]
        scale = parts[2][1] + parts[3][1]
        terms.append((-value if (x ^ y) & 8 else value, parts[0][1] + parts[1][1] + scale, scale))
    present = [term for term in terms if term[0]]
    if not present:
        return c_word
    value, encoded = minifloat(c_word & 0x7FFFFFFF, 8, 23, 127)
    c = -value if c_word >> 31 else value
    largest, scale = max(t[1] for t in present), max(t[2] for t in present)
    group = 32 if sparse and scale_type is UE4M3 else 16
    if c and encoded >= largest:
        q = encoded - 35
        sums = [sum(t[0] for t in terms[i : i + group]) for i in range(0, len(terms), group)]
        return to_f32(cut(c, q) + sum(cut(Fraction(s), q) for s in sums), q)
    q = max(max(largest, encoded) - 39 if c else largest - 39, scale - 35)
    merge = 4 if scale_type is UE4M3 else 16
    parts_of = []
    for i in range(0, len(terms), merge):
        run = [t for t in terms[i : i + merge] if t[0]]
        fine = q
        if scale_type is UE8M0 and run and c and encoded >= max(t[1] for t in run):
            fine = max(q, encoded - 35)
        total = cut(Fraction(sum(t[0] for t in run)), fine) << (fine - q)
        parts_of.append((total, max((t[2] for t in run), default=None)))
    word = to_f32(cut(c, q) + sum(p for p, _ in parts_of), q)
    if scale_type is UE8M0 and 0 < word & 0x7FFFFFFF < 1 << 23:
        least = 1 << max(-174 - q, 0)
        kept = [p for p, s in parts_of if s is None or s >= scale or abs(p) >= least]
        word = to_f32(cut(c, q) + sum(kept), q)
    return word


def random_case(rng: random.Random, scale_type: ScaleType, k: int) -> Case:
    """Factors in two clusters that lie about as far apart as the rule looks, and an accumulator in reach."""
    counts = rng.choice([2, 4]) if scale_type is UE8M0 else 4
    high = rng.choice([50, 54, 58, 62, 127]) if scale_type is UE8M0 else 0x70
    low = max(high - 18, 0) if scale_type is UE8M0 else 1
    codes = [draw(rng, k, 16) for _ in range(2)]
    scales = [[rng.choice([high, low]) + rng.randrange(8) for _ in range(counts)] for _ in range(2)]
    exact = reference((scale_type, *codes, 0, *scales))
    near = (exact + (rng.randrange(-38, 38) << 23)) % (1 << 31) | rng.getrandbits(9)
    c = rng.choice([finite_f32(rng), 0, 0x80000000, exact ^ 0x80000000, near, near ^ 0x80000000])
    return scale_type, *codes, c if c & 0x7F800000 != 0x7F800000 else 0, *scales


@pytest.mark.parametrize("scale_type", ScaleType)
@pytest.mark.parametrize("sparse", [False, True])
def test_rule_in_whole_numbers(scale_type: ScaleType, sparse: bool) -> None:
    rng = random.Random(11 + sparse)
    subnormal = 0
    for _ in range(150):
        case = random_case(rng, scale_type, 128 if sparse else 64)
        want = reference(case, sparse)
        subnormal += 0 < want & 0x7FFFFFFF < 1 << 23
        assert model(case, four_bit_rule(scale_type is UE4M3, sparse)) == want, case
    assert subnormal > 1 or scale_type is UE4M3
