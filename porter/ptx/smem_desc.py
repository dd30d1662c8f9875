# SPDX-License-Identifier: Apache-2.0
"""64-bit shared-memory matrix descriptors of wgmma (SM90) and tcgen05 (SM100), and what they address.

Sources: PTX ISA 9.0 §9.7.15.5.1.2.2 (SM90 fields), §9.7.16.4.1 table 40 (SM100 fields), §9.7.15.5.1.2.1 and
§9.7.16.3 (meaning of the strides, the same for both); CUTLASS include/cute/arch/mma_sm90_desc.hpp,
mma_sm100_desc.hpp and the canonical layouts in include/cute/atom/mma_traits_sm90_gmma.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from porter.ptx.bits import Field
from porter.ptx.swizzle import IntLike, SwizzleMode

Generation = Literal["sm_90", "sm_100"]

# Start, leading and stride offsets are stored without their low four bits.
FIELDS_SM90: dict[str, Field] = {
    "start": Field(0, 14),
    "lbo": Field(16, 14),
    "sbo": Field(32, 14),
    "base_offset": Field(49, 3),
    "swizzle": Field(62, 2),
}
FIELDS_SM100: dict[str, Field] = {
    "start": Field(0, 14),
    "lbo": Field(16, 14),
    "sbo": Field(32, 14),
    "version": Field(46, 3),
    "base_offset": Field(49, 3),
    "lbo_absolute": Field(52, 1),
    "swizzle": Field(61, 3),
}
FIELDS: dict[Generation, dict[str, Field]] = {"sm_90": FIELDS_SM90, "sm_100": FIELDS_SM100}

SM100_VERSION = 1
SM100_VERSION_BIT = FIELDS_SM100["version"].put(SM100_VERSION)

SWIZZLE_CODES: dict[Generation, dict[SwizzleMode, int]] = {
    "sm_90": {SwizzleMode.NONE: 0, SwizzleMode.B128: 1, SwizzleMode.B64: 2, SwizzleMode.B32: 3},
    "sm_100": {
        SwizzleMode.NONE: 0,
        SwizzleMode.B128_ATOM32: 1,
        SwizzleMode.B128: 2,
        SwizzleMode.B64: 4,
        SwizzleMode.B32: 6,
    },
}

ADDRESS_MASK = 0x3FFFF
"""Descriptors keep 18 bits of a shared::cta byte address (and of each offset)."""
UNIT_BITS = 4
"""And keep them in units of 16 bytes: low bits, which are zero."""
START_MASK = ADDRESS_MASK >> UNIT_BITS


def encode_offset(value: int) -> int:
    """A byte address or offset as descriptors store it. Raises ValueError if not a multiple of 16."""
    if value % 16:
        raise ValueError(f"{value} is not a multiple of 16 bytes")
    return (value & ADDRESS_MASK) >> 4


@dataclass(frozen=True)
class SmemDescriptor:
    """A decoded matrix descriptor; addresses and offsets in bytes.

    `base_offset` is (pattern start >> 7) & 7: nonzero only if the swizzle pattern does not start on a
    multiple of its period. `lbo_absolute` (SM100 only) says that `lbo` is an address.
    """

    address: int
    lbo: int
    sbo: int
    swizzle: SwizzleMode
    base_offset: int = 0
    lbo_absolute: bool = False

    def encode(self, generation: Generation) -> int:
        """The 64-bit word. Raises ValueError for values that the generation cannot express."""
        fields = FIELDS[generation]
        codes = SWIZZLE_CODES[generation]
        if self.swizzle not in codes:
            raise ValueError(f"{generation} descriptors have no code for swizzle {self.swizzle.name}")
        word = (
            fields["start"].put(encode_offset(self.address))
            | fields["lbo"].put(encode_offset(self.lbo))
            | fields["sbo"].put(encode_offset(self.sbo))
            | fields["base_offset"].put(self.base_offset)
            | fields["swizzle"].put(codes[self.swizzle])
        )
        if generation == "sm_100":
            word |= SM100_VERSION_BIT | fields["lbo_absolute"].put(int(self.lbo_absolute))
        elif self.lbo_absolute:
            raise ValueError("sm_90 descriptors have no absolute leading-dimension address")
        return word

    @staticmethod
    def decode(word: int, generation: Generation) -> SmemDescriptor:
        """The fields of a 64-bit word. Between those of SM90 there may be anything: wgmma does not look at these bits,
        as measured on an H200 (`scripts/gpu_descriptor_bits.cu`).

        Raises ValueError if reserved bits of SM100 are set, its version is missing, or the swizzle code is undefined.
        """
        fields = FIELDS[generation]
        if generation == "sm_100" and (version := fields["version"].get(word)) != SM100_VERSION:
            raise ValueError(
                f"shared-memory descriptor {word:#018x}: bits 46-48 are {version:#05b}, "
                f"an SM100 descriptor has {SM100_VERSION:#05b}"
            )
        reserved = word & ~used_bits(generation)
        if generation == "sm_100" and reserved:
            raise ValueError(f"shared-memory descriptor {word:#018x}: reserved bits {reserved:#x} are set")
        code = fields["swizzle"].get(word)
        modes = {code: mode for mode, code in SWIZZLE_CODES[generation].items()}
        if code not in modes:
            raise ValueError(f"shared-memory descriptor {word:#018x}: swizzle code {code} is undefined")
        return SmemDescriptor(
            address=fields["start"].get(word) << 4,
            lbo=fields["lbo"].get(word) << 4,
            sbo=fields["sbo"].get(word) << 4,
            swizzle=modes[code],
            base_offset=fields["base_offset"].get(word),
            lbo_absolute=bool(generation == "sm_100" and fields["lbo_absolute"].get(word)),
        )


def used_bits(generation: Generation) -> int:
    """The bits of a descriptor that belong to a field."""
    return sum(field.mask for field in FIELDS[generation].values())


def bits_beside_fields(generation: Generation) -> list[int]:
    """Bits of a descriptor that belong to no field; of the lower half those where the upper half has none either."""
    used = used_bits(generation)
    return [bit for bit in range(64) if not used >> bit & 1 and (bit >= 32 or not used >> bit + 32 & 1)]


def element_offset(
    mn: IntLike,
    k: IntLike,
    *,
    element_bits: int,
    mn_major: bool,
    swizzle: SwizzleMode,
    lbo: int,
    sbo: int,
) -> IntLike:
    """Byte offset of element (mn, k) from the start address, before the swizzle.

    `lbo` and `sbo` are the descriptor's byte offsets. Types narrower than a byte count as packed; `k` of
    MN-major operands must be of 8 bits or more. Source: PTX ISA 9.0 §9.7.16.3; for the 32-byte atom mode
    CUTLASS include/cute/atom/mma_traits_sm100.hpp (make_umma_desc).
    """
    if not mn_major:
        k_byte = k * element_bits // 8
        if swizzle is SwizzleMode.NONE:
            return mn % 8 * 16 + mn // 8 * sbo + k_byte % 16 + k_byte // 16 * lbo
        return mn % 8 * swizzle.span + mn // 8 * sbo + k_byte
    size = element_bits // 8
    if swizzle is SwizzleMode.NONE:
        chunk = 16 // size
        return mn % chunk * size + mn // chunk * sbo + k % 8 * 16 + k // 8 * lbo
    span = swizzle.span
    rows = 4 if swizzle is SwizzleMode.B128_ATOM32 else 8
    return mn * size % span + mn * size // span * lbo + k % rows * span + k // rows * sbo
