# SPDX-License-Identifier: Apache-2.0
"""How the blocks that run at one time, their warps and their threads are numbered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.arch import WARP
from porter.sim.block_grid import BlockGrid
from porter.sim.results import Launch

Array = npt.NDArray[Any]


class Geometry:
    """Of the blocks `ctas` (linear indices) of a launch: `n_cta` blocks of `threads` threads, W warps in all."""

    def __init__(self, launch: Launch, ctas: range) -> None:
        self.launch = launch
        self.ctas = ctas
        self.n_cta = len(ctas)
        self.threads = math.prod(launch.block)
        self.warps_per_cta = -(-self.threads // WARP)
        self.W = self.n_cta * self.warps_per_cta
        self.cluster_size = math.prod(launch.cluster)
        self.clustered = self.cluster_size > 1
        self.warp_cta, self.warp_rank = np.divmod(np.arange(self.W), self.warps_per_cta)
        self.thread = (self.warp_rank[:, None] * WARP + np.arange(WARP)).astype(np.uint32)
        self.exists = self.thread < self.threads
        self.grid = BlockGrid(launch, ctas)
        self.cta_rank, self.cta_first = self.grid.rank, self.grid.first

    def warps(self, idx: Any) -> Array:
        """Selected warps as an index array."""
        return np.arange(idx.start, idx.stop) if isinstance(idx, slice) else idx

    def block_position(self, cta: int) -> tuple[int, int, int]:
        """Index of a block of the wave in the grid."""
        return self.grid.position(cta)

    def first_lane(self, idx: Any, n: int, mask: Any, where: Any = None) -> tuple[int, int]:
        """(warp, lane) of the first active thread, for a finding."""
        active = np.broadcast_to(True if mask is None else mask, (n, 32))
        if where is not None:
            active = active & where
        row, lane = np.unravel_index(int(np.argmax(active)), (n, 32))
        return int(self.warps(idx)[row]), int(lane)
