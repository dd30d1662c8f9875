# SPDX-License-Identifier: Apache-2.0
"""The state of named barriers and of cluster barriers; `sync` is what instructions do with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.sim.geometry import Geometry

Array = npt.NDArray[Any]


@dataclass
class NamedBarrier:
    """One of a block's 16 barriers in use: threads `arrived`, `expected` (None: all), a pending reduction."""

    arrived: int = 0
    expected: int | None = None
    how: str = ""
    total: int = 0
    at: int = -1
    tokens: list[tuple[int, Array]] = field(default_factory=list)


class Barriers:
    """`named` are those in use by (block, number). Threads that have been through a reduction have a token of its
    result. Of each cluster: threads that have arrived, complete phases, the phase in which each thread
    arrived, and whether it has not waited since."""

    def __init__(self, geometry: Geometry) -> None:
        W, clusters = geometry.W, geometry.n_cta // geometry.cluster_size
        self.named: dict[tuple[int, int], NamedBarrier] = {}
        self.has_token = np.zeros((W, 32), bool)
        self.tokens = np.zeros((W, 32), np.int64)
        self.cluster_arrived = np.zeros(clusters, np.int64)
        self.cluster_phase = np.zeros(clusters, np.int64)
        self.cluster_seen = np.full((W, 32), -1, np.int64)
        self.cluster_unwaited = np.zeros((W, 32), bool)
