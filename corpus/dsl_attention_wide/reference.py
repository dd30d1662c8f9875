# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of dsl_attention_wide."""

from __future__ import annotations

import numpy as np


def attention(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Softmax attention per head, and the log-sum-exp of each row of scaled scores."""
    scores = np.einsum("mdh,ndh->mnh", inputs["Q"], inputs["K"]) * sizes["SCALE"]
    if sizes.get("CAUSAL"):
        queries, keys, _ = np.indices(scores.shape)
        scores = np.where(keys > queries, -np.inf, scores)
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=1, keepdims=True)
    out = np.einsum("mnh,dnh->mdh", weights / total, inputs["V"])
    return {"O": out, "L": (largest + np.log(total))[:, 0]}
