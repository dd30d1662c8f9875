# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma: kinds, legal shapes, and what an opcode says.

Sources: PTX ISA 9.0 §9.7.16.2 table 39 (kinds and shapes), §9.7.16.10 (the instruction); CUTLASS
include/cute/arch/mma_sm100_umma.hpp for the stricter limits that libraries keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from porter.ptx.forms.grammar import Modifiers
from porter.ptx.types import F8F6F4_TYPES, INT8_TYPES, ElementType

T = ElementType


class Kind(StrEnum):
    """`.kind::` of tcgen05.mma."""

    F16 = "f16"
    TF32 = "tf32"
    F8F6F4 = "f8f6f4"
    I8 = "i8"
    MXF8F6F4 = "mxf8f6f4"
    MXF4 = "mxf4"
    MXF4NVF4 = "mxf4nvf4"

    @property
    def block_scaled(self) -> bool:
        return self in (Kind.MXF8F6F4, Kind.MXF4, Kind.MXF4NVF4)


DENSE_K: dict[Kind, int] = {
    Kind.F16: 16,
    Kind.TF32: 8,
    Kind.F8F6F4: 32,
    Kind.I8: 32,
    Kind.MXF8F6F4: 32,
    Kind.MXF4: 64,
    Kind.MXF4NVF4: 64,
}

K_BYTES = 32
"""Bytes of K of one row of A or B that one dense MMA takes, of tcgen05 and wgmma and of all types."""
N_STEPS = {64: 8, 128: 16}
"""Steps of N by M in MMAs of one CTA, as CUTLASS asks for them (include/cute/arch/mma_sm100_umma.hpp)."""

AB_TYPES: dict[Kind, frozenset[ElementType]] = {
    Kind.F16: frozenset({T.F16, T.BF16}),
    Kind.TF32: frozenset({T.TF32}),
    Kind.F8F6F4: F8F6F4_TYPES,
    Kind.I8: INT8_TYPES,
    Kind.MXF8F6F4: F8F6F4_TYPES,
    Kind.MXF4: frozenset({T.E2M1}),
    Kind.MXF4NVF4: frozenset({T.E2M1}),
}


def legal_d_types(kind: Kind, a_type: ElementType) -> tuple[ElementType, ...]:
    """Accumulator types: f16 only for f16 inputs and the 8-bit-and-narrower floats."""
    if kind is Kind.I8:
        return (T.S32,)
    if kind is Kind.F8F6F4 or (kind is Kind.F16 and a_type is T.F16):
        return (T.F16, T.F32)
    return (T.F32,)


def legal_m(kind: Kind, cta_group: int, *, ws: bool = False, sparse: bool = False) -> tuple[int, ...]:
    """Rows of the tile, totalled over the CTA pair for cta_group 2."""
    if ws:
        return (32, 64, 128)
    if kind.block_scaled:
        if cta_group == 1:
            return (128,)
        return (256,) if sparse else (128, 256)
    return (64, 128) if cta_group == 1 else (128, 256)


def legal_n(
    kind: Kind,
    cta_group: int,
    *,
    ws: bool = False,
    sparse: bool = False,
    byte_b_mn_major: bool = False,
) -> tuple[int, ...]:
    """Columns of the tile, as the PTX text allows them.

    `byte_b_mn_major`: B has 8-bit elements and is MN-major, which doubles the step (table 52).
    """
    if ws:
        return (64, 128) if sparse else (64, 128, 256)
    if kind is Kind.I8:
        values = (8, 16, 24, *range(32, 257, 16)) if cta_group == 1 else tuple(range(32, 257, 32))
    else:
        step = 8 * cta_group
        values = tuple(range(step, 257, step))
    if byte_b_mn_major:
        values = tuple(n for n in values if n % (16 * cta_group) == 0)
    return values


@dataclass(frozen=True)
class UmmaOp:
    """What a tcgen05.mma opcode says; M, N and the types stand in the instruction descriptor."""

    kind: Kind
    cta_group: int = 1
    ws: bool = False
    sparse: bool = False
    block_scale: bool = False
    scale_vector: str = ""
    collector: str = ""
    ashift: bool = False

    @property
    def k(self) -> int:
        """Elements of K per instruction."""
        return DENSE_K[self.kind] * (2 if self.sparse else 1)

    @property
    def has_disable_lanes(self) -> bool:
        """Whether the disable-output-lane vector may be an operand."""
        return not self.ws and not self.block_scale

    @staticmethod
    def of(given: Modifiers) -> UmmaOp:
        """From the modifiers of an instruction."""
        return UmmaOp(
            Kind(given["kind"].removeprefix("kind::")),
            int(given["cta_group"][-1]),
            "ws" in given,
            "sp" in given,
            "block_scale" in given,
            given.get("size", ""),
            given.get("collector", "").removeprefix("collector::"),
            "ashift" in given,
        )
