# SPDX-License-Identifier: Apache-2.0
"""What one store instruction writes to shared memory, to be compared with what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.sim.footprints import GRANULE

Array = npt.NDArray[Any]


@dataclass
class SharedStores:
    """`where` [warps, lanes]: byte indices into all shared memory; `values` [warps, lanes] or [warps, lanes, count] of
    `item` bytes each. `row`: the warp that is judged; those before it have stored."""

    where: Array
    lanes: Array
    values: Array
    item: int
    row: int = 0

    def keep(self, memory: Array, granules: range) -> bool:
        """Whether the warp's threads that come to any of these granules of all shared memory write what is there."""
        size = self._bytes.shape[-1]
        mine, start = self.lanes[self.row], self.where[self.row]
        common = (start < granules.stop * GRANULE) & (start + size > granules.start * GRANULE)
        return all(
            np.array_equal(self._bytes[self.row, lane], self._there(memory, int(start[lane])))
            for lane in np.flatnonzero(mine & common)
        )

    @property
    def _bytes(self) -> Array:
        shape = self.values.shape[:2]
        return np.ascontiguousarray(np.asarray(self.values, f"u{self.item}")).view(np.uint8).reshape(*shape, -1)

    def _there(self, memory: Array, start: int) -> Array:
        """The bytes from a place on, as the warps before this one have left them."""
        stored = self._bytes
        rows, lanes = np.nonzero((self.where[: self.row] == start) & self.lanes[: self.row])
        found: Array = stored[rows[-1], lanes[-1]] if rows.size else memory[start : start + stored.shape[-1]]
        return found
