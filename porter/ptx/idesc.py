# SPDX-License-Identifier: Apache-2.0
"""The 32-bit instruction descriptor of tcgen05.mma, kinds f16, tf32, f8f6f4 and i8.

Sources: PTX ISA 9.0 §9.7.16.4.2 tables 42-44; CUTLASS include/cute/arch/mma_sm100_desc.hpp (InstrDescriptor).
"""

from __future__ import annotations

from dataclasses import dataclass

from porter.ptx.bits import Field
from porter.ptx.types import ElementType
from porter.ptx.umma import AB_TYPES, Kind, legal_d_types, legal_m, legal_n

T = ElementType

OPERAND_FIELDS: dict[str, Field] = {
    "a_type": Field(7, 3),
    "b_type": Field(10, 3),
    "negate_a": Field(13, 1),
    "negate_b": Field(14, 1),
    "a_major": Field(15, 1),
    "b_major": Field(16, 1),
    "n": Field(17, 6),
}
"""The same in the descriptors of all kinds, as are the next two."""
SPARSE_FIELD = Field(2, 1)
M_FIELD = Field(24, 5)

FIELDS: dict[str, Field] = {
    "sparsity_selector": Field(0, 2),
    "sparse": SPARSE_FIELD,
    "saturate": Field(3, 1),
    "d_type": Field(4, 2),
    **OPERAND_FIELDS,
    "m": M_FIELD,
    "max_shift": Field(30, 2),
}
N_SHIFT = 3
"""The field `n` holds N >> 3."""
M_SHIFT = 4
"""The field `m` holds M >> 4, M totalled over the CTA pair."""
_BEYOND = {"N": (Field(17, 7), N_SHIFT), "M": (Field(24, 6), M_SHIFT)}
"""The sizes with the reserved bit above their field, into which one that is too large goes."""

D_TYPE_CODES: dict[ElementType, int] = {T.F16: 0, T.F32: 1, T.S32: 2}

AB_TYPE_CODES: dict[Kind, dict[ElementType, int]] = {
    Kind.F16: {T.F16: 0, T.BF16: 1},
    Kind.TF32: {T.TF32: 2},
    Kind.F8F6F4: {T.E4M3: 0, T.E5M2: 1, T.E2M3: 3, T.E3M2: 4, T.E2M1: 5},
    Kind.I8: {T.U8: 0, T.S8: 1},
}


