# SPDX-License-Identifier: Apache-2.0
"""How 4- and 6-bit floats lie in memory: packed with padding, packed without, and in 8-bit containers.

Sources: PTX ISA 9.0 §9.7.16.10.4 (packing formats of A and B), §9.7.16.9.1 (decompression by tcgen05.cp),
§5.5.1.1 (sub-byte types of tensor maps). The figures that place a value in its container are stated in words in
CUTLASS examples/python/CuTeDSL/experimental/primitives/tcgen05/cp_narrow_a_to_tmem_mma.py.
"""

from __future__ import annotations

from porter.ptx.types import ElementType
from porter.ptx.umma import Kind

T = ElementType

PACKED_BITS: dict[ElementType, int] = {T.E2M1: 4, T.E2M3: 6, T.E3M2: 6}
"""Bits of the element types that are narrower than their container."""

CHUNK_ELEMENTS = 16
"""Elements of a padded chunk. They are packed from its lowest bit up; 16 bytes hold 16 of them for each type, so
that offsets are those of 8-bit elements."""

CONTAINER_SHIFT: dict[ElementType, int] = {T.E2M1: 2, T.E2M3: 1, T.E3M2: 1}
"""Lowest bit of the value in its 8-bit container of Tensor Memory: 0b00xxxx00 and 0b0xxxxxx0."""

SOURCE_BITS: dict[str, int] = {"b4x16_p64": 4, "b6x16_p32": 6}
"""Bits of an element by the source format of tcgen05.cp; the container does not tell the two 6-bit types apart."""

SOURCE_SHIFT: dict[str, int] = {"b4x16_p64": 2, "b6x16_p32": 1}
"""Where tcgen05.cp puts the value in the container, by source format."""


def operand_element_bits(kind: Kind, element: ElementType) -> int:
    """Bits from one element of A or B to the next along K, padding included: 4 for the kinds that pack two
    elements in a byte, the container's width otherwise."""
    return 4 if kind in (Kind.MXF4, Kind.MXF4NVF4) else element.bits
