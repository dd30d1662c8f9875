# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of dsl_attention_bwd."""

from __future__ import annotations

import numpy as np


def backward(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """dQ, dK and dV of attention per head, with whatever log-sum-exp and Delta are given."""
    scale = sizes["SCALE"]
    scores = np.einsum("mdh,ndh->mnh", inputs["Q"], inputs["K"]) * scale
    if sizes.get("CAUSAL"):
        queries, keys, _ = np.indices(scores.shape)
        scores = np.where(keys > queries, -np.inf, scores)
    weights = np.exp(scores - inputs["L"][:, None])
    products = np.einsum("mdh,ndh->mnh", inputs["dO"], inputs["V"])
    gradients = weights * (products - inputs["Delta"][:, None])
    return {
        "dQ": scale * np.einsum("mnh,ndh->mdh", gradients, inputs["K"]),
        "dK": scale * np.einsum("mnh,mdh->ndh", gradients, inputs["Q"]),
        "dV": np.einsum("mnh,mdh->ndh", weights, inputs["dO"]),
    }
