# SPDX-License-Identifier: Apache-2.0
"""What a user may choose about a run; free of the machinery that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

BACKENDS = ("sim",)


@dataclass(frozen=True)
class SimOptions:
    """How the simulator runs: see `porter.sim.Options`."""

    schedule: Literal["eager", "late", "random"] = "late"
    arithmetic: Literal["float64", "exact"] = "float64"
    seed: int = 0
    budget: int | None = None
    progress: Callable[[int], None] | None = None
    print: Callable[[str], None] | None = None
