# SPDX-License-Identifier: Apache-2.0
"""tcgen05.cp: which lanes of Tensor Memory each row of a shared-memory matrix goes to.

Sources: PTX ISA 9.0 §9.7.16.9 (shapes and multicast); CUTLASS include/cute/atom/copy_traits_sm100.hpp (UTCCP
traits) for the lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from porter.ptx.forms.grammar import Modifiers
from porter.ptx.operand_errors import OperandError
from porter.ptx.tmem import COLUMNS, LANES, column_of, lane_of

ROW_OFFSETS: dict[tuple[str, str], tuple[tuple[int, int, int], ...]] = {
    ("128x256b", ""): ((0, 128, 0),),
    ("128x128b", ""): ((0, 128, 0),),
    ("64x128b", "warpx2::02_13"): ((0, 64, 0), (0, 64, 64)),
    ("64x128b", "warpx2::01_23"): ((0, 32, 0), (0, 32, 32), (32, 32, 64), (32, 32, 96)),
    ("32x128b", "warpx4"): ((0, 32, 0), (0, 32, 32), (0, 32, 64), (0, 32, 96)),
    ("4x256b", ""): ((0, 1, 0), (1, 1, 32), (2, 1, 64), (3, 1, 96)),
}
"""By shape and multicast: (first row, rows, first lane) of each block of rows that is written."""


@dataclass(frozen=True)
class TmemCopy:
    """What a tcgen05.cp opcode says. `source_format` is the packed format that the copy decompresses, if any."""

    cta_group: int
    shape: str
    multicast: str = ""
    source_format: str = ""

    @property
    def rows(self) -> int:
        """Rows read from shared memory."""
        return int(self.shape.partition("x")[0])

    @property
    def row_bytes(self) -> int:
        return int(self.shape.partition("x")[2].rstrip("b")) // 8

    @property
    def blocks(self) -> tuple[tuple[int, int, int], ...]:
        return ROW_OFFSETS[self.shape, self.multicast]

    @staticmethod
    def of(given: Modifiers) -> TmemCopy:
        """From the modifiers of an instruction."""
        return TmemCopy(
            int(given["cta_group"][-1]), given["shape"], given.get("multicast", ""), given.get("source", "")
        )


def copy_cells(op: TmemCopy, taddr: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(lanes, columns) [rows written, columns] in each CTA's Tensor Memory.

    Raises OperandError if they pass its ends.
    """
    lane, column = lane_of(taddr), column_of(taddr)
    width = op.row_bytes // 4
    lanes = np.concatenate([np.arange(first, first + rows) for _, rows, first in op.blocks]) + lane
    if int(lanes.max()) >= LANES or column + width > COLUMNS:
        raise OperandError(f"a .{op.shape} copy to lane {lane}, column {column} passes the end of Tensor Memory")
    columns = np.arange(column, column + width, dtype=np.int64)[None, :]
    return lanes.astype(np.int64)[:, None] + 0 * columns, columns + 0 * lanes[:, None]
