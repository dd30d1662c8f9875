# SPDX-License-Identifier: Apache-2.0
"""Tensor maps: what a TMA descriptor says, and Porter's own 128-byte form of it.

The hardware's encoding is undocumented, so a map is written in a form of Porter's: kernels only pass the
128 bytes on, and the simulator reads them back. Kernels that keep maps of their own copy no more than the first 64
bytes (CUTLASS python/CuTeDSL, `copy_tensormap`), so all of a tiled map lies there. All words are little-endian:

======= =========================================================
bytes   content
======= =========================================================
0-1     "T" and the form version, 2
2       rank, 1 to 5
3       data type (CUtensorMapDataType)
4       swizzle (CUtensorMapSwizzle)
5       interleave (CUtensorMapInterleave)
6       L2 promotion (CUtensorMapL2promotion)
7       out-of-bounds fill (CUtensorMapFloatOOBfill)
8-15    global address
16-35   sizes of dimensions 0 to 4, minus 1, 32 bits each
36-55   byte strides of dimensions 1 to 4, in units of 16, 40 bits each
56-60   box of dimensions 0 to 4, minus 1
61-63   element strides of dimensions 0 to 4, 4 bits each; then 1 in im2col mode, 2 and 3 in im2col::w and
        im2col::w::128, else 0
64-69   im2col: lower corner of the bounding box, dimensions 1 to 3, 16 bits each
70-75   im2col: upper corner
76-127  zero
======= =========================================================

Sources: CUDA driver API, cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col and cuTensorMapEncodeIm2colWide (limits and
the numbers of the enumerations); PTX ISA 9.0 §5.5 (tensors, sub-byte types, tiled and im2col modes, swizzles).
"""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from porter.ptx.swizzle import Swizzle

ENCODED_BYTES = 128
ALIGNMENT = 64
"""A tensor map lies on a multiple of 64 bytes."""

MAGIC = b"T\x02"
"""No global address that hardware's maps begin with ends in these bits: addresses are multiples of 16."""
MAX_RANK = 5
_HEAD = struct.Struct("<2s6BQ5I")
_STRIDES, _BOX, _ELEMENTS = _HEAD.size, _HEAD.size + 20, _HEAD.size + 25
TILED_BYTES = _ELEMENTS + 3
"""All of a tiled map lies in these; kernels that keep maps of their own copy no more."""
HOW_COPIED = (*range(4, 7), *range(_BOX, TILED_BYTES))
"""Bytes of a tiled map that say how a copy takes a tensor apart, and nothing of the tensor: swizzle, interleave, L2
promotion, box and element strides."""
_CORNERS = struct.Struct("<6h52x")


class TensorMapType(IntEnum):
    """CUtensorMapDataType."""

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    INT32 = 3
    UINT64 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT32_FTZ = 10
    TFLOAT32 = 11
    TFLOAT32_FTZ = 12
    U4_ALIGN8B = 13
    U4_ALIGN16B = 14
    U6_ALIGN16B = 15

    @property
    def element_bytes(self) -> int:
        """Bytes of an element; 1 for the types that pack 16 elements (§5.5.1.1)."""
        return _ELEMENT_BYTES.get(self, 1)

    @property
    def element_bits(self) -> int:
        """Bits of an element in global memory."""
        return NARROW_BITS.get(self, 8 * self.element_bytes)

    @property
    def padded(self) -> bool:
        """Whether 16 elements take 16 bytes of shared memory, of which the first hold them (.b4x16_p64 and
        .b6x16_p32). An mbarrier counts the bytes of global memory (CUTLASS
        python/CuTeDSL/cutlass/experimental/cuda/tensor_map.py, global_tx_bytes)."""
        return self in (TensorMapType.U4_ALIGN16B, TensorMapType.U6_ALIGN16B)

    @property
    def is_float(self) -> bool:
        return TensorMapType.FLOAT16 <= self <= TensorMapType.TFLOAT32_FTZ


