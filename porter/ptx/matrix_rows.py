# SPDX-License-Identifier: Apache-2.0
"""Where ldmatrix and stmatrix have the elements of 8x8 matrices of 16 bits (PTX ISA 9.7.14.5.15, 9.7.14.5.16)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from porter.ptx.arch import WARP

ROWS = 8
"""Of a matrix; each has an address of its own."""
Indices = npt.NDArray[np.int64]


def element_places(transposed: bool) -> tuple[Indices, Indices]:
    """Row and column [32, 2] of both elements of a thread's register."""
    lane, element = np.arange(WARP)[:, None], np.arange(2)[None, :]
    outer, inner = lane // 4 + 0 * element, 2 * (lane % 4) + element
    return (inner, outer) if transposed else (outer, inner)
