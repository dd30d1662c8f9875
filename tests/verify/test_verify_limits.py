# SPDX-License-Identifier: Apache-2.0
"""What a reference may cost: NumPy is not stopped in an operation, so what takes long is refused before it begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from porter.verify.array_functions import FUNCTIONS
from porter.verify.dtypes import DTYPES
from porter.verify.expr import ExpressionError
from porter.verify.references import MOST_STEPS, evaluate_reference


def shaped(dtype: str, *shape: int) -> Any:
    """An array of any size in a few bytes."""
    return np.broadcast_to(np.zeros((), dtype), shape)


LINE, SQUARE = 1 << 24, 4096
REFUSED = {
    "float64 matrices": ("a @ b", shaped("f8", SQUARE, SQUARE)),
    "float16 matrices": ("a @ b", shaped("f2", 1024, 1024)),
    "whole matrices": ("a @ b", shaped("i8", 1024, 1024)),
    "float16 by a function": ("np.matmul(a, b)", shaped("f2", 1024, 1024)),
    "einsum": ("np.einsum('ij,jk->ik', a, b)", shaped("f8", 2048, 2048)),
    "einsum of float16": ("np.einsum('ij,jk->ik', a, b)", shaped("f2", 512, 512)),
    "three matrices": ("np.einsum('ij,jk,kl->il', a, b, a)", shaped("f8", 256, 256)),
    "dot of whole numbers": ("np.dot(a, b)", shaped("i4", 1024, 1024)),
    "tensordot of float16": ("np.tensordot(a, b, 1)", shaped("f2", 1024, 1024)),
    "remainders of floats": ("np.fmod(a, b)", shaped("f8", LINE)),
    "remainders by an operator": ("a % b", shaped("f8", LINE)),
    "quotients by an operator": ("a // b", shaped("f8", LINE)),
    "outer remainders": ("np.fmod.outer(a, b)", shaped("f8", SQUARE)),
    "sorting": ("np.argsort(a)", shaped("f8", LINE)),
    "float16 one by one": ("a + b", shaped("f2", LINE)),
    "sines": ("np.sin(a) + np.cos(b)", shaped("f8", LINE)),
    "rows of two": ("np.std(a, axis=1) + np.median(b, axis=1)", shaped("f8", LINE, 2)),
}
MADE = {
    "a product of 256 x 256 x 512": ("a @ b.T", shaped("f8", 256, 512)),
    "attention": ("np.exp(a @ b.T - np.max(a @ b.T, axis=-1, keepdims=True)) @ b", shaped("f8", 512, 128)),
    "einsum of a batch": ("np.einsum('bij,bkj->bik', a, b)", shaped("f8", 4, 128, 256)),
    "remainders": ("a % 7 + b // 3", shaped("f8", 256, 256)),
    "whole remainders": ("a % 7 + b // 3", shaped("i8", 1024, 1024)),
    "float16": ("a.astype(np.float16) * b.astype(np.float16)", shaped("f8", 512, 512)),
}


@pytest.mark.parametrize(("text", "array"), REFUSED.values(), ids=REFUSED.keys())
def test_what_takes_long_is_refused(text: str, array: Any) -> None:
    with pytest.raises(ExpressionError, match="operations"):
        evaluate_reference(text, {"a": array, "b": array})


@pytest.mark.parametrize(("text", "array"), MADE.values(), ids=MADE.keys())
def test_what_references_say_is_made(text: str, array: Any) -> None:
    with np.errstate(all="ignore"):
        evaluate_reference(text, {"a": array, "b": array + array.dtype.type(1)})


def test_a_product_of_2048_by_2048_by_1024_is_within_the_limit() -> None:
    assert FUNCTIONS["matmul"].cost(shaped("f8", 2048, 1024), shaped("f8", 1024, 2048))[1] < MOST_STEPS


@pytest.mark.parametrize("name", ["f16", "bf16", "s8", "f32"])
def test_elements_in_blocks_are_those_of_one_piece(name: str) -> None:
    values = np.linspace(-100, 100, 3 * (1 << 16) + 5).reshape(1, -1)
    whole = DTYPES[name].encode(values)
    parts = [DTYPES[name].encode(values[:, i : i + 1000]) for i in range(0, values.size, 1000)]
    assert whole.shape == values.shape
    np.testing.assert_array_equal(whole.view("u1"), np.concatenate(parts, axis=1).view("u1"))
