# SPDX-License-Identifier: Apache-2.0
"""mma.sync of one warp: shapes, types and register fragments of the m16n8 family.

Source: PTX ISA 9.0 §9.7.14.5 (matrix shapes, and the fragments of m16n8k4 to m16n8k256).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from porter.ptx.swizzle import IntLike
from porter.ptx.types import FP8_TYPES, INT8_TYPES, ElementType

T = ElementType

LEGAL_K: dict[ElementType, tuple[int, ...]] = {
    T.F16: (8, 16),
    T.BF16: (8, 16),
    T.TF32: (4, 8),
    T.E4M3: (16, 32),
    T.E5M2: (16, 32),
    T.S8: (16, 32),
    T.U8: (16, 32),
}
M, N = 16, 8

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


@dataclass(frozen=True)
class MmaOp:
    """What an mma.sync opcode says (m16n8, A row-major, B column-major)."""

    k: int
    d_type: ElementType
    a_type: ElementType
    b_type: ElementType
    satfinite: bool = False

    @property
    def a_registers(self) -> int:
        return M * self.k * self.a_type.bits // 1024

    @property
    def b_registers(self) -> int:
        return N * self.k * self.b_type.bits // 1024

    @property
    def d_registers(self) -> int:
        return 2 if self.d_type is T.F16 else 4

    @staticmethod
    def parse(parts: Sequence[str]) -> MmaOp:
        """From the parts of an opcode. Raises ValueError for shapes and types outside the m16n8 family of
        16-bit and 8-bit floats, tf32 and 8-bit integers."""
        opcode = ".".join(parts)
        rest = [part for part in parts[1:] if part not in ("sync", "aligned", "row", "col", "kind::f8f6f4")]
        satfinite = "satfinite" in rest
        rest = [part for part in rest if part != "satfinite"]
        if not parts or parts[0] != "mma" or len(rest) != 5 or not _SHAPE.fullmatch(rest[0]):
            raise ValueError(f"{opcode} is not an mma.sync of the dense m16n8 family")
        shape = tuple(int(x) for x in _SHAPE.findall(rest[0])[0])
        try:
            d, a, b, c = (ElementType(part) for part in rest[1:])
        except ValueError:
            raise ValueError(f"{opcode}: types {' '.join(rest[1:])} are not of the m16n8 family") from None
        same = a is b or {a, b} <= FP8_TYPES or {a, b} <= INT8_TYPES
        sums = {T.S32} if a in INT8_TYPES else {T.F32} if a in (T.BF16, T.TF32) else {T.F16, T.F32}
        legal_shape = shape[:2] == (M, N) and shape[2] in LEGAL_K.get(a, ())
        if not legal_shape or not same or d not in sums or c is not d:
            raise ValueError(f"{opcode}: no such shape and types in the m16n8 family")
        return MmaOp(shape[2], d, a, b, satfinite)


def a_position(lane: IntLike, register: IntLike, element: IntLike, a_bits: int) -> tuple[IntLike, IntLike]:
    """(row, k) of an element of an A register, element 0 in the lowest bits."""
    per = 32 // a_bits
    return lane // 4 + 8 * (register % 2), per * (4 * (register // 2) + lane % 4) + element


def b_position(lane: IntLike, register: IntLike, element: IntLike, b_bits: int) -> tuple[IntLike, IntLike]:
    """(column, k) of an element of a B register."""
    per = 32 // b_bits
    return lane // 4 + 0 * register, per * (4 * register + lane % 4) + element


def d_position(lane: IntLike, value: IntLike) -> tuple[IntLike, IntLike]:
    """(row, column) of value 0 to 3 of C or D; f16 accumulators pack values 0, 1 and 2, 3."""
    return lane // 4 + 8 * (value // 2), 2 * (lane % 4) + value % 2
