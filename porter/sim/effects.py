# SPDX-License-Identifier: Apache-2.0
"""Effects: what an operation does, as the function that issues it reports them to an observer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from porter.ptx.forms.grammar import Completion
from porter.ptx.tensormap import TensorMap
from porter.sim.datapath.tma import Mode

Place = tuple[int, int]
"""An mbarrier: its slot, and its block."""


class Shared(NamedTuple):
    """Granules of a block's shared memory. `signal` is the mbarrier that is told of this part of a copy, `warp` whose
    part it is of what a warpgroup does. `reduces`: what is written is read too; `stored`: for a thread's own store."""

    cta: int
    bits: int
    write: bool
    signal: Place | None = None
    warp: int | None = None
    reduces: bool = False
    stored: bool = False


class Tensor(NamedTuple):
    """Granules of a block's Tensor Memory. `reads`: what is written is read too. Accesses that are of one `pair` keep
    their order."""

    cta: int
    bits: int
    write: bool
    reads: bool = False
    pair: Any = None


class Span(NamedTuple):
    """Bytes of global memory."""

    address: int
    nbytes: int


class Tile(NamedTuple):
    """A tile of a tensor in global memory: its coordinates, and the offsets of im2col."""

    tensor_map: TensorMap
    place: list[int]
    mode: Mode
    shift: Sequence[int] = ()


class Outside(NamedTuple):
    """Global memory. `same`: what tells which bytes a store writes, and where it has them from."""

    place: Span | Tile
    write: bool
    reduces: bool = False
    same: tuple[Any, ...] = ()


class Map(NamedTuple):
    """The tensor map at a generic address is read."""

    address: int


Touch = Shared | Tensor | Outside | Map


@dataclass(eq=False, slots=True)
class Effect:
    """What an operation reads and writes, in this order, who issues it (`lane` is None for a whole warp, `warp` the
    first of a warpgroup) and how its completion becomes visible: `signals` are mbarriers that are told of it as a
    whole, `after` what it is told after. `registers` it writes, or reads until it is complete, `rows` are the
    granules of each row of its first operand in shared memory.

    `accesses` is where an observer keeps what it has made of the touches, `past` what the issuer knew.
    """

    kind: str
    at: int
    warp: int
    lane: int | None
    touches: Sequence[Touch]
    completion: Completion
    signals: Sequence[Place] = ()
    after: Sequence[Effect] = ()
    registers: frozenset[str] = frozenset()
    rows: tuple[int, ...] = ()
    accesses: list[Any] = field(default_factory=list)
    past: Any = None
