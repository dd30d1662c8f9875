# SPDX-License-Identifier: Apache-2.0
"""What tiles that run at a time load of A and B, by the order in which they are done.

Tiles are handed out in the order of their numbers, as many at a time as SMs have room for. Each row of them that runs
needs its rows of A, each column its columns of B; what several need comes from memory once, as long as they run
together. No time is made of it: it says which order asks less of memory where L2 does not hold the operands.
"""

from __future__ import annotations

from collections.abc import Iterator

from porter.grade.chips import chip_of, values
from porter.grade.clocks import resident
from porter.grade.shape import Problem, Shape
from porter.ptx.umma import K_BYTES

GAIN = 0.05
"""A share of the bytes below which an order is no better than another one."""


def held_bytes() -> float:
    """Of operands that L2 holds: beyond these, loads are as slow as from memory."""
    return values()["l2_cliff_bytes"]


def wave_bytes(shape: Shape, problem: Problem, group: int = 1, by_columns: bool = False) -> float:
    """What all tiles that run at a time load, on average over the waves: in rows, or `group` rows at a time, each
    column of these from its first to its last tile. `by_columns`: rows of the order are columns of the product.

    Raises:
        ValueError: the stage is no plain product, or no chip is known that runs it.
    """
    chip = chip_of(shape.arch)
    if not shape.is_product or chip is None or not shape.tile_m or not shape.tile_n:
        raise ValueError("an order of tiles is that of a plain product on a chip that is known")
    down, across = -(-problem.m // shape.tile_m), -(-problem.n // shape.tile_n)
    of_row, of_column = (tile * problem.k * _element(shape) for tile in (shape.tile_m, shape.tile_n))
    if by_columns:
        down, across, of_row, of_column = across, down, of_column, of_row
    at_once = chip.sms // shape.cta_group * resident(shape)
    order = list(_order(down, across, group))
    total, waves = 0.0, 0
    for begin in range(0, len(order), at_once):
        wave = order[begin : begin + at_once]
        total += len({row for row, _ in wave}) * of_row + len({column for _, column in wave}) * of_column
        waves += 1
    return total / waves


def missing(shape: Shape, problem: Problem, group: int) -> str:
    """Why another order of tiles is no gain, in words; empty where it is one, whichever way tiles are numbered.

    Raises:
        ValueError: as `wave_bytes`.
    """
    held = held_bytes()
    for by_columns in (False, True):
        before, after = (wave_bytes(shape, problem, g, by_columns) for g in (1, group))
        if before <= held:
            return f"tiles that run at a time load {before / 1e6:.0f} MB, and L2 holds {held / 1e6:.0f} MB"
        if after >= before * (1 - GAIN):
            return f"tiles that run at a time load {before / 1e6:.0f} MB in rows, {after / 1e6:.0f} MB in groups"
    return ""


def _element(shape: Shape) -> float:
    mma = shape.mmas[0][0]
    return K_BYTES / (mma.operations / (2 * mma.m * mma.n))


def _order(down: int, across: int, group: int) -> Iterator[tuple[int, int]]:
    for first in range(0, down, group):
        rows = range(first, min(first + group, down))
        if group == 1:
            yield from ((first, column) for column in range(across))
        else:
            yield from ((row, column) for column in range(across) for row in rows)
