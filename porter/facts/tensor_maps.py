# SPDX-License-Identifier: Apache-2.0
"""Tensor maps as an execution finds them: in parameters, in global memory, and as threads write them there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from porter.facts.launched import PARAMETERS, Launched
from porter.ptx.tensormap import ALIGNMENT, ENCODED_BYTES, GATHERED_ROWS, TILED_BYTES, TensorMap


class Box(NamedTuple):
    """What one copy moves: bytes that an mbarrier counts, and bytes of shared memory that they cover."""

    counted: int
    covered: int


@lru_cache(maxsize=256)
def box_of(data: bytes, mode: str) -> Box:
    """What a copy of a tensor map's 128 bytes moves in a mode of the instruction, as `tile` or `im2col`.

    Raises:
        ValueError: the bytes hold no map, or not one for this mode.
    """
    found = TensorMap.decode(data)
    if found.im2col is not mode.startswith("im2col"):
        raise ValueError(f"a tensor map that is not one for {mode}")
    copies = GATHERED_ROWS if mode in ("tile::gather4", "tile::scatter4") else 1
    if copies > 1 and found.box_counts[1:] != (1,):
        raise ValueError(f"a tensor map whose box is not one row, which {mode} needs")
    return Box(copies * found.box_bytes, copies * found.shared_bytes)


class TensorMaps:
    """Those of a launch. Of global memory what threads write is kept, where some of it are numbers."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self._bytes: dict[int, int | None] = {}
        self.known: dict[int, bytes | None] = {}
        """What `at` has found, until something is written there."""
        self.boxes: dict[tuple[int, str], Box] = {}
        """What copies have moved, by the address of their map and their mode."""

    def at(self, address: int) -> bytes | None:
        """The bytes of a map; None where they are not known."""
        if address not in self.known:
            self.known[address] = self._read(address)
        return self.known[address]

    def box(self, address: int, mode: str) -> Box | None:
        """What a copy moves; None where its map is not known. Raises ValueError as `box_of` does."""
        data = self.at(address)
        if data is None:
            return None
        found = self.boxes[address, mode] = box_of(data, mode)
        return found

    def in_scratch(self) -> list[int]:
        """The addresses of maps that threads have left in scratch memory."""
        written = {address & -ENCODED_BYTES for address in self._bytes}
        inside = (at for at in sorted(written) if any(a <= at < behind for a, behind in self._launched.scratch))
        return [at for at in inside if is_map(self.at(at))]

    def _read(self, address: int) -> bytes | None:
        if address >= PARAMETERS:
            found = self._launched.parameter(address, ENCODED_BYTES)
            return None if found is None else found.to_bytes(ENCODED_BYTES, "little")
        given = self._launched.maps.get(address, b"")
        return whole([self._bytes.get(address + i, given[i] if i < len(given) else None) for i in range(ENCODED_BYTES)])

    def given(self, address: int, size: int) -> int | None:
        """What is loaded of a map of the launch."""
        start = address & -ALIGNMENT
        for place in (start, start - ALIGNMENT):
            data = self._launched.maps.get(place, b"")[address - place :][:size]
            if len(data) == size:
                return int.from_bytes(data, "little")
        return None

    def store(self, address: int, size: int, value: int | None) -> None:
        """Threads write to global memory; None is data."""
        for place in places(address, size):
            self.known.pop(place, None)
        for i in range(size):
            self._bytes[address + i] = None if value is None else value >> 8 * i & 255


def whole(found: Sequence[int | None]) -> bytes | None:
    """The 128 bytes of a map, of which threads may have copied no more than those that a tiled map takes; None where
    they are not known."""
    known = bytes(b or 0 for b in found)
    return None if None in found[:TILED_BYTES] else known


def is_map(data: bytes | None) -> bool:
    try:
        return data is not None and bool(TensorMap.decode(data))
    except ValueError:
        return False


def places(address: int, size: int) -> range:
    """The addresses of the maps that some bytes lie in."""
    return range(address & -ENCODED_BYTES, address + size, ENCODED_BYTES)
