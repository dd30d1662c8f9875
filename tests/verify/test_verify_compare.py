# SPDX-License-Identifier: Apache-2.0
"""Comparisons, with what each must not let through."""

import numpy as np
import pytest

from porter.verify.compare import both_within, same_bits, same_values, within
from porter.verify.dtypes import DTYPES
from porter.verify.locate import _owners

F32, F16 = DTYPES["f32"], DTYPES["f16"]
EXPECTED = np.array([1.0, -2.0, 0.0, 4.0])


def f32(*values):
    return np.array(values, np.float32)


def bounded(actual, expected=EXPECTED, allowed=0.01, classes=False):
    n = len(expected)
    return within("C", F32, np.asarray(expected, float), actual, np.full(n, allowed), np.full(n, 10.0), classes)


def test_within_the_bound_passes_and_beyond_fails():
    assert bounded(f32(1.009, -2, 0, 4)).ok
    found = bounded(f32(1, -2, 0, 4.011))
    assert found.mismatches == 1
    assert found.first.index == (3,)
    assert found.max_ratio > 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_fails_whatever_the_bound(bad):
    assert not bounded(f32(1, -2, 0, bad), allowed=1e300).ok


def test_nan_expected_without_classes_is_a_failure_too():
    assert not bounded(f32(1, -2, 0, np.nan), [1, -2, 0, np.nan]).ok


@pytest.mark.parametrize("kind", [np.nan, np.inf, -np.inf])
def test_classes_want_the_same_kind(kind):
    wanted = [1, -2, 0, kind]
    assert bounded(f32(1, -2, 0, kind), wanted, classes=True).ok
    for other in {np.inf, -np.inf, 4.0} - {kind}:
        assert not bounded(f32(1, -2, 0, other), wanted, classes=True).ok
    assert not bounded(f32(kind, -2, 0, kind), wanted, classes=True).ok
    assert not bounded(f32(1.1, -2, 0, kind), wanted, classes=True).ok


def test_exact_values_leave_only_the_sign_of_zero():
    assert same_values("C", F32, EXPECTED, f32(1, -2, -0.0, 4)).ok
    assert not same_values("C", F32, EXPECTED, f32(1, -2, 1e-45, 4)).ok
    assert not same_values("C", F32, EXPECTED, f32(1, -2, 0, np.nan)).ok
    assert not same_values("C", F32, np.array([np.nan]), f32(np.nan)).ok


def test_exact_values_are_rounded_once_to_the_output():
    third = np.array([1 / 3])
    assert same_values("C", F16, third, third.astype(np.float16)).ok
    assert not same_values("C", F16, third, np.nextafter(third.astype(np.float16), np.float16(1))).ok


def test_bits_are_every_bit():
    assert same_bits("C", F32, f32(0, 1), f32(0, 1)).ok
    assert same_bits("C", F32, f32(0, 1), f32(-0.0, 1)).mismatches == 1
    nan, other = (np.array([b], np.uint32).view(np.float32) for b in (0x7FFFFFFF, 0x7FC00000))
    assert same_bits("C", F32, nan, nan).ok
    assert not same_bits("C", F32, nan, other).ok


def test_histogram_and_largest_distance():
    actual = f32(1, 1, 1, 1, 1)
    expected = np.array([1, 1 + 2**-23, 1 + 3 * 2**-23, 1 + 300 * 2**-23, np.nan])
    found = same_values("C", F32, expected, actual)
    assert found.histogram == (2, 1, 0, 1, 0, 0, 1)
    assert found.max_ulps == 300
    assert found.first.index == (1,)
    assert found.first.ulps == 1


def test_port_against_original_within_both_bounds():
    args = (np.full(2, 0.02), np.full(2, 1.0), False)
    assert both_within("C", F32, f32(1, 2), f32(1.015, 2), *args).ok
    assert not both_within("C", F32, f32(1, 2), f32(1.025, 2), *args).ok
    assert not both_within("C", F32, f32(1, np.nan), f32(1, np.nan), *args).ok


def test_half_an_ulp_of_the_output_is_not_counted_as_error():
    expected = np.array([1 + 2.0**-11])
    found = within("C", F16, expected, np.array([1.0], np.float16), np.array([2.0**-10]), np.array([1.0]), False)
    assert found.ok
    assert found.max_scaled == 0
    assert found.max_error == 2.0**-11


def test_owners_of_a_fragment_are_a_permutation():
    owners = _owners(64).reshape(-1, 2)
    assert len(np.unique(owners, axis=0)) == 64 * 64
    assert owners.min() == 0
    assert owners[:, 0].max() == 127
    assert owners[:, 1].max() == 31


def test_a_right_value_is_right_where_no_bound_is_known():
    unknown = np.full(2, np.nan)
    found = within("C", F32, np.zeros(2), f32(0.0, 1.0), unknown, unknown, True)
    assert found.mismatches == 1
    assert found.first is not None
    assert found.first.index == (1,)
