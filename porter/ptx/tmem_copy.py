# SPDX-License-Identifier: Apache-2.0
"""tcgen05.cp: which lanes of Tensor Memory each row of a shared-memory matrix goes to.

Sources: PTX ISA 9.0 §9.7.16.9 (shapes and multicast); CUTLASS include/cute/atom/copy_traits_sm100.hpp (UTCCP
traits) for the lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROW_OFFSETS: dict[tuple[str, str], tuple[tuple[int, int, int], ...]] = {
    ("128x256b", ""): ((0, 128, 0),),
    ("128x128b", ""): ((0, 128, 0),),
    ("64x128b", "warpx2::02_13"): ((0, 64, 0), (0, 64, 64)),
    ("64x128b", "warpx2::01_23"): ((0, 32, 0), (0, 32, 32), (32, 32, 64), (32, 32, 96)),
    ("32x128b", "warpx4"): ((0, 32, 0), (0, 32, 32), (0, 32, 64), (0, 32, 96)),
    ("4x256b", ""): ((0, 1, 0), (1, 1, 32), (2, 1, 64), (3, 1, 96)),
}
"""By shape and multicast: (first row, rows, first lane) of each block of rows that is written."""


@dataclass(frozen=True)
class TmemCopy:
    """What a tcgen05.cp opcode says. `source_format` is the packed format that the copy decompresses, if any."""

    cta_group: int
    shape: str
    multicast: str = ""
    source_format: str = ""

    @property
    def rows(self) -> int:
        """Rows read from shared memory."""
        return int(self.shape.partition("x")[0])

    @property
    def row_bytes(self) -> int:
        return int(self.shape.partition("x")[2].rstrip("b")) // 8

    @property
    def blocks(self) -> tuple[tuple[int, int, int], ...]:
        return ROW_OFFSETS[self.shape, self.multicast]

    @staticmethod
    def parse(parts: Sequence[str]) -> TmemCopy:
        """From the parts of an opcode. Raises ValueError for anything but a legal tcgen05.cp."""
        opcode = ".".join(parts)
        if tuple(parts[:2]) != ("tcgen05", "cp"):
            raise ValueError(f"{opcode} is not a tcgen05.cp")
        cta_group, shape, multicast = 0, "", ""
        formats: set[str] = set()
        for part in parts[2:]:
            if part in ("cta_group::1", "cta_group::2"):
                cta_group = int(part[-1])
            elif part in {s for s, _ in ROW_OFFSETS}:
                shape = part
            elif part.startswith("warpx"):
                multicast = part
            elif part in ("b8x16", "b6x16_p32", "b4x16_p64"):
                formats.add(part)
            else:
                raise ValueError(f"{opcode}: unknown modifier .{part}")
        if not cta_group or (shape, multicast) not in ROW_OFFSETS:
            raise ValueError(f"{opcode}: needs .cta_group and a shape with its multicast")
        source = formats - {"b8x16"}
        if len(source) > 1 or ("b8x16" in formats) != bool(source):
            raise ValueError(f"{opcode}: .b8x16 goes with one source format")
        return TmemCopy(cta_group, shape, multicast, *source)
