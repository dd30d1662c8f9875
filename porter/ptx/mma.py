# SPDX-License-Identifier: Apache-2.0
"""mma.sync of one warp: shapes, types and register fragments.

Source: PTX ISA 9.0 §9.7.14.5 (matrix shapes, and the fragments of m8n8k4.f64 to m16n8k256), §9.7.14.6 (sparse
A and its metadata).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from porter.ptx.swizzle import IntLike
from porter.ptx.types import FP8_TYPES, INT4_TYPES, INT8_TYPES, ElementType

T = ElementType

LEGAL_K: dict[ElementType, tuple[int, ...]] = {
    T.F16: (8, 16),
    T.BF16: (8, 16),
    T.TF32: (4, 8),
    T.F64: (4, 8, 16),
    T.E4M3: (16, 32),
    T.E5M2: (16, 32),
    T.S8: (16, 32),
    T.U8: (16, 32),
    T.S4: (32, 64),
    T.U4: (32, 64),
    T.B1: (128, 256),
}
"""K of the dense m16n8 shapes."""

LEGAL_K_M8: dict[ElementType, int] = {T.F64: 4, T.S8: 16, T.U8: 16, T.S4: 32, T.U4: 32, T.B1: 128}
"""K of the m8n8 shapes, which are dense."""

M, N = 16, 8

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_WORDS = frozenset(("sync", "aligned", "row", "col", "kind::f8f6f4", "popc", "sp", "sp::ordered_metadata"))


@dataclass(frozen=True)
class MmaOp:
    """What an mma.sync opcode says (N = 8, A row-major, B column-major).

    `bits` is the operation on single bits, "xor" or "and". `sparse`: half of A is stored.
    """

    k: int
    d_type: ElementType
    a_type: ElementType
    b_type: ElementType
    satfinite: bool = False
    m: int = M
    bits: str = ""
    sparse: bool = False

    @property
    def stored_k(self) -> int:
        """Columns of A in registers."""
        return self.k // 2 if self.sparse else self.k

    @property
    def a_registers(self) -> int:
        return self.m * self.stored_k * self.a_type.bits // (32 * self.register_bits)

    @property
    def b_registers(self) -> int:
        return N * self.k * self.b_type.bits // (32 * self.register_bits)

    @property
    def d_registers(self) -> int:
        return self.m * N // 64 if self.d_type is T.F16 else self.m * N // 32

    @property
    def register_bits(self) -> int:
        return 64 if self.a_type is T.F64 else 32

    @staticmethod
    def parse(parts: Sequence[str]) -> MmaOp:
        """From the parts of an opcode. Raises ValueError for shapes and types outside the family."""
        opcode = ".".join(parts)
        sparse = "sp" in parts or "sp::ordered_metadata" in parts
        satfinite = "satfinite" in parts
        bits = next((part for part in parts if part in ("xor", "and")), "")
        rest = [p for p in parts[1:] if p not in _WORDS and p not in ("satfinite", "xor", "and")]
        if not parts or parts[0] != "mma" or len(rest) != 5 or not _SHAPE.fullmatch(rest[0]):
            raise ValueError(f"{opcode} is not an mma.sync of the m16n8 and m8n8 families")
        m, n, k = (int(x) for x in _SHAPE.findall(rest[0])[0])
        try:
            d, a, b, c = (ElementType(part) for part in rest[1:])
        except ValueError:
            raise ValueError(f"{opcode}: types {' '.join(rest[1:])} are not of these families") from None
        same = a is b or {a, b} <= FP8_TYPES or {a, b} <= INT8_TYPES or {a, b} <= INT4_TYPES
        if a in INT8_TYPES | INT4_TYPES | {T.B1}:
            sums = {T.S32}
        elif a is T.F64:
            sums = {T.F64}
        else:
            sums = {T.F32} if a in (T.BF16, T.TF32) else {T.F16, T.F32}
        depth = k // 2 if sparse else k
        legal_k = (LEGAL_K_M8.get(a, 0),) if m == 8 else LEGAL_K.get(a, ())
        shaped = n == N and m in (8, M) and depth in legal_k and not (sparse and m == 8)
        if not shaped or not same or d not in sums or c is not d or (a is T.B1) != bool(bits):
            raise ValueError(f"{opcode}: no such shape and types in these families")
        return MmaOp(k, d, a, b, satfinite, m, bits, sparse)


def a_position(lane: IntLike, register: IntLike, element: IntLike, a_bits: int, m: int = M) -> tuple[IntLike, IntLike]:
    """(row, k) of an element of an A register, element 0 in the lowest bits."""
    per = max(32 // a_bits, 1)
    halves = m // 8
    row = lane // 4 + 8 * (register % halves)
    return row, per * (4 * (register // halves) + lane % 4) + element


def b_position(lane: IntLike, register: IntLike, element: IntLike, b_bits: int) -> tuple[IntLike, IntLike]:
    """(column, k) of an element of a B register."""
    per = max(32 // b_bits, 1)
    return lane // 4 + 0 * register, per * (4 * register + lane % 4) + element


def d_position(lane: IntLike, value: IntLike) -> tuple[IntLike, IntLike]:
    """(row, column) of a value of C or D, 0 to 3 (0 and 1 of m8n8); f16 accumulators pack two values."""
    return lane // 4 + 8 * (value // 2), 2 * (lane % 4) + value % 2
