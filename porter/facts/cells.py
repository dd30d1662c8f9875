# SPDX-License-Identifier: Apache-2.0
"""What is touched of a block's shared memory or Tensor Memory, as an integer with one bit a cell: 4 bytes of shared
memory, or 16 lanes of a column of Tensor Memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from porter.ptx.mma_cells import MmaArguments, decode_idesc, mma_footprint, shift_cells, stored_k
from porter.ptx.operand_chunks import operand_chunks
from porter.ptx.packing import operand_element_bits
from porter.ptx.smem_desc import Generation
from porter.ptx.tmem import COLUMNS, LANES
from porter.ptx.tmem_access import Shape, TmemAccess
from porter.ptx.tmem_copy import TmemCopy, copy_cells
from porter.ptx.umma import UmmaOp
from porter.ptx.zero_columns import ZeroColumns

CELL_BYTES = 4
_LANES = 16
_CHUNK = 16
"""Bytes that swizzles keep together."""


def of_bytes(offset: int, nbytes: int) -> int:
    """A run of bytes of shared memory."""
    first, last = offset // CELL_BYTES, -(-(offset + nbytes) // CELL_BYTES)
    return ((1 << (last - first)) - 1) << first


def byte_of(cell: int) -> int:
    """The first byte of a cell of shared memory."""
    return cell * CELL_BYTES


def column_of(cell: int) -> int:
    """The column that a cell of Tensor Memory lies in."""
    return cell % COLUMNS


def _marked(places: npt.NDArray[Any]) -> int:
    flat = np.unique(np.asarray(places).reshape(-1))
    mark = np.zeros(int(flat[-1]) + 1, bool)
    mark[flat] = True
    return int.from_bytes(np.packbits(mark, bitorder="little").tobytes(), "little")


@lru_cache(maxsize=4096)
def of_operand(descriptor: int, generation: Generation, rows: int, k: int, element_bits: int, mn_major: bool) -> int:
    """An operand of so many rows (or columns of B) by k elements in shared memory.

    Raises:
        ValueError: the descriptor is none.
    """
    chunks = operand_chunks(descriptor, generation, rows, k, element_bits, mn_major)
    per_chunk = _CHUNK // CELL_BYTES
    return _marked(chunks[..., None] * per_chunk + np.arange(per_chunk))


def of_columns(column: int, columns: int) -> int:
    """All lanes of some columns."""
    run = ((1 << columns) - 1) << column
    return sum(run << group * COLUMNS for group in range(LANES // _LANES))


def _of_tensor(lanes: npt.NDArray[Any], columns: npt.NDArray[Any]) -> int:
    lanes, columns = np.broadcast_arrays(lanes, columns)
    return _marked(lanes // _LANES * COLUMNS + columns)


@lru_cache(maxsize=64)
def of_lanes(lanes: int) -> int:
    """All columns of some lanes, one bit each.

    Raises:
        ValueError: they leave some out of 16 that a cell holds together.
    """
    found = 0
    for group in range(LANES // _LANES):
        some = lanes >> group * _LANES & ((1 << _LANES) - 1)
        if some not in (0, (1 << _LANES) - 1):
            raise ValueError(f"a mask of lanes that parts {_LANES} of them")
        found |= ((1 << COLUMNS) - 1) << group * COLUMNS if some else 0
    return found


class Touched(NamedTuple):
    """A part of what a tcgen05 operation touches in each block's Tensor Memory: `d`, `a`, `metadata` or `scale`."""

    what: str
    write: bool
    cells: int


@lru_cache(maxsize=4096)
def of_product(op: UmmaOp, idesc: int, arguments: MmaArguments) -> tuple[Touched, ...]:
    """A tcgen05.mma in Tensor Memory, the accumulator first.

    Raises:
        ValueError: the descriptor is none, or something lies outside of Tensor Memory.
    """
    return tuple(
        Touched(what, write, _of_tensor(lanes, columns))
        for what, write, lanes, columns in mma_footprint(op, idesc, arguments)
    )


@lru_cache(maxsize=4096)
def of_product_operands(op: UmmaOp, idesc: int, arguments: MmaArguments) -> dict[str, int]:
    """Its `a` and `b` in each block's shared memory.

    Raises:
        ValueError: a descriptor is none.
    """
    found = decode_idesc(op, idesc)
    width = found.n // op.cta_group
    if arguments.zero_columns is not None:
        width += ZeroColumns.decode(arguments.zero_columns).shift
    bits = operand_element_bits(op.kind, found.b_type)
    touched = {"b": of_operand(arguments.b_desc, "sm_100", width, op.k, bits, found.b_mn_major)}
    if arguments.a_desc is not None:
        bits, rows = operand_element_bits(op.kind, found.a_type), found.m // op.cta_group
        touched["a"] = of_operand(arguments.a_desc, "sm_100", rows, stored_k(op), bits, found.a_mn_major)
    return touched


@lru_cache(maxsize=1024)
def of_copy(op: TmemCopy, taddr: int) -> int:
    """What a tcgen05.cp writes.

    Raises:
        ValueError: it lies outside of Tensor Memory.
    """
    return _of_tensor(*copy_cells(op, taddr))


@lru_cache(maxsize=1024)
def of_shift(taddr: int) -> int:
    """What a tcgen05.shift reads and writes.

    Raises:
        ValueError: it lies outside of Tensor Memory, or begins at no warp's lanes.
    """
    return _of_tensor(*shift_cells(taddr))


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
