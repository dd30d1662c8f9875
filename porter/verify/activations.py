# SPDX-License-Identifier: Apache-2.0
"""Functions that epilogues apply, as words of reference expressions: `gelu(A @ B.T + bias)`.

Each knows what an error of its argument makes of its result, so that a case needs no `magnitude` for it. `gelu` and
`gelu_tanh` are the two forms of torch.nn.functional.gelu (`approximate`), `softmax` is over one axis, as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from porter.verify.array_functions import Cost, size

Array = Any
_STEPS = 300
"""What an element costs, in the steps of `array_functions`."""


@dataclass(frozen=True)
class Activation:
    """`call` of an array in float64; `magnitude` of its values and of the magnitudes of what they are made of gives
    what errors of the result are relative to. `formula` is for people, `keywords` those that a call may have."""

    name: str
    formula: str
    call: Callable[..., Array]
    magnitude: Callable[..., Array]
    keywords: frozenset[str] = frozenset()

    @property
    def cost(self) -> Cost:
        return lambda *args, **_: (size(args[0]), size(args) * _STEPS)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), dtype=np.float64)


_ERF = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(x)))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _erf(np.asarray(x, dtype=np.float64) / math.sqrt(2)))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _relu(x: Array) -> Array:
    return np.fmax(x, 0)


def _softmax(x: Array, axis: int = -1) -> Array:
    weights = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return weights / np.sum(weights, axis=axis, keepdims=True)


def _softmax_magnitude(x: Array, m: Array, axis: int = -1) -> Array:
    # dy = y (dx - sum y dx), and each y is rounded by itself
    return _softmax(x, axis) * (1 + 2 * np.max(m, axis=axis, keepdims=True))


def _sloped(call: Callable[..., Array], slope: float) -> Callable[..., Array]:
    """Of a function with a largest slope, whose own roundings are relative to its result."""
    return lambda x, m: slope * m + np.abs(call(x))


def _gated(slope: float) -> Callable[..., Array]:
    """Of x times a gate between 0 and 1, whose roundings are relative to x."""
    return lambda x, m: slope * m + np.abs(x)


ACTIVATIONS: dict[str, Activation] = {
    a.name: a
    for a in (
        Activation("tanh", "tanh x", np.tanh, _sloped(np.tanh, 1.0)),
        Activation("exp", "e^x", np.exp, lambda x, m: np.exp(x) * (1 + m)),
        Activation("erf", "the error function", _erf, _sloped(_erf, 2 / math.sqrt(math.pi))),
        Activation("sigmoid", "1 / (1 + e^-x)", _sigmoid, _sloped(_sigmoid, 0.25)),
        Activation("silu", "x sigmoid(x), also called swish", _silu, _gated(1.1)),
        Activation("gelu", "x (1 + erf(x / sqrt 2)) / 2", _gelu, _gated(1.13)),
        Activation("gelu_tanh", "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2", _gelu_tanh, _gated(1.13)),
        Activation("relu", "x where it is positive, else 0", _relu, lambda x, m: m),
        Activation("softmax", "e^x over its sum along `axis`, the last one if none is named", _softmax,
                   _softmax_magnitude, frozenset({"axis"})),
    )
}  # fmt: skip
