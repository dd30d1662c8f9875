# SPDX-License-Identifier: Apache-2.0
"""tcgen05.cp: shared memory to Tensor Memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from porter.ptx.operand_errors import OperandError
from porter.ptx.packing import SOURCE_BITS, SOURCE_SHIFT
from porter.ptx.tmem_copy import TmemCopy, copy_cells
from porter.sim.datapath.mma_arith import Words
from porter.sim.datapath.operands import Bytes, read_smem_rows, unpack_chunks


def copy(op: TmemCopy, taddr: int, descriptor: int, smem: Sequence[Bytes], tmem: Sequence[Words]) -> None:
    """Execute a tcgen05.cp, updating `tmem` in place.

    `smem` and `tmem` hold one array, or with cta_group 2 those of the even and the odd CTA, each copied from
    its own shared memory. Raises OperandError for invalid operands.
    """
    if len(smem) != op.cta_group or len(tmem) != op.cta_group:
        raise OperandError(f"cta_group::{op.cta_group} needs the memories of {op.cta_group} CTAs")
    lanes, columns = copy_cells(op, taddr)
    rows = np.concatenate([np.arange(first, first + count) for first, count, _ in op.blocks])
    for shared, memory in zip(smem, tmem, strict=True):
        matrix = read_smem_rows(shared, descriptor, op.rows, op.row_bytes)
        if op.source_format:
            codes = unpack_chunks(matrix, SOURCE_BITS[op.source_format])
            matrix = codes << np.uint8(SOURCE_SHIFT[op.source_format])
        memory[lanes, columns] = np.ascontiguousarray(matrix).view(np.uint32)[rows]
