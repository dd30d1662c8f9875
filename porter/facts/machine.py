# SPDX-License-Identifier: Apache-2.0
"""One cluster of blocks as instructions find it: numbers for indices, addresses, parities and counts, and no data.

Lanes of a warp go together; where they part they are groups of their own, which merge where their places meet. Waits
block, asynchronous work lands at once or when the schedule says so. What is executed is not judged here: order follows
from the edges of the events alone, whatever the schedule was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from porter.facts.cells import CELL_BYTES, byte_of, of_bytes
from porter.facts.events import (
    Access,
    Arrival,
    Awaited,
    Edge,
    Engine,
    Event,
    History,
    Kind,
    Mbarrier,
    NotUnderstood,
    Problem,
    Remote,
    Space,
    Stored,
)
from porter.facts.launched import PARAMETERS, VARIABLES, Area, Launched
from porter.facts.names import SharedNames
from porter.facts.state import Block, Group, Warp
from porter.facts.tensor_maps import TensorMaps
from porter.facts.values import ALL, Value, bits, first
from porter.ptx.arch import WARP
from porter.ptx.memory_order import Scope
from porter.ptx.shared_window import RANK_SHIFT, SYSTEM_SHARED

DATA = "up to these data: integers loaded from global memory are the case's, and no other block writes them"
"""What holds for these data alone."""
TABLES = "variables of the module hold what they begin with, and no block writes them"
_BY_THREADS = frozenset((Engine.THREAD, Engine.ATOMIC, Engine.CP_ASYNC, Engine.STORE))
"""Accesses that no other entry of a trace stands for."""
_COPIES = frozenset((Engine.CP_ASYNC, Engine.LOAD, Engine.STORE_ASYNC, Engine.RED_ASYNC))
"""What they bring to shared memory are data, as far as nothing else is said."""
_OF_SYSTEM = of_bytes(0, SYSTEM_SHARED)


Noted = tuple[tuple[int, int, int], tuple[Value, ...]]
"""An instruction with the lanes that come to it, and those that execute it; and the registers that it uses, by name."""


@dataclass(frozen=True)
class Schedule:
    """Which warp goes next, and when asynchronous work lands. Without a seed all warps go in turn, the last one first
    if `backward`, and work lands where it is issued, or, `late`, when no warp can go on without it."""

    backward: bool = False
    late: bool = False
    seed: int | None = None
    peeks: bool = False
    """Whether a wait whose failure need not be heeded finds its phase over, and not that it is not."""


@dataclass(slots=True)
class ClusterBarrier:
    arrivals: list[tuple[int, bool, Warp, int]] = field(default_factory=list)
    """(event, relaxed, warp, lanes)"""
    ends: list[int] = field(default_factory=list)


class Machine:
    """What instructions act on. `on_head` is told when a group comes to the head of a loop (warp, group, where from),
    and may have it wait; `on_rest` when nothing moves, and says whether it has changed that; `on_comparison` of each
    comparison of numbers (warp, instruction, both sides by lane), `on_load` of numbers that come from memory (warp,
    instruction, registers)."""

    def __init__(self, launched: Launched, schedule: Schedule | None = None) -> None:
        self.launched = launched
        self.flow = launched.flow
        self.code = launched.flow.code
        self.history = History()
        self.names = SharedNames(launched)
        self.steps = 0
        self.cluster = ClusterBarrier()
        self.schedule = schedule or Schedule()
        self.dice = Random(self.schedule.seed) if self.schedule.seed is not None else None
        self._landing: list[Callable[[], None]] = []
        self.warpgroup_meetings: dict[tuple[int, int, int], list[tuple[Warp, int]]] = defaultdict(list)
        self.atomics: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        self.maps = TensorMaps(launched)
        self.counters: dict[int, int] = {}
        self.taken: set[Area] = set()
        """Memory whose contents at the launch were taken for what is there."""
        self.written: set[Area] = set()
        self.on_head: Callable[[Warp, Group, int], None] | None = None
        self.marks: frozenset[int] = frozenset()
        """Instructions at which `on_mark` is asked whether a group that comes to them waits."""
        self.on_mark: Callable[[Warp, Group], bool] | None = None
        self.branched: set[tuple[int, int]] = set()
        """Branches, each with an instruction that it has led to; noted for who is told of heads."""
        self.on_rest: Callable[[], bool] | None = None
        self.follow: Callable[[Warp, Group], Callable[[], None] | None] | None = None
        """Told of each instruction that a group comes to; what it gives is called behind it, unless it waits."""
        self.follow_row: Callable[[Warp, Group, tuple[int, ...]], bool] = lambda warp, group, row: False
        """Follows instructions in a row that make data at once, and says whether it has."""
        self.of_numbers: set[frozenset[int]] = set()
        """Instructions of which it was not told, as they took and gave numbers alone."""
        self.on_numbers: Callable[[Warp, Group], Callable[[Noted], None]] | None = None
        """Gives what is told of these where a group comes to some in a row."""
        self.on_comparison: Callable[[Warp, int, tuple[tuple[int, int], ...]], None] | None = None
        self.on_load: Callable[[Warp, int, Mapping[str, Value]], None] | None = None
        self.is_whole = False
        """Whether it is asked for all addresses."""
        self.is_taken = True
        """Whether what is executed is known to be: the guard of the instruction may be data."""
        unwritten = launched.flow.live[0]
        self.blocks = [
            Block(launched.geometry, rank, launched.registers, unwritten) for rank in range(launched.geometry.ranks)
        ]

    # Global memory --------------------------------------------------------------------------------------

    @property
    def reads_global(self) -> bool:
        """Whether addresses in global memory are computed, where what is loaded from there may decide something, or
        they are looked at themselves."""
        return self.is_whole or bool(self.launched.areas) or self.flow.changes_maps

    @property
    def knows_global(self) -> bool:
        """Whether addresses of what is loaded from global memory, and stored there, are computed."""
        return self.follow is not None or self.reads_global

    def may_give(self, first: int, last: int) -> bool:
        """Whether `given` finds numbers at some of these addresses."""
        areas = any(a.start <= last and first < a.start + a.size for a in self.launched.areas)
        maps = self.launched.maps.items()
        return areas or last >= PARAMETERS or any(at <= last and first < at + len(data) for at, data in maps)

    def given(self, address: int, size: int) -> int | None:
        """The number that the launch finds at a place of global memory, where that is told and nothing writes it, or of
        parameters."""
        if address >= PARAMETERS:
            return self.launched.parameter(address, size)
        area = self._area(address, size)
        if area is None:
            return self.maps.given(address, size)
        if area in self.written:
            return None
        self.taken.add(area)
        self.history.assumed.add(TABLES if address >= VARIABLES else DATA)
        return int.from_bytes(area.contents()[address - area.start : address - area.start + size], "little")

    def overwrite(self, address: int, at: int) -> None:
        """Threads write to global memory.

        Raises:
            NotUnderstood: what was there has been taken for a number.
        """
        area = self._area(address, 1)
        if area is not None:
            if area in self.taken:
                raise NotUnderstood("a write to global memory whose contents decide what is done", at)
            self.written.add(area)

    def _area(self, address: int, size: int) -> Area | None:
        inside = (a for a in self.launched.areas if a.start <= address and address + size <= a.start + a.size)
        return next(inside, None)

    # Time -----------------------------------------------------------------------------------------------

    def later(self, landing: Callable[[], None]) -> None:
        """Have an asynchronous operation land."""
        if self.dice is None and not self.schedule.late:
            landing()
        else:
            self._landing.append(landing)

    @property
    def lands(self) -> bool:
        """Whether something is under way."""
        return bool(self._landing)

    def land(self, some: bool) -> bool:
        """Have something land, as the dice fall, or at least one."""
        landed = False
        while self._landing and (self._lands_now() if some else not landed):
            self._landing.pop(self.dice.randrange(len(self._landing)) if self.dice is not None else 0)()
            landed = True
        return landed

    def _lands_now(self) -> bool:
        return self.dice is not None and not self.schedule.late and self.dice.random() < 0.5

    def gathered(self, warp: Warp, group: Group, mask: int = ALL) -> bool:
        """Whether all lanes that a warp-wide instruction needs have come to it; else the group waits for them."""
        missing = mask & warp.live & ~group.lanes
        if not missing:
            return True
        place = group.pc
        group.wait(
            lambda: not (mask & warp.live & ~group.lanes) or any(g is not group and g.pc == place for g in warp.groups),
            lambda: f"{group.lanes.bit_count()} of {(mask & warp.live).bit_count()} lanes have come",
        )
        return False

    def check_registers(self, warp: Warp, lanes: int, at: int) -> None:
        """Registers of asynchronous operations that are used ahead of their wait."""
        ins = self.code.code[at]
        if warp.loaded:
            self._check_loaded(warp, lanes, at, ins.parts[0] == "mov")
        if warp.flight.registers and ins.parts[0] != "wgmma":
            self._check_flight(warp, at, self.flow.copied(at) is not None)

    def _check_loaded(self, warp: Warp, lanes: int, at: int, is_move: bool) -> None:
        """The use of all registers stands for a wait in practice (docs/rulings.md, load-dependence)."""
        loaded = warp.loaded
        origins = frozenset().union(*(loaded[name] for name in self.flow.uses[at] & loaded.keys()))
        if not is_move:
            for load, register in origins:
                if not load.told:
                    load.told = True
                    what = "a register of tcgen05.ld is used ahead of tcgen05.wait::ld"
                    self.problem("wait::ld", what, at, "strict", other=load.access.at)
                load.unused.discard(register)
                if not load.unused and load.access.end is None:
                    used = self.joint(warp, lanes, "all of tcgen05.ld is used", at, Kind.TMEM)
                    load.access.end = used.index
                    warp.open_loads.remove(load.access)
        for name in self.flow.writes[at]:
            if any(register == name and load.unused for load, register in loaded.get(name, ())):
                what = "a register of tcgen05.ld is overwritten ahead of tcgen05.wait::ld"
                self.problem("wait::ld", what, at)
            loaded.pop(name, None)
            if is_move and origins:
                loaded[name] = origins

    def _check_flight(self, warp: Warp, at: int, is_move: bool) -> None:
        flight = warp.flight.registers
        for name in sorted(self.flow.uses[at] & flight.keys()):
            held = flight[name]
            if not held.written:
                continue
            if is_move:
                # the compiler renames registers in flight; the new name stands for the same one
                flight.update(dict.fromkeys(self.flow.writes[at], held))
                warp.flight.newest = None
                return
            self.problem("wgmma-wait", "a register of wgmma is used ahead of wgmma.wait_group", at, other=held.at)
            return
        for name in sorted(self.flow.writes[at] & flight.keys()):
            if is_move:
                if flight[name].written:
                    del flight[name]
                return
            what = "a register of a wgmma in flight is overwritten ahead of wgmma.wait_group"
            self.problem("wgmma-wait", what, at, other=flight[name].at)
            return

    def note_operands(self, warp: Warp, at: int) -> None:
        """Note that registers of wgmma are written; what a copy writes is as its source was."""
        touched, written = warp.flight.touched, self.flow.wgmma_operands[at]
        if touched is None or not written:
            return
        source = self.flow.copied(at)
        for name in written:
            if source is None:
                touched[name] = at
            elif source in touched:
                touched[name] = touched[source]
            else:
                touched.pop(name, None)

    # Events -------------------------------------------------------------------------------------------

    def event(
        self, kind: Kind, what: str, warp: Warp | None, lanes: int, at: int, edges: Iterable[tuple[Edge, int]] = ()
    ) -> Event:
        events = self.history.events
        found = Event(len(events), kind, what, warp.name if warp is not None else None, lanes, at, list(edges))
        events.append(found)
        return found

    def single(self, warp: Warp, lanes: int, what: str, at: int, kind: Kind = Kind.STEP) -> list[tuple[Event, int]]:
        """An event of each class of lanes that have one past, with these lanes."""
        classes: dict[int | None, int] = {}
        if not lanes & (lanes - 1):
            classes[warp.last[first(lanes)]] = lanes
        elif warp.last.count(warp.last[0]) == WARP:
            classes[warp.last[0]] = lanes
        else:
            for lane in bits(lanes):
                newest = warp.last[lane]
                classes[newest] = classes.get(newest, 0) | 1 << lane
        found = []
        for newest, some in classes.items():
            edges = [] if newest is None else [(Edge.PROGRAM, newest)]
            event = self.event(kind, what, warp, some, at, edges)
            self.go_on(warp, some, event)
            found.append((event, some))
        return found

    def joint(self, warp: Warp, lanes: int, what: str, at: int, kind: Kind = Kind.STEP) -> Event:
        """One event of all these lanes, which go on together."""
        newest = dict.fromkeys(warp.last if lanes == ALL else [warp.last[lane] for lane in bits(lanes)])
        edges = [(Edge.PROGRAM, n) for n in newest if n is not None]
        event = self.event(kind, what, warp, lanes, at, edges)
        self.go_on(warp, lanes, event)
        return event

    @staticmethod
    def go_on(warp: Warp, lanes: int, event: Event) -> None:
        if lanes == ALL:
            warp.last = [event.index] * WARP
            return
        for lane in bits(lanes):
            warp.last[lane] = event.index

    def problem(self, kind: str, text: str, at: int | None, level: str = "error", other: int | None = None) -> None:
        found = Problem(kind, text, at, level, other)
        if found not in self.history.problems:
            self.history.problems.append(found)

    # Memory -------------------------------------------------------------------------------------------

    def access(
        self,
        space: Space,
        engine: Engine,
        write: bool,
        cells: int,
        start: int,
        end: int | None,
        at: int,
        pipe: object = None,
        tile: object = None,
        must_be_written: str = "",
        stored: Stored | None = None,
    ) -> Access:
        found = Access(space, engine, write, cells, start, end, at, pipe, tile, must_be_written, stored=stored)
        self.history.accesses.append(found)
        if not space.tensor and self.is_taken:
            self._look_at_end(found)
        if write and not space.tensor:
            self.blocks[space.rank].written |= cells
            if engine in _COPIES:
                self.blocks[space.rank].forget(cells)
        warp = self.history.events[start].warp
        if warp is not None and engine in _BY_THREADS:
            self.history.trace[warp].append((engine.value, write, space, cells, at))
        return found

    def _look_at_end(self, access: Access) -> None:
        """Accesses to shared memory that no variable has, nor the launch gives."""
        end, opcode = self.launched.shared_end, self.code.code[access.at].opcode
        if access.cells >> -(-end // CELL_BYTES):
            last = byte_of(access.cells.bit_length())
            self.problem("outside", f"{opcode} up to {last:#x} of shared memory, which ends at {end:#x}", access.at)
        elif access.write and access.cells & _OF_SYSTEM:
            self.problem("outside", f"{opcode} writes shared memory of the system", access.at)

    def reach(self, event: Event, rank: int, warp: Warp, what: str, at: int, by_thread: bool = False) -> None:
        """Memory of a block is accessed, perhaps of another one."""
        if rank != warp.block.rank:
            self.history.remote.append(Remote(event.index, rank, what, warp.block.rank, at, by_thread))

    def block_of(self, address: int, at: int) -> Block:
        rank = address >> RANK_SHIFT
        if not 0 <= rank < len(self.blocks):
            raise NotUnderstood(f"{address:#x} is an address of no block's shared memory", at)
        return self.blocks[rank]

    # mbarriers ----------------------------------------------------------------------------------------

    def mbarrier(self, address: int, event: Event, at: int, asynchronous: bool = False) -> Mbarrier:
        """The mbarrier at an address, which an event uses.

        Raises:
            NotUnderstood: there is none.
        """
        found = self.history.barriers.get(address)
        if found is None:
            self.problem("barrier", f"{self.named(address)} is used, and was not initialized before", at)
            raise NotUnderstood(f"{self.named(address)} is not initialized", at)
        found.uses.append((event.index, at, asynchronous))
        return found

    def named(self, address: int) -> str:
        """An mbarrier as a report calls it."""
        return self.names.mbarrier(address)

    def arrive(
        self, barrier: Mbarrier, event: Event, count: int, at: int, rank: int,
        edge: Edge = Edge.SYNC, scope: Scope = Scope.CTA, of_copy: bool = False,
    ) -> None:  # fmt: skip
        if count > barrier.pending:
            what = (
                f"{self.named(barrier.address)}: {count} arrivals where {barrier.pending} of {barrier.count} are left "
                f"in phase {len(barrier.phases)}"
            )
            self.problem("count", what, at)
            count = barrier.pending
        barrier.pending -= count
        barrier.open_arrivals.append(Arrival(event.index, edge, count, len(barrier.phases), rank, scope, at, of_copy))
        self._complete(barrier)

    def expect(self, barrier: Mbarrier, nbytes: int) -> None:
        barrier.bytes_expected += nbytes

    def landed(self, barrier: Mbarrier, event: Event, nbytes: int, at: int, rank: int) -> None:
        """Bytes of a copy are counted."""
        barrier.bytes_copied += nbytes
        phase = len(barrier.phases)
        arrival = Arrival(event.index, Edge.COMPLETION, 0, phase, rank, Scope.CLUSTER, at, of_copy=True)
        barrier.open_arrivals.append(arrival)
        self._complete(barrier)

    def state_of(self, barrier: Mbarrier) -> str:
        """What of the phase that is open has come."""
        phase, arrived = len(barrier.phases), barrier.count - barrier.pending
        text = (
            f"{self.named(barrier.address)}, phase {phase} (parity {phase & 1}): {arrived} of {barrier.count} arrivals"
        )
        if barrier.bytes_expected or barrier.bytes_copied:
            text += f", {barrier.bytes_copied} of {barrier.bytes_expected} bytes"
        return text

    def _complete(self, barrier: Mbarrier) -> None:
        if not barrier.pending and not barrier.outstanding:
            self._end_phase(barrier)

    def _end_phase(self, barrier: Mbarrier) -> None:
        edges = [(a.edge, a.event) for a in barrier.open_arrivals]
        at = barrier.open_arrivals[-1].at if edges else 0
        end = self.event(Kind.PHASE, "a phase of an mbarrier", None, 0, at, edges)
        barrier.phases.append(end.index)
        barrier.arrivals += barrier.open_arrivals
        barrier.open_arrivals = []
        barrier.pending = barrier.count
        barrier.bytes_expected = barrier.bytes_copied = 0

    # Barriers -----------------------------------------------------------------------------------------

    def end_round(self, block: Block, number: int, at: int) -> None:
        """End a round of a named barrier if all have come."""
        barrier = block.named[number]
        live = WARP * sum(bool(w.live) for w in block.warps)
        wanted = barrier.count if barrier.count is not None else live
        if barrier.threads > wanted:
            self.problem("bar", f"barrier {number}: {barrier.threads} threads in a round of {wanted}", at)
        if barrier.threads >= wanted:
            self._end_round(block, number, at)

    def _end_round(self, block: Block, number: int, at: int) -> None:
        barrier = block.named[number]
        edges = [(Edge.SYNC, a) for a in barrier.arrivals]
        if barrier.count is None:
            edges += [(Edge.SYNC, e) for e in self.history.exits[block.rank]]
        end = self.event(Kind.PHASE, f"a round of barrier {number}", None, 0, at, edges)
        barrier.ends.append(end.index)
        barrier.arrivals, barrier.threads = [], 0

    def end_cluster_round(self, at: int) -> None:
        arrived = sum((warp.live & lanes).bit_count() for _, _, warp, lanes in self.cluster.arrivals)
        if self.cluster.arrivals and arrived >= sum(b.live_threads for b in self.blocks):
            self._end_cluster_round(at)

    def _end_cluster_round(self, at: int) -> None:
        edges = [(Edge.RELAXED if relaxed else Edge.SYNC, e) for e, relaxed, _, _ in self.cluster.arrivals]
        # who has arrived in it and ended since is not waited for again
        come = {warp.name: lanes for _, _, warp, lanes in self.cluster.arrivals}
        ended = (self.history.events[e] for exits in self.history.exits.values() for e in exits)
        edges += [(Edge.SYNC, e.index) for e in ended if e.warp is None or not e.lanes & come.get(e.warp, 0)]
        end = self.event(Kind.PHASE, "a round of the cluster's barrier", None, 0, at, edges)
        self.cluster.ends.append(end.index)
        self.cluster.arrivals = []

    def force(self, awaited: Awaited) -> None:
        """Let a barrier pass that nothing ends, to see what would follow: no fact is told from then on."""
        if awaited.number is None:
            self._end_cluster_round(0)
        elif awaited.rank is None:
            self._end_phase(self.history.barriers[awaited.number])
        else:
            self._end_round(self.blocks[awaited.rank], awaited.number, 0)

    def leave(self, warp: Warp, group: Group, at: int) -> None:
        """The lanes of a group end."""
        for event, _ in self.single(warp, group.lanes, "exit", at, Kind.EXIT):
            self.history.exits[warp.block.rank].append(event.index)
        warp.live &= ~group.lanes
        group.lanes = 0
        warp.groups = [g for g in warp.groups if g.lanes]
        for number, barrier in list(warp.block.named.items()):
            if barrier.threads and barrier.count is None:
                self.end_round(warp.block, number, at)
        self.end_cluster_round(at)

    def mma_of(self, warp: Warp, lane: int, event: Event, what: str, at: int) -> Event:
        """The end of a tcgen05 operation that a lane issues: behind those that it has issued before."""
        edges = [(Edge.PROGRAM, event.index)]
        if lane in warp.newest_mma:
            edges.append((Edge.PROGRAM, warp.newest_mma[lane]))
        end = self.event(Kind.TMEM, f"end of {what}", None, 0, at, edges)
        warp.newest_mma[lane] = end.index
        warp.mmas[lane].append(end.index)
        return end

    def lane_starts(self, warp: Warp, group: Group, what: str, at: int) -> list[tuple[Event, int]]:
        """An event of each lane of a group by itself."""
        return [(event, lane) for lane in bits(group.lanes) for event, _ in self.single(warp, 1 << lane, what, at)]