NARROW_BITS: dict[TensorMapType, int] = {
    TensorMapType.U4_ALIGN8B: 4,
    TensorMapType.U4_ALIGN16B: 4,
    TensorMapType.U6_ALIGN16B: 6,
}
PADDED_BOX = 128
"""Box of dimension 0 of padded types, which its size is a multiple of."""


_ELEMENT_BYTES: dict[TensorMapType, int] = {
    TensorMapType.UINT8: 1,
    TensorMapType.UINT16: 2,
    TensorMapType.UINT32: 4,
    TensorMapType.INT32: 4,
    TensorMapType.UINT64: 8,
    TensorMapType.INT64: 8,
    TensorMapType.FLOAT16: 2,
    TensorMapType.FLOAT32: 4,
    TensorMapType.FLOAT64: 8,
    TensorMapType.BFLOAT16: 2,
    TensorMapType.FLOAT32_FTZ: 4,
    TensorMapType.TFLOAT32: 4,
    TensorMapType.TFLOAT32_FTZ: 4,
}


class TensorMapSwizzle(IntEnum):
    """CUtensorMapSwizzle."""

    NONE = 0
    B32 = 1
    B64 = 2
    B128 = 3
    B128_ATOM_32B = 4
    B128_ATOM_32B_FLIP_8B = 5
    B128_ATOM_64B = 6

    @property
    def span(self) -> int:
        """Bytes of one swizzled row; 0 without a swizzle."""
        return {0: 0, 1: 32, 2: 64}.get(int(self), 128)


TMA_SWIZZLES: dict[TensorMapSwizzle, Swizzle] = {
    TensorMapSwizzle.NONE: Swizzle(0, 4, 3),
    TensorMapSwizzle.B32: Swizzle(1, 4, 3),
    TensorMapSwizzle.B64: Swizzle(2, 4, 3),
    TensorMapSwizzle.B128: Swizzle(3, 4, 3),
    TensorMapSwizzle.B128_ATOM_32B: Swizzle(2, 5, 2),
}
"""As exchanges of shared-memory address bits; the modes left out are not of that form."""


class TensorMapInterleave(IntEnum):
    """CUtensorMapInterleave."""

    NONE = 0
    B16 = 1
    B32 = 2


class TensorMapWide(IntEnum):
    """CUtensorMapIm2ColWideMode."""

    W = 0
    W128 = 1


WIDE_GROUP = 32
"""Pixels of im2col::w::128 that a halo comes after; four groups are a copy (PTX ISA 5.5.5.3)."""
LARGEST_HALO = {TensorMapWide.W: 512, TensorMapWide.W128: 32}
"""What wHalo stays below (PTX ISA 5.5.5)."""
LARGEST_WIDE_OFFSET = 32
"""What wOffset stays below (PTX ISA 5.5.5)."""

_WIDE_SWIZZLES = (TensorMapSwizzle.B64, TensorMapSwizzle.B128, TensorMapSwizzle.B128_ATOM_32B)


class TensorMapL2Promotion(IntEnum):
    """CUtensorMapL2promotion."""

    NONE = 0
    B64 = 1
    B128 = 2
    B256 = 3


