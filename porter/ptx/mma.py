# SPDX-License-Identifier: Apache-2.0
"""mma.sync of one warp: shapes, types and register fragments.

Source: PTX ISA 9.0 §9.7.14.5 (matrix shapes, and the fragments of m8n8k4.f64 to m16n8k256), §9.7.14.6 (sparse
A and its metadata).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from porter.ptx.forms.grammar import Modifiers
from porter.ptx.swizzle import IntLike
from porter.ptx.types import FP8_TYPES, ElementType

T = ElementType

TYPES = frozenset({T.F16, T.BF16, T.TF32, T.F32, T.F64, T.S32, T.S8, T.U8, T.S4, T.U4, T.B1, *FP8_TYPES})
"""Types of operands and results; FP6 and FP4 are not among them."""

M, N = 16, 8


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
    def register_bits(self) -> int:
        return 64 if self.a_type is T.F64 else 32

    @staticmethod
    def of(given: Modifiers) -> MmaOp:
        """From the modifiers of an instruction. Raises ValueError for shapes and types outside the families."""
        types = [given[name] for name in ("dtype", "atype", "btype")]
        if given["shape"] == "m8n8k4" and types[1] != "f64":
            raise ValueError("products by quads of threads")
        if "block_scale" in given or not TYPES.issuperset(types):
            raise ValueError(f"mma of {given['shape']} and {' '.join(types)} is not in these families")
        m, _, k = map(int, re.findall(r"\d+", given["shape"]))
        d, a, b = map(ElementType, types)
        return MmaOp(k, d, a, b, "satfinite" in given, m, given.get("op", ""), "metadata" in given)


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
