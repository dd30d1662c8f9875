# SPDX-License-Identifier: Apache-2.0
"""Measurements beside what the model says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One measurement and what the model says, in the same unit. `fitted`: constants were fitted to it."""

    source: str
    name: str
    measured: float
    predicted: float
    fitted: bool = False

    @property
    def error(self) -> float:
        """Natural logarithm of predicted over measured."""
        return math.log(self.predicted / self.measured)


def mean_error(points: Sequence[Point]) -> float:
    """Mean of the absolute errors."""
    return sum(abs(p.error) for p in points) / len(points)
