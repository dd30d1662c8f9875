# SPDX-License-Identifier: Apache-2.0
"""TMA copies between global memory and one CTA's shared memory: tiled, by rows (gather4, scatter4) and im2col.

Source: PTX ISA 9.0 §5.5.3 (tiled mode, gather4 and scatter4), §5.5.4 (im2col mode), §5.5.5 (im2col::w).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from porter.ptx.alignment import TENSOR_COPY
from porter.ptx.operand_errors import OperandError, UnsupportedOperandError
from porter.ptx.swizzle import PERIOD
from porter.ptx.tensormap import (
    GATHERED_ROWS,
    LARGEST_HALO,
    LARGEST_WIDE_OFFSET,
    TMA_SWIZZLES,
    WIDE_GROUP,
    TensorMap,
    TensorMapInterleave,
    TensorMapSwizzle,
    TensorMapType,
    TensorMapWide,
)
from porter.sim.reduction import ReduceOp, combine

Bytes = NDArray[np.uint8]

_CHUNK = np.complex128
_ADDRESSES = 2**64 - 1
"""Addresses wrap around: so do those of rows of sequences of different lengths, with a stride that leads back."""


class GlobalBytes(Protocol):
    """Global memory: `view` aliases `nbytes` at an address, all within one allocation."""

    def view(self, address: int, nbytes: int) -> Bytes: ...


Mode = Literal["tile", "rows", "im2col", "im2col_w", "im2col_w128"]
MODES: dict[str, Mode] = {
    "tile": "tile", "tile::gather4": "rows", "tile::scatter4": "rows", "im2col": "im2col",
    "im2col_no_offs": "im2col", "im2col::w": "im2col_w", "im2col::w::128": "im2col_w128",
}  # fmt: skip
"""By the modifier of the instruction."""
"""How coordinates name elements: a box; a column and four rows; pixels of a convolution."""


def copied_bytes(tensor_map: TensorMap, mode: Mode = "tile") -> int:
    """Bytes that one copy moves, as an mbarrier counts them."""
    return tensor_map.box_bytes * (GATHERED_ROWS if mode == "rows" else 1)


def covered_bytes(tensor_map: TensorMap, mode: Mode = "tile") -> int:
    """Bytes of shared memory that one copy covers."""
    return tensor_map.shared_bytes * (GATHERED_ROWS if mode == "rows" else 1)


def load_tile(
    tensor_map: TensorMap,
    memory: GlobalBytes,
    coords: Sequence[int],
    smem: Bytes,
    smem_address: int,
    mode: Mode = "tile",
    offsets: Sequence[int] = (),
) -> int:
    """Copy the box at `coords` (elements, innermost first) to shared memory.

    `offsets` are those of im2col, in dimensions 1 up.

    Elements outside the tensor become zero or NaN, as the map says. Returns the bytes that the mbarrier is
    to count, which include them. Raises OperandError for illegal maps, coordinates and addresses; errors
    of `memory.view` pass through.
    """
    _check(tensor_map, coords, smem_address, mode)
    parts = boxes(tensor_map, coords, mode, offsets)
    if len(parts) == 1 and parts[0].whole:
        tile = np.ascontiguousarray(_global_view(memory, parts[0]))
    else:
        tile = _fill(tensor_map, mode)
        for box in parts:
            tile[box.inside] = _global_view(memory, box)
    _scatter(tensor_map, smem, smem_address, _pad(tensor_map, tile, 0))
    return copied_bytes(tensor_map, mode)


def store_tile(
    tensor_map: TensorMap,
    memory: GlobalBytes,
    coords: Sequence[int],
    smem: Bytes,
    smem_address: int,
    mode: Mode = "tile",
) -> int:
    """Copy a box from shared memory to the tensor; what lies outside it is not written.

    Returns the bytes of the box. Raises as `load_tile` does.
    """
    _check(tensor_map, coords, smem_address, mode)
    if tensor_map.dtype.padded:
        raise UnsupportedOperandError(f"tensor stores of {tensor_map.dtype.name} elements")
    tile = None
    for box in boxes(tensor_map, coords, mode):
        if tile is None:
            tile = _gather(tensor_map, smem, smem_address, mode)
        _global_view(memory, box)[...] = tile[box.inside]
    return copied_bytes(tensor_map, mode)


def stored_bytes(
    tensor_map: TensorMap, coords: Sequence[int], smem_address: int, mode: Mode = "tile"
) -> NDArray[np.int64] | None:
    """The bytes of shared memory that a store or reduction reads, as addresses: those of elements inside the tensor.

    None if they are all that the box takes side by side, or nobody can say because the copy is illegal.
    """
    try:
        _check(tensor_map, coords, smem_address, mode)
        parts = boxes(tensor_map, coords, mode)
    except OperandError:
        return None
    if len(parts) == 1 and parts[0].whole and tensor_map.swizzle.span <= tensor_map.inner_bytes:
        return None
    inside = np.zeros(_shape(tensor_map, mode, tensor_map.inner_bytes), bool)
    for box in parts:
        inside[box.inside] = True
    rows = covered_bytes(tensor_map, mode) // tensor_map.inner_bytes
    index, _ = _smem_index(smem_address % PERIOD, tensor_map.swizzle, rows, tensor_map.inner_bytes)
    place = (index[..., None] * 16 + np.arange(16)).reshape(-1)
    found: NDArray[np.int64] = smem_address // PERIOD * PERIOD + place[inside.reshape(-1)]
    return found


OUTSIDE = -1
"""Stands for the address of bytes that lie outside of the tensor."""
PADDING = -2
"""Stands for the address of bytes behind 16 elements of a padded type."""


def places(
    tensor_map: TensorMap, coords: Sequence[int], smem_address: int, mode: Mode = "tile", offsets: Sequence[int] = ()
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The addresses in shared memory and in global memory of each byte that a copy of a box moves, or `OUTSIDE`, or, of
    shared memory alone, `PADDING`.

    Raises OperandError for illegal maps, coordinates and addresses.
    """
    _check(tensor_map, coords, smem_address, mode)
    shape = _shape(tensor_map, mode, tensor_map.box[0] * tensor_map.dtype.element_bits // 8)
    outside = np.full(shape, OUTSIDE, np.int64)
    for box in boxes(tensor_map, coords, mode, offsets):
        steps = [np.arange(n) * stride for n, stride in zip(box.shape, box.strides, strict=True)]
        outside[box.inside] = box.address + sum(np.ix_(*steps))
    outside = _pad(tensor_map, outside, PADDING)
    index, _ = _smem_index(
        smem_address % PERIOD, tensor_map.swizzle, outside.size // tensor_map.inner_bytes, tensor_map.inner_bytes
    )
    inside = smem_address // PERIOD * PERIOD + (index[..., None] * 16 + np.arange(16)).reshape(-1)
    return inside, outside.reshape(-1)


def fill_bytes(tensor_map: TensorMap, mode: Mode = "tile") -> Bytes:
    """What a copy fills in where each byte of `places` lies outside of the tensor."""
    return _pad(tensor_map, _fill(tensor_map, mode), 0).reshape(-1)


def reduce_tile(
    tensor_map: TensorMap,
    memory: GlobalBytes,
    coords: Sequence[int],
    smem: Bytes,
    smem_address: int,
    op: ReduceOp,
    mode: Mode = "tile",
) -> int:
    """Combine a box of shared memory into the tensor. Returns and raises as `store_tile` does."""
    _check(tensor_map, coords, smem_address, mode)
    kind = _REDUCE_TYPES.get(tensor_map.dtype)
    if kind is None or (tensor_map.dtype.is_float and op not in ("add", "min", "max")):
        raise OperandError(f"no reduction .{op} of {tensor_map.dtype.name} elements")
    if op not in ("add", "min", "max", "inc", "dec", "and", "or", "xor"):
        raise OperandError(f"unknown reduction .{op}")
    words = f"u{tensor_map.dtype.element_bytes}"
    flush = op == "add" and tensor_map.dtype is TensorMapType.FLOAT32_FTZ
    for box in boxes(tensor_map, coords, mode):
        source = np.ascontiguousarray(_gather(tensor_map, smem, smem_address, mode)[box.inside]).view(words)
        target = _global_view(memory, box)
        with np.errstate(all="ignore"):
            result = combine(np.ascontiguousarray(target).view(words), source, None, op, kind, flush)
        target[...] = np.ascontiguousarray(result).view(np.uint8)
    return copied_bytes(tensor_map, mode)


_REDUCE_TYPES: dict[TensorMapType, str] = {
    TensorMapType.UINT32: "u32",
    TensorMapType.INT32: "s32",
    TensorMapType.UINT64: "u64",
    TensorMapType.INT64: "s64",
    TensorMapType.FLOAT16: "f16",
    TensorMapType.BFLOAT16: "bf16",
    TensorMapType.FLOAT32: "f32",
    TensorMapType.FLOAT32_FTZ: "f32",
    TensorMapType.FLOAT64: "f64",
}


@lru_cache(maxsize=256)
def problems_of(tensor_map: TensorMap) -> str:
    """Why it is illegal, in one line; empty if it is legal."""
    return "; ".join(tensor_map.problems())


def _check(tensor_map: TensorMap, coords: Sequence[int], smem_address: int, mode: Mode) -> None:
    if problems := problems_of(tensor_map):
        raise OperandError(f"tensor map: {problems}")
    if not made_for(tensor_map, mode):
        raise OperandError("an im2col copy needs an im2col tensor map of the same mode, any other copy a tiled one")
    if mode == "rows":
        if tensor_map.rank != 2 or tensor_map.box[1] != 1 or len(coords) != 5:
            raise OperandError("gather4 and scatter4 need a two-dimensional tensor map with boxes of one row")
    elif len(coords) != tensor_map.rank:
        raise OperandError(f"{len(coords)} coordinates for a tensor map of rank {tensor_map.rank}")
    if tensor_map.interleave is not TensorMapInterleave.NONE:
        raise UnsupportedOperandError("interleaved tensor maps")
    if tensor_map.swizzle not in TMA_SWIZZLES:
        raise UnsupportedOperandError(f"tensor maps with swizzle {tensor_map.swizzle.name}")
    if smem_address % TENSOR_COPY:
        raise OperandError(
            f"shared-memory address {smem_address:#x} of a tensor copy is not a multiple of {TENSOR_COPY}"
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
        whole: bool = False,
    ) -> None:
        self.inside = inside
        self.whole = whole
        self.address = address & _ADDRESSES
        self.shape = shape
        self.strides = strides


def _bytewise(tensor_map: TensorMap, coords: Sequence[int]) -> tuple[TensorMap, Sequence[int]]:
    """The global side of a map of elements narrower than a byte, counted in bytes."""
    bits = tensor_map.dtype.element_bits
    if bits >= 8:
        return tensor_map, coords
    if coords[0] * bits % 8:
        raise OperandError(f"coordinate {coords[0]} of {bits}-bit elements is not on a byte")
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


def _pad(tensor_map: TensorMap, tile: NDArray[Any], padding: int) -> NDArray[Any]:
    """16 elements of a padded type in 16 bytes each."""
    if not tensor_map.dtype.padded:
        return tile
    chunks = tile.reshape(*tile.shape[:-1], -1, 2 * tensor_map.dtype.element_bits)
    out = np.full((*chunks.shape[:-1], 16), padding, tile.dtype)
    out[..., : chunks.shape[-1]] = chunks
    return out.reshape(*tile.shape[:-1], -1)


def boxes(tensor_map: TensorMap, coords: Sequence[int], mode: Mode = "tile", offsets: Sequence[int] = ()) -> list[_Box]:
    """The parts of a copy that lie inside the tensor, each with its place in the tile."""
    if mode == "im2col":
        return _pixel_runs(tensor_map, coords, _pixels(tensor_map, coords, offsets))
    if mode in ("im2col_w", "im2col_w128"):
        return _pixel_runs(tensor_map, coords, _wide_pixels(tensor_map, coords, offsets))
    if mode == "tile":
        box = _tile(tensor_map, tuple(coords))
        return [] if box is None else [box]
    found = []
    for row, coord in enumerate(coords[1:]):
        box = _valid_box(tensor_map, (coords[0], coord))
        if box is not None:
            box.inside, box.whole = (slice(row, row + 1), *box.inside[1:]), False
            found.append(box)
    return found


def made_for(tensor_map: TensorMap, mode: Mode) -> bool:
    """Whether a map is one for copies of this mode."""
    wide: Mode = "im2col_w128" if tensor_map.wide else "im2col_w"
    own: Mode = "im2col" if tensor_map.wide is None else wide
    return mode == own if tensor_map.im2col else mode in ("tile", "rows")


_LARGEST_HALO: dict[Mode, int] = {
    "im2col_w": LARGEST_HALO[TensorMapWide.W],
    "im2col_w128": LARGEST_HALO[TensorMapWide.W128],
}


def as_copied(tensor_map: TensorMap, mode: Mode, coords: Sequence[int], offsets: Sequence[int]) -> TensorMap:
    """The map with the pixels that a copy of this mode moves: im2col::w adds a halo, and im2col::w::128 has a number of
    its own. Raises OperandError if the halo or the offset is out of range, or what `_wide_pixels` raises."""
    if mode not in _LARGEST_HALO or not made_for(tensor_map, mode) or len(coords) != tensor_map.rank:
        return tensor_map
    halo, shift = offsets
    if halo >= _LARGEST_HALO[mode] or shift >= LARGEST_WIDE_OFFSET:
        raise OperandError(f"wHalo {halo}, wOffset {shift} are not below {_LARGEST_HALO[mode]}, {LARGEST_WIDE_OFFSET}")
    groups, group = (1, tensor_map.box[1]) if tensor_map.wide is TensorMapWide.W else (4, WIDE_GROUP)
    moved = replace(tensor_map, box=(tensor_map.box[0], groups * (group + halo)))
    if halo:
        deque(_wide_pixels(moved, coords, offsets), 0)
    return moved


Pixel = tuple[Sequence[int], int]
"""The coordinates of dimensions 1 to rank - 2, and the image."""


def _pixels(tensor_map: TensorMap, coords: Sequence[int], offsets: Sequence[int]) -> Iterator[Pixel]:
    """The pixels of an im2col copy. The filter's base walks through the bounding box, dimension 1 first, in steps of
    the traversal strides, from `coords` on and through the following images; `offsets` lead from it to the pixel."""
    spatial = tensor_map.rank - 2
    shift = tuple(offsets) or (0,) * spatial
    low = tensor_map.lower
    high = [n - 1 + u for n, u in zip(tensor_map.sizes[1:-1], tensor_map.upper, strict=True)]
    steps = tensor_map.element_strides[1:-1]
    place, image = list(coords[1:-1]), coords[-1]
    for _ in range(tensor_map.box[1]):
        yield [p + s for p, s in zip(place, shift, strict=True)], image
        for axis in range(spatial):
            place[axis] += steps[axis]
            if place[axis] <= high[axis]:
                break
            place[axis] = low[axis]
        else:
            image += 1


def _wide_pixels(tensor_map: TensorMap, coords: Sequence[int], offsets: Sequence[int]) -> Iterator[Pixel]:
    """The pixels of an im2col::w copy: along dimension 1 alone, from row to row of the following images.

    A halo follows the last pixel in its row. The text does not say whether there is one for each row that ends within
    the copy: raises UnsupportedOperandError then.
    """
    halo, shift = offsets
    low, high = tensor_map.lower[0] + shift, tensor_map.sizes[1] - 1 + tensor_map.upper[0] + shift
    step, others = tensor_map.element_strides[1], list(coords[2:-1])
    groups = 1 if tensor_map.wide is TensorMapWide.W else 4
    place, image = coords[1] + shift, coords[-1]
    for _ in range(groups):
        row, behind = image, place
        for _ in range(tensor_map.box[1] // groups - halo):
            if halo and image != row:
                raise UnsupportedOperandError("im2col::w copies with a halo that go on in another row")
            yield [place, *others], image
            place, behind = place + step, place + step
            if place > high:
                place, image = low, image + 1
        for i in range(halo):
            yield [behind + i * step, *others], row


def _pixel_runs(tensor_map: TensorMap, coords: Sequence[int], pixels: Iterable[Pixel]) -> list[_Box]:
    """Pixels in order, those side by side along dimension 1 as one part."""
    size = tensor_map.dtype.element_bytes
    first = max(0, -coords[0])
    last = min(tensor_map.box[0], tensor_map.sizes[0] - coords[0])
    if first >= last:
        return []
    step = tensor_map.element_strides[1]
    unit, along = tensor_map.strides[0], slice(first * size, last * size)
    runs: list[_Box] = []
    for pixel, (at, image) in enumerate(pixels):
        inside = all(0 <= x < n for x, n in zip(at, tensor_map.sizes[1:-1], strict=True))
        if not inside or not 0 <= image < tensor_map.sizes[-1]:
            continue
        position = [*at, image]
        address = tensor_map.address + (coords[0] + first) * size
        address += sum(x * stride for x, stride in zip(position, tensor_map.strides, strict=True))
        before = runs[-1] if runs else None
        if (
            before is not None
            and before.inside[0].stop == pixel
            and address == before.address + before.shape[0] * unit * step
        ):
            before.inside = (slice(before.inside[0].start, pixel + 1), along)
            before.shape = (before.shape[0] + 1, before.shape[1])
        else:
            runs.append(_Box((slice(pixel, pixel + 1), along), address, (1, (last - first) * size), (unit * step, 1)))
    return runs


@lru_cache(maxsize=1024)
def _tile(tensor_map: TensorMap, coords: tuple[int, ...]) -> _Box | None:
    """The same for all that ask: lanes of a warp that copy one tile, and who checks each copy."""
    return _valid_box(tensor_map, coords)


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


def _shape(tensor_map: TensorMap, mode: Mode, width: int) -> tuple[int, ...]:
    """A tile: [.., dim 1, bytes of dim 0]."""
    counts = (4,) if mode == "rows" else tuple(reversed(tensor_map.box_counts[1:]))
    return (*counts, width)


def _fill(tensor_map: TensorMap, mode: Mode) -> Bytes:
    """A tile of out-of-bounds elements."""
    shape = _shape(tensor_map, mode, tensor_map.box[0] * tensor_map.dtype.element_bits // 8)
    if not tensor_map.oob_nan:
        return np.zeros(shape, np.uint8)
    pattern = np.full(tensor_map.dtype.element_bytes, 0xFF, np.uint8)
    pattern[-1] = 0x7F
    return np.ascontiguousarray(np.broadcast_to(np.tile(pattern, tensor_map.box[0]), shape))


@lru_cache(maxsize=256)
def _smem_index(start: int, swizzle: TensorMapSwizzle, rows: int, inner_bytes: int) -> tuple[NDArray[np.int64], int]:
    """16-byte chunks [rows, chunks of a row], relative to the 1024 bytes in which the tile starts; the last.

    A swizzled row takes the whole swizzle span, even if the box is narrower.
    """
    pitch = swizzle.span or inner_bytes
    row = np.arange(rows, dtype=np.int64)[:, None]
    chunk = np.arange(0, inner_bytes, 16, dtype=np.int64)[None, :]
    index = TMA_SWIZZLES[swizzle].apply(start + row * pitch + chunk) >> 4
    return index, int(index.max())


def _smem_chunks(
    tensor_map: TensorMap, smem: Bytes, smem_address: int, rows: int
) -> tuple[NDArray[np.complex128], NDArray[np.int64]]:
    index, largest = _smem_index(smem_address % PERIOD, tensor_map.swizzle, rows, tensor_map.inner_bytes)
    chunks = smem[: smem.size // 16 * 16].view(_CHUNK)[smem_address // PERIOD * (PERIOD // 16) :]
    if largest >= chunks.size:
        raise OperandError(
            f"a tile of {rows * tensor_map.inner_bytes} bytes at {smem_address:#x} passes the end of {smem.size} "
            "bytes of shared memory"
        )
    return chunks, index


def _scatter(tensor_map: TensorMap, smem: Bytes, smem_address: int, tile: Bytes) -> None:
    chunks, index = _smem_chunks(tensor_map, smem, smem_address, tile.size // tensor_map.inner_bytes)
    chunks[index] = tile.reshape(-1, tensor_map.inner_bytes).view(_CHUNK)


def _gather(tensor_map: TensorMap, smem: Bytes, smem_address: int, mode: Mode) -> Bytes:
    shape = _shape(tensor_map, mode, tensor_map.inner_bytes)
    rows = covered_bytes(tensor_map, mode) // tensor_map.inner_bytes
    chunks, index = _smem_chunks(tensor_map, smem, smem_address, rows)
    return chunks[index].view(np.uint8).reshape(shape)
