# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of cute_attention."""

from __future__ import annotations

import numpy as np


def attention(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Softmax attention per head."""
    scores = inputs["Q"] @ np.swapaxes(inputs["K"], 1, 2) * sizes["SCALE"]
    if sizes["CAUSAL"]:
        queries, keys = np.indices(scores.shape[1:])
        scores = np.where(keys > queries, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return {"O": weights / weights.sum(axis=2, keepdims=True) @ inputs["V"]}
