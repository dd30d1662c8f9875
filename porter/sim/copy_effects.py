# SPDX-License-Identifier: Apache-2.0
"""What bulk copies report: a copy into shared memory is told of by mbarriers, one out of it by the thread's groups."""

from __future__ import annotations

from porter.ptx.forms.grammar import Completion
from porter.sim.effects import Effect, Map, Outside, Shared, Span, Tile, Touch
from porter.sim.footprints import range_bits
from porter.sim.threads import Issuer, Signal


def copied_in(
    by: Issuer,
    targets: list[int],
    signals: list[Signal],
    part: tuple[int, int],
    source: Touch | None = None,
    tensor_map: int | None = None,
) -> Effect:
    """`part` (offset, bytes) of each block of `targets` is written, and told to its mbarrier."""
    bits = range_bits(*part)
    touches: list[Touch] = [] if tensor_map is None else [Map(tensor_map)]
    touches += [Shared(target, bits, True, signal) for target, signal in zip(targets, signals, strict=True)]
    if source is not None:
        touches.append(source)
    return Effect("copy", by.at, by.warp, by.lane, touches, Completion.MBARRIER_TX)


def copied_out(
    by: Issuer,
    source: tuple[int, int, int],
    target: Span | Tile,
    same: tuple[int, ...],
    reduces: bool,
    tensor_map: int | None = None,
) -> Effect:
    """`source` (block, offset, bytes) goes to global memory; `same` are the operands that say where."""
    owner, offset, nbytes = source
    touches: list[Touch] = [] if tensor_map is None else [Map(tensor_map)]
    operands = by.machine.steps, by.at, by.warp, *source, *same
    touches += [Shared(owner, range_bits(offset, nbytes), False), Outside(target, True, reduces, operands)]
    return Effect("store", by.at, by.warp, by.lane, touches, Completion.BULK_GROUP)
