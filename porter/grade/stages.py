# SPDX-License-Identifier: Apache-2.0
"""How many stages a kernel is to have."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from porter.grade.changes import Impossible, fitting, stages
from porter.grade.shape import Shape

_NEAR = 0.999
"""What is within this of the best is as good: fewer stages leave memory to others."""


def best_count(shape: Shape, counts: Iterable[int], rate: Callable[[Shape], float]) -> int:
    """The fewest stages, of those that a shape has and of `counts`, with which its `rate` is as good as with any."""
    rates: dict[int, float] = {}
    for count in sorted({shape.stages or 1, *counts}):
        try:
            rates[count] = rate(fitting(stages(shape, count)))
        except Impossible:
            continue
    best = max(rates.values(), default=0.0)
    return min((n for n, r in rates.items() if r >= best * _NEAR), default=shape.stages or 1)
