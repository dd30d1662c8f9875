# SPDX-License-Identifier: Apache-2.0
"""wgmma.mma_async: shapes, types, register fragments, and the tcgen05 form of the same product.

Sources: PTX ISA 9.0 §9.7.15.2 (shapes), §9.7.15.5 (operands and fragments); CUTLASS
include/cute/atom/mma_traits_sm90_gmma.hpp (CLayout_64xN, ALayout_64x8/16/32); limits that the text leaves
open as ptxas 13.0 enforces them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from porter.ptx.arch import WARP
from porter.ptx.forms.grammar import Modifiers
from porter.ptx.swizzle import IntLike
from porter.ptx.types import FP8_TYPES, INT8_TYPES, ElementType
from porter.ptx.umma import Kind

T = ElementType

M = 64
"""Rows of every wgmma."""

THREADS = 128
"""Threads of a warpgroup, which execute a wgmma together."""
WARP_ROWS = M * WARP // THREADS
"""Rows of A from registers, and of D, that a warp of a warpgroup holds."""

MOST_PENDING = 7
"""Batches that wgmma.wait_group may leave in flight (CUTLASS include/cute/arch/mma_sm90_gmma.hpp warpgroup_wait)."""


def legal_n(a_type: ElementType) -> tuple[int, ...]:
    """The values of N for an operand type: steps of 8 for floats; 8, 16, 24, 32 and then steps of 16 for
    integers and bits."""
    if a_type in INT8_TYPES or a_type is T.B1:
        return (8, 16, 24, *range(32, 257, 16))
    return tuple(range(8, 257, 8))


@dataclass(frozen=True)
class WgmmaOp:
    """What a wgmma.mma_async opcode says."""

    n: int
    k: int
    d_type: ElementType
    a_type: ElementType
    b_type: ElementType
    satfinite: bool = False
    sparse: bool = False

    @property
    def m(self) -> int:
        return M

    @property
    def stored_k(self) -> int:
        """Elements of a row of A that are stored."""
        return self.k // 2 if self.sparse else self.k

    @property
    def d_registers(self) -> int:
        """32-bit registers of D in each thread."""
        return self.n // 4 if self.d_type is T.F16 else self.n // 2

    @property
    def has_transpose(self) -> bool:
        """Whether imm-trans-a/b are operands: only 16-bit types may be MN-major."""
        return self.a_type in (T.F16, T.BF16)

    @property
    def has_scale(self) -> bool:
        """Whether imm-scale-a/b (negation) are operands."""
        return self.a_type not in INT8_TYPES and self.a_type is not T.B1

    @staticmethod
    def of(given: Modifiers) -> WgmmaOp:
        """From the modifiers of an instruction."""
        _, n, k = map(int, re.findall(r"\d+", given["shape"]))
        d, a, b = (ElementType(given[name]) for name in ("dtype", "atype", "btype"))
        return WgmmaOp(n, k, d, a, b, "satfinite" in given, "sp" in given)


QUAD = 4
"""Lanes that hold a row of D between them (PTX ISA 9.7.15.5.1)."""
COLUMN_GROUP = 8
"""Columns of which each of these lanes has two that follow each other."""
GROUP_REGISTERS = 4
"""A lane's 32-bit registers for such columns: two of one row, then two of the row eight below."""


def d_position(thread: IntLike, register: IntLike) -> tuple[IntLike, IntLike]:
    """(row, column) of a 32-bit D register of a thread of the warpgroup."""
    warp, group, quad = thread // 32, thread % 32 // QUAD, thread % QUAD
    row = WARP_ROWS * warp + group + 8 * (register // 2 % 2)
    return row, COLUMN_GROUP * (register // GROUP_REGISTERS) + 2 * quad + register % 2


def a_position(thread: IntLike, register: IntLike, element: IntLike, a_bits: int) -> tuple[IntLike, IntLike]:
    """(row, k) of an element of an A register: registers 0-3, element 0 in the lowest bits.

    A register holds 32 / `a_bits` consecutive k; registers 0 and 1 cover the low 16 bytes of a row's 32.
    For b1 this follows by analogy, no library states it.
    """
    warp, group, quad = thread // 32, thread % 32 // 4, thread % 4
    per_register = 32 // a_bits
    row = WARP_ROWS * warp + group + 8 * (register % 2)
    return row, per_register * (4 * (register // 2) + quad) + element


def umma_kind(a_type: ElementType) -> Kind:
    """The tcgen05.mma kind for operands of a wgmma type. Raises ValueError for b1."""
    if a_type in (T.F16, T.BF16):
        return Kind.F16
    if a_type is T.TF32:
        return Kind.TF32
    if a_type in FP8_TYPES:
        return Kind.F8F6F4
    if a_type in INT8_TYPES:
        return Kind.I8
    raise ValueError(f"tcgen05.mma has no {a_type.value} operands")
