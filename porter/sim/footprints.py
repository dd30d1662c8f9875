# SPDX-License-Identifier: Apache-2.0
"""Footprints: what is touched of a block's shared memory or Tensor Memory, as an integer with one bit per granule.

A granule is 2 bytes of shared memory, or 16 lanes of a Tensor Memory column.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.operand_chunks import operand_chunks
from porter.ptx.smem_desc import Generation
from porter.ptx.tensormap import TensorMap
from porter.ptx.tmem import COLUMNS
from porter.ptx.tmem_access import TmemAccess
from porter.sim.datapath import tmem_access
from porter.sim.datapath.tma import Mode, stored_bytes

Array = npt.NDArray[Any]

GRANULE = 2
LANE_GROUP = 16
_CHUNK = 16


def chunk_bits(chunks: Array) -> int:
    """16-byte chunks as granules."""
    low = int(chunks.min())
    mark = np.zeros(int(chunks.max()) - low + 1, bool)
    mark[(chunks - low).reshape(-1)] = True
    per_chunk = _CHUNK // GRANULE
    packed = np.packbits(np.repeat(mark, per_chunk), bitorder="little").tobytes()
    return int.from_bytes(packed, "little") << low * per_chunk


@lru_cache(maxsize=4096)
def operand_bits(descriptor: int, generation: Generation, rows: int, k: int, element_bits: int, mn_major: bool) -> int:
    """Raises OperandError for an invalid descriptor."""
    return chunk_bits(operand_chunks(descriptor, generation, rows, k, element_bits, mn_major))


@lru_cache(maxsize=4096)
def operand_rows_bits(
    descriptor: int,
    generation: Generation,
    rows: int,
    k: int,
    element_bits: int,
    mn_major: bool,
    first: int,
    count: int,
) -> int:
    """The same for `count` rows from `first` on."""
    chunks = operand_chunks(descriptor, generation, rows, k, element_bits, mn_major)
    if mn_major:
        per_chunk = 8 * _CHUNK // element_bits
        return chunk_bits(chunks[:, first // per_chunk : -(-(first + count) // per_chunk)])
    return chunk_bits(chunks[first : first + count])


@lru_cache(maxsize=1024)
def operand_row_bits(
    descriptor: int, generation: Generation, rows: int, k: int, element_bits: int, mn_major: bool
) -> tuple[int, ...]:
    """The same for each row; with M major order rows that share their chunks have the same."""
    return tuple(
        operand_rows_bits(descriptor, generation, rows, k, element_bits, mn_major, row, 1) for row in range(rows)
    )


def byte_bits(offsets: Array, size: int) -> int:
    """The footprint of accesses of `size` bytes at some byte offsets."""
    first = offsets // GRANULE
    low = int(first.min())
    count = -(-size // GRANULE)
    mark = np.zeros(int(first.max()) - low + count, bool)
    for i in range(count):
        mark[first - low + i] = True
    return int.from_bytes(np.packbits(mark, bitorder="little").tobytes(), "little") << low


def range_bits(offset: int, nbytes: int) -> int:
    first, last = offset // GRANULE, -(-(offset + nbytes) // GRANULE)
    return ((1 << (last - first)) - 1) << first


def tile_bits(tensor_map: TensorMap, coords: Sequence[int], mode: Mode, offset: int, nbytes: int) -> int:
    """What a tensor store reads of the `nbytes` that its box takes at an offset: elements inside (ruling
    `box-beyond`)."""
    inside = stored_bytes(tensor_map, coords, offset, mode)
    if inside is None:
        return range_bits(offset, nbytes)
    return byte_bits(inside, 1) if inside.size else 0


def cell_bits(lanes: Array, columns: Array) -> int:
    """The footprint of Tensor Memory cells."""
    mark = np.zeros(8 * COLUMNS, bool)
    mark[(np.asarray(lanes) // LANE_GROUP * COLUMNS + np.asarray(columns)).reshape(-1)] = True
    return int.from_bytes(np.packbits(mark, bitorder="little").tobytes(), "little")


@lru_cache(maxsize=64)
def column_bits(start: int, columns: int) -> int:
    run = ((1 << columns) - 1) << start
    return sum(run << group * COLUMNS for group in range(8))


@lru_cache(maxsize=256)
def access_bits(access: TmemAccess, half_split: int) -> int:
    """The cells of a tcgen05.ld or .st that begins at lane 0 and column 0."""
    cells = tmem_access.cells(0, access.shape, access.count, warp_rank=0, packed=access.packed, half_split=half_split)
    return cell_bits(*cells)


def cells_from(bits: int, lane: int, column: int) -> int:
    """The same cells for an access that begins at another lane and column."""
    return bits << lane // LANE_GROUP * COLUMNS + column
