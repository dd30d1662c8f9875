# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of attention."""

from __future__ import annotations

import numpy as np


def attention(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Softmax attention per head; the heads of a group have one sequence of keys, whose last 40 do not count, and of a
    second one whose last 100."""
    group = len(inputs["Q"]) // len(inputs["K"])
    keys, values = (np.repeat(inputs[name], group, 0) for name in "KV")
    scores = inputs["Q"] @ np.swapaxes(keys, 1, 2) * sizes["SCALE"]
    _, key = np.indices(scores.shape[1:])
    length = sizes["S"] - np.repeat([40, 100][: len(inputs["K"])], group)[:, None, None]
    scores = np.where(key >= length, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return {"O": weights / weights.sum(axis=2, keepdims=True) @ values}