@dataclass(frozen=True)
class InstructionDescriptor:
    """A decoded instruction descriptor. `max_shift` is the code of the field, 0 for none."""

    kind: Kind
    m: int
    n: int
    d_type: ElementType
    a_type: ElementType
    b_type: ElementType
    negate_a: bool = False
    negate_b: bool = False
    a_mn_major: bool = False
    b_mn_major: bool = False
    saturate: bool = False
    sparse: bool = False
    sparsity_selector: int = 0
    max_shift: int = 0

    def encode(self) -> int:
        """The 32-bit word. Raises ValueError for types that are not of the kind or unencodable sizes."""
        codes = _ab_codes(self.kind)
        for name, element in (("A", self.a_type), ("B", self.b_type)):
            if element not in codes:
                raise ValueError(f"{element.value} is no {name} type of kind::{self.kind.value}")
        if self.d_type not in D_TYPE_CODES:
            raise ValueError(f"{self.d_type.value} is no accumulator type")
        if self.n % (1 << N_SHIFT) or self.m % (1 << M_SHIFT):
            raise ValueError(f"M={self.m}, N={self.n} cannot be encoded")
        values = {
            "sparsity_selector": self.sparsity_selector,
            "sparse": int(self.sparse),
            "saturate": int(self.saturate),
            "d_type": D_TYPE_CODES[self.d_type],
            "a_type": codes[self.a_type],
            "b_type": codes[self.b_type],
            "negate_a": int(self.negate_a),
            "negate_b": int(self.negate_b),
            "a_major": int(self.a_mn_major),
            "b_major": int(self.b_mn_major),
            "n": self.n >> N_SHIFT,
            "m": self.m >> M_SHIFT,
            "max_shift": self.max_shift,
        }
        return sum(FIELDS[name].put(value) for name, value in values.items())

    @staticmethod
    def decode(word: int, kind: Kind) -> InstructionDescriptor:
        """The fields of a word.

        Raises ValueError if reserved bits are set or a type code is undefined for the kind.
        """
        codes = _ab_codes(kind)
        if beside := bits_beside_fields(word):
            raise ValueError(f"instruction descriptor {word:#010x}: {'; '.join(beside)}")
        value = {name: field.get(word) for name, field in FIELDS.items()}
        types: dict[str, ElementType] = {}
        for name, table in (("d_type", D_TYPE_CODES), ("a_type", codes), ("b_type", codes)):
            found = [element for element, code in table.items() if code == value[name]]
            if not found:
                raise ValueError(
                    f"instruction descriptor {word:#010x}: {name} code {value[name]} is undefined "
                    f"for kind::{kind.value}"
                )
            types[name] = found[0]
        return InstructionDescriptor(
            kind=kind,
            m=value["m"] << M_SHIFT,
            n=value["n"] << N_SHIFT,
            d_type=types["d_type"],
            a_type=types["a_type"],
            b_type=types["b_type"],
            negate_a=bool(value["negate_a"]),
            negate_b=bool(value["negate_b"]),
            a_mn_major=bool(value["a_major"]),
            b_mn_major=bool(value["b_major"]),
            saturate=bool(value["saturate"]),
            sparse=bool(value["sparse"]),
            sparsity_selector=value["sparsity_selector"],
            max_shift=value["max_shift"],
        )

    def problems(self, *, cta_group: int = 1, ws: bool = False) -> list[str]:
        """Why the hardware would not execute this, one sentence each; empty if it is legal."""
        found: list[str] = []
        kind = f"kind::{self.kind.value}"
        for name, element in (("A", self.a_type), ("B", self.b_type)):
            if element not in AB_TYPES[self.kind]:
                found.append(f"{element.value} is no {name} type of {kind}")
        if self.d_type not in legal_d_types(self.kind, self.a_type):
            found.append(f"{self.a_type.value} inputs of {kind} have no {self.d_type.value} accumulator")
        if self.kind is Kind.F16 and self.d_type is T.F16 and self.b_type is not T.F16:
            found.append(f"{self.b_type.value} inputs of {kind} have no f16 accumulator")
        if self.m not in legal_m(self.kind, cta_group, ws=ws, sparse=self.sparse):
            found.append(f"M={self.m} is not a tile of {kind} with cta_group::{cta_group}{_ws(ws)}")
        byte_b = self.b_mn_major and self.b_type.bits == 8
        legal = legal_n(self.kind, cta_group, ws=ws, sparse=self.sparse, byte_b_mn_major=byte_b)
        if self.n not in legal:
            found.append(f"N={self.n} is not a tile of {kind} with cta_group::{cta_group}{_ws(ws)}")
        if self.saturate and self.kind is not Kind.I8:
            found.append(f"the saturate bit is for kind::i8, not for {kind}")
        if (self.negate_a or self.negate_b) and self.kind is Kind.I8:
            found.append("kind::i8 has no negation")
        if self.max_shift and not ws:
            found.append("the maximum shift of B is for .ws")
        if self.sparsity_selector and (not self.sparse or self.kind in (Kind.I8, Kind.F8F6F4)):
            found.append("the sparsity selector must be 0")
        return found

    def validate(self, *, cta_group: int = 1, ws: bool = False) -> None:
        """Raises ValueError with every problem if this is not a legal instruction."""
        if found := self.problems(cta_group=cta_group, ws=ws):
            raise ValueError("instruction descriptor: " + "; ".join(found))


def bits_beside_fields(word: int) -> list[str]:
    """What is wrong with the reserved bits of a word, one phrase each; empty if they are zero. A size that does not
    fit into its field is told as that size."""
    reserved = word & ~sum(field.mask for field in FIELDS.values())
    found = []
    for name, (field, shift) in _BEYOND.items():
        if reserved & field.mask:
            reserved &= ~field.mask
            found.append(f"{name} = {field.get(word) << shift}, more than the field of {name} holds")
    return [*found, *([f"reserved bits {reserved:#x} are set"] if reserved else [])]


def _ab_codes(kind: Kind) -> dict[ElementType, int]:
    if kind not in AB_TYPE_CODES:
        raise ValueError(f"kind::{kind.value} has a block-scaled instruction descriptor, see idesc_scaled")
    return AB_TYPE_CODES[kind]


def _ws(ws: bool) -> str:
    return " and .ws" if ws else ""
