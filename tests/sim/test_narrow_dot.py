# SPDX-License-Identifier: Apache-2.0
"""The fast truncated dot product gives the words of the general one, or leaves the sum to it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from porter.ptx.mma_numerics import DotRule, dot_rule
from porter.ptx.types import ElementType as T
from porter.sim.datapath import mma_arith
from porter.sim.datapath.mma_arith import accumulate, decode_accumulator, fused_dot
from porter.sim.datapath.narrow_dot import narrow_dot

DTYPES = {
    T.F16: np.float16,
    T.BF16: ml_dtypes.bfloat16,
    T.TF32: np.float32,
    T.E4M3: ml_dtypes.float8_e4m3fn,
    T.E5M2: ml_dtypes.float8_e5m2,
}
RULES = [
    ("sm_90", "wgmma", T.F16, T.F32),
    ("sm_90", "wgmma", T.F16, T.F16),
    ("sm_90", "wgmma", T.BF16, T.F32),
    ("sm_90", "wgmma", T.TF32, T.F32),
    ("sm_90", "wgmma", T.E4M3, T.F32),
    ("sm_90", "wgmma", T.E5M2, T.F16),
    ("sm_100", "tcgen05", T.F16, T.F32),
    ("sm_100", "tcgen05", T.E4M3, T.F32),
    ("sm_100", "tcgen05", T.E5M2, T.F32),
    ("sm_100", "tcgen05", T.E4M3, T.F16),
]


def general(a: np.ndarray, b: np.ndarray, c: np.ndarray, rule: DotRule) -> np.ndarray:
    return np.stack([
        mma_arith._truncated_dot(x, y.T, z, rule, None, None) for x, y, z in zip(a, b, c, strict=True)
    ])  # fmt: skip


def numbers(rng: np.random.Generator, dtype: object, shape: tuple[int, ...], spread: int) -> np.ndarray:
    """Any significand, exponents from -spread to spread as far as the type has them, some zeros of both signs."""
    values = rng.uniform(1, 2, shape) * rng.choice([-1, 1], shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype).astype(np.float64)
    rounded[~np.isfinite(rounded)] = 1
    return np.where(rng.random(shape) < 0.1, np.copysign(0.0, rounded), rounded)


def operands(rng: np.random.Generator, element: T, shape: tuple[int, ...], spread: int) -> np.ndarray:
    found = numbers(rng, DTYPES[element], shape, spread)
    if element is T.TF32:
        found = (found.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return found


def starts(rng: np.random.Generator, d_type: T, shape: tuple[int, ...], spread: int) -> np.ndarray:
    return numbers(rng, np.float16 if d_type is T.F16 else np.float32, shape, spread)


@pytest.mark.parametrize("spread", [0, 3, 8, 24, 45])
@pytest.mark.parametrize(("arch", "unit", "element", "d_type"), RULES)
def test_as_the_general_way(arch: str, unit: str, element: T, d_type: T, spread: int) -> None:
    rng = np.random.default_rng(spread)
    rule = dot_rule(arch, unit, element, element, d_type)
    for shift in (-30, 0, 10):
        a = operands(rng, element, (3, 24, rule.length), spread)
        b = operands(rng, element, (3, rule.length, 20), spread)
        c = starts(rng, d_type, (3, 24, 20), max(spread, 1)) * (1.0 if d_type is T.F16 else 2.0**shift)
        got = narrow_dot(a, b, c, rule)
        assert got is not None
        np.testing.assert_array_equal(got, general(a, b, c, rule))
        assert len(np.unique(got)) > 300


@pytest.mark.parametrize("c", [0.0, 2.0**-24, 3 * 2.0**-20, 2.0**-14])
def test_small_f16_accumulators_beside_smaller_products(c: float) -> None:
    """A zero takes no part in the largest exponent; a subnormal does with the smallest normal one."""
    rng = np.random.default_rng(5)
    rule = dot_rule("sm_90", "wgmma", T.E5M2, T.E5M2, T.F16)
    a = operands(rng, T.E5M2, (1, 32, rule.length), 1) * 2.0**-11
    b = operands(rng, T.E5M2, (1, rule.length, 32), 1) * 2.0**-11
    start = np.full((1, 32, 32), c)
    got = narrow_dot(a, b, start, rule)
    assert got is not None
    np.testing.assert_array_equal(got, general(a, b, start, rule))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("arch", "unit", "element", "d_type"), RULES)
def test_the_largest_significands_fit(arch: str, unit: str, element: T, d_type: T, sign: int) -> None:
    """All products and the accumulator as large as their exponents allow, all of one sign."""
    rule = dot_rule(arch, unit, element, element, d_type)
    largest = {T.F16: 2 - 2.0**-10, T.BF16: 2 - 2.0**-7, T.TF32: 2 - 2.0**-10, T.E4M3: 1.875, T.E5M2: 1.75}[element]
    a, b = np.full((1, 1, rule.length), sign * largest), np.full((1, rule.length, 1), largest)
    c = np.full((1, 1, 1), sign * (1 - 2.0**-10))
    got = narrow_dot(a, b, c, rule)
    assert got is not None
    np.testing.assert_array_equal(got, general(a, b, c, rule))


@pytest.mark.parametrize("where", ["a", "b", "c"])
@pytest.mark.parametrize("value", [2.0**70, 2.0**-120, np.inf, -np.inf, np.nan])
def test_what_is_out_of_reach_is_left_to_the_general_way(where: str, value: float) -> None:
    rule = dot_rule("sm_90", "wgmma", T.BF16, T.BF16, T.F32)
    rng = np.random.default_rng(0)
    parts = {"a": rng.normal(size=(2, 8, 16)), "b": rng.normal(size=(2, 16, 8)), "c": rng.normal(size=(2, 8, 8))}
    parts = {name: x.astype(ml_dtypes.bfloat16).astype(np.float64) for name, x in parts.items()}
    assert narrow_dot(*parts.values(), rule) is not None
    parts[where][1, 3, 5] = value
    assert narrow_dot(*parts.values(), rule) is None
    words = parts["c"].astype(np.float32).view(np.uint32)
    accumulate(words, parts["a"], parts["b"], True, rule, "exact", np.empty((2, 8, 8)))
    want = general(parts["a"], parts["b"], parts["c"], rule)
    np.testing.assert_array_equal(words, want)
    got = fused_dot(parts["a"][1], parts["b"][1].T, parts["c"][1], rule, "exact")
    np.testing.assert_array_equal(got, want[1])


@pytest.mark.parametrize("scale_d", [False, True])
def test_stacks_of_any_size(scale_d: bool) -> None:
    rule = dot_rule("sm_90", "wgmma", T.F16, T.F16, T.F32)
    rng = np.random.default_rng(1)
    a, b = operands(rng, T.F16, (9, 8, 16), 4), operands(rng, T.F16, (9, 16, 8), 4)
    words = starts(rng, T.F32, (9, 8, 8), 4).astype(np.float32).view(np.uint32)
    c = decode_accumulator(words, T.F32) if scale_d else np.zeros(words.shape)
    want = general(a, b, c, rule)
    accumulate(words, a, b, scale_d, rule, "exact", np.empty(words.shape))
    np.testing.assert_array_equal(words, want)
