# SPDX-License-Identifier: Apache-2.0
"""Tensors as bytes of memory: elements at their strides, poison in gaps and guards, and what a run changed.

An image is `guard` bytes, the tensor, `guard` bytes. Everything that holds no element is 0xFF, which reads
as NaN
in every floating-point format.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from porter.ptx.tensormap import ENCODED_BYTES
from porter.verify.arguments import MapValue
from porter.verify.dtypes import Array
from porter.verify.params import Address, MapBytes, with_contents
from porter.verify.tensor import Tensor

Bytes = npt.NDArray[np.uint8]

POISON = 0xFF


@dataclass(frozen=True)
class Image:
    """The bytes of one tensor with guards; `data[guard]` is the first byte of the tensor."""

    tensor: Tensor
    guard: int
    data: Bytes

    def elements(self) -> Array:
        """A copy of the tensor's elements in its shape."""
        inner = self.data[self.guard : self.guard + self.tensor.nbytes]
        flat = inner.copy().view(self.tensor.dtype.container)
        return flat[element_offsets(self.tensor.shape, self.tensor.strides)]


@functools.lru_cache(maxsize=64)
def element_offsets(shape: tuple[int, ...], strides: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Element offset of every index."""
    total = np.zeros(shape, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        step = np.arange(size, dtype=np.int64) * stride
        total += step.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return total


def make_image(tensor: Tensor, elements: Array | None, guard: int) -> Image:
    """The image of a tensor before a run: its elements, or its fill, or poison."""
    inner = np.full(tensor.nbytes, POISON, np.uint8)
    if elements is None and tensor.fill is not None:
        whole = np.reshape(tensor.fill, tensor.shape) if isinstance(tensor.fill, tuple) else tensor.fill
        elements = tensor.dtype.encode(np.full(tensor.shape, whole))
    if elements is not None:
        inner.view(tensor.dtype.container)[element_offsets(tensor.shape, tensor.strides)] = elements
    data = np.full(tensor.nbytes + 2 * guard, POISON, np.uint8)
    data[guard : guard + tensor.nbytes] = inner
    return Image(tensor, guard, data)


def placed(image: Image, address: Address, map_bytes: MapBytes) -> Bytes:
    """The image's bytes as they have to be in a run: recorded addresses and tensor maps are those of the run."""
    contains = [(image.guard + at, what) for at, what in image.tensor.contains]
    if not contains:
        return image.data
    return np.frombuffer(with_contents(image.data.tobytes(), contains, address, map_bytes), np.uint8)


def recorded_again(image: Image, before: Bytes, after: Bytes) -> Bytes:
    """`after` with the recorded addresses and tensor maps again where the run left those of `before` alone."""
    result = after
    for at, what in image.tensor.contains:
        where = slice(image.guard + at, image.guard + at + (ENCODED_BYTES if isinstance(what, MapValue) else 8))
        if np.array_equal(before[where], after[where]):
            result = after.copy() if result is after else result
            result[where] = image.data[where]
    return result


def stray_write(before: Image, after: Bytes) -> str | None:
    """Where a run changed bytes that hold no element, or None."""
    mask = np.ones(before.data.size, bool)
    inner = mask[before.guard : before.guard + before.tensor.nbytes]
    rows = inner.reshape(-1, before.tensor.dtype.itemsize)
    rows[element_offsets(before.tensor.shape, before.tensor.strides).reshape(-1)] = False
    changed = np.flatnonzero(mask & (before.data != after))
    if not changed.size:
        return None
    offset = int(changed[0]) - before.guard
    if offset < 0:
        place = f"{-offset} bytes before its start"
    elif offset >= before.tensor.nbytes:
        place = f"{offset - before.tensor.nbytes} bytes after its end"
    else:
        place = f"in a gap between its rows, at byte {offset}"
    return f"{changed.size} bytes changed, the first {place}"


def changed_element(before: Image, after: Image) -> str | None:
    """The first element that differs between two images of one tensor, or None."""
    a, b = before.elements(), after.elements()
    bits = before.tensor.dtype.bits
    bad = np.argwhere(np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits))
    if not len(bad):
        return None
    index = tuple(int(i) for i in bad[0])
    return f"{len(bad)} elements, the first at {list(index)}"
