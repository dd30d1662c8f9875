# SPDX-License-Identifier: Apache-2.0
"""Floating-point instructions against exact rational arithmetic, rounded once by a slow reference."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from core_ptx import apply

Array = npt.NDArray[Any]

# name: significand bits, least exponent, greatest exponent, register, words
FORMATS: dict[str, tuple[int, int, int, str, Any]] = {
    "f16": (11, -14, 15, "b16", np.uint16),
    "bf16": (8, -126, 127, "b16", np.uint16),
    "f32": (24, -126, 127, "b32", np.uint32),
    "f64": (53, -1022, 1023, "b64", np.uint64),
}


def value(name: str, bits: int) -> float:
    if name == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    code, size = {"f16": ("<e", 2), "f32": ("<f", 4), "f64": ("<d", 8)}[name]
    return float(struct.unpack(code, bits.to_bytes(size, "little"))[0])


def rounded(x: Fraction, name: str, mode: str = "rn", zero_sign: int = 0) -> int:
    """Bits of an exact value in a format, rounded once."""
    precision, e_min, e_max, register, _ = FORMATS[name]
    width = int(register[1:])
    sign = 1 if x < 0 or (x == 0 and zero_sign) else 0
    m = abs(x)
    top = sign << (width - 1)
    if m == 0:
        return top
    e = m.numerator.bit_length() - m.denominator.bit_length()
    if Fraction(2) ** e > m:
        e -= 1
    e = max(e, e_min)
    quantum = Fraction(2) ** (e - precision + 1)
    q, rest = divmod(m / quantum, 1)
    q = int(q)
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and q & 1)
    else:
        up = rest != 0 and ((mode == "rp" and not sign) or (mode == "rm" and sign))
    q += bool(up)
    if q == 1 << precision:
        q, e = q >> 1, e + 1
    if e > e_max:
        largest = ((e_max - e_min + 1) << (precision - 1)) | ((1 << (precision - 1)) - 1)
        to_inf = mode == "rn" or (mode == "rp" and not sign) or (mode == "rm" and sign)
        return top | (largest + 1 if to_inf else largest)
    if q < 1 << (precision - 1):
        return top | q
    return top | ((e - e_min + 1) << (precision - 1)) | (q - (1 << (precision - 1)))


def samples(name: str, count: int, seed: int, spread: int = 40) -> Array:
    """Bit patterns of finite values: exponents around 1 so that sums overlap, and some anywhere."""
    precision, e_min, e_max, _register, dtype = FORMATS[name]
    rng = np.random.default_rng(seed)
    bias = 1 - e_min
    wide = rng.integers(0, bias + e_max + 1, count // 4)
    near = rng.integers(max(bias - spread, 0), min(bias + spread, bias + e_max) + 1, count - count // 4)
    exponent = np.concatenate([wide, near]).astype(np.uint64)
    fraction = rng.integers(0, 1 << (precision - 1), count).astype(np.uint64)
    # Many trailing zeros or ones make ties and carries.
    plain = rng.random(count) < 0.4
    fraction = np.where(plain, fraction & ~np.uint64((1 << (precision // 2)) - 1), fraction)
    sign = rng.integers(0, 2, count).astype(np.uint64)
    top = np.uint64(int(FORMATS[name][3][1:]) - 1)
    return ((sign << top) | (exponent << np.uint64(precision - 1)) | fraction).astype(dtype)


def check(code: str, name: str, arity: int, fn: Callable[..., Fraction], mode: str = "rn", count: int = 1500) -> None:
    register = FORMATS[name][3]
    inputs = [samples(name, count, 11 * i + arity) for i in range(arity)]
    if arity == 3:
        # Products nearly cancelled by the addend.
        with np.errstate(all="ignore"):
            exact = [
                Fraction(value(name, int(x))) * Fraction(value(name, int(y))) for x, y in zip(*inputs[:2], strict=True)
            ]
        for i in range(0, count, 3):
            inputs[2][i] = rounded(-exact[i], name)
    got = apply(code, register, *[(register, x) for x in inputs])
    bad = []
    for i in range(count):
        values = [value(name, int(x[i])) for x in inputs]
        if not all(map(math.isfinite, values)):
            continue
        try:
            exact_value = fn(*map(Fraction, values))
        except ZeroDivisionError:
            continue
        want = rounded(exact_value, name, mode)
        if exact_value == 0:
            if int(got[i]) << 1 & ((1 << int(register[1:])) - 1) != 0:
                bad.append((values, hex(int(got[i])), "0"))
        elif int(got[i]) != want:
            bad.append((values, hex(int(got[i])), hex(want)))
    assert not bad, (len(bad), bad[:4])


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_arithmetic_to_nearest(name: str) -> None:
    rn = ".rn" if name in ("f32", "f64") else ""
    check(f"add{rn}.{name} %d, %a, %b;", name, 2, lambda a, b: a + b)
    check(f"sub{rn}.{name} %d, %a, %b;", name, 2, lambda a, b: a - b)
    check(f"mul{rn}.{name} %d, %a, %b;", name, 2, lambda a, b: a * b)
    check(f"fma.rn.{name} %d, %a, %b, %c;", name, 3, lambda a, b, c: a * b + c)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_arithmetic_in_other_modes(mode: str) -> None:
    check(f"add.{mode}.f32 %d, %a, %b;", "f32", 2, lambda a, b: a + b, mode)
    check(f"sub.{mode}.f32 %d, %a, %b;", "f32", 2, lambda a, b: a - b, mode)
    check(f"mul.{mode}.f32 %d, %a, %b;", "f32", 2, lambda a, b: a * b, mode)
    check(f"fma.{mode}.f32 %d, %a, %b, %c;", "f32", 3, lambda a, b, c: a * b + c, mode)
    check(f"div.{mode}.f32 %d, %a, %b;", "f32", 2, lambda a, b: a / b, mode)
    check(f"rcp.{mode}.f32 %d, %a;", "f32", 1, lambda a: 1 / a, mode)
    check(f"add.{mode}.f64 %d, %a, %b;", "f64", 2, lambda a, b: a + b, mode)
    check(f"sub.{mode}.f64 %d, %a, %b;", "f64", 2, lambda a, b: a - b, mode)
    check(f"mul.{mode}.f64 %d, %a, %b;", "f64", 2, lambda a, b: a * b, mode)
    check(f"fma.{mode}.f64 %d, %a, %b, %c;", "f64", 3, lambda a, b, c: a * b + c, mode)
    check(f"div.{mode}.f64 %d, %a, %b;", "f64", 2, lambda a, b: a / b, mode)
    check(f"rcp.{mode}.f64 %d, %a;", "f64", 1, lambda a: 1 / a, mode)


def test_division_and_roots() -> None:
    check("div.rn.f32 %d, %a, %b;", "f32", 2, lambda a, b: a / b)
    check("rcp.rn.f64 %d, %a;", "f64", 1, lambda a: 1 / a)
    x = samples("f32", 2000, 5) & np.uint32(0x7FFFFFFF)
    for mode, towards in (("rn", 0), ("rz", -1), ("rp", 1)):
        got = apply(f"sqrt.{mode}.f32 %d, %a;", "b32", ("b32", x))
        for bits, g in zip(x.tolist(), got.tolist(), strict=True):
            v, r = Fraction(value("f32", bits)), Fraction(value("f32", g))
            above, below = Fraction(value("f32", g + 1)), Fraction(value("f32", g - 1)) if g else Fraction(0)
            if towards < 0:
                assert r * r <= v < above * above
            elif towards > 0:
                assert below * below < v <= r * r or v == 0
            else:
                assert ((r + below) / 2) ** 2 <= v <= ((r + above) / 2) ** 2


def test_specials_and_signs() -> None:
    a = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x3F800000, 1, 0x80000001], np.uint32)
    f = a.view(np.float32)
    both = np.repeat(a, a.size), np.tile(a, a.size)
    with np.errstate(all="ignore"):
        x, y = both[0].view(np.float32), both[1].view(np.float32)
        for code, want in {"add.f32": x + y, "mul.f32": x * y, "div.rn.f32": x / y}.items():
            got = apply(f"{code} %d, %a, %b;", "b32", ("b32", both[0]), ("b32", both[1])).view(np.float32)
            np.testing.assert_array_equal(got, want)
            number = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))
    got = apply("neg.f32 %d, %a;", "b32", ("b32", a))
    assert got.tolist() == np.where(np.isnan(f), 0x7FFFFFFF, a ^ np.uint32(1 << 31)).tolist()
    got = apply("add.ftz.f32 %d, %a, 0f00000000;", "b32", ("b32", a)).view(np.float32)
    assert got[6] == 0
    assert got[5] == 1
    got = apply("add.sat.f32 %d, %a, 0f3F000000;", "b32", ("b32", a)).view(np.float32)
    with np.errstate(all="ignore"):
        want = np.clip(np.nan_to_num(f + np.float32(0.5), nan=0.0, posinf=9, neginf=-9), 0, 1)
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_the_largest_magnitude_of_three() -> None:
    words = [("b32", np.array([x, 2.0, -1.0], np.float32)) for x in (-3.0, 1.0, 2.0)]
    largest = apply("max.abs.f32 %d, %a, %b, %c;", "b32", *words)
    assert largest.view(np.float32).tolist() == [3.0, 2.0, 1.0]
    least = apply("min.abs.f32 %d, %a, %b, %c;", "b32", *words)
    assert least.view(np.float32).tolist() == [1.0, 2.0, 1.0]


def test_min_max() -> None:
    a = np.array([1.0, -0.0, 0.0, np.nan, np.nan, np.inf, -3.0], np.float32)
    b = np.array([2.0, 0.0, -0.0, 5.0, np.nan, 1.0, -np.inf], np.float32)
    words = ("b32", a), ("b32", b)
    low = apply("min.f32 %d, %a, %b;", "b32", *words)
    high = apply("max.f32 %d, %a, %b;", "b32", *words)
    assert low.tolist() == [0x3F800000, 0x80000000, 0x80000000, 0x40A00000, 0x7FFFFFFF, 0x3F800000, 0xFF800000]
    assert high.tolist() == [0x40000000, 0, 0, 0x40A00000, 0x7FFFFFFF, 0x7F800000, 0xC0400000]
    strict = apply("max.NaN.f32 %d, %a, %b;", "b32", *words)
    assert strict[3] == 0x7FFFFFFF


@pytest.mark.parametrize(("code", "fn"), [
    ("ex2.approx.f32", lambda x: 2.0**x), ("lg2.approx.f32", lambda x: math.log2(abs(x))),
    ("sin.approx.f32", math.sin), ("cos.approx.f32", math.cos), ("tanh.approx.f32", math.tanh),
    ("rsqrt.approx.f32", lambda x: 1 / math.sqrt(abs(x))), ("rcp.approx.ftz.f32", lambda x: 1 / x),
])  # fmt: skip
def test_approximate_functions(code: str, fn: Callable[[float], float]) -> None:
    x = np.linspace(-8, 8, 200, dtype=np.float32)
    x = np.abs(x) if code.startswith(("lg2", "rsqrt")) else x
    got = apply(f"{code} %d, %a;", "b32", ("b32", x)).view(np.float32)
    want = np.array([fn(float(v)) for v in x])
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_packed_halves() -> None:
    a = np.array([[1.5, -2.0], [3.0, 0.25]], np.float16).view(np.uint32)[:, 0]
    b = np.array([[0.5, 4.0], [1.0, 8.0]], np.float16).view(np.uint32)[:, 0]
    got = apply("fma.rn.f16x2 %d, %a, %b, %a;", "b32", ("b32", a), ("b32", b)).view(np.float16)
    assert got.tolist() == [2.25, -10.0, 6.0, 2.25]
    a = np.array([[1.5, -2.0]], ml_dtypes.bfloat16).view(np.uint32)[:, 0]
    got = apply("mul.bf16x2 %d, %a, %a;", "b32", ("b32", a)).view(ml_dtypes.bfloat16)
    assert got.astype(float).tolist() == [2.25, 4.0]
    pair = np.array([[1.5, -2.0]], np.float32).view(np.uint64)[:, 0]
    got = apply("add.rn.f32x2 %d, %a, %a;", "b64", ("b64", pair), target="sm_100a").view(np.float32)
    assert got.tolist() == [3.0, -4.0]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_narrowing(mode: str) -> None:
    x = samples("f32", 3000, 3, 30)
    for name in ("f16", "bf16"):
        if mode in ("rm", "rp") and name == "bf16":
            continue
        got = apply(f"cvt.{mode}.{name}.f32 %d, %a;", "b16", ("b32", x))
        want = [rounded(Fraction(value("f32", int(b))), name, mode, int(b) >> 31) for b in x]
        assert got.tolist() == want
    wide = samples("f64", 3000, 4, 60)
    got = apply(f"cvt.{mode}.f32.f64 %d, %a;", "b32", ("b64", wide))
    assert got.tolist() == [rounded(Fraction(value("f64", int(b))), "f32", mode, int(b) >> 63) for b in wide]


def test_widening_is_exact() -> None:
    x = np.arange(1 << 16, dtype=np.uint16)[:0x7C00:7]
    got = apply("cvt.f32.f16 %d, %a;", "b32", ("b16", x)).view(np.float32)
    assert got.tolist() == [value("f16", int(b)) for b in x]
    got = apply("cvt.f32.bf16 %d, %a;", "b32", ("b16", x)).view(np.float32)
    assert got.tolist() == [value("bf16", int(b)) for b in x]


def test_pairs_put_the_first_operand_on_top() -> None:
    a, b = np.float32([1.0, 70000.0]), np.float32([2.0, -1.0])
    got = apply("cvt.rn.bf16x2.f32 %d, %a, %b;", "b32", ("b32", a), ("b32", b))
    assert got[0] == 0x3F804000
    got = apply("cvt.rn.relu.f16x2.f32 %d, %a, %b;", "b32", ("b32", a), ("b32", b))
    assert got.tolist() == [0x3C004000, 0x7C000000]
    got = apply("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", "b16", ("b32", a), ("b32", b))
    assert got.tolist() == [0x3840, 0x7EB8]
    back = apply("cvt.rn.f16x2.e4m3x2 %d, %a;", "b32", ("b16", got)).view(np.float16)
    assert back.tolist() == [2.0, 1.0, -1.0, 448.0]


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_eight_bit_floats(name: str) -> None:
    dtype = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[name]
    x = np.random.default_rng(1).normal(0, 20, 4000).astype(np.float32)
    got = apply(f"cvt.rn.satfinite.{name}x2.f32 %d, %a, %b;", "b16", ("b32", x), ("b32", -x))
    want = x.astype(dtype).view(np.uint8).astype(np.uint16) << 8 | (-x).astype(dtype).view(np.uint8)
    assert got.tolist() == want.tolist()


def test_tf32() -> None:
    x = samples("f32", 2000, 9)
    got = apply("cvt.rna.tf32.f32 %d, %a;", "b32", ("b32", x))
    want = (x + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    ordinary = (x >> 23 & 0xFF) < 0xFE
    np.testing.assert_array_equal(got[ordinary], want[ordinary])


@pytest.mark.parametrize("how", ["rni", "rzi", "rmi", "rpi"])
def test_float_to_integer(how: str) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.7, 2.7, 3e9, -3e9, 5e9, 1e20, -1e20, np.inf, -np.inf, np.nan],
                 np.float32)  # fmt: skip
    fn = {"rni": lambda v: int(np.rint(v)), "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[how]
    for kind, low, high in (("s32", -(1 << 31), (1 << 31) - 1), ("u32", 0, (1 << 32) - 1)):
        got = apply(f"cvt.{how}.{kind}.f32 %d, %a;", "b32", ("b32", x))
        want = []
        for v in x.tolist():
            number = 0 if math.isnan(v) else (high if v > 0 else low) if math.isinf(v) else fn(v)
            want.append(max(low, min(high, number)) & 0xFFFFFFFF)
        assert got.tolist() == want, kind
    got = apply(f"cvt.{how}.f32.f32 %d, %a;", "b32", ("b32", x[:8])).view(np.float32)
    assert got.tolist() == [fn(v) for v in x[:8].tolist()]


def test_integer_to_float() -> None:
    x = np.array([0, 1, -1, 16777217, -16777217, 33554435, (1 << 31) - 1, -(1 << 31)], np.int32)
    for mode in ("rn", "rz", "rm", "rp"):
        got = apply(f"cvt.{mode}.f32.s32 %d, %a;", "b32", ("b32", x))
        assert got.tolist() == [rounded(Fraction(int(v)), "f32", mode) for v in x]
        wide = np.array([(1 << 63) - 1, 1 << 53 | 1, 0x123456789ABCDEF1, 1 << 40 | 1], np.uint64)
        got = apply(f"cvt.{mode}.f32.u64 %d, %a;", "b32", ("b64", wide))
        assert got.tolist() == [rounded(Fraction(int(v)), "f32", mode) for v in wide]


def test_float_comparisons_with_nan() -> None:
    values = np.array([1.0, 2.0, np.nan], np.float32)
    a, b = np.repeat(values, 3), np.tile(values, 3)
    nan = np.isnan(a) | np.isnan(b)
    with np.errstate(all="ignore"):
        table = {"eq": a == b, "ne": ~nan & (a != b), "lt": a < b, "ge": a >= b, "equ": nan | (a == b), "neu": a != b,
                 "ltu": nan | (a < b), "geu": nan | (a >= b), "num": ~nan, "nan": nan}  # fmt: skip
    for name, want in table.items():
        got = apply(f"setp.{name}.f32 %d, %a, %b;", "pred", ("b32", a), ("b32", b))
        assert got.tolist() == want.astype(int).tolist(), name
