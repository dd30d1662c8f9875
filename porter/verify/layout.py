# SPDX-License-Identifier: Apache-2.0
"""What recorded bytes mean: which words are addresses, and where tensor maps lie."""

from __future__ import annotations

import bisect
import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from porter.ptx.tensormap import ALIGNMENT, ENCODED_BYTES, MAGIC, TensorMap
from porter.ptx.tensormap_hw import decode_hardware
from porter.verify.arguments import Inside, MapValue, Pointer


@dataclass(frozen=True)
class Area:
    """Memory that a tensor took up when the bytes were recorded."""

    tensor: str
    address: int
    size: int


@dataclass
class Layout:
    """Reads recorded bytes. `maps` collects the tensor maps found: the tensor that each lies in, and the map with
    its address counted from there; equal maps are one. `name` makes up a name for a new one. A map may start up to
    `reach` bytes in front of its tensor, as one does whose first coordinates are never used: CuTe DSL makes such maps
    for sequences of different lengths."""

    areas: list[Area]
    name: Callable[[int], str]
    reach: int = 0
    maps: dict[str, tuple[str, TensorMap]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.areas = sorted(self.areas, key=lambda a: a.address)
        self._starts = [a.address for a in self.areas]

    def area(self, address: int) -> Area | None:
        """The memory that an address lies in."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or address >= self.areas[at].address + self.areas[at].size:
            return None
        return self.areas[at]

    def _behind(self, address: int) -> Area | None:
        """The next memory behind an address, where it is near enough."""
        at = bisect.bisect_right(self._starts, address)
        return self.areas[at] if at < len(self.areas) and self._starts[at] - address <= self.reach else None

    def contents(self, data: bytes) -> tuple[Inside, ...]:
        """Tensor maps on multiples of 64 bytes, and aligned words outside of these that are addresses."""
        found: list[Inside] = []
        at = 0
        while at + 8 <= len(data):
            if at % ALIGNMENT == 0 and (name := self._map(data[at : at + ENCODED_BYTES])) is not None:
                found.append((at, MapValue(name)))
                at += ENCODED_BYTES
                continue
            word = struct.unpack_from("<Q", data, at)[0]
            area = self.area(word)
            if area is not None:
                found.append((at, Pointer(area.tensor, word - area.address)))
            at += 8
        return tuple(found)

    def _map(self, data: bytes) -> str | None:
        if len(data) < ENCODED_BYTES:
            return None
        try:
            read = TensorMap.decode(data) if data.startswith(MAGIC) else decode_hardware(data)
        except ValueError:
            return None
        area = self.area(read.address) or self._behind(read.address)
        if area is None:
            return None
        relative = dataclasses.replace(read, address=read.address - area.address)
        if relative.problems():
            return None
        for name, known in self.maps.items():
            if known == (area.tensor, relative):
                return name
        name = self.name(len(self.maps))
        self.maps[name] = (area.tensor, relative)
        return name
