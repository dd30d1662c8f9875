# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from porter.verify.expr import ExpressionError, evaluate, names_in
from porter.verify.references import evaluate_reference

NAMES = {"M": 256, "N": 96, "BM": 128, "f": 0.5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("M / BM", 2),
        ("M // N", 2),
        ("M % N", 64),
        ("2 ** 10 - 1", 1023),
        ("ceil_div(N, BM)", 1),
        ("align_up(N, 64)", 128),
        ("max(M, N) + min(M, N)", 352),
        ("(M == 256) * 3", 3),
        ("M if N > M else N", 96),
        ("M > N and N > 0", True),
        ("0 < N < M", True),
        ("-M + +1", -255),
        ("M / 2.0", 128.0),
        ("1 << 4", 16),
        (17, 17),
        (0.25, 0.25),
        ("f * 4", 2.0),
    ],
)
def test_arithmetic(text, value):
    found = evaluate(text, NAMES)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("M / N", "does not come out even"),
        ("K", "unknown name K (known: BM, M, N, f)"),
        ("M +", "not an expression"),
        ("open('x')", "unknown function open"),
        ("M.__class__", "not allowed"),
        ("[1, 2]", "not allowed"),
        ("'text'", "not allowed"),
        ("M / 0", ""),
        ("2 ** 10000", "too large"),
        ("(lambda: 1)()", "unknown function"),
        ("min(M, key=N)", "unknown function"),
        ("__import__('os').system('true')", "unknown function"),
    ],
)
def test_what_is_no_arithmetic_is_refused(text, problem):
    with pytest.raises(ExpressionError) as caught:
        evaluate(text, NAMES)
    assert problem in str(caught.value)


def test_names_leave_functions_out():
    assert names_in("ceil_div(M, BM) * K") == {"M", "BM", "K"}


def test_references_use_numpy():
    a = np.arange(6.0).reshape(2, 3)
    found = evaluate_reference("np.maximum(A @ A.T, 1) * s", {"A": a, "s": 2})
    assert np.array_equal(found, np.maximum(a @ a.T, 1) * 2)


@pytest.mark.parametrize(
    "text",
    [
        "np.load('x')",
        "A.tofile('x')",
        "np.__builtins__",
        "open('x')",
        "[x for x in A]",
        "(lambda: 1)()",
        "np.ctypeslib",
        "B",
    ],
)
def test_references_reach_nothing_else(text):
    with pytest.raises(ExpressionError):
        evaluate_reference(text, {"A": np.ones(2)})


def test_magnitude_turns_differences_into_sums():
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    assert np.array_equal(evaluate_reference("A - B", {"A": a, "B": b}, magnitude=True), a + b)
    assert np.array_equal(evaluate_reference("-(A - 2 * B)", {"A": a, "B": b}, magnitude=True), a + 2 * b)
    assert evaluate_reference("A[len(A) - 1]", {"A": a}, magnitude=True) == 2.0


def test_a_reference_may_use_reducing_methods() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert evaluate_reference("x.sum(0) + x.max()", {"x": x}).tolist() == [8.0, 10.0, 12.0]


def test_magnitude_keeps_axes_and_shapes() -> None:
    x = np.arange(6.0)
    found = evaluate_reference("np.sum(x.reshape(2, -1), axis=-1) - 1", {"x": x}, magnitude=True)
    assert found.tolist() == [4.0, 13.0]


@pytest.mark.parametrize("text", ["np.add.outer(x, x).sum()", "np.logical_and.outer(x > 1, x > 2).sum()"])
def test_a_reference_may_use_methods_of_ufuncs(text: str) -> None:
    """NumPy looks for its own helpers in the builtins of its caller."""
    x = np.arange(4.0)
    expected = {"add": 48.0, "log": 2.0}[text[3:6]]
    assert evaluate_reference(text, {"x": x}) == expected


def test_builtins_are_out_of_reach() -> None:
    for text in ("open('x')", "eval('1')", "__import__('os')", "getattr(A, 'x')"):
        with pytest.raises(ExpressionError):
            evaluate_reference(text, {"A": np.ones(2)})


def test_magnitude_leaves_alone_what_names_no_array() -> None:
    names = {"A": np.array([1.0, 2.0, 3.0, 4.0]), "N": 4}
    text = "np.where((np.arange(N) - np.arange(N) // 2 * 2) < 1, A - 1, 0 * A)"
    assert evaluate_reference(text, names, magnitude=True).tolist() == [2.0, 0.0, 4.0, 0.0]
    assert evaluate_reference("(1 - N) * A - (0 - N)", names, magnitude=True).tolist() == [7.0, 10.0, 13.0, 16.0]


def test_division_by_zero_is_said_in_words() -> None:
    with pytest.raises(ExpressionError, match="128 / 0 divides by zero"):
        evaluate("M / N", {"M": 128, "N": 0})
