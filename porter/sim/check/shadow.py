# SPDX-License-Identifier: Apache-2.0
"""Shadow memory: which accesses to a block's shared memory or Tensor Memory may still conflict with later ones.

Later writes take over the bits of earlier accesses, so that the lists stay short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from porter.ptx.memory_order import Scope
from porter.ptx.tmem import COLUMNS
from porter.sim.check.clocks import Done
from porter.sim.footprints import GRANULE, LANE_GROUP


@dataclass(eq=False, slots=True)
class Access:
    """One access by a warp, or by an operation that it issued.

    `done` proves that the access is over; empty while nothing can prove it. `issue` is the event of its issue.
    `proxy` is generic, async or tensor (Tensor Memory). `pair` identifies tcgen05 operations that keep their
    order among themselves: same thread, and for MMAs the same accumulator and shape. `scope` is that of strong
    accesses (PTX ISA 8.4), None for ordinary ones. `grouped`: it is in a group, which a wait_group may name.
    """

    kind: str
    at: int
    warp: int
    lane: int | None
    write: bool
    proxy: str
    bits: int
    done: Done
    issue: tuple[int, int]
    pair: Any = None
    item: int = 4
    scope: Scope | None = None
    low: int = 0
    high: int = 0
    grouped: bool = False
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bound()

    def bound(self) -> None:
        self.high = self.bits.bit_length()
        self.low = (self.bits & -self.bits).bit_length() - 1 if self.bits else 0


class Shadow:
    """One memory of one block."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self._writes: list[Access] = []
        self.written = 0

    def add(self, new: Access) -> None:
        """Remember an access beside all others."""
        self.accesses.append(new)
        if new.write:
            self._writes.append(new)

    def _keep(self, accesses: list[Access]) -> None:
        self.accesses, self._writes = accesses, [a for a in accesses if a.write]

    def conflicts(self, new: Access) -> Iterator[tuple[Access, int]]:
        """Earlier accesses that touch the same granules, one of the two writing, with these granules."""
        bits, low, high = new.bits, new.low, new.high
        for old in self.accesses if new.write else self._writes:
            if old.low < high and low < old.high:
                common = old.bits & bits
                if common:
                    yield old, common

    def insert(self, new: Access) -> None:
        """Remember an access after its conflicts have been judged."""
        if new.write:
            self.written |= new.bits
            low, high, rest = new.low, new.high, ~new.bits
            atomic = new.kind in _BESIDE
            keep = []
            for old in self.accesses:
                if old.low < high and low < old.high:
                    # Atomics go on beside those of other warps, and are not ordered with them: a later access has to be
                    # ordered after each, and after what came before them all.
                    own = (old.kind, old.warp, old.lane) == (new.kind, new.warp, new.lane)
                    if own or not atomic:
                        old.bits &= rest
                        if not old.bits:
                            continue
                        if low <= old.low or old.high <= high:
                            old.bound()
                keep.append(old)
            self._keep(keep)
        elif new.kind in _REPLACED:
            # A later read by the same warp stands for an earlier one at the same place.
            self.accesses = [
                old
                for old in self.accesses
                if old.write or old.warp != new.warp or old.kind != new.kind or old.bits & ~new.bits
            ]
        self.add(new)

    def remove(self, bits: int) -> None:
        """Forget everything about some granules."""
        keep = []
        for old in self.accesses:
            old.bits &= ~bits
            if old.bits:
                old.bound()
                keep.append(old)
        self._keep(keep)
        self.written &= ~bits


_BESIDE = frozenset(("atomic", "reduction"))
_REPLACED = frozenset(("load", "atomic"))


def describe_bytes(bits: int) -> str:
    low = (bits & -bits).bit_length() - 1
    run = bits >> low
    length = (~run & (run + 1)).bit_length() - 1
    return f"shared memory bytes {low * GRANULE:#x} to {(low + length) * GRANULE - 1:#x}"


def describe_cells(bits: int) -> str:
    low = (bits & -bits).bit_length() - 1
    group, column = divmod(low, COLUMNS)
    run = bits >> low
    length = (~run & (run + 1)).bit_length() - 1
    last = min(column + length - 1, COLUMNS - 1)
    columns = f"column {column}" if last == column else f"columns {column} to {last}"
    return f"Tensor Memory lanes {group * LANE_GROUP} to {group * LANE_GROUP + LANE_GROUP - 1}, {columns}"
