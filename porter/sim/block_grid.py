# SPDX-License-Identifier: Apache-2.0
"""Where the blocks of a wave are in the grid and in their clusters."""

from __future__ import annotations

import math

import numpy as np

from porter.sim.results import Launch


class BlockGrid:
    """The blocks `ctas` of a launch. They are numbered cluster by cluster, so that a cluster's blocks are neighbours.

    Arrays over the blocks: `rank` within the cluster, `first` block of the cluster, and as [blocks, 3] the
    `cluster_index` in the grid of clusters, the `index_in_cluster`, and the `index` in the grid.
    """

    def __init__(self, launch: Launch, ctas: range) -> None:
        self._cluster = cx, cy, cz = launch.cluster
        self._clusters = [g // c for g, c in zip(launch.grid, launch.cluster, strict=True)]
        self._cluster_size = math.prod(launch.cluster)
        cluster, rank = np.divmod(np.asarray(ctas, np.int64), self._cluster_size)
        nx, ny, _ = self._clusters
        self.rank = rank
        self.first = np.arange(len(ctas)) - rank
        self.cluster_index = np.stack([cluster % nx, cluster // nx % ny, cluster // (nx * ny)], axis=1)
        self.index_in_cluster = np.stack([rank % cx, rank // cx % cy, rank // (cx * cy)], axis=1)
        self.index = self.cluster_index * (cx, cy, cz) + self.index_in_cluster

    def position_of(self, number: int) -> tuple[int, int, int]:
        """Index in the grid of the block with a number in launch order, the first of its cluster."""
        (nx, ny, _), (cx, cy, cz) = self._clusters, self._cluster
        cluster = number // self._cluster_size
        return cluster % nx * cx, cluster // nx % ny * cy, cluster // (nx * ny) * cz

    def position(self, cta: int) -> tuple[int, int, int]:
        """Index in the grid of a block of the wave."""
        x, y, z = self.index[cta].tolist()
        return x, y, z
