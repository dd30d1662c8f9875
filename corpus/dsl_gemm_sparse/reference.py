# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of dsl_gemm_sparse."""

from __future__ import annotations

import numpy as np


def sparse(inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """A B^T over the columns whose k tile counts: those of the mask, and the last."""
    counts = inputs["Mask"] == 1
    counts[-1] = True
    columns = np.repeat(counts, 64)[: sizes["K"]]
    return {"C": inputs["A"][:, columns] @ inputs["B"][:, columns].T}
