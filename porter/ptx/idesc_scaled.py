# SPDX-License-Identifier: Apache-2.0
"""The 32-bit instruction descriptor of the block-scaled kinds of tcgen05.mma: mxf8f6f4, mxf4 and mxf4nvf4.

Sources: PTX ISA 9.0 §9.7.16.4.2 tables 43 and 44; CUTLASS include/cute/arch/mma_sm100_desc.hpp
(InstrDescriptorBlockScaled).
"""

from __future__ import annotations

from dataclasses import dataclass

from porter.ptx.bits import Field
from porter.ptx.block_scale import SCALE_TYPE_CODES, ScaleType, legal_scale_ids, legal_scale_types
from porter.ptx.idesc import (
    AB_TYPE_CODES,
    M_FIELD,
    M_SHIFT,
    N_SHIFT,
    OPERAND_FIELDS,
    SPARSE_FIELD,
    InstructionDescriptor,
)
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind

T = ElementType

SCALED_FIELDS: dict[str, Field] = {
    "sparse": SPARSE_FIELD,
    "b_scale_id": Field(4, 2),
    **OPERAND_FIELDS,
    "scale_type": Field(23, 1),
    "m": M_FIELD,
    "a_scale_id": Field(29, 2),
    "k96": Field(31, 1),
}
"""The text gives M as M >> 7 in bits 27-28, which for its values are the bits of M >> 4 in bits 24-28."""

IGNORED: dict[Kind, int] = {
    Kind.MXF8F6F4: 0b11,
    Kind.MXF4: 0b11 | 1 << 12,
    Kind.MXF4NVF4: 0b11 | 1 << 12,
}
"""Bits that count for nothing: the place of the sparsity selector, which is taken as 0, and for packed 4-bit operands
bit 12, since B's type has two bits (table 44; CUTLASS
examples/python/CuTeDSL/experimental/primitives/tcgen05/2cta_mma_blockscale_m128.py sets it)."""

SCALED_AB_TYPE_CODES: dict[Kind, dict[ElementType, int]] = {
    Kind.MXF8F6F4: AB_TYPE_CODES[Kind.F8F6F4],
    Kind.MXF4: {T.E2M1: 1},
    Kind.MXF4NVF4: {T.E2M1: 1},
}


@dataclass(frozen=True)
class ScaledDescriptor(InstructionDescriptor):
    """A decoded descriptor of a block-scaled kind. D is f32. `k96` is the longer K that only sm_103a has."""

    scale_type: ScaleType = ScaleType.UE8M0
    a_scale_id: int = 0
    b_scale_id: int = 0
    k96: bool = False

    def encode(self) -> int:
        """The 32-bit word. Raises ValueError for types that are not of the kind or unencodable sizes."""
        codes = SCALED_AB_TYPE_CODES[self.kind]
        for name, element in (("A", self.a_type), ("B", self.b_type)):
            if element not in codes:
                raise ValueError(f"{element.value} is no {name} type of kind::{self.kind.value}")
        if self.n % (1 << N_SHIFT) or self.m % (1 << M_SHIFT):
            raise ValueError(f"M={self.m}, N={self.n} cannot be encoded")
        values = {
            "sparse": int(self.sparse),
            "b_scale_id": self.b_scale_id,
            "a_type": codes[self.a_type],
            "b_type": codes[self.b_type],
            "negate_a": int(self.negate_a),
            "negate_b": int(self.negate_b),
            "a_major": int(self.a_mn_major),
            "b_major": int(self.b_mn_major),
            "n": self.n >> N_SHIFT,
            "scale_type": SCALE_TYPE_CODES[self.scale_type],
            "m": self.m >> M_SHIFT,
            "a_scale_id": self.a_scale_id,
            "k96": int(self.k96),
        }
        return sum(SCALED_FIELDS[name].put(value) for name, value in values.items())

    @staticmethod
    def decode(word: int, kind: Kind) -> ScaledDescriptor:
        """The fields of a word.

        Raises ValueError if reserved bits are set, a type code is undefined for the kind, or the kind is not
        block-scaled.
        """
        if kind not in SCALED_AB_TYPE_CODES:
            raise ValueError(f"kind::{kind.value} has no block-scaled instruction descriptor")
        word &= ~IGNORED[kind]
        reserved = word & ~sum(field.mask for field in SCALED_FIELDS.values())
        if reserved:
            raise ValueError(f"instruction descriptor {word:#010x}: reserved bits {reserved:#x} are set")
        value = {name: field.get(word) for name, field in SCALED_FIELDS.items()}
        types = {code: element for element, code in SCALED_AB_TYPE_CODES[kind].items()}
        for name in ("a_type", "b_type"):
            if value[name] not in types:
                raise ValueError(
                    f"instruction descriptor {word:#010x}: {name} code {value[name]} is undefined "
                    f"for kind::{kind.value}"
                )
        scale_types = {code: scale for scale, code in SCALE_TYPE_CODES.items()}
        return ScaledDescriptor(
            kind=kind,
            m=value["m"] << M_SHIFT,
            n=value["n"] << N_SHIFT,
            d_type=T.F32,
            a_type=types[value["a_type"]],
            b_type=types[value["b_type"]],
            negate_a=bool(value["negate_a"]),
            negate_b=bool(value["negate_b"]),
            a_mn_major=bool(value["a_major"]),
            b_mn_major=bool(value["b_major"]),
            sparse=bool(value["sparse"]),
            scale_type=scale_types[value["scale_type"]],
            a_scale_id=value["a_scale_id"],
            b_scale_id=value["b_scale_id"],
            k96=bool(value["k96"]),
        )

    def scale_problems(self, count: int) -> list[str]:
        """Why `count` factors along K cannot be taken as the descriptor says, one sentence each."""
        found = []
        if self.scale_type not in legal_scale_types(self.kind, count):
            found.append(f"kind::{self.kind.value} with {count} factors along K has no {self.scale_type.value} factors")
        for name, scale_id in (("A", self.a_scale_id), ("B", self.b_scale_id)):
            if scale_id not in legal_scale_ids(count):
                found.append(f"scale factor id {scale_id} of {name} does not go with {count} factors along K")
        if self.k96:
            found.append("K=96 is for sm_103a only")
        if self.kind is not Kind.MXF8F6F4 and (self.a_mn_major or self.b_mn_major):
            found.append(f"the operands of kind::{self.kind.value} are K-major only")
        return found
