# SPDX-License-Identifier: Apache-2.0
"""Calls of the tcgen05 datapath with all operands as keywords."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from opcodes import given

from porter.ptx.mma_cells import MmaArguments
from porter.ptx.types import ElementType as T
from porter.ptx.umma import UmmaOp
from porter.sim.datapath import tcgen05

LIBRARY = {
    T.E4M3: ml_dtypes.float8_e4m3fn,
    T.E5M2: ml_dtypes.float8_e5m2,
    T.E2M3: ml_dtypes.float6_e2m3fn,
    T.E3M2: ml_dtypes.float6_e3m2fn,
    T.E2M1: ml_dtypes.float4_e2m1fn,
}
WIDTH = {T.E4M3: 8, T.E5M2: 8, T.E2M3: 6, T.E3M2: 6, T.E2M1: 4}
PLACES = ("smem", "tmem", "mode", "rules")
POISON = 0xFFFFFFFF


def umma(text: str) -> UmmaOp:
    return UmmaOp.of(given(f"tcgen05.mma.{text}"))


def empty_tmem() -> np.ndarray:
    return np.full((128, 512), POISON, np.uint32)


def issue(op: UmmaOp, idesc: int, **operands: Any) -> None:
    places = {name: operands.pop(name) for name in PLACES if name in operands}
    for name in ("a_desc", "a_tmem"):
        operands.setdefault(name, None)
    tcgen05.mma(op, idesc, MmaArguments(**operands), **places)


def values(codes: np.ndarray, element: T) -> np.ndarray:
    """What the codes of a narrow float mean, by ml_dtypes."""
    with np.errstate(invalid="ignore"):
        return codes.astype(np.uint8).view(LIBRARY[element]).astype(np.float64)


def padded(codes: np.ndarray, element: T) -> np.ndarray:
    """Codes [rows, 16 n] packed from the low bits up, each 16 in 16 bytes with the rest unused."""
    return _packed(codes, WIDTH[element], 16)


def pairs(codes: np.ndarray) -> np.ndarray:
    """4-bit codes [rows, 16 n] packed without padding."""
    return _packed(codes, 4, 8)


def _packed(codes: np.ndarray, width: int, size: int) -> np.ndarray:
    rows, count = codes.shape
    out = np.full((rows, count // 16 * size), 0xA5, np.uint8)
    for row in range(rows):
        for part in range(count // 16):
            whole = sum(int(code) << width * i for i, code in enumerate(codes[row, 16 * part : 16 * part + 16]))
            data = np.frombuffer(whole.to_bytes(2 * width, "little"), np.uint8)
            out[row, size * part : size * part + 2 * width] = data
    return out
