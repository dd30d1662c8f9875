# SPDX-License-Identifier: Apache-2.0
"""What an execution of a cluster of blocks did, and which instruction orders what: events, edges, accesses, phases."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from porter.facts.values import Value
from porter.ptx.memory_order import Scope


class NotUnderstood(Exception):
    """Something that these facts do not tell, so that nothing may be concluded. `at` is the instruction."""

    def __init__(self, what: str, at: int | None = None) -> None:
        super().__init__(what)
        self.at = at


class Edge(Enum):
    """What an earlier event hands to a later one."""

    PROGRAM = auto()
    """Order of one thread, or of threads that went on together: all that was known."""
    SYNC = auto()
    """Release and acquire: memory, and what a tcgen05 fence published."""
    RELAXED = auto()
    """The same without a release of its own: of memory only what an earlier fence released."""
    SEEN = auto()
    """The same without an acquire of its own: of memory nothing ahead of a fence that acquires."""
    WEAK = auto()
    """Neither."""
    COMPLETION = auto()
    """The end of an asynchronous operation: what it did itself, not what its issuer knew."""
    EXECUTION = auto()
    """Order of execution alone."""


class WarpName(NamedTuple):
    rank: int
    """That of the block in its cluster."""
    warp: int

    def __str__(self) -> str:
        return f"block {self.rank} warp {self.warp}"


class Kind(Enum):
    """Events whose meaning the views of order depend on; all others are STEP."""

    STEP = auto()
    FENCE = auto()
    BEFORE_SYNC = auto()
    """tcgen05.fence::before_thread_sync."""
    AFTER_SYNC = auto()
    """tcgen05.fence::after_thread_sync."""
    TMEM = auto()
    """An operation of Tensor Memory is over for its thread: tcgen05.wait, alloc, dealloc, the end of an MMA."""
    ALLOC = auto()
    COMMIT = auto()
    """The arrival of a tcgen05.commit, or behind cp.async; `completes` are the ends of what it stands for."""
    PHASE = auto()
    """A phase of an mbarrier ends, or a round of a barrier."""
    INIT = auto()
    EXIT = auto()


@dataclass(slots=True, eq=False)
class Event:
    """`lanes` of `warp` (None: an engine's) execute the instruction at `at`, or something follows from that."""

    index: int
    kind: Kind
    what: str
    warp: WarpName | None
    lanes: int
    at: int
    edges: list[tuple[Edge, int]] = field(default_factory=list)
    completes: tuple[int, ...] = ()
    fence: Fence | None = None


@dataclass(frozen=True, slots=True)
class Fence:
    """What a fence orders: generic accesses ahead of asynchronous ones (`proxy`), what relaxed operations behind it
    release, what those ahead of it acquire, initializations of mbarriers alone (`inits`)."""

    proxy: bool = False
    releases: bool = False
    acquires: bool = False
    inits: bool = False


class Space(NamedTuple):
    """Memory of a block: shared, or Tensor Memory."""

    rank: int
    tensor: bool


class Engine(Enum):
    """Who accesses memory."""

    __hash__ = object.__hash__
    # not that of the name, which is computed each time

    THREAD = "thread"
    """Loads, stores, atomics, ldmatrix, stmatrix: the generic proxy."""
    LOAD = "TMA load"
    STORE = "TMA store"
    CP_ASYNC = "cp.async"
    STORE_ASYNC = "st.async"
    RED_ASYNC = "red.async"
    WGMMA = "wgmma"
    MMA = "tcgen05.mma"
    CP = "tcgen05.cp"
    SHIFT = "tcgen05.shift"
    TMEM_LD = "tcgen05.ld"
    TMEM_ST = "tcgen05.st"
    ALLOC = "tcgen05.alloc"
    DEALLOC = "tcgen05.dealloc"
    BARRIER = "mbarrier.init"
    ATOMIC = "atomic"


class Stored(NamedTuple):
    """Numbers that threads store, by their addresses in order, each of `size` bytes."""

    values: tuple[tuple[int, int], ...]
    size: int


@dataclass(slots=True, eq=False)
class Access:
    """`cells` of a space, one bit each: 4 bytes of shared memory, or 16 lanes of a column. It lasts from event `start`
    to event `end`; None if nothing waits for it. `pipe`: operations with equal ones are kept in order by the hardware,
    on one accumulator (`tile`)."""

    space: Space
    engine: Engine
    write: bool
    cells: int
    start: int
    end: int | None
    at: int
    pipe: object = None
    tile: object = None
    must_be_written: str = ""
    """What it reads, if all of that has to be written by something ahead of it."""
    grouped: bool = False
    """Whether it is a copy that its thread has committed to a group."""
    stored: Stored | None = None
    """What a store of threads writes, if that is known."""


@dataclass(slots=True)
class Arrival:
    event: int
    edge: Edge
    count: int
    phase: int
    rank: int
    scope: Scope
    at: int
    of_copy: bool = False


@dataclass(slots=True)
class Wait:
    """Of threads of a block for the end of phase `phase`, -1 if it passes at once; `by_parity`: its phase and every
    second one look alike."""

    event: int
    phase: int
    by_parity: bool
    rank: int
    scope: Scope
    at: int


@dataclass(slots=True, eq=False)
class Mbarrier:
    """An mbarrier at a shared address: `phases` are the events at which phases ended."""

    address: int
    count: int
    init: int
    phases: list[int] = field(default_factory=list)
    pending: int = 0
    bytes_expected: int = 0
    bytes_copied: int = 0
    arrivals: list[Arrival] = field(default_factory=list)
    open_arrivals: list[Arrival] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    uses: list[tuple[int, int, bool]] = field(default_factory=list)
    """(event, instruction, by an asynchronous operation) of each operation on it."""
    expects: list[tuple[int, int, int]] = field(default_factory=list)
    """(event, phase, instruction) of each expect_tx that is no arrival."""
    ends: list[tuple[int, int]] = field(default_factory=list)
    """(event, instruction) of what made it invalid."""

    @property
    def outstanding(self) -> int:
        return self.bytes_expected - self.bytes_copied


@dataclass(frozen=True, slots=True)
class Problem:
    """What execution itself shows to be wrong, `kind` as in `porter.sync.findings`."""

    kind: str
    text: str
    at: int | None = None
    level: str = "error"
    other: int | None = None


@dataclass(frozen=True, slots=True)
class Remote:
    """Event `event` reaches memory of the block `rank` from another one; `by_thread`: by an access of a thread itself,
    which is over once it is seen in memory."""

    event: int
    rank: int
    what: str
    source: int
    at: int
    by_thread: bool


@dataclass(frozen=True, slots=True)
class Move:
    """A setmaxnreg of a warp. `change`: registers that it takes from its block, fewer than none for what it gives."""

    event: int
    action: str
    count: int
    change: int
    at: int


class MapUse(Enum):
    """What is done to tensor maps in global memory (PTX ISA 9.7.13.4)."""

    WRITE = auto()
    COPY = auto()
    """By a copy whose map it is, until the copy is over."""
    RELEASE = auto()
    """fence.proxy.tensormap::generic.release, of all that its thread has written."""
    ACQUIRE = auto()
    """fence.proxy.tensormap::generic.acquire, of one map."""


@dataclass(frozen=True, slots=True)
class MapEvent:
    """`address`: the map's, 0 for a RELEASE. `access`: the copy's part in shared memory."""

    use: MapUse
    address: int
    event: int
    at: int
    access: Access | None = None


class Awaited(NamedTuple):
    """A barrier that somebody waits for: an mbarrier by its address (`rank` is None), a named barrier of a block by its
    number, the cluster's (no `number`)."""

    number: int | None = None
    rank: int | None = None


class Signal(NamedTuple):
    """An mbarrier in a trace, by its shared address, of each lane where they differ; of a wait the parity of its
    phase."""

    where: Value
    parity: int | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """A group of lanes that waits for ever."""

    warp: WarpName
    lanes: int
    at: int
    why: str
    awaited: Awaited | None = None


@dataclass(slots=True)
class History:
    """One execution of a cluster: everything that order is told from."""

    events: list[Event] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    barriers: dict[int, Mbarrier] = field(default_factory=dict)
    retired: list[Mbarrier] = field(default_factory=list)
    """Those that were made invalid."""
    rounds: list[tuple[int, int, int | None, str]] = field(default_factory=list)
    """(arrival, event, end of the round before, barrier) of named barriers: an arrival must follow that end."""
    problems: list[Problem] = field(default_factory=list)
    remote: list[Remote] = field(default_factory=list)
    exits: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Exit events by rank."""
    blocked: list[Blocked] = field(default_factory=list)
    unfreed: dict[int, dict[int, int]] = field(default_factory=dict)
    """Columns by their first one, by rank, that are allocated at the end."""
    allocations: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    """(event, instruction, events of relinquish_alloc_permit of that block) of each tcgen05.alloc."""
    maps: list[MapEvent] = field(default_factory=list)
    moves: dict[WarpName, list[Move]] = field(default_factory=lambda: defaultdict(list))
    unfollowed: int | None = None
    """The first instruction that takes over by global memory what another block has done: that is not followed."""
    peeks: bool = False
    """Whether there were waits whose failure need not be heeded."""
    assumed: set[str] = field(default_factory=set)
    trace: dict[WarpName, list[tuple[object, ...]]] = field(default_factory=lambda: defaultdict(list))
    """What each warp did to barriers and memory, in order: what has to repeat if all turns are alike."""
