# SPDX-License-Identifier: Apache-2.0
"""Where ldmatrix and stmatrix have the elements of matrices of 16 and of 8 bits (PTX ISA 9.7.14.5.15, 9.7.14.5.16;
CUTLASS include/cute/atom/copy_traits_sm100.hpp, SM100_U8x8_LDSM_T and SM100_U8x4_STSM_T)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from porter.ptx.arch import WARP

ROWS = 8
"""Of a matrix of 16 bits; each has an address of its own."""
ROW_BYTES = 16
Indices = npt.NDArray[np.int64]


def element_places(transposed: bool) -> tuple[Indices, Indices]:
    """Row and column [32, 2] of both elements of a thread's register."""
    lane, element = np.arange(WARP)[:, None], np.arange(2)[None, :]
    outer, inner = lane // 4 + 0 * element, 2 * (lane % 4) + element
    return (inner, outer) if transposed else (outer, inner)


SHAPES = frozenset(("m8n8", "m8n16", "m16n8", "m16n16"))


def shape_of(parts: Iterable[str]) -> str:
    """Of an opcode, whose parts come in more than one order."""
    return next(part for part in parts if part in SHAPES)


def rows_of(shape: str, count: int) -> int:
    """Rows of so many matrices, each at the address that a lane gives."""
    return (2 if shape == "m16n16" else 1) * ROWS * count


_LANE, _REGISTER, _BYTE = np.arange(WARP)[:, None, None], np.arange(4)[None, :, None], np.arange(4)[None, None, :]
_OCTET, _QUAD = _LANE // 4, _LANE % 4
_PLACES = {
    "m8n16": (_OCTET + 8 * _REGISTER + 0 * _BYTE, 4 * _QUAD + _BYTE + 0 * _REGISTER),
    "m16n16": (16 * (_REGISTER // 2) + 4 * _QUAD + _BYTE, _OCTET + 8 * (_REGISTER % 2) + 0 * _BYTE),
    "m16n8": (8 * _REGISTER + 2 * _QUAD + _BYTE % 2, _OCTET + 8 * (_BYTE // 2) + 0 * _REGISTER),
}


def byte_places(shape: str, registers: int, transposed: bool) -> tuple[Indices, Indices]:
    """Row of all matrices, and byte of it [32, registers, 4], of the bytes of a thread's registers."""
    if shape != "m8n8":
        row, byte = _PLACES[shape]
        return row[:, :registers], byte[:, :registers]
    row, column = (np.repeat(place, 2, axis=1)[:, None, :] for place in element_places(transposed))
    number = np.arange(registers)[None, :, None]
    return row + ROWS * number, 2 * column + _BYTE % 2 + 0 * number
