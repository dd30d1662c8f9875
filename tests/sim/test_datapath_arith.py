# SPDX-License-Identifier: Apache-2.0
"""The sum of products: recorded result words of real tensor cores, and the rule spelt out in integers."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from porter.ptx.mma_numerics import DOT_RULES, DotRule, Rounding, dot_rule
from porter.ptx.types import ElementType as T
from porter.sim.datapath.mma_arith import decode_accumulator, encode_accumulator, fused_dot

RECORDED = Path(__file__).parents[3] / "shared/data/tensor_core_words.npz"
RECORDED_TYPES = {"fp16": T.F16, "bf16": T.BF16, "tf32": T.TF32, "e4m3": T.E4M3, "e5m2": T.E5M2}


def recorded(gpu: str, name: str) -> dict[str, np.ndarray]:
    if not RECORDED.exists():
        pytest.skip(f"no recorded tensor-core words beside the checkout ({RECORDED.name})")
    data = np.load(RECORDED)
    keys = [f"{gpu}_{name}_{key}" for key in ("a", "b", "c", "d_f32", "d_f16")]
    words = {key.removeprefix(f"{gpu}_{name}_"): data[key] for key in keys if key in data}
    if name in ("e4m3", "e5m2"):
        # These instructions were issued without an accumulator input, whatever the file holds for c.
        words["c"] = np.zeros_like(words["c"])
    return words


def rows_of_products(words: dict[str, np.ndarray], rule: DotRule, mode: str = "exact") -> np.ndarray:
    """D of each recorded row: the diagonal of small products of 20 rows with 20 columns."""
    a, b, c = (words[key].view(np.float32).astype(np.float64) for key in ("a", "b", "c"))
    parts = [slice(i, i + 20) for i in range(0, len(a), 20)]
    return np.concatenate([np.diag(fused_dot(a[p], b[p], np.diag(c[p]), rule, mode)) for p in parts])


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal words, NaNs of any payload alike."""
    values = [x.view(np.float32) for x in (got, want)]
    return (got == want) | (np.isnan(values[0]) & np.isnan(values[1]))


CASES = [
    ("H200", "fp16", "sm_90", "wgmma"),
    ("H200", "bf16", "sm_90", "wgmma"),
    ("H200", "tf32", "sm_90", "wgmma"),
    ("H200", "e4m3", "sm_90", "wgmma"),
    ("H200", "e5m2", "sm_90", "wgmma"),
    ("B200", "fp16", "sm_100", "tcgen05"),
    ("B200", "bf16", "sm_100", "tcgen05"),
    ("B200", "tf32", "sm_100", "tcgen05"),
]


@pytest.mark.parametrize(("gpu", "name", "arch", "unit"), CASES)
def test_recorded_f32_words(gpu: str, name: str, arch: str, unit: str) -> None:
    words = recorded(gpu, name)
    element = RECORDED_TYPES[name]
    rule = dot_rule(arch, unit, element, element, T.F32)
    assert same(rows_of_products(words, rule), words["d_f32"]).all()


@pytest.mark.parametrize(("gpu", "arch", "unit"), [("H200", "sm_90", "wgmma"), ("B200", "sm_100", "tcgen05")])
def test_recorded_f16_words(gpu: str, arch: str, unit: str) -> None:
    words = recorded(gpu, "fp16")
    # The accumulator input was an f16 too.
    words["c"] = words["c"].view(np.float32).astype(np.float16).astype(np.float32).view(np.uint32)
    got = rows_of_products(words, dot_rule(arch, unit, T.F16, T.F16, T.F16))
    values = got.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    assert same(values, words["d_f16"]).all()


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("fp16", {"fraction_bits": 24}, 100),
        ("fp16", {"fraction_bits": 26}, 100),
        ("fp16", {"length": 8}, 100),
        ("bf16", {"fraction_bits": 24}, 100),
        ("bf16", {"fraction_bits": 26}, 100),
        ("tf32", {"fraction_bits": 24}, 100),
        ("e4m3", {"fraction_bits": 25, "rounding": Rounding.RZ23}, 1000),
        ("e5m2", {"fraction_bits": 14}, 100),
        ("fp16", {"rounding": Rounding.RNE10}, 1000),
    ],
)
def test_other_rules_miss_the_recorded_words(name: str, change: dict, expected: int) -> None:
    """The data tells the rule from its neighbours; otherwise agreement would prove nothing."""
    words = recorded("H200", name)
    element = RECORDED_TYPES[name]
    rule = replace(dot_rule("sm_90", "wgmma", element, element, T.F32), **change)
    assert (~same(rows_of_products(words, rule), words["d_f32"])).sum() > expected


