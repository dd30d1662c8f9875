# SPDX-License-Identifier: Apache-2.0
"""Device memory that the simulator and the program share: one sparse file, mapped by both.

The program maps it at `BASE`, so a device address is a plain pointer there. Here each allocation is a slice
of the mapping that the simulator's `GlobalMemory` refers to. An allocation begins on a page of its own and is
followed by bytes that belong to none, so a kernel that runs past its end is found.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

import numpy as np

from porter.sim import GlobalMemory

BASE = 0x7E00_0000_0000
"""Where device addresses start: between the heap and the libraries of a 48-bit process."""

SPAN = 1 << 36
"""Bytes of address space. Addresses are never used twice, so this bounds the sum of all allocations."""

_MAP_NORESERVE = 0x4000  # Linux; the module `mmap` names it from Python 3.11 on, its type stubs do not.

POISON = 0xFF
"""Fresh memory holds NaN in every float format."""


@dataclass(frozen=True)
class Allocation:
    address: int
    size: int


class Arena:
    """Allocations in the shared file, attached to a `GlobalMemory`.

    `capacity` bounds the bytes allocated at a time. `file` is the descriptor to hand to the program; close
    the arena's own copy with `close_file` once it has started.
    """

    def __init__(self, memory: GlobalMemory, capacity: int) -> None:
        self.memory = memory
        self.capacity = capacity
        self.history: list[Allocation] = []
        self.hidden: dict[int, Allocation] = {}
        self.live: dict[int, Allocation] = {}
        self.file = os.memfd_create("porter-device-memory")
        os.ftruncate(self.file, SPAN)
        flags = mmap.MAP_SHARED | _MAP_NORESERVE
        self._map = mmap.mmap(self.file, SPAN, flags, mmap.PROT_READ | mmap.PROT_WRITE)
        self._next = BASE

    @property
    def used(self) -> int:
        return sum(a.size for a in self.live.values())

    def allocate(self, size: int, fill: int | None = POISON, hidden: bool = False) -> int | None:
        """The address of `size` fresh bytes, or None if the device has no more. What is `hidden` is there, but
        none of the program's allocations: a variable."""
        stride = (size + 2 * mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        if self.used + size > self.capacity or self._next + stride > BASE + SPAN:
            return None
        address = self._next
        self._next += stride
        allocation = Allocation(address, size)
        array = np.frombuffer(self._map, np.uint8, size, address - BASE)
        if fill is not None:
            array[:] = fill
        if hidden:
            self.memory.map(address, array, name="variable")
            self.hidden[address] = allocation
            return address
        self.memory.map(address, array, name=f"allocation {len(self.history)}")
        self.live[address] = allocation
        self.history.append(allocation)
        return address

    def release(self, address: int) -> bool:
        """Ends the allocation at `address`; False if there is none."""
        allocation = self.live.pop(address, None)
        if allocation is None:
            return False
        self.memory.free(address)
        pages = (allocation.size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(mmap.MADV_REMOVE, address - BASE, pages)
        return True

    def holds(self, address: int, size: int) -> bool:
        """Whether `size` bytes at `address` lie inside one live allocation."""
        everything = (*self.live.values(), *self.hidden.values())
        return any(a.address <= address and address + size <= a.address + a.size for a in everything)

    def alias(self, address: int, target: int, size: int) -> None:
        """Makes `size` bytes of the arena at `target` reachable at `address` too; with no size, no longer."""
        if size:
            array = np.frombuffer(self._map, np.uint8, size, target - BASE)
            self.memory.map(address, array, name="registered host memory")
        else:
            self.memory.free(address)

    def close_file(self) -> None:
        os.close(self.file)
