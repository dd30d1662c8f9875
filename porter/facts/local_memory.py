# SPDX-License-Identifier: Apache-2.0
"""Local memory of a warp's threads: arrays that are indexed by what is no constant, as lists of accumulators."""

from __future__ import annotations

from porter.facts.values import ALL, Value, bits, is_known, merged, of_lane, squeezed
from porter.ptx.arch import WARP

_WIDEST = 16
"""Bytes of the widest element."""


class LocalMemory:
    """What is there, by address and in pieces as they are stored; what is data is not there."""

    def __init__(self) -> None:
        self.pieces: dict[int, tuple[int, Value]] = {}
        """By address, with their bytes."""

    def forget(self) -> None:
        """Something may have been stored anywhere."""
        self.pieces.clear()

    def store(self, address: Value, size: int, value: Value, lanes: int) -> None:
        if not is_known(address, lanes):
            self.forget()
        elif isinstance(address, int):
            self._store(address, size, value, lanes)
        else:
            for lane in bits(lanes):
                place = of_lane(address, lane)
                assert place is not None
                self._store(place, size, of_lane(value, lane), 1 << lane)

    def _store(self, address: int, size: int, value: Value, lanes: int) -> None:
        for start in range(address - _WIDEST + 1, address + size):
            known = self.pieces.get(start)
            if known is not None and start + known[0] > address and (start, known[0]) != (address, size):
                del self.pieces[start]
        _, old = self.pieces.get(address, (size, None))
        self.pieces[address] = size, merged(old, value, lanes, ALL)

    def load(self, address: Value, size: int, lanes: int) -> Value:
        """None where it is data, or was stored in other pieces."""
        if isinstance(address, int):
            return self._load(address, size)
        if not is_known(address, lanes):
            return None
        found: list[int | None] = [None] * WARP
        for lane in bits(lanes):
            place = of_lane(address, lane)
            assert place is not None
            found[lane] = of_lane(self._load(place, size), lane)
        return squeezed(tuple(found), lanes)

    def _load(self, address: int, size: int) -> Value:
        known = self.pieces.get(address)
        return known[1] if known is not None and known[0] == size else None
