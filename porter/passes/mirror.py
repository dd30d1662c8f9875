# SPDX-License-Identifier: Apache-2.0
"""Which moves of `mappings/emit/mirror.cuh` a port needs, between Tensor Memory and registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.passes.emit import emitted
from porter.ptx.tmem import LANE_SHIFT, WARP_LANES

QUARTER_BIT = LANE_SHIFT + WARP_LANES.bit_length() - 1
"""Bit of a Tensor Memory address from which a warp's rank selects its quarter of the lanes."""

_CPP = {"f": "float", "r": "uint32_t"}
_WIDTHS = (1, 2, 4, 8, 16)
WIDEST = 32
"""Registers of the widest access, so that a load never spills."""
_PIECES = ("r2", "r4", "r8", "r16", "r32")


@dataclass
class Mirror:
    """Loads and stores of accumulators whose registers have one constraint (`f` or `r`); `packed` if a register
    holds two f16. `sizes` are the N of the tiles; `beside_floats` if other accumulators of the file are floats."""

    element: str
    packed: bool
    sizes: set[int] = field(default_factory=set)
    loads: bool = False
    stores: bool = False
    scalar_loads: bool = False
    scalar_stores: bool = False
    updates: bool = False
    """Whether registers change in pieces between their load and their store."""
    tracks: bool = False
    """Whether registers are kept true."""
    scalar_tracks: bool = False
    beside_floats: bool = False

    def request(self, operation: str, *, scalars: bool) -> None:
        """Ask for `load` or `store`, `scalars` for registers that are separate variables."""
        if operation == "load":
            self.loads, self.scalar_loads = True, self.scalar_loads or scalars
        else:
            self.stores, self.scalar_stores = True, self.scalar_stores or scalars

    def request_tracking(self, *, scalars: bool) -> None:
        """Ask for the moves of registers that are kept true."""
        self.tracks, self.scalar_tracks = True, self.scalar_tracks or scalars
        self.request("load", scalars=False)
        self.request("store", scalars=False)

    @property
    def suffix(self) -> str:
        if self.packed:
            return "_f16"
        return "_s32" if self.element == "r" and self.beside_floats else ""

    @property
    def _per_x1(self) -> int:
        """Registers of an .x1 access, which covers eight columns."""
        return 2 if self.packed else 4

    def text(self, common: Mapping[str, Any]) -> str:
        """The functions, with the values that they share with the other helpers."""
        return emitted("mirror.cuh", {**common, **self.values()})

    def values(self) -> dict[str, Any]:
        """What the names in `mappings/emit/mirror.cuh` stand for."""
        widths = {width: f"r{width * self._per_x1}" for width in _WIDTHS if width * self._per_x1 <= WIDEST}
        return {
            **vars(self),
            **dict.fromkeys(_PIECES, False),
            **{piece: self._needs(width) for width, piece in widths.items()},
            **{f"x{piece[1:]}": width for width, piece in widths.items()},
            "type": _CPP[self.element],
            "c": self.element,
            "suffix": self.suffix,
            "shape": "16x128b" if self.packed else "16x256b",
            "pack": ".pack::16b" if self.packed else "",
            "unpack": ".unpack::16b" if self.packed else "",
            "stride": 8 // self._per_x1,
        }

    def _needs(self, width: int) -> bool:
        """Whether tiles are moved in accesses of .x`width`: full ones, then what is left of N."""
        blocks = {n // 8 for n in self.sizes}
        if width * self._per_x1 == WIDEST:
            return any(b >= width for b in blocks)
        return any(b & width for b in blocks)
