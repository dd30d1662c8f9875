# SPDX-License-Identifier: Apache-2.0
"""Blocks, warps and groups of lanes of an execution, with what asynchronous work of theirs is open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from porter.facts.cells import CELL_BYTES, byte_of, of_bytes
from porter.facts.events import Access, Awaited, WarpName
from porter.facts.launched import Geometry, Triple
from porter.facts.local_memory import LocalMemory
from porter.facts.values import ALL, Value, bits, squeezed
from porter.ptx.arch import WARP
from porter.ptx.shared_window import OFFSET_MASK, RANK_SHIFT


class Undefined(NamedTuple):
    """The lanes in which a register holds what nobody has written. `origin`: the instruction that has loaded it from
    unwritten shared memory, or has it from a lane that has no part in it; None if nothing has written the register."""

    lanes: int
    origin: int | None = None


@dataclass(slots=True, eq=False)
class Group:
    """Lanes of a warp that are at one place. `ready`: None, or whether what they wait for has come; `why` says what
    that is, and `awaited` which barrier, if it is one."""

    pc: int
    lanes: int
    registers: dict[str, Value]
    ready: Callable[[], bool] | None = None
    why: Callable[[], str] | None = None
    awaited: Awaited | None = None
    undefined: dict[str, Undefined] = field(default_factory=dict)
    barrier: int | None = None
    """The barrier that it has come to ahead of other lanes of the warp."""
    fails: bool | None = None
    """Whether the wait that it is at fails, where it may; None where it may not."""
    polled: tuple[int, int, int | None, int | None] | None = None
    """The newest strong load from shared memory: its instruction, address, what it found, and its event."""

    def wait(self, ready: Callable[[], bool], why: Callable[[], str], awaited: Awaited | None = None) -> None:
        self.ready, self.why, self.awaited = ready, why, awaited

    def parted(self, pc: int, lanes: int, live: Collection[str] | None = None) -> Group:
        """Some of the lanes as a group of their own, which the others are left without; `live` are the registers that
        they may go on with."""
        self.lanes &= ~lanes
        return Group(pc, lanes, _narrowed(self.registers, lanes, live), undefined=_in(self.undefined, lanes))

    def narrow(self, live: Collection[str] | None = None) -> None:
        self.registers = _narrowed(self.registers, self.lanes, live)
        self.undefined = _in(self.undefined, self.lanes)

    def meet(self, other: Group) -> None:
        """Note what is undefined in either group."""
        joined: dict[tuple[Undefined, Undefined], Undefined] = {}
        for name, why in other.undefined.items():
            both = self.undefined.get(name, why), why
            if both not in joined:
                joined[both] = Undefined(both[0].lanes | why.lanes, both[0].origin)
            self.undefined[name] = joined[both]


def _in(undefined: Mapping[str, Undefined], lanes: int) -> dict[str, Undefined]:
    kept = {why: Undefined(why.lanes & lanes, why.origin) for why in set(undefined.values())}
    return {name: found for name, why in undefined.items() if (found := kept[why]).lanes}


def _narrowed(registers: dict[str, Value], lanes: int, live: Collection[str] | None) -> dict[str, Value]:
    kept = registers.items() if live is None else [(n, registers[n]) for n in live if n in registers]
    return {n: squeezed(v, lanes) if isinstance(v, tuple) else v for n, v in kept}


@dataclass(slots=True, eq=False)
class Batches:
    """Copies of one lane in groups: `open` ones are not committed."""

    open: list[Access] = field(default_factory=list)
    committed: list[list[Access]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    """Events of the waits so far."""

    def commit(self) -> None:
        for access in self.open:
            access.grouped = True
        self.committed.append(self.open)
        self.open = []

    def leave(self, count: int) -> list[Access]:
        """Take out all but the `count` newest groups."""
        found: list[Access] = []
        while len(self.committed) > count:
            found += self.committed.pop(0)
        return found


class Held(NamedTuple):
    """A register of a wgmma in flight: of which batch, whether it is a result, the instruction, the columns of D."""

    batch: int
    written: bool
    at: int
    columns: int


@dataclass(slots=True)
class Flight:
    """wgmma of a warp. `registers`: those in flight."""

    batch: int = 0
    issued: int = 0
    reads: list[tuple[int, Access]] = field(default_factory=list)
    registers: dict[str, Held] = field(default_factory=dict)
    newest: tuple[int, tuple[str, ...]] | None = None
    """Columns and results of the newest wgmma, if no copy has brought another one's registers there."""
    touched: dict[str, int] | None = None
    """Registers of operands written since the last wgmma.fence, with what has computed them; None ahead of the
    first."""


