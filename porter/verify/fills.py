# SPDX-License-Identifier: Apache-2.0
"""Contents of memory by name, for kernels that run without a case."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from porter.verify.dtypes import Float64

_FILLS: dict[str, Callable[[tuple[int, ...], np.random.Generator], Float64]] = {
    "zeros": lambda shape, rng: np.zeros(shape),
    "ones": lambda shape, rng: np.ones(shape),
    "iota": lambda shape, rng: np.arange(math.prod(shape), dtype=np.float64).reshape(shape),
    "normal": lambda shape, rng: rng.standard_normal(shape),
    "uniform": lambda shape, rng: rng.random(shape),
    "integers": lambda shape, rng: rng.integers(-3, 4, shape).astype(np.float64),
}
FILLS = tuple(_FILLS)


def fill_values(fill: str, shape: tuple[int, ...], seed: int) -> Float64:
    """Elements as one of `FILLS` says."""
    return _FILLS[fill](shape, np.random.default_rng(seed))
