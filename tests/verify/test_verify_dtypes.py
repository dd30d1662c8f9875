# SPDX-License-Identifier: Apache-2.0
"""Number formats against their own definition: all values of the small ones, and exact fractions."""

from fractions import Fraction

import numpy as np
import pytest

from porter.verify.dtypes import DTYPES

SMALL = ["f8e4m3", "f8e5m2", "f16", "bf16"]


def all_values(name):
    dtype = DTYPES[name]
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=np.uint32).astype(dtype.bits)
    return bits.view(dtype.container)


@pytest.mark.parametrize("name", SMALL)
def test_every_value_survives_decoding_and_encoding(name):
    dtype = DTYPES[name]
    values = all_values(name)
    again = dtype.encode(dtype.decode(values))
    numbers = ~np.isnan(dtype.decode(values))
    assert np.array_equal(values.view(dtype.bits)[numbers], again.view(dtype.bits)[numbers])
    assert np.isnan(dtype.decode(again)[~numbers]).all()


@pytest.mark.parametrize("name", SMALL)
def test_encoding_picks_the_nearest_value_and_the_even_one_of_two(name):
    dtype = DTYPES[name]
    finite = np.unique(dtype.decode(all_values(name)[np.isfinite(dtype.decode(all_values(name)))]))
    rng = np.random.default_rng(3)
    low = rng.integers(0, len(finite) - 1, 300)
    for i in low:
        a, b = Fraction(float(finite[i])), Fraction(float(finite[i + 1]))
        middle = float((a + b) / 2)
        for x in (middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)):
            got = Fraction(float(dtype.decode(dtype.encode(np.array([x])))[0]))
            x = Fraction(float(x))
            if abs(x - a) != abs(x - b):
                assert got == (a if abs(x - a) < abs(x - b) else b)
            else:
                assert int(dtype.encode(np.array([float(got)])).view(dtype.bits)[0]) % 2 == 0


def test_bf16_is_rounded_once():
    """Not to 32 bits first, as some versions of ml_dtypes do."""
    x = 1 + 2.0**-8 + 2.0**-40
    assert DTYPES["bf16"].decode(DTYPES["bf16"].encode(np.array([x])))[0] == 1 + 2.0**-7


def test_tf32_keeps_ten_bits():
    dtype = DTYPES["tf32"]
    bits = dtype.encode(np.random.default_rng(0).standard_normal(1000)).view(np.uint32)
    assert not (bits & 0x1FFF).any()
    assert dtype.decode(np.array([0x3F801FFF], np.uint32).view(np.float32))[0] == 1.0


def test_overflow_goes_to_infinity_or_saturates():
    big = np.array([1e30, -1e30])
    assert np.isinf(DTYPES["f16"].encode(big)).all()
    assert DTYPES["f8e4m3"].decode(DTYPES["f8e4m3"].encode(big)).tolist() == [448.0, -448.0]
    assert DTYPES["s8"].encode(big).tolist() == [127, -128]


@pytest.mark.parametrize("name", [*SMALL, "f32"])
def test_neighbours_are_one_ulp_apart(name):
    dtype = DTYPES[name]
    values = np.array([1.0, -1.0, 0.0, 2.0, dtype.min_subnormal])
    encoded = dtype.encode(values)
    away = (encoded.view(dtype.bits) + np.array(1, dtype.bits)).view(dtype.container)
    assert np.abs(dtype.ordered(away) - dtype.ordered(encoded)).tolist() == [1] * 5
    zeros = dtype.encode(np.array([0.0, -0.0]))
    assert dtype.ordered(zeros)[0] == dtype.ordered(zeros)[1]
    assert dtype.ordered(dtype.encode(np.array([-dtype.min_subnormal, dtype.min_subnormal]))).tolist() == [
        -1,
        1,
    ]


def test_half_ulp_is_half_the_gap_to_the_next_value():
    for name in ("f16", "bf16", "f32"):
        dtype = DTYPES[name]
        for x in (1.0, 1.5, 3.0, 100.0, 0.0):
            element = dtype.encode(np.array([x]))
            above = (element.view(dtype.bits) + np.array(1, dtype.bits)).view(dtype.container)
            gap = dtype.decode(above)[0] - x
            assert dtype.half_ulp(np.array([x]))[0] == gap / 2


@pytest.mark.parametrize("name", ["bf16", "f16", "f8e4m3", "f8e5m2", "tf32"])
def test_largest_exact_integer(name):
    dtype = DTYPES[name]
    top = dtype.max_exact_integer
    whole = np.arange(-top, top + 1, dtype=np.float64)
    assert np.array_equal(dtype.decode(dtype.encode(whole)), whole)
    beyond = np.array([top + 1.0])
    assert dtype.decode(dtype.encode(beyond))[0] != top + 1


def test_scales_are_powers_of_two() -> None:
    """ue8m0 has no zero and no sign: values are taken by their magnitude, and 2^-127 is the smallest."""
    scale = DTYPES["f8e8m0"]
    values = np.array([1.0, -4.0, 0.0, 2.0**-130, 2.0**127, 1.9, 1e39, np.nan])
    assert scale.encode(values).view(np.uint8).tolist() == [127, 129, 0, 0, 254, 128, 254, 255]
    assert scale.decode(scale.encode(values))[:7].tolist() == [1.0, 4.0, 2.0**-127, 2.0**-127, 2.0**127, 2.0, 2.0**127]
    every = np.arange(255, dtype=np.uint8).view(scale.container)
    assert (scale.encode(scale.decode(every)).view(np.uint8) == every.view(np.uint8)).all()
