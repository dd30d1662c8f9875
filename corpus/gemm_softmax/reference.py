# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of gemm_softmax."""

from __future__ import annotations

import numpy as np


def route(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Softmax over experts, its largest value and the log-sum-exp of each row of scaled logits."""
    logits = inputs["X"] @ inputs["W"].T * sizes["SCALE"]
    largest = logits.max(axis=1)
    weights = np.exp(logits - largest[:, None])
    total = weights.sum(axis=1)
    return {"P": weights / total[:, None], "top": 1 / total, "log_sum": largest + np.log(total)}
