# SPDX-License-Identifier: Apache-2.0
"""Activations as words of reference expressions, and the bounds that follow from them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from porter.verify.activations import ACTIVATIONS
from porter.verify.expr import ExpressionError
from porter.verify.references import evaluate_reference

X = np.linspace(-9, 9, 181)
SCALAR = {
    "tanh": math.tanh,
    "exp": math.exp,
    "erf": math.erf,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "relu": lambda x: max(x, 0.0),
}


@pytest.mark.parametrize("name", SCALAR)
def test_the_values_are_those_of_the_formulas(name: str) -> None:
    found = evaluate_reference(f"{name}(x)", {"x": X})
    np.testing.assert_allclose(found, [SCALAR[name](x) for x in X], rtol=1e-12, atol=1e-15)
    assert float(evaluate_reference(f"{name}(s)", {"s": 0.25})) == pytest.approx(SCALAR[name](0.25))


def test_softmax_is_over_the_last_axis_unless_one_is_named() -> None:
    x = np.array([[1.0, 2.0, 800.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(evaluate_reference("softmax(x)", {"x": x}).sum(axis=-1), 1)
    np.testing.assert_allclose(evaluate_reference("softmax(x, axis=0)", {"x": x}).sum(axis=0), 1)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("error", [1e-6, 1e-3])
def test_the_magnitude_bounds_what_an_error_of_the_argument_does(name: str, error: float) -> None:
    """Sums that are wrong by a share of their magnitude: the result is wrong by no more than that share of its own."""
    rng = np.random.default_rng(7)
    a, b = rng.normal(size=(16, 24)) / 4, rng.normal(size=(24, 16))
    names = {"A": a, "B": b}
    exact = evaluate_reference(f"{name}(A @ B)", names)
    sums, magnitudes = a @ b, np.abs(a) @ np.abs(b)
    bound = evaluate_reference(f"{name}(A @ B)", {n: np.abs(v) for n, v in names.items()}, True, names)
    for sign in (-1, 1, rng.choice([-1.0, 1.0], size=sums.shape)):
        off = evaluate_reference(f"{name}(y)", {"y": sums + sign * error * magnitudes})
        assert np.all(np.abs(off - exact) <= error * bound * (1 + 10 * error))


def test_the_bound_of_an_exponential_does_not_follow_the_sum_of_magnitudes() -> None:
    a = np.array([[100.0, -100.0]])
    found = evaluate_reference(
        "exp(A @ B)", {"A": np.abs(a), "B": np.ones((2, 1))}, True, {"A": a, "B": np.ones((2, 1))}
    )
    assert found.item() == pytest.approx(201)


def test_a_bound_of_what_stands_around_it() -> None:
    names = {"A": np.array([-2.0]), "r": np.array([3.0])}
    found = evaluate_reference("r - relu(A - 1)", {n: np.abs(v) for n, v in names.items()}, True, names)
    assert found.tolist() == [6.0]


@pytest.mark.parametrize(
    "text", ["gelu()", "gelu(x, x)", "softmax(x, 0)", "gelu(x, axis=0)", "exp(x, out=x)", "mish(x)"]
)
def test_other_calls_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate_reference(text, {"x": X})


def test_a_name_of_the_case_comes_first() -> None:
    with pytest.raises(ExpressionError):
        evaluate_reference("exp(x)", {"x": X, "exp": 3})
    assert evaluate_reference("exp * 2", {"exp": 3}) == 6


def test_they_cost_time_as_other_functions_do() -> None:
    wide = np.broadcast_to(np.zeros(1), (1 << 24,))
    with pytest.raises(ExpressionError, match="operations"):
        evaluate_reference("gelu(x)", {"x": wide})


def test_the_page_of_cases_lists_them_all() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cases.md").read_text("utf-8")
    for name in ACTIVATIONS:
        assert f"| `{name}" in page
