# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of cute_attention."""

from __future__ import annotations

import numpy as np


def attention(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Softmax attention per head; the heads of a group have one sequence of keys, whose last 40 do not count."""
    group = len(inputs["Q"]) // len(inputs["K"])
    keys, values = (np.repeat(inputs[name], group, 0) for name in "KV")
    scores = inputs["Q"] @ np.swapaxes(keys, 1, 2) * sizes["SCALE"]
    query, key = np.indices(scores.shape[1:])
    hidden = (key > query) & bool(sizes["CAUSAL"]) | (key >= sizes["S"] - 40)
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return {"O": weights / weights.sum(axis=2, keepdims=True) @ values}
