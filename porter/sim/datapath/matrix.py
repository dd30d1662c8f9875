# SPDX-License-Identifier: Apache-2.0
"""ldmatrix, stmatrix and movmatrix of one warp.

Source: PTX ISA 9.0 §9.7.14.5.15-17.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from porter.sim.datapath.errors import DatapathError
from porter.sim.datapath.mma_arith import Words

Bytes = NDArray[np.uint8]
_CHUNK = np.complex128


def _rows(smem: Bytes, addresses: NDArray[np.integer], num: int, name: str) -> NDArray[np.int64]:
    rows = np.asarray(addresses[: 8 * num]).astype(np.int64)
    if (rows % 16).any():
        raise DatapathError(f"{name}: row address {int(rows[rows % 16 != 0][0]):#x} is not a multiple of 16")
    if rows.size and int(rows.max()) + 16 > smem.size:
        raise DatapathError(f"{name}: row address {int(rows.max()):#x} is outside shared memory")
    return rows >> 4


def ldmatrix(smem: Bytes, addresses: NDArray[np.integer], num: int, trans: bool) -> Words:
    """ldmatrix.m8n8.b16: registers [32, num] of `num` 8x8 matrices.

    `addresses` [32] are the threads' byte addresses; threads 8i to 8i+7 give the rows of matrix i.
    Raises DatapathError for rows that are misaligned or outside `smem`.
    """
    rows = _rows(smem, addresses, num, "ldmatrix")
    matrices = smem[: smem.size // 16 * 16].view(_CHUNK)[rows].view(np.uint16).reshape(num, 8, 8)
    return registers_of_matrices(matrices, trans)


def stmatrix(smem: Bytes, addresses: NDArray[np.integer], registers: Words, trans: bool) -> None:
    """stmatrix.m8n8.b16 of registers [32, num], the inverse of `ldmatrix`."""
    num = registers.shape[1]
    rows = _rows(smem, addresses, num, "stmatrix")
    matrices = matrices_of_registers(registers, trans)
    smem[: smem.size // 16 * 16].view(_CHUNK)[rows] = matrices.reshape(num * 8, 8).view(_CHUNK)[:, 0]


def movmatrix(registers: Words) -> Words:
    """movmatrix.trans.m8n8.b16 of registers [32]."""
    return registers_of_matrices(matrices_of_registers(registers[:, None], False), True)[:, 0]


def registers_of_matrices(matrices: NDArray[np.uint16], trans: bool) -> Words:
    """Thread 4r + c holds columns 2c and 2c+1 of row r of each matrix [num, 8, 8] (of its transpose)."""
    source = matrices.transpose(0, 2, 1) if trans else matrices
    words = np.ascontiguousarray(source).view(np.uint32)
    return np.ascontiguousarray(words.reshape(-1, 32).T)


def matrices_of_registers(registers: Words, trans: bool) -> NDArray[np.uint16]:
    """The inverse of `registers_of_matrices`."""
    words = np.ascontiguousarray(registers.T, dtype=np.uint32)
    matrices = words.view(np.uint16).reshape(-1, 8, 8)
    return np.ascontiguousarray(matrices.transpose(0, 2, 1)) if trans else matrices