@dataclass(frozen=True)
class TensorMap:
    """A tensor map. Dimensions run innermost first.

    `sizes` and `box` in elements, `strides` in bytes for dimensions 1 up (rank - 1 values),
    `element_strides` in elements (empty: all 1). `oob_nan` fills elements outside the tensor with NaN
    instead of zero.

    With `lower` and `upper` it is a map for im2col: `box` is then (channels per pixel, pixels per column), and the
    two are the corners of the bounding box in dimensions 1 to rank - 2, relative to the tensor's first and last
    elements. With `wide` as well it is one for im2col::w or im2col::w::128, whose corners are of dimension 1 alone.
    """

    dtype: TensorMapType
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: TensorMapSwizzle = TensorMapSwizzle.NONE
    interleave: TensorMapInterleave = TensorMapInterleave.NONE
    oob_nan: bool = False
    l2_promotion: TensorMapL2Promotion = field(default=TensorMapL2Promotion.NONE)
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    wide: TensorMapWide | None = None

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.sizes))

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def im2col(self) -> bool:
        return bool(self.lower)

    @cached_property
    def inner_bytes(self) -> int:
        """Bytes of shared memory that the box takes along dimension 0."""
        return self.box[0] if self.dtype.padded else self.box[0] * self.dtype.element_bits // 8

    @cached_property
    def box_counts(self) -> tuple[int, ...]:
        """Elements that a copy moves along each dimension: the box divided by the element strides, upward.
        Dimension 0 has no stride in tiled mode; in im2col mode strides leave the number of pixels as it is."""
        if self.im2col:
            return self.box
        pairs = zip(self.box, (1, *self.element_strides[1:]), strict=True)
        return tuple(-(-box // stride) for box, stride in pairs)

    @cached_property
    def box_bytes(self) -> int:
        """Bytes that one copy moves, as an mbarrier counts them."""
        return math.prod(self.box_counts) * self.dtype.element_bits // 8

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that one copy covers, with the padding of padded types."""
        return math.prod(self.box_counts[1:]) * self.inner_bytes

    def problems(self) -> list[str]:
        """Why cuTensorMapEncodeTiled would refuse this map, one sentence each; empty if it is legal."""
        rank = self.rank
        if not 1 <= rank <= MAX_RANK:
            return [f"rank {rank} is not 1 to {MAX_RANK}"]
        lengths = (rank if self.im2col else len(self.box), len(self.element_strides), len(self.strides) + 1)
        if set(lengths) != {rank}:
            return [f"{rank} sizes need {rank} box sizes and element strides, and {rank - 1} strides"]
        found = self._im2col_problems() if self.im2col else []
        unit = 32 if self.dtype.padded else 16
        if self.address % unit:
            found.append(f"the global address {self.address:#x} is not a multiple of {unit}")
        found += [f"size {n} is not 1 to 2^32" for n in self.sizes if not 1 <= n <= 1 << 32]
        for stride in self.strides:
            if stride % unit or not 0 <= stride < 1 << 40:
                found.append(f"stride {stride} bytes is not a multiple of {unit} below 2^40")
        if not self.im2col:
            found += [f"box size {n} is not 1 to 256" for n in self.box if not 1 <= n <= 256]
        found += [f"element stride {n} is not 1 to 8" for n in self.element_strides if not 1 <= n <= 8]
        if self.interleave is TensorMapInterleave.NONE:
            if self.inner_bytes % 16:
                found.append(f"the box is {self.inner_bytes} bytes wide, not a multiple of 16")
            if self.swizzle.span and self.inner_bytes > self.swizzle.span:
                found.append(
                    f"the box is {self.inner_bytes} bytes wide, more than the {self.swizzle.span} bytes "
                    f"of swizzle {self.swizzle.name}"
                )
        elif rank < 3:
            found.append("interleaved layouts have at least three dimensions")
        if self.dtype.padded and (self.box[0] != PADDED_BOX or self.sizes[0] % PADDED_BOX):
            found.append(
                f"{self.dtype.name} elements need a box of {PADDED_BOX} and a multiple of it as size, "
                f"not {self.box[0]} and {self.sizes[0]}"
            )
        if self.dtype in NARROW_BITS and self.sizes[0] % 2:
            found.append(f"{self.sizes[0]} elements of {self.dtype.element_bits} bits end within a byte")
        if self.oob_nan and not self.dtype.is_float:
            found.append(f"{self.dtype.name} elements have no NaN to fill with")
        return found

    def _im2col_problems(self) -> list[str]:
        """The limits of corners depend on the rank."""
        rank, corners = self.rank, self.rank - 2 if self.wide is None else 1
        if rank < 3 or len(self.lower) != corners or len(self.upper) != corners or len(self.box) != 2:
            return ["im2col needs three dimensions or more, corners in all but two, channels and pixels"]
        limit = {3: 15, 4: 7, 5: 4}[rank] if self.wide is None else 15
        found = [f"corner {n} is not of {limit + 1} bits" for n in (*self.lower, *self.upper)
                 if not -(1 << limit) <= n < 1 << limit]  # fmt: skip
        if not 1 <= self.box[0] <= 256:
            found.append(f"{self.box[0]} channels per pixel are not 1 to 256")
        if not 1 <= self.box[1] <= 1024:
            found.append(f"{self.box[1]} pixels per column are not 1 to 1024")
        if self.wide is not None and (self.interleave or self.swizzle not in _WIDE_SWIZZLES):
            found.append("im2col::w needs a swizzle of 64 or 128 bytes and no interleaved layout")
        return found

    def validate(self) -> None:
        """Raises ValueError with every problem if this is not a legal map."""
        if found := self.problems():
            raise ValueError("tensor map: " + "; ".join(found))

    def encode(self) -> bytes:
        """The map's 128 bytes. Raises ValueError if it is not a legal map."""
        self.validate()

        def padded(values: tuple[int, ...], length: int, fill: int) -> tuple[int, ...]:
            return values + (fill,) * (length - len(values))

        head = _HEAD.pack(
            MAGIC,
            self.rank,
            self.dtype,
            self.swizzle,
            self.interleave,
            self.l2_promotion,
            int(self.oob_nan),
            self.address,
            *padded(tuple(n - 1 for n in self.sizes), 5, 0),
        )
        strides = b"".join((n // 16).to_bytes(5, "little") for n in padded(self.strides, 4, 0))
        box = bytes(n - 1 for n in padded(self.box, 5, 1))
        mode = int(self.im2col) if self.wide is None else 2 + self.wide
        last = sum(n << 4 * i for i, n in enumerate((*padded(self.element_strides, 5, 1), mode)))
        corners = _CORNERS.pack(*padded(self.lower, 3, 0), *padded(self.upper, 3, 0))
        return head + strides + box + last.to_bytes(3, "little") + corners

    @staticmethod
    def decode(data: bytes) -> TensorMap:
        """The map of 128 bytes. Raises ValueError if they do not hold one."""
        if len(data) != ENCODED_BYTES or data[: len(MAGIC)] != MAGIC:
            raise ValueError("these 128 bytes hold no tensor map")
        values = _HEAD.unpack_from(data)
        rank = values[1]
        if not 1 <= rank <= MAX_RANK:
            raise ValueError(f"tensor map of rank {rank} is not known")
        strides = [int.from_bytes(data[i : i + 5], "little") * 16 for i in range(_STRIDES, _BOX, 5)]
        last = int.from_bytes(data[_ELEMENTS : _ELEMENTS + 3], "little")
        im2col, wide = bool(last >> 20), TensorMapWide((last >> 20) - 2) if last >> 20 > 1 else None
        at = 1 if wide is not None else rank - 2
        corners = _CORNERS.unpack_from(data, _ELEMENTS + 3)
        return TensorMap(
            dtype=TensorMapType(values[2]),
            swizzle=TensorMapSwizzle(values[3]),
            interleave=TensorMapInterleave(values[4]),
            l2_promotion=TensorMapL2Promotion(values[5]),
            oob_nan=bool(values[6]),
            element_strides=tuple(last >> 4 * i & 15 for i in range(rank)),
            address=values[7],
            sizes=tuple(n + 1 for n in values[8 : 8 + rank]),
            strides=tuple(strides[: rank - 1]),
            box=tuple(n + 1 for n in data[_BOX : _BOX + (2 if im2col else rank)]),
            lower=corners[:at] if im2col else (),
            upper=corners[3 : 3 + at] if im2col else (),
            wide=wide,
        )


def maps_in(data: bytes) -> dict[int, bytes]:
    """The maps in Porter's form that lie in some bytes, by their offset: on multiples of 64."""
    found = {}
    at = data.find(MAGIC)
    while at >= 0:
        here = data[at : at + ENCODED_BYTES]
        with suppress(ValueError):
            if at % ALIGNMENT == 0:
                TensorMap.decode(here)
                found[at] = here
        at = data.find(MAGIC, at + 1)
    return found


GATHERED_ROWS = 4
"""Boxes of one row that a copy of tile::gather4 or tile::scatter4 moves (PTX ISA 9.0 §5.5.3.3)."""

SIZING_FIELDS = frozenset(("rank", "box_dim", "elemtype", "element_stride"))
"""Fields that `tensormap.replace` changes and that the bytes of a box follow from."""

# What `tensormap.replace` changes (PTX ISA 9.0 §9.7.9.28): where a field of the form above lies, and its type.
_FIELDS: dict[str, tuple[int, int]] = {
    "global_address": (8, 8), "rank": (2, 1), "global_dim": (16, 4), "global_stride": (_STRIDES, 5),
    "box_dim": (_BOX, 1), "elemtype": (3, 1), "interleave_layout": (5, 1), "swizzle_mode": (4, 1),
    "swizzle_atomicity": (4, 1), "fill_mode": (7, 1),
}  # fmt: skip
"""Offset and bytes."""

_REPLACE_TYPES = (
    TensorMapType.UINT8, TensorMapType.UINT16, TensorMapType.UINT32, TensorMapType.INT32, TensorMapType.UINT64,
    TensorMapType.INT64, TensorMapType.FLOAT16, TensorMapType.FLOAT32, TensorMapType.FLOAT32_FTZ,
    TensorMapType.FLOAT64, TensorMapType.BFLOAT16, TensorMapType.TFLOAT32, TensorMapType.TFLOAT32_FTZ,
    TensorMapType.U4_ALIGN8B, TensorMapType.U4_ALIGN16B, TensorMapType.U6_ALIGN16B,
)  # fmt: skip
"""The element types by `tensormap.replace`'s own numbers."""

_ATOMICITY = (
    TensorMapSwizzle.B128, TensorMapSwizzle.B128_ATOM_32B, TensorMapSwizzle.B128_ATOM_32B_FLIP_8B,
    TensorMapSwizzle.B128_ATOM_64B,
)  # fmt: skip


def replaced(data: bytes, field_name: str, value: int, ordinal: int = 0) -> bytes:
    """The map's bytes with one field changed as `tensormap.replace` does: sizes and strides as they are, the rank
    less 1, enumerations by the instruction's numbers.

    Zeros are a map that is begun, as Triton's and CUTLASS's kernels begin theirs.

    Raises ValueError if the bytes hold no map or the value has no meaning.
    """
    if len(data) == ENCODED_BYTES and not any(data):
        data = MAGIC + data[len(MAGIC) :]
    if len(data) != ENCODED_BYTES or data[: len(MAGIC)] != MAGIC:
        raise ValueError("these 128 bytes hold no tensor map")
    meaningless = ValueError(f"tensormap.replace.{field_name}: {value} has no meaning")
    out = bytearray(data)
    if field_name == "element_stride":
        if not 1 <= value <= 15 or ordinal >= MAX_RANK:
            raise meaningless
        last = int.from_bytes(data[_ELEMENTS : _ELEMENTS + 3], "little") & ~(15 << 4 * ordinal)
        out[_ELEMENTS : _ELEMENTS + 3] = (last | value << 4 * ordinal).to_bytes(3, "little")
        return bytes(out)
    offset, size = _FIELDS[field_name]
    if field_name == "rank":
        value += 1
    elif field_name == "global_dim":
        value = (value - 1) & 0xFFFFFFFF
    elif field_name == "global_stride":
        value = -1 if value % 16 or ordinal >= MAX_RANK - 1 else value // 16
    elif field_name == "box_dim":
        value -= 1
    elif field_name == "elemtype":
        value = int(_REPLACE_TYPES[value]) if value < len(_REPLACE_TYPES) else -1
    elif field_name == "swizzle_mode" and value > TensorMapSwizzle.B128:
        value = -1
    elif field_name == "swizzle_atomicity":
        value = int(_ATOMICITY[value]) if data[offset] >= TensorMapSwizzle.B128 and value < 4 else data[offset]
    if not 0 <= value < 1 << 8 * size:
        raise meaningless
    out[offset + ordinal * size : offset + (ordinal + 1) * size] = value.to_bytes(size, "little")
    return bytes(out)
