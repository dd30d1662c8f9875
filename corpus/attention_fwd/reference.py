# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of attention_fwd."""

from __future__ import annotations

import numpy as np


def attention(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Softmax attention per head, and the log-sum-exp of each row of scaled scores."""
    scores = inputs["Q"] @ np.swapaxes(inputs["K"], 1, 2) * sizes["SCALE"]
    if sizes["CAUSAL"]:
        queries, keys = np.indices(scores.shape[1:])
        scores = np.where(keys > queries, -np.inf, scores)
    largest = scores.max(axis=2, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=2, keepdims=True)
    return {"O": weights / total @ inputs["V"], "L": (largest + np.log(total))[..., 0]}
