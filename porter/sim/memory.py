# SPDX-License-Identifier: Apache-2.0
"""Global memory: allocations at made-up device addresses, each a NumPy array of bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

FIRST_ADDRESS = 0x4000_0000_0000
MOST_BYTES = 8 << 30
"""Bytes of all allocations of a memory at one time, whatever the machine has."""
_PAD = 64
_TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}


class MemoryAccessError(Exception):
    """An access outside every allocation. `address` is the first bad byte's address as far as known."""

    def __init__(self, address: int, nbytes: int, why: str = "") -> None:
        self.address = address
        self.nbytes = nbytes
        super().__init__(f"global address {address:#x} ({nbytes} bytes): {why or 'outside every allocation'}")


class Allocation:
    """Bytes `start` to `end` (exclusive). `data` is padded, so wide views of it end past `end`."""

    __slots__ = ("_views", "data", "end", "name", "start")

    def __init__(self, start: int, nbytes: int, data: Bytes, name: str) -> None:
        self.start = start
        self.end = start + nbytes
        self.data = data
        self.name = name
        self._views: dict[tuple[int, int], npt.NDArray[Any] | None] = {}

    def elements(self, itemsize: int, count: int) -> npt.NDArray[Any] | None:
        """The bytes as rows of `count` items, or None if start or length is not a multiple of a row."""
        key = (itemsize, count)
        if key not in self._views:
            row = itemsize * count
            view = None
            if self.start % row == 0 and self.data.size >= row and self.data.ctypes.data % itemsize == 0:
                view = self.data[: self.data.size // row * row].view(_TYPES[itemsize])
                if count > 1:
                    view = view.reshape(-1, count)
            self._views[key] = view
        return self._views[key]


class Multicast(NamedTuple):
    """A range of multimem addresses: `start` to `end` (exclusive) stand for as many bytes at each of `targets`, as
    memory of several devices (PTX ISA 8.2.3)."""

    start: int
    end: int
    targets: tuple[int, ...]


class GlobalMemory:
    """The memory that kernels share: allocations at stable addresses.

    Addresses outside every allocation raise `MemoryAccessError`.
    """

    def __init__(self, first_address: int = FIRST_ADDRESS) -> None:
        self._starts: list[int] = []
        self._allocations: list[Allocation] = []
        self._next = first_address
        self._held = 0
        self._multicasts: list[Multicast] = []

    def alloc(self, nbytes: int, *, align: int = 256, fill: int = 0xFF, name: str = "") -> int:
        """Allocate `nbytes` bytes, each holding `fill`; returns the device address.

        Raises:
            MemoryError: more than `MOST_BYTES` at one time.
        """
        if nbytes < 0 or align < 1:
            raise ValueError("negative size or alignment")
        if self._held + nbytes > MOST_BYTES:
            raise MemoryError(f"{nbytes:,} bytes for {name or 'an allocation'}; {MOST_BYTES:,} are simulated in all")
        start = -(-self._next // align) * align
        size = -(-max(nbytes, 1) // _PAD) * _PAD
        # zeros are pages that nothing has touched yet
        data = np.full(size, fill, dtype=np.uint8) if fill else np.zeros(size, np.uint8)
        # A guard gap keeps an overrun of one allocation from landing in the next.
        self._next = start + data.size + 4096
        self._insert(Allocation(start, nbytes, data, name))
        return start

    def map(self, address: int, array: Bytes, name: str = "") -> None:
        """Make an existing writable array of bytes appear at `address`."""
        if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.writeable:
            raise ValueError("a writable one-dimensional uint8 array is needed")
        self._insert(Allocation(address, array.size, array, name))

    def multicast(self, targets: Sequence[int], nbytes: int, address: int | None = None) -> int:
        """A multimem address for `nbytes` bytes at each of `targets`; only multimem instructions access it."""
        if not targets:
            raise ValueError("a multimem address stands for one place at least")
        if address is None:
            address = self._next
            self._next = -(-(address + nbytes) // _PAD) * _PAD + 4096
        self._multicasts.append(Multicast(address, address + nbytes, tuple(targets)))
        return address

    def find_multicast(self, address: int) -> Multicast | None:
        """What a multimem address stands for."""
        return next((m for m in self._multicasts if m.start <= address < m.end), None)

    def _insert(self, a: Allocation) -> None:
        i = bisect_right(self._starts, a.start)
        if (i and self._allocations[i - 1].end > a.start) or (i < len(self._starts) and self._starts[i] < a.end):
            raise ValueError(f"address {a.start:#x} is taken")
        self._held += a.data.size
        self._starts.insert(i, a.start)
        self._allocations.insert(i, a)

    def free(self, address: int) -> None:
        """Release the allocation that begins at `address`. Raises MemoryAccessError if there is none."""
        i = bisect_right(self._starts, address) - 1
        if i < 0 or self._starts[i] != address:
            raise MemoryAccessError(address, 0, "no allocation begins here")
        self._held -= self._allocations[i].data.size
        del self._starts[i], self._allocations[i]

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds the byte at `address`."""
        i = bisect_right(self._starts, address) - 1
        if i < 0:
            return None
        a = self._allocations[i]
        return a if address < a.end else None

    def describe(self, address: int) -> str:
        """Where an address lies that no allocation holds."""
        if self.find_multicast(address) is not None:
            return "a multimem address, which only multimem instructions access"
        i = bisect_right(self._starts, address) - 1
        if i >= 0 and address - self._allocations[i].end < 1 << 20:
            a = self._allocations[i]
            return f"{address - a.end} bytes past the end of allocation {a.name or hex(a.start)}"
        return "outside every allocation"

    def view(self, address: int, nbytes: int) -> Bytes:
        """The bytes at `address`, aliased. All must lie in one allocation."""
        a = self.find(address)
        if a is None:
            raise MemoryAccessError(address, nbytes, self.describe(address))
        if address + nbytes > a.end:
            raise MemoryAccessError(a.end, nbytes, f"past the end of allocation {a.name or hex(a.start)}")
        return a.data[address - a.start : address - a.start + nbytes]

    def read(self, address: int, nbytes: int) -> Bytes:
        return self.view(address, nbytes).copy()

    def write(self, address: int, data: bytes | Bytes) -> None:
        source = np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data
        self.view(address, source.size)[:] = source


class Everything:
    """Global memory and the module's own variables."""

    def __init__(self, memory: GlobalMemory, internal: GlobalMemory) -> None:
        self._memory, self._internal = memory, internal

    def view(self, address: int, nbytes: int) -> npt.NDArray[Any]:
        try:
            return self._memory.view(address, nbytes)
        except MemoryAccessError:
            return self._internal.view(address, nbytes)
