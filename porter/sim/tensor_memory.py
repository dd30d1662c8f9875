# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory of the running blocks: contents and life cycle (PTX ISA 9.7.16.1, 9.7.16.7).

Every block is taken to be alone on its SM, so all 512 columns are its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.sim.engine import Operation
from porter.sim.results import Stop

if TYPE_CHECKING:
    from porter.sim.machine import Machine

Array = npt.NDArray[Any]
LANES, COLUMNS = 128, 512


class TensorMemory:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._cells: dict[int, Array] = {}
        n = machine.n_cta
        self.owned = np.zeros((n, COLUMNS), bool)
        self.allocations: list[dict[int, tuple[int, int]]] = [{} for _ in range(n)]
        self.relinquished = [False] * n
        self.cta_group = [0] * n
        # Blocks whose warp waits in alloc: (warp, columns, shared address); warps that got theirs meanwhile.
        self.requests: dict[int, tuple[int, int, int]] = {}
        self.granted: set[int] = set()
        self.stores: dict[int, list[Operation]] = {}
        self.touched: dict[Any, Array] = {}

    def cells(self, cta: int) -> Array:
        """[128, 512] u32; never-written cells hold a NaN pattern."""
        found = self._cells.get(cta)
        if found is None:
            found = self._cells[cta] = np.full((LANES, COLUMNS), 0xFFFFFFFF, np.uint32)
        return found

    def use_group(self, cta: int, group: int, at: int, warp: int) -> None:
        """A kernel uses one cta_group value throughout."""
        if self.cta_group[cta] not in (0, group):
            self._stop(f"cta_group::{group} after cta_group::{self.cta_group[cta]} in one kernel", at, warp)
        self.cta_group[cta] = group

    def _stop(self, what: str, at: int, warp: int) -> None:
        raise Stop(Code.SIM_TMEM_ALLOCATION, what, at, warp)

    def check_alloc(self, cta: int, columns: int, at: int, warp: int) -> None:
        if columns not in (32, 64, 128, 256, 512):
            self._stop(f"{columns} columns: a power of two from 32 to 512 is needed", at, warp)
        if self.relinquished[cta]:
            self._stop("alloc after relinquish_alloc_permit", at, warp)

    def find_free(self, ctas: list[int], columns: int) -> int | None:
        """First column of a free run in all the blocks, aligned to its size."""
        taken: Array = np.asarray(self.owned[ctas].any(axis=0))
        for start in range(0, COLUMNS - columns + 1, columns):
            if not taken[start : start + columns].any():
                return start
        return None

    def allocate(self, cta: int, start: int, columns: int, at: int) -> None:
        self.owned[cta, start : start + columns] = True
        self.allocations[cta][start] = (columns, at)

    def deallocate(self, cta: int, address: int, columns: int, at: int, warp: int) -> None:
        start = address & 0xFFFF
        found = self.allocations[cta].get(start)
        if address >> 16 or found is None:
            self._stop(f"dealloc of {address:#x}, which no alloc returned", at, warp)
            return
        if found[0] != columns:
            self._stop(f"dealloc of {columns} columns, but {found[0]} were allocated", at, warp)
        del self.allocations[cta][start]
        self.owned[cta, start : start + columns] = False
        # Later contents of these columns are unknown.
        self.cells(cta)[:, start : start + columns] = 0xFFFFFFFF
        self.machine.activity += 1
        self.machine.wake(("tmem", cta))

    def check_columns(self, cta: int, columns: Array, at: int, warp: int, what: str) -> None:
        """Raises Stop if an access touches columns that the block does not hold."""
        if columns.size == 0:
            return
        try:
            held = np.logical_and.reduce(self.owned[cta][columns], axis=None)
        except IndexError:
            held = False
        if held:
            return
        touched = np.unique(columns)
        bad = touched[(touched >= COLUMNS) | ~self.owned[cta, np.minimum(touched, COLUMNS - 1)]]
        raise Stop(
            Code.SIM_TMEM_UNALLOCATED,
            f"{what} touches column {int(bad[0])}, which is not allocated",
            at,
            warp,
        )

    def check_leaks(self) -> None:
        """At the kernel's end nothing may be left allocated."""
        M = self.machine
        for cta, held in enumerate(self.allocations):
            for start, (columns, at) in held.items():
                raise Stop(
                    Code.SIM_TMEM_LEAK,
                    f"{columns} columns at column {start} are still allocated at the end of the kernel",
                    at,
                    cta * M.warps_per_cta,
                )
