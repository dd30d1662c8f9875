# SPDX-License-Identifier: Apache-2.0
"""The threads that execute an instruction, one by one, and the places that each one's operands name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from porter.ptx.forms.grammar import Completion
from porter.sim.addresses import multicast_blocks, shared_place, signal_of
from porter.sim.effects import Effect, Map, Outside, Shared, Span, Tile, Touch
from porter.sim.footprints import range_bits, tile_bits
from porter.sim.machine import Machine

Array = npt.NDArray[Any]
Signal = tuple[int, int]
"""An mbarrier: its slot, and its block."""


def lane_mask(n: int, mask: Any) -> Array:
    """The active lanes [n, 32]; no mask means all."""
    return np.ones((n, 32), bool) if mask is None else np.broadcast_to(mask, (n, 32))


def active_lanes(M: Machine, idx: Any, n: int, mask: Any) -> list[tuple[int, int, int]]:
    """(row, lane, warp) of every active thread."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    warps = M.warps(idx)
    return [(row, lane, int(warps[row])) for row, lane in np.argwhere(lanes).tolist()]


def active_warps(M: Machine, idx: Any, n: int, mask: Any) -> list[tuple[int, int]]:
    """(row, warp) of every warp with an active thread."""
    warps = M.warps(idx)
    if mask is None:
        return list(enumerate(warps.tolist()))
    rows = np.flatnonzero(np.broadcast_to(mask, (n, 32)).any(axis=1)).tolist()
    return [(row, int(warps[row])) for row in rows]


def per_lane(value: Any, n: int) -> Array:
    """A value for every thread [n, 32]."""
    array = np.asarray(value)
    return array if array.shape == (n, 32) else np.broadcast_to(array, (n, 32))


def per_lane_or_none(value: Any, n: int) -> Array | None:
    """A value for every thread [n, 32], of an operand that an instruction may not have."""
    return None if value is None else per_lane(value, n)


def int_or_none(values: Array | None, i: tuple[int, int]) -> int | None:
    """One thread's value of such an operand."""
    return None if values is None else int(values[i])


class Issuer(NamedTuple):
    """A thread that issues an operation: the instruction, its warp, its lane, its block."""

    machine: Machine
    at: int
    warp: int
    lane: int
    cta: int

    def place(self, address: int, nbytes: int) -> tuple[int, int]:
        """(block, byte offset) of `nbytes` at a shared address."""
        return shared_place(self.machine, self.cta, address, nbytes, self.at, self.warp, self.lane)

    def targets(self, first: int, multicast: int | None) -> list[int]:
        """The blocks that a copy goes to: `first`, or those of the multicast mask."""
        if multicast is None:
            return [first]
        return multicast_blocks(self.machine, self.cta, multicast, self.at, self.warp, self.lane)

    def signals(self, targets: list[int], mbar: int, pair: bool = False) -> list[Signal]:
        """The mbarrier of each block that a copy goes to."""
        return [signal_of(self.machine, self.cta, mbar, t, pair, self.at) for t in targets]

    def mbarrier(self, mbar: int) -> Signal:
        """The mbarrier at a shared address."""
        return self.machine.mbar.resolve(self.cta, mbar, self.at)

    def effect(
        self, kind: str, touches: Sequence[Touch], completion: Completion, signals: Sequence[Signal] = ()
    ) -> Effect:
        """What an operation does that the thread issues."""
        return Effect(kind, self.at, self.warp, self.lane, touches, completion, signals)

    def copy_in(
        self,
        targets: list[int],
        signals: list[Signal],
        offset: int,
        nbytes: int,
        source: Touch | None = None,
        tensor_map: int | None = None,
        *,
        reduces: bool = False,
        stored: bool = False,
    ) -> Effect:
        """Of a copy into shared memory of each block of `targets`, which is told to its mbarrier; `reduces` and
        `stored` as a touch has them."""
        bits = range_bits(offset, nbytes)
        touches: list[Touch] = [] if tensor_map is None else [Map(tensor_map)]
        for target, signal in zip(targets, signals, strict=True):
            touches.append(Shared(target, bits, True, signal, reduces=reduces, stored=stored))
        if source is not None:
            touches.append(source)
        return self.effect("copy", touches, Completion.MBARRIER_TX)

    def copy_out(
        self,
        source: tuple[int, int, int],
        target: Span | Tile,
        same: tuple[int, ...],
        reduces: bool,
        tensor_map: int | None = None,
    ) -> Effect:
        """Of a copy of `source` (block, offset, bytes) to global memory; `same` are the operands that say where. Copies
        that one instruction of a warp makes of equal bytes make no difference (ruling `same-bytes`)."""
        owner, offset, nbytes = source
        touches: list[Touch] = [] if tensor_map is None else [Map(tensor_map)]
        data = self.machine.smem[owner, offset : offset + nbytes].tobytes()
        operands = self.machine.steps, self.at, self.warp, data, *same
        if isinstance(target, Tile):
            bits = tile_bits(target.tensor_map, target.place, target.mode, offset, nbytes)
        else:
            bits = range_bits(offset, nbytes)
        touches += [Shared(owner, bits, False), Outside(target, True, reduces, operands)]
        return self.effect("store", touches, Completion.BULK_GROUP)


def issuers(M: Machine, at: int, idx: Any, n: int, mask: Any) -> Iterator[tuple[Issuer, tuple[int, int]]]:
    """Every active thread, and where its values are in arrays [n, 32]."""
    for row, lane, warp in active_lanes(M, idx, n, mask):
        yield Issuer(M, at, warp, lane, int(M.warp_cta[warp])), (row, lane)
