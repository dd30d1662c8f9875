# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of cute_attention_bwd."""

from __future__ import annotations

import numpy as np


def backward(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """dQ, dK and dV of attention per head, with whatever log-sum-exp and Delta are given."""
    scale = sizes["SCALE"]
    scores = np.einsum("hmd,hnd->hmn", inputs["Q"], inputs["K"]) * scale
    if sizes["CAUSAL"]:
        queries, keys = np.indices(scores.shape[1:])
        scores = np.where(keys > queries, -np.inf, scores)
    weights = np.exp(scores - inputs["L"][:, :, None])
    gradients = weights * (np.einsum("hmd,hnd->hmn", inputs["dO"], inputs["V"]) - inputs["Delta"][:, :, None])
    return {
        "dQ": scale * np.einsum("hmn,hnd->hmd", gradients, inputs["K"]),
        "dK": scale * np.einsum("hmn,hmd->hnd", gradients, inputs["Q"]),
        "dV": np.einsum("hmn,hmd->hnd", weights, inputs["dO"]),
    }
