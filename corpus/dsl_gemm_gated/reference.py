# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of dsl_gemm_gated."""

from __future__ import annotations

import numpy as np


def gated(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """silu(A G^T) * (A U^T)."""
    gate, up = inputs["A"] @ inputs["G"].T, inputs["A"] @ inputs["U"].T
    with np.errstate(over="ignore"):  # exp of what is large: the quotient is 0
        return {"C": gate / (1 + np.exp(-gate)) * up}
