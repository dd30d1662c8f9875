# SPDX-License-Identifier: Apache-2.0
"""Comparing an output with the reference, or with the original's output.

Two NaN are never "equal enough": against a finite expectation NaN is a failure, and where the expectation is
NaN
or infinite the result has to be of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from porter.verify.dtypes import Array, DType, Float64

ULP_BINS = (0, 1, 2, 4, 16, 256)
"""Upper ends of the histogram's bins in ULPs; what is beyond falls in the last, open one."""


@dataclass(frozen=True)
class Mismatch:
    """The first element (in memory order) that is not as it should be."""

    index: tuple[int, ...]
    expected: float
    actual: float
    ulps: int | None
    error: float | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Comparison:
    """One output compared. `kind` is `exact` (same value), `bits`, `bound` or `classes` (bound, with NaN and
    infinities by kind). `max_ulps` is over finite elements, `max_error` the largest error. Beyond half an
    ULP, which rounding the output costs anyway: `max_ratio` is the largest error over what is allowed,
    `max_scaled` the largest error over the sum of its terms' absolute values."""

    tensor: str
    kind: str
    elements: int
    mismatches: int
    nans: int
    unwritten: int
    max_ulps: int
    histogram: tuple[int, ...]
    max_error: float = 0.0
    max_ratio: float = 0.0
    max_scaled: float = 0.0
    first: Mismatch | None = None

    @property
    def ok(self) -> bool:
        return self.mismatches == 0


def _ulps(dtype: DType, expected: Array, actual: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """ULP distances (0 where one is not finite), and where both are finite."""
    finite = np.isfinite(dtype.decode(expected)) & np.isfinite(dtype.decode(actual))
    distance = np.abs(dtype.ordered(expected) - dtype.ordered(actual))
    return np.where(finite, distance, 0), finite


def _histogram(distances: npt.NDArray[np.int64]) -> tuple[int, ...]:
    places = np.searchsorted(np.array(ULP_BINS), distances.reshape(-1), side="left")
    return tuple(int(n) for n in np.bincount(places, minlength=len(ULP_BINS) + 1))


def unwritten(dtype: DType, actual: Array) -> npt.NDArray[np.bool_]:
    """Elements that still hold the poison pattern, all bits set."""
    bits = np.ascontiguousarray(actual).view(dtype.bits)
    return np.asarray(bits == np.iinfo(dtype.bits).max)


def same_bits(name: str, dtype: DType, expected: Array, actual: Array) -> Comparison:
    """Original against port: every bit, signs of zeros and NaN patterns included."""
    bad = np.ascontiguousarray(expected).view(dtype.bits) != np.ascontiguousarray(actual).view(dtype.bits)
    return _comparison(name, "bits", dtype, expected, actual, bad, None, None)


def same_values(name: str, dtype: DType, expected: Float64, actual: Array) -> Comparison:
    """Against an exact reference: the value that `expected` rounds to; +0 and -0 are the same value."""
    rounded = dtype.encode(expected)
    bad = ~(dtype.decode(rounded) == dtype.decode(actual))
    return _comparison(name, "exact", dtype, rounded, actual, bad, None, None)


def within(
    name: str, dtype: DType, expected: Float64, actual: Array, bound: Float64, terms: Float64, classes: bool
) -> Comparison:
    """Against a reference with an error bound. With `classes` the expectation may hold NaN and infinities,
    which the result must repeat; else they are failures of the result."""
    values = dtype.decode(actual)
    with np.errstate(all="ignore"):
        error = np.abs(values - expected)
        # The terms of a finite result may be NaN (a ReLU of one): then there is no bound, but a right value is right.
        bad = ~((error <= bound) | (values == expected))
    if classes:
        kind_expected, kind_actual = _kind(expected), _kind(values)
        special = kind_expected != 0
        bad = np.where(special, kind_expected != kind_actual, bad)
    return _comparison(name, "classes" if classes else "bound", dtype, dtype.encode(expected), actual, bad,
                       (error, bound), terms)  # fmt: skip


def both_within(
    name: str, dtype: DType, original: Array, port: Array, allowed: Float64, terms: Float64, classes: bool
) -> Comparison:
    """Original against port where their bits may differ: `allowed` is the sum of both bounds."""
    return within(name, dtype, dtype.decode(original), port, allowed, terms, classes)


def _kind(values: Float64) -> npt.NDArray[np.int8]:
    """0 finite, 1 NaN, 2 and 3 positive and negative infinity."""
    kinds = np.zeros(values.shape, np.int8)
    kinds[np.isnan(values)] = 1
    kinds[np.isposinf(values)] = 2
    kinds[np.isneginf(values)] = 3
    return kinds


def _largest(values: Float64, where: npt.NDArray[np.bool_]) -> float:
    chosen = values[where & np.isfinite(values)]
    return float(chosen.max()) if chosen.size else 0.0


def _comparison(
    name: str,
    kind: str,
    dtype: DType,
    expected: Array,
    actual: Array,
    bad: npt.NDArray[np.bool_],
    errors: tuple[Float64, Float64] | None,
    terms: Float64 | None,
) -> Comparison:
    distances, finite = _ulps(dtype, expected, actual)
    values = dtype.decode(actual)
    max_error = max_ratio = max_scaled = 0.0
    if errors is not None and terms is not None:
        error, bound = errors
        with np.errstate(all="ignore"):
            max_error = _largest(error, finite)
            rounding = dtype.half_ulp(dtype.decode(expected))
            beyond = np.maximum(error - rounding, 0.0)
            max_ratio = _largest(np.where(beyond > 0, beyond / (bound - rounding), 0.0), finite)
            max_scaled = _largest(np.where(terms > 0, beyond / terms, 0.0), finite)
    first = None
    places = np.argwhere(bad)
    if len(places):
        index = tuple(int(i) for i in places[0])
        first = Mismatch(
            index=index,
            expected=float(dtype.decode(expected)[index]),
            actual=float(values[index]),
            ulps=int(distances[index]) if finite[index] else None,
            error=float(errors[0][index]) if errors else None,
            bound=float(errors[1][index]) if errors else None,
        )
    return Comparison(
        tensor=name,
        kind=kind,
        elements=int(bad.size),
        mismatches=len(places),
        nans=int(np.isnan(values).sum()),
        unwritten=int((unwritten(dtype, actual) & bad).sum()),
        max_ulps=int(distances.max(initial=0)),
        histogram=_histogram(distances),
        max_error=max_error,
        max_ratio=max_ratio,
        max_scaled=max_scaled,
        first=first,
    )