@dataclass(slots=True, eq=False)
class Load:
    """A tcgen05.ld that is not waited for: registers of it that nothing has used, and whether that was told."""

    access: Access
    unused: set[str]
    told: bool = False


Origins = frozenset[tuple[Load, str]]
"""The registers of loads that one was copied, or put together, from."""


class Warp:
    """`last`: by lane its newest event. `loaded`: registers that hold what tcgen05.ld gave and no wait::ld has
    covered."""

    def __init__(
        self, block: Block, number: int, lanes: int, registers: int | None = None, unwritten: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.block, self.number, self.live = block, number, lanes
        self.registers = registers
        """Of each of its threads; None where setmaxnreg moves none."""
        self.name = WarpName(block.rank, number)
        self.groups = [Group(0, lanes, {}, undefined=dict.fromkeys(unwritten, Undefined(lanes)))]
        self.last: list[int | None] = [None] * WARP
        self.local = LocalMemory()
        self.loaded: dict[str, Origins] = {}
        self.open_loads: list[Access] = []
        self.open_stores: list[Access] = []
        self.flight = Flight()
        self.newest_mma: dict[int, int] = {}
        """By lane the end of its newest tcgen05 operation."""
        self.mmas: dict[int, list[int]] = defaultdict(list)
        """By lane the ends of all of them."""
        self.commits: dict[int, list[Callable[[], None]]] = defaultdict(list)
        """By lane its tcgen05.commit that have not arrived."""
        self.newest_arrival: dict[int, int] = {}
        """By lane the arrival of its newest tcgen05.commit."""
        self.bulk: dict[int, Batches] = defaultdict(Batches)
        self.cp_async: dict[int, Batches] = defaultdict(Batches)
        self.arrived = 0
        """Lanes that have arrived at the cluster's barrier and not gone on."""
        self.cluster_round: int | None = None
        """The round of the cluster's barrier that it has arrived at and not waited for."""


class Came(NamedTuple):
    """An arrival of a warp at a named barrier: of which round, its event, and the lanes that have not gone on."""

    round: int
    arrival: int
    lanes: int


@dataclass(slots=True)
class Round:
    """Arrivals at a named barrier since its last round. `waiting`: by warp its newest arrival."""

    count: int | None = None
    threads: int = 0
    arrivals: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    waiting: dict[Warp, Came] = field(default_factory=dict)


class Block:
    def __init__(
        self, geometry: Geometry, rank: int, registers: int | None = None, unwritten: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.rank = rank
        self.coordinates: Triple = geometry.coordinates(rank)
        self.base = rank << RANK_SHIFT
        self.memory: dict[int, int] = {}
        """Bytes of shared memory that are numbers, by address."""
        self.written = 0
        """Cells of it that something has written, or is writing."""
        self.numbered = 0
        """Cells of it that have held numbers; most only ever hold data."""
        count = -(-geometry.threads // WARP)
        rest = geometry.threads % WARP
        lanes = [ALL if w < count - 1 or not rest else (1 << rest) - 1 for w in range(count)]
        self.warps = [Warp(self, w, some, registers, unwritten) for w, some in enumerate(lanes)]
        self.registers = 0
        """What warps have given and none has taken."""
        self.columns: dict[int, int] = {}
        """Allocated columns of Tensor Memory, by their first one."""
        self.pairs: dict[int, bool] = {}
        """Whether they were allocated for a pair of blocks."""
        self.relinquished: list[int] = []
        """Events of relinquish_alloc_permit."""
        self.asked: list[int] = []
        """Events at which tcgen05.alloc of a pair of blocks are come to."""
        self.allocations: list[tuple[int, int]] = []
        """(event, instruction) of each tcgen05.alloc."""
        self.named: dict[int, Round] = defaultdict(Round)
        self.handed_out = 0
        """Blocks that try_cancel has given it."""

    @property
    def live_threads(self) -> int:
        return sum(w.live.bit_count() for w in self.warps)

    def read(self, address: int, size: int) -> int | None:
        found = [self.memory.get(address + i) for i in range(size)]
        return None if None in found else int.from_bytes(bytes(b for b in found if b is not None), "little")

    def write(self, address: int, size: int, value: int | None) -> None:
        for i in range(size):
            if value is None:
                self.memory.pop(address + i, None)
            else:
                self.memory[address + i] = value >> 8 * i & 255
        if value is not None:
            self.numbered |= of_bytes(address & OFFSET_MASK, size)

    def forget(self, cells: int) -> None:
        """Cells that hold data from now on."""
        for cell in bits(cells & self.numbered):
            self.write(self.base + byte_of(cell), CELL_BYTES, None)
        self.numbered &= ~cells