def test_rounding_to_nearest_misses_the_recorded_words() -> None:
    words = recorded("H200", "fp16")
    got = rows_of_products(words, dot_rule("sm_90", "wgmma", T.F16, T.F16, T.F32), "float64")
    assert (~same(got, words["d_f32"])).sum() > 1000


def c_word(rng: random.Random) -> int:
    word = rng.getrandbits(32)
    return word & 0x807FFFFF if word >> 23 & 0xFF == 0xFF else word


def b16(words: list[int], dtype: object) -> np.ndarray:
    return np.array(words, np.uint16).view(dtype).astype(np.float64)


def narrow(words: list[int], dtype: object) -> np.ndarray:
    return np.array(words, np.uint8).view(dtype).astype(np.float64)


TCGEN05_WORDS = [
    (T.TF32, 8, 104, [0xFF800000, 0xFC347E7C]),
    (T.BF16, 16, 104, [0x7F800000, 0x7F800000]),
    (T.F16, 16, 103, [0x7FFFFFFF, 0x49776BBA]),
    (T.E4M3, 32, 104, [0xEC63D12A, 0x452AF963]),
    (T.E5M2, 32, 300, [0x4D92B09A, 0x4C9C1102]),
    (T.E2M3, 32, 301, [0xC29DD800, 0x449D14C1]),
    (T.E3M2, 32, 302, [0x52C9EC63, 0xC33B7700]),
    (T.E2M1, 32, 303, [0xC1FE0000, 0xDC3B62A3]),
]
DRAW = {
    T.TF32: lambda r: c_word(r),
    T.BF16: lambda r: c_word(r) >> 16,
    T.F16: lambda r: r.getrandbits(16),
    T.E4M3: lambda r: r.randrange(0x7F),
    T.E5M2: lambda r: r.randrange(0x7C),
    T.E2M3: lambda r: r.randrange(0x40),
    T.E3M2: lambda r: r.randrange(0x40),
    T.E2M1: lambda r: r.randrange(0x10),
}
VALUES = {
    T.TF32: lambda w: (np.array(w, np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64),
    T.BF16: lambda w: b16(w, ml_dtypes.bfloat16),
    T.F16: lambda w: b16(w, np.float16),
    T.E4M3: lambda w: narrow(w, ml_dtypes.float8_e4m3fn),
    T.E5M2: lambda w: narrow(w, ml_dtypes.float8_e5m2),
    T.E2M3: lambda w: narrow(w, ml_dtypes.float6_e2m3fn),
    T.E3M2: lambda w: narrow(w, ml_dtypes.float6_e3m2fn),
    T.E2M1: lambda w: narrow(w, ml_dtypes.float4_e2m1fn),
}


@pytest.mark.parametrize(("element", "k", "seed", "results"), TCGEN05_WORDS)
def test_words_of_tcgen05_itself(element: T, k: int, seed: int, results: list[int]) -> None:
    """Result words of tcgen05.mma on a B200, with inputs from Python's generator (sf-tensor/tcgen05)."""
    rng = random.Random(seed)
    rule = dot_rule("sm_100", "tcgen05", element, element, T.F32)
    for result in results:
        with np.errstate(invalid="ignore"):
            a = VALUES[element]([DRAW[element](rng) for _ in range(k)])[None, :]
            b = VALUES[element]([DRAW[element](rng) for _ in range(k)])[None, :]
        c = decode_accumulator(np.array([[c_word(rng)]], np.uint32), T.F32)
        assert int(fused_dot(a, b, c, rule, "exact")[0, 0]) == result


def reference(a: list[float], b: list[float], c: float, rule: DotRule, min_a: int, min_b: int) -> Fraction:
    """The aligned, truncated, exact sum of finite operands, in rational numbers."""

    def exponent(value: float, smallest: int) -> int:
        power = 0
        magnitude = abs(Fraction(value))
        while magnitude >= 2:
            magnitude, power = magnitude / 2, power + 1
        while magnitude < 1:
            magnitude, power = magnitude * 2, power - 1
        return max(power, smallest)

    terms = [
        (Fraction(x) * Fraction(y), exponent(x, min_a) + exponent(y, min_b))
        for x, y in zip(a, b, strict=True)
        if x and y
    ]
    if c:
        terms.append((Fraction(c), exponent(c, -126 if rule.d_type is T.F32 else -14)))
    if not terms:
        return Fraction(0)
    unit = Fraction(2) ** (max(e for _, e in terms) - rule.fraction_bits)
    return sum((int(value / unit) for value, _ in terms), 0) * unit


def truncate_f32(value: Fraction, bits: int) -> float:
    """Toward zero to `bits` fraction bits of an f32; below the normal range to a fixed unit."""
    if not value:
        return 0.0
    power = 0
    magnitude = abs(value)
    while magnitude >= Fraction(2) ** (power + 1):
        power += 1
    while magnitude < Fraction(2) ** power:
        power -= 1
    unit = Fraction(2) ** (max(power, -126) - bits)
    kept = int(magnitude / unit) * unit
    if power >= 128:
        return float("inf") if value > 0 else float("-inf")
    return float(kept if value > 0 else -kept)


@pytest.mark.parametrize(
    ("element", "dtype", "smallest"),
    [
        (T.F16, np.float16, -14),
        (T.BF16, ml_dtypes.bfloat16, -126),
        (T.E4M3, ml_dtypes.float8_e4m3fn, -6),
        (T.E5M2, ml_dtypes.float8_e5m2, -14),
    ],
)
@pytest.mark.parametrize("unit", ["wgmma", "tcgen05"])
def test_rule_in_rational_numbers(element: T, dtype: object, smallest: int, unit: str) -> None:
    """Random bit patterns over the whole range, subnormals and zeros included."""
    rng = np.random.default_rng(7)
    rule = dot_rule("sm_90" if unit == "wgmma" else "sm_100", unit, element, element, T.F32)
    size = np.dtype(dtype).itemsize
    bits = rng.integers(0, 1 << 8 * size, (12, rule.length)).astype(f"u{size}")
    with np.errstate(invalid="ignore"):
        values = bits.view(dtype).astype(np.float64)
    values = np.where(np.isfinite(values), values, 0.0)
    a, b = values[:4], values[4:]
    c = rng.integers(0, 1 << 32, (4, 8), dtype=np.uint32)
    c[c >> 23 & 0xFF == 0xFF] = 0
    with np.errstate(invalid="ignore"):
        c_values = c.view(np.float32).astype(np.float64)
    c_values[:, :4] *= 2.0**-100
    c_values = c_values.astype(np.float32).astype(np.float64)
    got = fused_dot(a, b, c_values, rule, "exact").view(np.float32)
    for m in range(4):
        for n in range(8):
            total = reference(a[m].tolist(), b[n].tolist(), float(c_values[m, n]), rule, smallest, smallest)
            assert float(got[m, n]) == truncate_f32(total, 13 if rule.rounding is Rounding.RZ13 else 23)


def one(a: list[float], b: list[float], c: float, rule: DotRule, mode: str) -> int:
    return int(fused_dot(np.array([a]), np.array([b]), np.array([[c]]), rule, mode)[0, 0])


@pytest.mark.parametrize("mode", ["float64", "exact"])
def test_special_values(mode: str) -> None:
    inf, nan = float("inf"), float("nan")
    f32 = dot_rule("sm_90", "wgmma", T.F16, T.F16, T.F32)
    f16 = dot_rule("sm_90", "wgmma", T.F16, T.F16, T.F16)
    assert one([nan, 1.0], [1.0, 1.0], 0.0, f32, mode) == 0x7FFFFFFF
    assert one([inf, 1.0], [0.0, 1.0], 0.0, f32, mode) == 0x7FFFFFFF
    assert one([inf, inf], [1.0, -1.0], 0.0, f32, mode) == 0x7FFFFFFF
    assert one([inf, 1.0], [1.0, 1.0], -inf, f32, mode) == 0x7FFFFFFF
    assert one([inf, 1.0], [-1.0, 1.0], 5.0, f32, mode) == 0xFF800000
    assert one([1.0, 1.0], [1.0, 1.0], inf, f32, mode) == 0x7F800000
    assert one([nan, 1.0], [1.0, 1.0], 0.0, f16, mode) == 0x7FFF
    assert one([inf, 1.0], [1.0, 1.0], 0.0, f16, mode) == 0x7C00
    assert one([60000.0, 60000.0], [1.0, 1.0], 0.0, f16, mode) == 0x7C00
    assert one([1.0, -1.0], [1.0, 1.0], 0.0, f32, mode) == 0
    assert (
        one([2.0**-14 / 1024, 0.0], [2.0**-14 / 1024, 0.0], 0.0, f32, mode)
        == struct.unpack("<I", struct.pack("<f", 2.0**-48))[0]
    )


def test_subnormal_operands_align_as_the_smallest_normal() -> None:
    """2^-24 times 1 takes part with exponent -14, so that C = 2^-40 falls below its last bit."""
    rule = dot_rule("sm_100", "tcgen05", T.F16, T.F16, T.F32)
    small = np.array([2.0**-24, 2.0**-39, 2.0**-40])
    bits = small.astype(np.float32).view(np.uint32)
    assert one([small[0]], [1.0], small[2], rule, "exact") == bits[0]
    assert one([small[0]], [1.0], small[1], rule, "exact") == int(np.float32(2.0**-24 + 2.0**-39).view(np.uint32))
    assert one([2.0**-12], [2.0**-12], small[2], rule, "exact") == int(np.float32(2.0**-24 + 2.0**-40).view(np.uint32))


@pytest.mark.parametrize("mode", ["float64", "exact"])
def test_sums_of_zeros_are_positive(mode: str) -> None:
    rule = dot_rule("sm_90", "wgmma", T.F16, T.F16, T.F32)
    assert one([-0.0], [1.0], -0.0, rule, mode) == 0
    a, b = np.array([[-0.0]]), np.array([[1.0]])
    assert fused_dot(a, b, None, rule, mode)[0, 0] == 0


def test_overflow_is_infinite_though_rounding_is_toward_zero() -> None:
    rule = dot_rule("sm_100", "tcgen05", T.BF16, T.BF16, T.F32)
    assert one([2.0**64], [2.0**64], 0.0, rule, "exact") == 0x7F800000
    assert one([2.0**64], [-(2.0**63)], 0.0, rule, "exact") == 0xFF000000
    just_below = [2.0**64, -(2.0**52)]
    assert one(just_below, [2.0**64, 2.0**52], 0.0, rule, "exact") == 0x7F7FFFFF


@pytest.mark.parametrize("mode", ["float64", "exact"])
def test_integers_wrap_or_clamp(mode: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 128, (n, 32)).astype(np.float64) for n in (5, 7))
    c = rng.integers(-(2**31), 2**31, (5, 7)).astype(np.float64)
    c[0, 0], c[0, 1] = 2**31 - 1, -(2**31)
    exact = a.astype(np.int64) @ b.astype(np.int64).T + c.astype(np.int64)
    wrap = dot_rule("sm_90", "wgmma", T.S8, T.S8, T.S32)
    clamp = dot_rule("sm_90", "wgmma", T.S8, T.S8, T.S32, saturate=True)
    np.testing.assert_array_equal(fused_dot(a, b, c, wrap, mode), (exact % 2**32).astype(np.uint32))
    np.testing.assert_array_equal(fused_dot(a, b, c, clamp, mode).view(np.int32), np.clip(exact, -(2**31), 2**31 - 1))


