# SPDX-License-Identifier: Apache-2.0
"""The 16-byte chunks of shared memory that an operand of a tensor core lies in (PTX ISA 9.0 §9.7.16.5)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from porter.ptx.operand_errors import OperandError, UnsupportedOperandError
from porter.ptx.smem_desc import Generation, SmemDescriptor, element_offset
from porter.ptx.swizzle import PERIOD, SwizzleMode


class ChunkIndex:
    """16-byte chunks to gather: for K-major [rows, chunks of K], for MN-major [k, chunks of MN]."""

    def __init__(self, chunks: NDArray[np.int64]) -> None:
        self.chunks = chunks
        self.largest = int(chunks.max())


@lru_cache(maxsize=512)
def chunk_index(
    start: int,
    lbo: int,
    sbo: int,
    base_offset: int,
    swizzle: SwizzleMode,
    rows: int,
    k: int,
    element_bits: int,
    mn_major: bool,
) -> ChunkIndex:
    # Within 16 bytes a layout is contiguous along its major dimension, whatever the swizzle.
    per_chunk = 128 // element_bits
    if mn_major:
        mn = np.arange(0, rows, per_chunk, dtype=np.int64)[None, :]
        ks = np.arange(k, dtype=np.int64)[:, None]
    else:
        mn = np.arange(rows, dtype=np.int64)[:, None]
        ks = np.arange(0, k, per_chunk, dtype=np.int64)[None, :]
    offset = element_offset(mn, ks, element_bits=element_bits, mn_major=mn_major, swizzle=swizzle, lbo=lbo, sbo=sbo)
    address = swizzle.swizzle.apply(start + offset, base_offset << 7)
    return ChunkIndex(address >> 4)


def operand_chunks(
    descriptor: int, generation: Generation, rows: int, k: int, element_bits: int, mn_major: bool = False
) -> NDArray[np.int64]:
    """Which 16-byte chunks of shared memory an operand lies in: [rows, chunks of K], or for an MN-major one
    [k, chunks of MN]. Raises OperandError for an invalid descriptor."""
    desc = decode_descriptor(descriptor, generation)
    index = chunk_index(
        desc.address % PERIOD, desc.lbo, desc.sbo, desc.base_offset, desc.swizzle, rows, k, element_bits, mn_major
    )
    return index.chunks + desc.address // PERIOD * (PERIOD // 16)


@lru_cache(maxsize=4096)
def decode_descriptor(descriptor: int, generation: Generation) -> SmemDescriptor:
    try:
        desc = SmemDescriptor.decode(descriptor, generation)
    except ValueError as error:
        raise OperandError(str(error)) from None
    if desc.lbo_absolute:
        raise UnsupportedOperandError("descriptors with an absolute leading-dimension address")
    return desc
