# SPDX-License-Identifier: Apache-2.0
"""What is touched of a block's shared memory or Tensor Memory, as an integer with one bit a cell: 4 bytes of shared
memory, or 16 lanes of a column of Tensor Memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.smem_desc import Generation, SmemDescriptor, element_offset
from porter.ptx.tmem import COLUMNS, LANES, DLayout, a_cell, column_splits, d_cell, rows_per_cta
from porter.ptx.tmem_access import Shape, TmemAccess
from porter.ptx.umma import K_BYTES

_BYTES = 4
_LANES = 16
_CHUNK = 16
"""Bytes that swizzles keep together."""


def of_bytes(offset: int, nbytes: int) -> int:
    """A run of bytes of shared memory."""
    first, last = offset // _BYTES, -(-(offset + nbytes) // _BYTES)
    return ((1 << (last - first)) - 1) << first


def _marked(places: npt.NDArray[Any]) -> int:
    flat = np.unique(np.asarray(places).reshape(-1))
    mark = np.zeros(int(flat[-1]) + 1, bool)
    mark[flat] = True
    return int.from_bytes(np.packbits(mark, bitorder="little").tobytes(), "little")


@lru_cache(maxsize=4096)
def of_operand(descriptor: int, generation: Generation, rows: int, element_bits: int, mn_major: bool) -> int:
    """An operand of so many rows (or columns of B) and the 32 bytes of K that an MMA takes.

    Raises:
        ValueError: the descriptor is none.
    """
    found = SmemDescriptor.decode(descriptor, generation)
    if found.lbo_absolute:
        raise ValueError("a descriptor with an absolute leading-dimension address")
    step = _CHUNK * 8 // element_bits
    depth = K_BYTES * 8 // element_bits
    mn = np.arange(0, rows, step if mn_major else 1)[:, None]
    k = np.arange(0, depth, 1 if mn_major else step)[None, :]
    offsets = element_offset(
        mn, k, element_bits=element_bits, mn_major=mn_major, swizzle=found.swizzle, lbo=found.lbo, sbo=found.sbo
    )
    anchor = (found.base_offset << 7) if found.base_offset else 0
    chunks = found.swizzle.swizzle.apply(found.address + offsets, anchor) // _CHUNK
    per_chunk = _CHUNK // _BYTES
    return _marked(chunks[..., None] * per_chunk + np.arange(per_chunk))


def of_columns(column: int, columns: int) -> int:
    """All lanes of some columns."""
    run = ((1 << columns) - 1) << column
    return sum(run << group * COLUMNS for group in range(LANES // _LANES))


def _of_tensor(lanes: npt.NDArray[Any], columns: npt.NDArray[Any]) -> int:
    lanes, columns = np.broadcast_arrays(lanes, columns)
    return _marked(lanes // _LANES * COLUMNS + columns)


@lru_cache(maxsize=1024)
def of_accumulator(lane: int, column: int, layout: DLayout, rows: int, n: int) -> tuple[int, ...]:
    """D of a tcgen05.mma of `rows` by `n`, in each block that has a part of it.

    Raises:
        ValueError: it lies outside of Tensor Memory.
    """
    row, col = np.arange(0, rows)[:, None], np.arange(n)[None, :]
    block, lanes, columns = np.broadcast_arrays(*d_cell(layout, row, col, n))
    if lane + int(lanes.max()) >= LANES or column + int(columns.max()) >= COLUMNS:
        raise ValueError("an accumulator that lies outside of Tensor Memory")
    return tuple(
        _of_tensor(lane + lanes[block == b], column + columns[block == b]) for b in range(rows // rows_per_cta(layout))
    )


@lru_cache(maxsize=256)
def of_tensor_operand(lane: int, column: int, layout: DLayout, element_bits: int) -> int:
    """A of one block in Tensor Memory, of one tcgen05.mma."""
    row = np.arange(rows_per_cta(layout) * column_splits(layout))[:, None]
    k = np.arange(K_BYTES * 8 // element_bits)[None, :]
    lanes, columns, _ = a_cell(layout, row, k, element_bits)
    return _of_tensor(lane + lanes, column + columns)


@lru_cache(maxsize=1024)
def of_access(access: TmemAccess, lane: int, column: int, split: int) -> int:
    """A tcgen05.ld or .st. `split`: how far the second half of a .16x32bx2 lies from the first.

    Raises:
        ValueError: it lies outside of Tensor Memory.
    """
    lanes = 32 if access.shape is Shape.S32X32B else 16
    columns = np.arange(column, column + access.columns)
    if access.shape is Shape.S16X32BX2:
        columns = np.concatenate((columns, columns + split))
    if lane + lanes > LANES or int(columns.max()) >= COLUMNS:
        raise ValueError("an access that lies outside of Tensor Memory")
    return _of_tensor(lane + np.arange(lanes)[:, None], columns[None, :])
