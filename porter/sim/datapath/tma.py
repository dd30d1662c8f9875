# SPDX-License-Identifier: Apache-2.0
"""Tiled TMA copies between global memory and one CTA's shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from porter.ptx.tensormap import (
    TMA_SWIZZLES,
    TensorMap,
    TensorMapInterleave,
    TensorMapSwizzle,
    TensorMapType,
)
from porter.sim.datapath.errors import DatapathError, UnsupportedDatapathError

Bytes = NDArray[np.uint8]
ReduceOp = Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"]

SMEM_ALIGNMENT = 128
"""Alignment of the shared-memory side of a tensor copy (PTX ISA, cp.async.bulk.tensor)."""

_PERIOD = 1024
_CHUNK = np.complex128


class GlobalBytes(Protocol):
    """Global memory: `view` aliases `nbytes` at an address, all within one allocation."""

    def view(self, address: int, nbytes: int) -> Bytes: ...


def load_tile(
    tensor_map: TensorMap, memory: GlobalBytes, coords: Sequence[int], smem: Bytes, smem_address: int
) -> int:
    """Copy the box at `coords` (elements, innermost first) to shared memory.

    Elements outside the tensor become zero or NaN, as the map says. Returns the bytes that the mbarrier is
    to count, which include them. Raises DatapathError for illegal maps, coordinates and addresses; errors
    of `memory.view` pass through.
    """
    _check(tensor_map, coords, smem_address)
    box = _valid_box(tensor_map, coords)
    if box is not None and box.whole:
        tile = np.ascontiguousarray(_global_view(memory, box))
    else:
        tile = _fill(tensor_map)
        if box is not None:
            tile[box.inside] = _global_view(memory, box)
    _scatter(tensor_map, smem, smem_address, _pad(tensor_map, tile))
    return tensor_map.box_bytes


def store_tile(
    tensor_map: TensorMap, memory: GlobalBytes, coords: Sequence[int], smem: Bytes, smem_address: int
) -> int:
    """Copy a box from shared memory to the tensor; what lies outside it is not written.

    Returns the bytes of the box. Raises as `load_tile` does.
    """
    _check(tensor_map, coords, smem_address)
    if tensor_map.dtype.padded:
        raise UnsupportedDatapathError(f"tensor stores of {tensor_map.dtype.name} elements")
    box = _valid_box(tensor_map, coords)
    if box is not None:
        tile = _gather(tensor_map, smem, smem_address)
        _global_view(memory, box)[...] = tile[box.inside]
    return tensor_map.box_bytes


def reduce_tile(
    tensor_map: TensorMap,
    memory: GlobalBytes,
    coords: Sequence[int],
    smem: Bytes,
    smem_address: int,
    op: ReduceOp,
) -> int:
    """Combine a box of shared memory into the tensor. Returns and raises as `store_tile` does."""
    _check(tensor_map, coords, smem_address)
    dtype = _REDUCE_TYPES.get(tensor_map.dtype)
    if dtype is None or (tensor_map.dtype.is_float and op not in ("add", "min", "max")):
        raise DatapathError(f"no reduction .{op} of {tensor_map.dtype.name} elements")
    if op not in ("add", "min", "max", "inc", "dec", "and", "or", "xor"):
        raise DatapathError(f"unknown reduction .{op}")
    box = _valid_box(tensor_map, coords)
    if box is not None:
        source = np.ascontiguousarray(_gather(tensor_map, smem, smem_address)[box.inside]).view(dtype)
        target = _global_view(memory, box)
        with np.errstate(all="ignore"):
            result = _combine(np.ascontiguousarray(target).view(dtype), source, op)
        target[...] = np.ascontiguousarray(result).view(np.uint8)
    return tensor_map.box_bytes


_REDUCE_TYPES: dict[TensorMapType, DTypeLike] = {
    TensorMapType.UINT32: np.uint32,
    TensorMapType.INT32: np.int32,
    TensorMapType.UINT64: np.uint64,
    TensorMapType.INT64: np.int64,
    TensorMapType.FLOAT16: np.float16,
    TensorMapType.BFLOAT16: ml_dtypes.bfloat16,
    TensorMapType.FLOAT32: np.float32,
    TensorMapType.FLOAT32_FTZ: np.float32,
    TensorMapType.FLOAT64: np.float64,
}


def _combine(old: NDArray, new: NDArray, op: ReduceOp) -> NDArray:
    if op == "add":
        return old + new
    if op == "min":
        return np.fmin(old, new)
    if op == "max":
        return np.fmax(old, new)
    if op == "inc":
        return np.where(old >= new, 0, old + 1).astype(old.dtype)
    if op == "dec":
        return np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype)
    return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op](old, new)


@lru_cache(maxsize=256)
def _problems(tensor_map: TensorMap) -> str:
    return "; ".join(tensor_map.problems())


def _check(tensor_map: TensorMap, coords: Sequence[int], smem_address: int) -> None:
    if problems := _problems(tensor_map):
        raise DatapathError(f"tensor map: {problems}")
    if len(coords) != tensor_map.rank:
        raise DatapathError(f"{len(coords)} coordinates for a tensor map of rank {tensor_map.rank}")
    if tensor_map.interleave is not TensorMapInterleave.NONE:
        raise UnsupportedDatapathError("interleaved tensor maps")
    if tensor_map.swizzle not in TMA_SWIZZLES:
        raise UnsupportedDatapathError(f"tensor maps with swizzle {tensor_map.swizzle.name}")
    if smem_address % SMEM_ALIGNMENT:
        raise DatapathError(
            f"shared-memory address {smem_address:#x} of a tensor copy is not a multiple of {SMEM_ALIGNMENT}"
        )


class _Box:
    """The part of a box that lies inside the tensor.

    `inside` selects it from the tile [.., dim 1, bytes of dim 0]; `address`, `shape` and `strides` (bytes,
    outermost first) are its global side. `whole`: no part lies outside.
    """

    def __init__(
        self,
        inside: tuple[slice, ...],
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        whole: bool,
    ) -> None:
        self.inside = inside
        self.whole = whole
        self.address = address
        self.shape = shape
        self.strides = strides


def _bytewise(tensor_map: TensorMap, coords: Sequence[int]) -> tuple[TensorMap, Sequence[int]]:
    """The global side of a map of elements narrower than a byte, counted in bytes."""
    bits = tensor_map.dtype.element_bits
    if bits >= 8:
        return tensor_map, coords
    if coords[0] * bits % 8:
        raise DatapathError(f"coordinate {coords[0]} of {bits}-bit elements is not on a byte")
    return _bytes_map(tensor_map), (coords[0] * bits // 8, *coords[1:])


@lru_cache(maxsize=64)
def _bytes_map(tensor_map: TensorMap) -> TensorMap:
    bits = tensor_map.dtype.element_bits
    size, box = tensor_map.sizes[0] * bits // 8, tensor_map.box[0] * bits // 8
    return replace(
        tensor_map,
        dtype=TensorMapType.UINT8,
        sizes=(size, *tensor_map.sizes[1:]),
        box=(box, *tensor_map.box[1:]),
    )


def _pad(tensor_map: TensorMap, tile: Bytes) -> Bytes:
    """16 elements of a padded type in 16 bytes each."""
    if not tensor_map.dtype.padded:
        return tile
    chunks = tile.reshape(*tile.shape[:-1], -1, 2 * tensor_map.dtype.element_bits)
    out = np.zeros((*chunks.shape[:-1], 16), np.uint8)
    out[..., : chunks.shape[-1]] = chunks
    return out.reshape(*tile.shape[:-1], -1)


def _valid_box(tensor_map: TensorMap, coords: Sequence[int]) -> _Box | None:
    """None if all of the box lies outside."""
    tensor_map, coords = _bytewise(tensor_map, coords)
    size = tensor_map.dtype.element_bytes
    address = tensor_map.address
    whole = True
    inside: list[slice] = []
    shape: list[int] = []
    strides: list[int] = []
    dimensions = zip(
        coords,
        tensor_map.sizes,
        tensor_map.box_counts,
        (1, *tensor_map.element_strides[1:]),
        (size, *tensor_map.strides),
        strict=True,
    )
    for dimension, (coord, extent, count, step, stride) in enumerate(dimensions):
        first = (step - 1 - coord) // step if coord < 0 else 0
        last = min(count, -(-(extent - coord) // step))
        if first >= last:
            return None
        whole = whole and last - first == count
        unit = size if dimension == 0 else 1
        inside.insert(0, slice(first * unit, last * unit))
        shape.insert(0, (last - first) * unit)
        strides.insert(0, 1 if dimension == 0 else stride * step)
        address += (coord + first * step) * stride
    return _Box(tuple(inside), address, tuple(shape), tuple(strides), whole)


def _global_view(memory: GlobalBytes, box: _Box) -> Bytes:
    span = sum((n - 1) * stride for n, stride in zip(box.shape, box.strides, strict=True)) + 1
    return np.ndarray(box.shape, np.uint8, memory.view(box.address, span), 0, box.strides)


def _fill(tensor_map: TensorMap) -> Bytes:
    """A tile of out-of-bounds elements: [.., dim 1, bytes of dim 0]."""
    width = tensor_map.box[0] * tensor_map.dtype.element_bits // 8
    shape = (*reversed(tensor_map.box_counts[1:]), width)
    if not tensor_map.oob_nan:
        return np.zeros(shape, np.uint8)
    pattern = np.full(tensor_map.dtype.element_bytes, 0xFF, np.uint8)
    pattern[-1] = 0x7F
    return np.ascontiguousarray(np.broadcast_to(np.tile(pattern, tensor_map.box[0]), shape))


@lru_cache(maxsize=256)
def _smem_index(
    start: int, swizzle: TensorMapSwizzle, rows: int, inner_bytes: int
) -> tuple[NDArray[np.int64], int]:
    """16-byte chunks [rows, chunks of a row], relative to the 1024 bytes in which the tile starts; the last.

    A swizzled row takes the whole swizzle span, even if the box is narrower.
    """
    pitch = swizzle.span or inner_bytes
    row = np.arange(rows, dtype=np.int64)[:, None]
    chunk = np.arange(0, inner_bytes, 16, dtype=np.int64)[None, :]
    index = TMA_SWIZZLES[swizzle].apply(start + row * pitch + chunk) >> 4
    return index, int(index.max())


def _smem_chunks(
    tensor_map: TensorMap, smem: Bytes, smem_address: int
) -> tuple[NDArray[np.complex128], NDArray[np.int64]]:
    rows = tensor_map.shared_bytes // tensor_map.inner_bytes
    index, largest = _smem_index(smem_address % _PERIOD, tensor_map.swizzle, rows, tensor_map.inner_bytes)
    chunks = smem[: smem.size // 16 * 16].view(_CHUNK)[smem_address // _PERIOD * (_PERIOD // 16) :]
    if largest >= chunks.size:
        raise DatapathError(
            f"a tile of {tensor_map.shared_bytes} bytes at {smem_address:#x} passes the end of {smem.size} "
            "bytes of shared memory"
        )
    return chunks, index


def _scatter(tensor_map: TensorMap, smem: Bytes, smem_address: int, tile: Bytes) -> None:
    chunks, index = _smem_chunks(tensor_map, smem, smem_address)
    chunks[index] = tile.reshape(-1, tensor_map.inner_bytes).view(_CHUNK)


def _gather(tensor_map: TensorMap, smem: Bytes, smem_address: int) -> Bytes:
    chunks, index = _smem_chunks(tensor_map, smem, smem_address)
    shape = (*reversed(tensor_map.box_counts[1:]), tensor_map.inner_bytes)
    return chunks[index].view(np.uint8).reshape(shape)
