# SPDX-License-Identifier: Apache-2.0
"""What accesses of Tensor Memory touch, against the places of each thread's registers."""

from __future__ import annotations

import pytest

from porter.facts.cells import of_access
from porter.ptx.tmem import COLUMNS
from porter.ptx.tmem_access import Shape, TmemAccess, cell

LANES = 16
"""Of one cell."""


@pytest.mark.parametrize("shape", Shape)
def test_an_access_touches_the_places_of_all_registers(shape: Shape) -> None:
    access, lane, column = TmemAccess(False, shape, 4), 32, 64
    split = 40 if shape is Shape.S16X32BX2 else 0
    expected = 0
    for thread in range(32):
        for register in range(access.registers):
            row, at = cell(shape, thread, register)
            expected |= 1 << ((lane + int(row)) // LANES * COLUMNS + column + int(at) + (split if thread > 15 else 0))
    assert of_access(access, lane, column, split) == expected


def test_both_halves_of_an_access_lie_in_tensor_memory() -> None:
    with pytest.raises(ValueError, match="outside"):
        of_access(TmemAccess(False, Shape.S16X32BX2, 2), 0, COLUMNS - 2, 8)