def test_float64_mode_rounds_once() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((n, 16)).astype(np.float16).astype(np.float64) for n in (9, 10))
    c = rng.standard_normal((9, 10)).astype(np.float32).astype(np.float64)
    rule = dot_rule("sm_90", "wgmma", T.F16, T.F16, T.F32)

    def exact(row: list[float], column: list[float], start: float) -> np.float32:
        products = (Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True))
        return np.float32(float(sum(products, Fraction(start))))

    want = [[exact(a[m].tolist(), b[n].tolist(), float(c[m, n])) for n in range(10)] for m in range(9)]
    np.testing.assert_array_equal(fused_dot(a, b, c, rule, "float64").view(np.float32), np.array(want))


def test_small_integers_agree_in_both_modes() -> None:
    """Sums that every format holds are the same whatever the order or the rounding."""
    rng = np.random.default_rng(5)
    for (arch, unit, element, d_type), rule in DOT_RULES.items():
        limit = 2 if element in (T.U8, T.B1) else 3
        low = 0 if element in (T.U8, T.B1) else -2
        a, b = (rng.integers(low, limit, (6, rule.length)).astype(np.float64) for _ in range(2))
        c = rng.integers(-8, 9, (6, 6)).astype(np.float64)
        want = encode_accumulator(a @ b.T + c, d_type)
        for mode in ("float64", "exact"):
            got = fused_dot(a, b, c, rule, mode)
            np.testing.assert_array_equal(got, want, err_msg=f"{arch} {unit} {element} {d_type} {mode}")
