# SPDX-License-Identifier: Apache-2.0
"""Matrix operands out of shared memory and registers, decoded to float64."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.ptx.mma_numerics import TF32_TRUNCATED_BITS
from porter.ptx.operand_chunks import ChunkIndex, chunk_index, decode_descriptor
from porter.ptx.operand_errors import OperandError, UnsupportedOperandError
from porter.ptx.packing import CHUNK_ELEMENTS, CONTAINER_SHIFT, PACKED_BITS
from porter.ptx.smem_desc import Generation, SmemDescriptor
from porter.ptx.swizzle import PERIOD, SwizzleMode
from porter.ptx.types import FLOAT_FORMATS, ElementType

Bytes = NDArray[np.uint8]
Decoded = NDArray[np.float64]

# Moves 16 bytes at a time; NumPy copies the items without looking at them.
_CHUNK = np.complex128


@lru_cache(maxsize=32)
def _byte_values(element: ElementType) -> Decoded:
    """The 256 values of an 8-bit container."""
    codes = np.arange(256)
    if element is ElementType.U8:
        return codes.astype(np.float64)
    if element is ElementType.S8:
        return codes.astype(np.uint8).view(np.int8).astype(np.float64)
    fmt = FLOAT_FORMATS[element]
    width = 1 + fmt.exponent_bits + fmt.mantissa_bits
    codes = codes & ((1 << width) - 1)
    mantissa = codes & ((1 << fmt.mantissa_bits) - 1)
    exponent = codes >> fmt.mantissa_bits & ((1 << fmt.exponent_bits) - 1)
    top = (1 << fmt.exponent_bits) - 1
    fraction = mantissa / (1 << fmt.mantissa_bits)
    values = np.where(exponent == 0, np.ldexp(fraction, fmt.min_exponent), np.ldexp(1 + fraction, exponent - fmt.bias))
    if fmt.has_inf:
        values = np.where(exponent == top, np.where(mantissa == 0, np.inf, np.nan), values)
    elif fmt.has_nan:
        values = np.where((exponent == top) & (mantissa == (1 << fmt.mantissa_bits) - 1), np.nan, values)
    return np.where(codes >> (width - 1), -values, values)


def decode(raw: Bytes, element: ElementType) -> Decoded:
    """Values of packed elements: raw [..., bytes], contiguous, to [..., elements]."""
    if element is ElementType.F16:
        with np.errstate(invalid="ignore"):
            return raw.view(np.float16).astype(np.float64)
    if element is ElementType.BF16:
        halves = raw.view(np.uint16)
        words = np.zeros(halves.shape, np.uint32)
        words.view(np.uint16)[..., 1::2] = halves
        with np.errstate(invalid="ignore"):
            return words.view(np.float32).astype(np.float64)
    if element is ElementType.TF32:
        words = raw.view(np.uint32) & np.uint32(0xFFFFFFFF << TF32_TRUNCATED_BITS & 0xFFFFFFFF)
        with np.errstate(invalid="ignore"):
            return words.view(np.float32).astype(np.float64)
    if element is ElementType.B1:
        return np.unpackbits(raw, axis=-1, bitorder="little").astype(np.float64)
    if element.bits == 8:
        return _byte_values(element)[raw]
    raise UnsupportedOperandError(f"{element.value} elements are no matrix operand")


def decode_pairs(raw: Bytes, element: ElementType) -> Decoded:
    """Values of 4-bit elements, two in a byte: raw [..., bytes] to [..., 2 * bytes]."""
    codes = np.stack([raw & 0xF, raw >> 4], axis=-1)
    return _byte_values(element)[codes.reshape(*raw.shape[:-1], -1)]


def unpack_chunks(raw: Bytes, bits: int) -> Bytes:
    """Codes of padded 4- or 6-bit elements: raw [..., 16 n] to [..., 16 n], 16 codes from each 16 bytes."""
    chunks = raw.reshape(*raw.shape[:-1], -1, CHUNK_ELEMENTS)
    stored = np.unpackbits(chunks[..., : CHUNK_ELEMENTS * bits // 8], axis=-1, bitorder="little")
    places = stored.reshape(*chunks.shape[:-1], CHUNK_ELEMENTS, bits)
    weights = (1 << np.arange(bits)).astype(np.uint8)
    codes = (places * weights).sum(axis=-1, dtype=np.uint8)
    return codes.reshape(raw.shape)


def decode_shared(raw: Bytes, element: ElementType) -> Decoded:
    """Values of elements as shared memory holds them: narrow ones packed into padded chunks."""
    bits = PACKED_BITS.get(element)
    return decode(raw if bits is None else unpack_chunks(raw, bits), element)


def decode_containers(raw: Bytes, element: ElementType) -> Decoded:
    """Values of elements as Tensor Memory holds them: narrow ones inside 8-bit containers."""
    shift = CONTAINER_SHIFT.get(element)
    return decode(raw if shift is None else raw >> np.uint8(shift), element)


def read_smem_operand(
    smem: Bytes,
    descriptor: int,
    generation: Generation,
    rows: int,
    k: int,
    element: ElementType,
    mn_major: bool = False,
    element_bits: int | None = None,
) -> Decoded:
    """The operand [rows, k] that a matrix descriptor describes, decoded.

    `smem` is one CTA's shared memory. `element_bits` 4 says that 4-bit elements are packed without padding.
    Raises OperandError for an invalid descriptor, a layout that the
    element type does not have, or bytes outside `smem`.
    """
    desc = decode_descriptor(descriptor, generation)
    _check_layout(desc, element, mn_major, generation)
    if element_bits == 4:
        return decode_pairs(_gather(smem, descriptor, desc, rows, k, 4, False), element)
    raw = _gather(smem, descriptor, desc, rows, k, element.bits, mn_major)
    if not mn_major:
        return decode_shared(raw, element)
    return np.ascontiguousarray(decode_shared(raw, element)[:, :rows].T)


def read_smem_operands(
    smem: Bytes,
    ctas: list[int],
    descriptor: int,
    generation: Generation,
    rows: int,
    k: int,
    element: ElementType,
    mn_major: bool = False,
    k_first: bool = False,
) -> Decoded:
    """The operands [ctas, rows, k] of one descriptor in many CTAs' shared memory `smem` [CTAs, bytes].

    With `k_first` [ctas, k, rows], contiguous.
    """
    desc = decode_descriptor(descriptor, generation)
    _check_layout(desc, element, mn_major, generation)
    index, chunks, first = _locate(smem, descriptor, desc, rows, k, element.bits, mn_major)
    size = chunks.shape[1]
    starts = np.array(ctas, np.int64) * size + first
    raw = np.take(chunks.reshape(-1), starts[:, None, None] + index.chunks, mode="clip").view(np.uint8)
    if mn_major:
        values = decode(raw, element)[..., :rows]
        return np.ascontiguousarray(values) if k_first else values.swapaxes(1, 2)
    if k_first and element.bits >= 8:
        # Cheaper before decoding, which makes the elements wider.
        raw = np.ascontiguousarray(raw.view(f"u{element.bits // 8}").swapaxes(1, 2)).view(np.uint8)
        return decode(raw, element)
    values = decode(raw, element)
    return np.ascontiguousarray(values.swapaxes(1, 2)) if k_first else values


def read_smem_rows(smem: Bytes, descriptor: int, rows: int, row_bytes: int) -> Bytes:
    """The bytes [rows, row_bytes] of a K-major SM100 descriptor. Raises OperandError as above."""
    desc = decode_descriptor(descriptor, "sm_100")
    return _gather(smem, descriptor, desc, rows, row_bytes, 8, False)


def _gather(
    smem: Bytes, word: int, desc: SmemDescriptor, rows: int, k: int, element_bits: int, mn_major: bool
) -> Bytes:
    """[rows, bytes of K] of a K-major operand, [k, bytes of MN] of an MN-major one."""
    index, chunks, first = _locate(smem[None], word, desc, rows, k, element_bits, mn_major)
    return np.take(chunks[0, first:], index.chunks, mode="clip").view(np.uint8)


def _locate(
    smem: Bytes, word: int, desc: SmemDescriptor, rows: int, k: int, element_bits: int, mn_major: bool
) -> tuple[ChunkIndex, NDArray[Any], int]:
    """Which chunks an operand lies in, all chunks [CTAs, chunks], and the one that the former count from."""
    index = chunk_index(
        desc.address % PERIOD,
        desc.lbo,
        desc.sbo,
        desc.base_offset,
        desc.swizzle,
        rows,
        k,
        element_bits,
        mn_major,
    )
    first = desc.address // PERIOD * (PERIOD // 16)
    size = smem.shape[1]
    chunks = smem[:, : size // 16 * 16].view(_CHUNK)
    if first + index.largest >= chunks.shape[1]:
        raise OperandError(
            f"matrix descriptor {word:#018x} reads up to byte {(first + index.largest) * 16 + 15} "
            f"of {size} bytes of shared memory"
        )
    return index, chunks, first


def _check_layout(desc: SmemDescriptor, element: ElementType, mn_major: bool, generation: Generation) -> None:
    atom32 = desc.swizzle is SwizzleMode.B128_ATOM32
    if mn_major:
        if element.bits == 32 and not atom32:
            raise OperandError("an MN-major tf32 operand needs the 128B swizzle with 32-byte atoms")
        if element.bits < 32 and atom32:
            raise OperandError(f"MN-major {element.value} operands have no swizzle with 32-byte atoms")
        if element.bits < 8 or (generation == "sm_90" and element.bits != 16):
            raise OperandError(f"{element.value} operands are K-major only")
    elif atom32:
        raise OperandError("the 128B swizzle with 32-byte atoms is for MN-major operands")


def read_register_operand(registers: NDArray[np.uint32], element: ElementType) -> Decoded:
    """The wgmma A operand [64, K] of registers [128 threads, 4]."""
    # Thread 32w + 4g + q; register 2c + h holds four bytes of row 16w + 8h + g at byte 16c + 4q.
    words = np.ascontiguousarray(registers, dtype=np.uint32).reshape(4, 8, 4, 2, 2)
    rows = np.ascontiguousarray(words.transpose(0, 4, 1, 3, 2)).reshape(64, 8)
    return decode(rows.view(np.uint8), element)
