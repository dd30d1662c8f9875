# SPDX-License-Identifier: Apache-2.0
"""Tensor maps in the hardware's own format, as cuTensorMapEncodeTiled and host code of CuTe DSL write them.

The format is not documented; the fields below were found by encoding tensor maps that differ in one property, with
the driver on a Hopper GPU (580.159, CUDA 13.0) and with CuTe DSL, which does not call the driver. Sixteen
64-bit little-endian words, the first eight of which matter:

=====  ======  ===========================================================
word   bits    field
=====  ======  ===========================================================
0      0-63    global address
1      0       1: im2col
1      1-3     0 from the driver, 1 from CuTe DSL
1      4-6     rank minus 1
1      7-10    element type (`_TYPES`, not the driver's numbers)
1      11-12   interleave
1      13-14   swizzle: 0 none, 1 32B, 2 64B, 3 128B
1      15      fill elements outside the tensor with NaN
1      16      round f32 to tf32, with type 8 to tf32 without subnormals
1      17-18   L2 promotion
1      19      128B swizzle in atoms of 32 bytes instead of 16 (sm_100a only)
1      21      set for tensors of at least 128 KiB
1      32-63   stride of dimension 1 in units of 16 bytes, low 32 bits
2      0-63    the same for dimensions 2 and 3
3      0-31    the same for dimension 4
3      32-47   the four strides' bits 32-35, four bits each
4, 5   0-63    sizes of dimensions 0 to 3 minus 1, 32 bits each
6      0-31    size of dimension 4 minus 1
6      32-46   element strides minus 1, three bits each
6      56-63   box of dimension 0 minus 1
7      0-31    box of dimensions 1 to 4 minus 1, eight bits each
=====  ======  ===========================================================

Bit 21 is the one that CUTLASS clears in include/cute/atom/copy_traits_sm90_tma.hpp for small tensors. The driver
also writes the bytes of a box into word 8 and the alignment of shared memory into word 9.
"""

from __future__ import annotations

import struct

from porter.ptx.tensormap import (
    ENCODED_BYTES,
    TensorMap,
    TensorMapInterleave,
    TensorMapL2Promotion,
    TensorMapSwizzle,
    TensorMapType,
)

_TYPES = {
    0: TensorMapType.UINT8,
    1: TensorMapType.UINT16,
    2: TensorMapType.UINT32,
    3: TensorMapType.INT32,
    4: TensorMapType.UINT64,
    5: TensorMapType.INT64,
    6: TensorMapType.FLOAT16,
    7: TensorMapType.FLOAT32,
    8: TensorMapType.FLOAT32_FTZ,
    9: TensorMapType.FLOAT64,
    10: TensorMapType.BFLOAT16,
    11: TensorMapType.U4_ALIGN8B,
}

_TF32 = {TensorMapType.FLOAT32: TensorMapType.TFLOAT32, TensorMapType.FLOAT32_FTZ: TensorMapType.TFLOAT32_FTZ}
_TILED = (0, 2)
_KNOWN_FLAGS = 0x2F_FFFF
"""The bits of word 1's lower half that are understood; any other one set makes the map unreadable."""


def decode_hardware(data: bytes) -> TensorMap:
    """The map that 128 bytes in the hardware's format describe.

    Raises:
        ValueError: a field holds a value whose meaning is not known.
    """
    if len(data) != ENCODED_BYTES:
        raise ValueError(f"a tensor map has {ENCODED_BYTES} bytes, not {len(data)}")
    address, flags, stride23, stride4, size01, size23, tail, boxes = struct.unpack_from("<8Q", data)
    low = flags & 0xFFFF_FFFF
    if low & 0xF not in _TILED or low & ~_KNOWN_FLAGS:
        raise ValueError(f"tensor map flags {low:#010x} are not those of a tiled map")
    if low >> 11 & 3 == 3 or tail >> 47 & 0x1FF or stride4 >> 48 or boxes >> 32:
        raise ValueError("unknown tensor map")
    rank = (low >> 4 & 7) + 1
    kind = _TYPES.get(low >> 7 & 0xF)
    if kind is None or rank > 5:
        raise ValueError(f"tensor map of element type {low >> 7 & 0xF}, rank {rank}")
    if low >> 16 & 1:
        if kind not in _TF32:
            raise ValueError(f"tensor map that rounds {kind.name} to tf32")
        kind = _TF32[kind]
    swizzle = TensorMapSwizzle(low >> 13 & 3)
    if low >> 19 & 1:
        if swizzle is not TensorMapSwizzle.B128:
            raise ValueError(f"tensor map with 32-byte atoms and swizzle {swizzle.name}")
        swizzle = TensorMapSwizzle.B128_ATOM_32B
    lows = (flags >> 32, stride23 & 0xFFFF_FFFF, stride23 >> 32, stride4 & 0xFFFF_FFFF)
    strides = [(part | (stride4 >> 32 + 4 * i & 0xF) << 32) * 16 for i, part in enumerate(lows)]
    sizes = (size01 & 0xFFFF_FFFF, size01 >> 32, size23 & 0xFFFF_FFFF, size23 >> 32, tail & 0xFFFF_FFFF)
    box = (tail >> 56, *(boxes >> 8 * i & 0xFF for i in range(4)))
    return TensorMap(
        dtype=kind,
        address=address,
        sizes=tuple(n + 1 for n in sizes[:rank]),
        strides=tuple(strides[: rank - 1]),
        box=tuple(n + 1 for n in box[:rank]),
        element_strides=tuple((tail >> 32 + 3 * i & 7) + 1 for i in range(rank)),
        swizzle=swizzle,
        interleave=TensorMapInterleave(low >> 11 & 3),
        oob_nan=bool(low >> 15 & 1),
        l2_promotion=TensorMapL2Promotion(low >> 17 & 3),
    )
