# SPDX-License-Identifier: Apache-2.0
"""wgmma.mma_async: shapes, types, register fragments, and the tcgen05 form of the same product.

Sources: PTX ISA 9.0 §9.7.15.2 (shapes), §9.7.15.5 (operands and fragments); CUTLASS
include/cute/atom/mma_traits_sm90_gmma.hpp (CLayout_64xN, ALayout_64x8/16/32); limits that the text leaves
open as ptxas 13.0 enforces them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from porter.ptx.swizzle import IntLike
from porter.ptx.types import FP8_TYPES, INT8_TYPES, ElementType
from porter.ptx.umma import Kind

T = ElementType

M = 64
"""Rows of every wgmma."""

A_REGISTERS = 4
"""32-bit registers of A in each thread, for every type: 32 bytes of K in each of 64 rows."""

THREADS = 128
"""Threads of a warpgroup, which execute a wgmma together."""

DENSE_K: dict[ElementType, int] = {
    T.F16: 16,
    T.BF16: 16,
    T.TF32: 8,
    T.E4M3: 32,
    T.E5M2: 32,
    T.S8: 32,
    T.U8: 32,
    T.B1: 256,
}

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def legal_n(a_type: ElementType) -> tuple[int, ...]:
    """The values of N for an operand type: steps of 8 for floats; 8, 16, 24, 32 and then steps of 16 for
    integers and bits."""
    if a_type in INT8_TYPES or a_type is T.B1:
        return (8, 16, 24, *range(32, 257, 16))
    return tuple(range(8, 257, 8))


def legal_d_types(a_type: ElementType) -> tuple[ElementType, ...]:
    if a_type is T.F16 or a_type in FP8_TYPES:
        return (T.F16, T.F32)
    if a_type in INT8_TYPES or a_type is T.B1:
        return (T.S32,)
    return (T.F32,)


def _same_family(a: ElementType, b: ElementType) -> bool:
    return a is b or {a, b} <= FP8_TYPES or {a, b} <= INT8_TYPES


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
    def parse(parts: Sequence[str]) -> WgmmaOp:
        """From the dot-separated parts of an opcode.

        Raises ValueError, naming what is wrong, for anything that is not a legal wgmma.mma_async.
        """
        opcode = ".".join(parts)
        if tuple(parts[:2]) != ("wgmma", "mma_async"):
            raise ValueError(f"{opcode} is not a wgmma.mma_async")
        shape = None
        types: list[ElementType] = []
        flags: set[str] = set()
        for part in parts[2:]:
            if match := _SHAPE.fullmatch(part):
                shape = tuple(int(x) for x in match.groups())
            elif part in {"sync", "aligned", "sp", "satfinite", "and", "popc"}:
                flags.add(part)
            elif part in {t.value for t in ElementType}:
                types.append(ElementType(part))
            else:
                raise ValueError(f"{opcode}: unknown modifier .{part}")
        if shape is None or len(types) != 3:
            raise ValueError(f"{opcode}: needs a shape and three types")
        if not {"sync", "aligned"} <= flags:
            raise ValueError(f"{opcode}: .sync.aligned is mandatory")
        op = WgmmaOp(shape[1], shape[2], types[0], types[1], types[2], "satfinite" in flags, "sp" in flags)
        op._check(opcode, shape[0], flags)
        return op

    def _check(self, opcode: str, m: int, flags: set[str]) -> None:
        if self.a_type not in DENSE_K or not _same_family(self.a_type, self.b_type):
            raise ValueError(f"{opcode}: no product of {self.a_type.value} and {self.b_type.value}")
        if self.d_type not in legal_d_types(self.a_type):
            raise ValueError(f"{opcode}: {self.a_type.value} operands have no {self.d_type.value} result")
        k = DENSE_K[self.a_type] * (2 if self.sparse else 1)
        if m != M or self.k != k:
            raise ValueError(f"{opcode}: the shape of these types is m{M}n...k{k}")
        if self.n not in legal_n(self.a_type):
            raise ValueError(f"{opcode}: n{self.n} is not a shape of {self.a_type.value} operands")
        if self.satfinite and self.a_type not in INT8_TYPES:
            raise ValueError(f"{opcode}: .satfinite is for s8 and u8 operands only")
        if (self.a_type is T.B1) != ({"and", "popc"} <= flags) or (self.a_type is T.B1 and self.sparse):
            raise ValueError(f"{opcode}: .and.popc goes with dense b1 operands")


def d_position(thread: IntLike, register: IntLike) -> tuple[IntLike, IntLike]:
    """(row, column) of a 32-bit D register of a thread of the warpgroup."""
    warp, group, quad = thread // 32, thread % 32 // 4, thread % 4
    row = 16 * warp + group + 8 * (register // 2 % 2)
    return row, 8 * (register // 4) + 2 * quad + register % 2


def a_position(thread: IntLike, register: IntLike, element: IntLike, a_bits: int) -> tuple[IntLike, IntLike]:
    """(row, k) of an element of an A register: registers 0-3, element 0 in the lowest bits.

    A register holds 32 / `a_bits` consecutive k; registers 0 and 1 cover the low 16 bytes of a row's 32.
    For b1 this follows by analogy, no library states it.
    """
    warp, group, quad = thread // 32, thread % 32 // 4, thread % 4
    per_register = 32 // a_bits
    row = 16 * warp + group + 8 * (register % 2)
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
