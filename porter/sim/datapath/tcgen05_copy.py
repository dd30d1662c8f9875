# SPDX-License-Identifier: Apache-2.0
"""tcgen05.cp: shared memory to Tensor Memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from porter.ptx.packing import SOURCE_BITS, SOURCE_SHIFT
from porter.ptx.tmem import COLUMNS, LANES, column_of, lane_of
from porter.ptx.tmem_copy import TmemCopy
from porter.sim.datapath.errors import DatapathError
from porter.sim.datapath.mma_arith import Words
from porter.sim.datapath.operands import Bytes, read_smem_rows, unpack_chunks

Indices = NDArray[np.int64]


def copy_cells(op: TmemCopy, taddr: int) -> tuple[Indices, Indices]:
    """(lanes, columns) [rows written, columns] in each CTA's Tensor Memory.

    Raises DatapathError if they pass its ends.
    """
    lane, column = lane_of(taddr), column_of(taddr)
    width = op.row_bytes // 4
    lanes = np.concatenate([np.arange(first, first + rows) for _, rows, first in op.blocks]) + lane
    if int(lanes.max()) >= LANES or column + width > COLUMNS:
        raise DatapathError(f"a .{op.shape} copy to lane {lane}, column {column} passes the end of Tensor Memory")
    columns = np.arange(column, column + width, dtype=np.int64)[None, :]
    return lanes.astype(np.int64)[:, None] + 0 * columns, columns + 0 * lanes[:, None]


def copy(op: TmemCopy, taddr: int, descriptor: int, smem: Sequence[Bytes], tmem: Sequence[Words]) -> None:
    """Execute a tcgen05.cp, updating `tmem` in place.

    `smem` and `tmem` hold one array, or with cta_group 2 those of the even and the odd CTA, each copied from
    its own shared memory. Raises DatapathError for invalid operands.
    """
    if len(smem) != op.cta_group or len(tmem) != op.cta_group:
        raise DatapathError(f"cta_group::{op.cta_group} needs the memories of {op.cta_group} CTAs")
    lanes, columns = copy_cells(op, taddr)
    rows = np.concatenate([np.arange(first, first + count) for first, count, _ in op.blocks])
    for shared, memory in zip(smem, tmem, strict=True):
        matrix = read_smem_rows(shared, descriptor, op.rows, op.row_bytes)
        if op.source_format:
            codes = unpack_chunks(matrix, SOURCE_BITS[op.source_format])
            matrix = codes << np.uint8(SOURCE_SHIFT[op.source_format])
        memory[lanes, columns] = np.ascontiguousarray(matrix).view(np.uint32)[rows]
