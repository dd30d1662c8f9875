# SPDX-License-Identifier: Apache-2.0
"""Where an output element was made: tile, warp, lane, accumulator register, TMEM cell.

This reads the output as tiles of m64 accumulators stored plainly (row r of the tile in row r of the output),
which is how GEMM epilogues do it; it is a pointer for a person, not part of a verdict.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from porter.ptx import tmem, wgmma
from porter.ptx.arch import WARP
from porter.verify.problem import Problem
from porter.verify.tensor import Tensor


@dataclass(frozen=True)
class ElementPlace:
    """`tile` in tiles (row, column); `slab` counts m64 accumulators down the tile; `warp` is the warp of the
    warpgroup that holds the slab. Lane and column of Tensor Memory are relative to the accumulator's address,
    for the M=64 accumulator that takes the place of a wgmma fragment."""

    tile: tuple[int, int]
    slab: int
    warp: int
    lane: int
    register: int
    tmem_lane: int
    tmem_column: int

    def __str__(self) -> str:
        return (
            f"tile ({self.tile[0]}, {self.tile[1]}), m64 slab {self.slab}, warp {self.warp}, "
            f"lane {self.lane}, register {self.register}, "
            f"TMEM lane {self.tmem_lane} column {self.tmem_column}"
        )


@functools.cache
def _owners(n: int) -> np.ndarray:
    """[64, n, 2]: thread and register of each element of an m64nN f32 accumulator."""
    threads, registers = np.meshgrid(np.arange(wgmma.THREADS), np.arange(n // 2), indexing="ij")
    rows, columns = wgmma.d_position(threads, registers)
    owners = np.empty((wgmma.M, n, 2), np.int64)
    owners[rows, columns, 0] = threads
    owners[rows, columns, 1] = registers
    return owners


def _instruction_n(columns: int) -> int | None:
    """The widest legal N that divides the tile's columns."""
    return next((n for n in range(256, 0, -8) if columns % n == 0), None)


def place_of(problem: Problem, tensor: Tensor, index: tuple[int, ...]) -> ElementPlace | None:
    """The place of an element, or None where the output is no matrix or the tile is not known."""
    if problem.tile is None or len(index) < 2:
        return None
    tile_rows, tile_columns = problem.tile
    n = _instruction_n(tile_columns)
    if n is None:
        return None
    row, column = index[-2], index[-1]
    slab, slab_row = divmod(row % tile_rows, wgmma.M)
    instruction_column = column % tile_columns % n
    thread, register = (int(v) for v in _owners(n)[slab_row, instruction_column])
    layout = tmem.d_layout(wgmma.M, 1)
    _, lane, tmem_column = tmem.d_cell(layout, slab_row, instruction_column, n)
    return ElementPlace(
        tile=(row // tile_rows, column // tile_columns),
        slab=slab,
        warp=thread // WARP,
        lane=thread % WARP,
        register=register,
        tmem_lane=int(lane),
        tmem_column=int(tmem_column),
    )
