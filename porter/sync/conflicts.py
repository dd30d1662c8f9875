# SPDX-License-Identifier: Apache-2.0
"""Pairs of accesses to common cells, one of which writes: the first must be over before the second begins, in the view
that its kind needs; and what is read must have been written."""

from __future__ import annotations

from collections import Counter, defaultdict

from porter.facts.cells import byte_of, column_of
from porter.facts.events import Access, Edge, Engine, History, Kind, Space, WarpName
from porter.facts.names import SharedNames
from porter.facts.values import bits
from porter.ptx.shared_window import RANK_SHIFT
from porter.ptx.tensor_order import HAZARDS, PIPELINED, PIPELINED_IN_PRACTICE
from porter.sync.findings import Findings, Level
from porter.sync.views import Views

_ASYNC_READERS = frozenset((Engine.MMA, Engine.WGMMA, Engine.STORE, Engine.CP))
_GENERIC = frozenset((Engine.THREAD, Engine.CP_ASYNC, Engine.ATOMIC, Engine.BARRIER))
_LIFE = frozenset((Engine.ALLOC, Engine.DEALLOC, Engine.BARRIER))
"""Accesses that write cells and leave nothing to read there."""


class _Cells:
    """The accesses of one space so far, by the set of cells that they touch."""

    def __init__(self) -> None:
        self.regions: dict[int, int] = {}
        self.masks: list[int] = []
        self.overlaps: list[list[int]] = []
        self.writes: list[int] = []
        self.reads: list[int] = []
        self.by_end: dict[int, list[Access]] = defaultdict(list)
        self.endless: list[Access] = []
        self.life = 0
        self.of_pipe: dict[object, int] = defaultdict(int)
        """Cells that the tensor core has written for one thread."""
        self.of_accumulator: dict[object, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        """Beginnings of the tcgen05.mma that wrote an accumulator, by the cells of it that they wrote."""
        self.of_tile: dict[object, list[Access]] = defaultdict(list)

    def region(self, mask: int) -> int:
        known = self.regions.get(mask)
        if known is not None:
            return known
        number = self.regions[mask] = len(self.masks)
        self.masks.append(mask)
        self.writes.append(0)
        self.reads.append(0)
        over = [other for other, cells in enumerate(self.masks) if cells & mask]
        self.overlaps.append(over)
        for other in over:
            if other != number:
                self.overlaps[other].append(number)
        return number


class Conflicts:
    """Looks at the accesses of a history in the order in which they begin."""

    def __init__(self, history: History, findings: Findings, names: SharedNames) -> None:
        self._findings, self._names = findings, names
        self._events, self._assumed = history.events, history.assumed
        self._starting: dict[int, list[Access]] = defaultdict(list)
        for access in history.accesses:
            self._starting[access.start].append(access)
        self._turns: dict[tuple[int, int], int] = {}
        """By instruction and event at which accesses begin."""
        self._spaces: dict[Space, _Cells] = defaultdict(_Cells)
        self._pairs: dict[object, list[int]] = defaultdict(list)
        """Events at which the blocks of a pair get columns, neither ahead of the other."""

    def at_start(self, event: int, views: Views) -> None:
        for access in self._starting.get(event, ()):
            if access.cells:
                self._look(access, views)

    def _look(self, access: Access, views: Views) -> None:
        known = self._spaces[access.space]
        region = known.region(access.cells)
        before = views.execution if access.space.tensor else views.memory
        ordered = before[access.start] | 1 << access.start
        needed = 0
        for other in known.overlaps[region]:
            needed |= known.writes[other] | (known.reads[other] if access.write else 0)
        for end in bits(needed & ~ordered):
            for other_access in known.by_end[end]:
                self._unordered(known, other_access, access, views)
        for endless in known.endless:
            self._unordered(known, endless, access, views)
        if access.space.tensor:
            self._fences_of_tensor(known, access, needed & ordered, views)
        else:
            self._proxy(known, access, region, ordered, views)
        if access.must_be_written:
            self._written(known, access, region, ordered, views.execution[access.start])
        if access.end is not None and access.end != access.start:
            views.conflicts[access.end] = views.conflicts.get(access.end, 0) | needed & ordered
        self._keep(known, access, region)

    def _keep(self, known: _Cells, access: Access, region: int) -> None:
        if access.engine is Engine.ALLOC and access.tile is not None:
            self._pairs[access.tile].append(access.start)
        if access.engine in _LIFE:
            known.life |= 1 << access.start
        if access.engine is Engine.WGMMA:
            known.of_tile[access.tile].append(access)
        if access.engine in _TENSOR_CORE and access.write:
            known.of_pipe[access.pipe] |= access.cells
        if access.engine is Engine.MMA and access.write:
            known.of_accumulator[access.tile][access.cells] |= 1 << access.start
        if access.end is None:
            known.endless.append(access)
            return
        known.by_end[access.end].append(access)
        if access.write:
            known.writes[region] |= 1 << access.end
        else:
            known.reads[region] |= 1 << access.end

    # Order --------------------------------------------------------------------------------------------

    def _unordered(self, known: _Cells, first: Access, second: Access, views: Views) -> None:
        if not first.cells & second.cells or not (first.write or second.write):
            return
        if _hardware_orders(first, second) or _is_in_turn(first, second, views):
            return
        if first.engine is Engine.ALLOC and any(
            views.execution[second.start] >> e & 1 for e in self._pairs[first.tile]
        ):
            return
        if first.engine is Engine.WGMMA and any(
            other is not first and other.end is not None and views.memory[second.start] >> other.end & 1
            for other in known.of_tile[first.tile]
        ):
            what = "comes behind the wait of another warp of the warpgroup, whose own wgmma still reads"
            self._report("H19" if second.engine is Engine.THREAD else "H18", first, second, what, "review")
            return
        kind = _kind(first, second)
        if second.engine is Engine.WGMMA and any(
            other.end is not None and views.memory[first.start] >> other.end & 1 for other in known.of_tile[second.tile]
        ):
            what = "comes behind its warp's own wait, and another warp's wgmma of the warpgroup may still read"
            self._report(_kind(second, first), second, first, what, "review")
            return
        if second.engine is Engine.WGMMA and self._is_met(first, second, views):
            what = "another warp of the warpgroup is behind it, this one is not"
            self._report(kind, first, second, what, "review")
            return
        if self._is_of_one_warp(first, second):
            what = "lanes of one warp, which go together unless the compiler parts them"
            self._report("G8" if second.engine is Engine.THREAD else kind, first, second, what, "review")
            return
        for use, freed in ((first, second), (second, first)):
            if freed.engine is Engine.DEALLOC and use.engine not in _LIFE and self._of_peer(use, freed):
                what = "of the other block of the pair, and nothing puts that ahead of what frees its columns"
                self._report("L2", use, freed, what, "strict")
                return
        if self._events[first.start].kind is Kind.ALLOC and views.execution[second.start] >> first.start & 1:
            # the word that it writes (docs/rulings.md, allocated-word)
            self._report("H15", first, second, "are ordered by a relaxed barrier alone", "review")
            return
        if kind == "G1" and (flag := _flag(first, second)):
            self._report(kind, first, second, flag, "strict")
            if flag == _ONE_VALUE:
                self._assumed.add("what threads store to one place without an order stays equal in further turns")
            return
        level: Level = "review" if _is_in_practice(first, second) else "error"
        self._report(kind, first, second, "are not ordered", level)

    def _of_peer(self, use: Access, freed: Access) -> bool:
        """Whether the use is another block's, in whose Tensor Memory columns of the pair are freed as well."""
        one, other = self._events[use.start].warp, self._events[freed.start].warp
        return one is not None and other is not None and one.rank != other.rank and one.rank == use.space.rank

    def _is_met(self, first: Access, second: Access, views: Views) -> bool:
        """Whether a warp that meets the second's at a wgmma comes behind the first."""
        met = (e for edge, e in self._events[second.start].edges if edge is Edge.EXECUTION)
        return first.end is not None and any(views.memory[e] >> first.end & 1 for e in met)

    def _report(self, kind: str, first: Access, second: Access, what: str, level: Level = "error") -> None:
        one, other = self._events[first.start].warp, self._events[second.start].warp
        between = one is not None and other is not None and one.rank != other.rank
        turn = self._turn(second)
        if self._findings.again(kind, second.at, first.at, level, between, turn):
            return
        where = self._where(first.space, first.cells & second.cells)
        verbs = tuple("writes" if a.write else "reads" for a in (first, second))
        text = (
            f"{where}: {first.engine.value} {verbs[0]} ({self._who(first)}), "
            f"{second.engine.value} {verbs[1]} ({self._who(second)}): {what}"
        )
        self._findings.add(
            kind, text, second.at, first=first.at, level=level, between_blocks=between, missing=what, turn=turn
        )

    def _turn(self, access: Access) -> int:
        """How often its threads have come to an access's instruction, with this time."""
        if not self._turns:
            times: dict[tuple[int, WarpName | None], Counter[int]] = defaultdict(Counter)
            for start in sorted(self._starting):
                event = self._events[start]
                lane = event.lanes & -event.lanes
                for at in {one.at for one in self._starting[start]}:
                    of_warp = times[at, event.warp]
                    of_warp[event.lanes] += 1
                    self._turns[at, start] = sum(n for lanes, n in of_warp.items() if lanes & lane)
        return self._turns[access.at, access.start]

    def _where(self, space: Space, cells: int) -> str:
        """The first of the cells."""
        first = (cells & -cells).bit_length() - 1
        if space.tensor:
            return f"Tensor Memory, column {column_of(first)}"
        return f"shared memory, {self._names.place((space.rank << RANK_SHIFT) + byte_of(first))}"

    def _who(self, access: Access) -> str:
        return str(self._events[access.start].warp)

    def _fences_of_tensor(self, known: _Cells, access: Access, ordered: int, views: Views) -> None:
        """Between tcgen05 operations of two threads there are a fence before and a fence after the synchronization."""
        for end in bits(ordered & ~(views.taken[access.start] | 1 << access.start)):
            for first in known.by_end[end]:
                conflict = first.cells & access.cells and (first.write or access.write)
                if (
                    conflict
                    and not self._is_of_peer(first, access)
                    and first.pipe != access.pipe
                    and not _hardware_orders(first, access)
                ):
                    kind = _kind(first, access)
                    self._report(kind, first, access, "no tcgen05.fence before and after what orders them", "strict")

    def _is_of_one_warp(self, first: Access, second: Access) -> bool:
        """Whether threads of the warp that the second is of have accessed shared memory themselves."""
        warp = self._events[first.start].warp
        return first.engine is Engine.THREAD and warp is not None and warp == self._events[second.start].warp

    def _is_of_peer(self, first: Access, second: Access) -> bool:
        """Whether another block has allocated what is accessed: both had to ask for it."""
        one, other = self._events[first.start].warp, self._events[second.start].warp
        return first.engine is Engine.ALLOC and one is not None and other is not None and one.rank != other.rank

    def _proxy(self, known: _Cells, access: Access, region: int, ordered: int, views: Views) -> None:
        reads_async = access.engine in _ASYNC_READERS
        if not reads_async and access.engine is not Engine.LOAD:
            return
        unseen = ordered & ~views.proxy[access.start]
        for other in known.overlaps[region]:
            ends = known.writes[other] | (0 if reads_async else known.reads[other])
            for end in bits(ends & unseen):
                for first in known.by_end[end]:
                    if first.engine not in _GENERIC or not first.cells & access.cells:
                        continue
                    if reads_async and first.write:
                        kind = "H27" if access.engine is Engine.STORE else "H16"
                        level: Level = "error" if kind == "H27" else "strict"
                        self._report(kind, first, access, "no fence.proxy.async between them", level)
                    elif not reads_async and first.engine in (Engine.THREAD, Engine.CP_ASYNC):
                        self._report("H20", first, access, "no fence.proxy.async between them", "strict")

    # Values -------------------------------------------------------------------------------------------

    def _written(self, known: _Cells, access: Access, region: int, ordered: int, execution: int) -> None:
        written = 0
        for other in known.overlaps[region]:
            if known.writes[other] & ordered & ~known.life:
                written |= known.masks[other]
        if access.engine in _TENSOR_CORE and access.space.tensor:
            # what one thread issues is in order, and so are MMAs on one accumulator that are issued in order
            written |= known.of_pipe[access.pipe]
            for touched, starts in known.of_accumulator[access.tile].items() if access.write else ():
                written |= touched if starts & execution else 0
        missing = access.cells & ~written
        if missing:
            kind = "U2" if access.space.tensor else "H17"
            text = (
                f"{access.must_be_written}, {self._where(access.space, missing)}: {missing.bit_count()} of "
                f"{access.cells.bit_count()} cells are not known to be written before ({self._who(access)})"
            )
            self._findings.add(kind, text, access.at, missing="not written before", turn=self._turn(access))


def _hardware_orders(first: Access, second: Access) -> bool:
    """Whether the operations are kept in order, or apart, without synchronization."""
    if first.engine is second.engine and first.engine in _COMMUTE:
        return True
    if first.pipe is None or first.pipe != second.pipe:
        return False
    if first.engine is second.engine is Engine.TMEM_LD:
        return True
    if first.engine is second.engine is Engine.MMA:
        return not first.space.tensor or first.tile == second.tile
    return _operations(first, second) in PIPELINED


_TENSOR_CORE = frozenset((Engine.MMA, Engine.CP, Engine.SHIFT))
_COMMUTE = frozenset((Engine.WGMMA, Engine.ATOMIC, Engine.RED_ASYNC, Engine.DEALLOC))


def _operations(first: Access, second: Access) -> tuple[str, str]:
    """What tcgen05 calls them."""
    return first.engine.value.removeprefix("tcgen05."), second.engine.value.removeprefix("tcgen05.")


_ONE_VALUE = "are not ordered, and store one value"


def _flag(first: Access, second: Access) -> str:
    """Why accesses of threads that are not ordered are to review (docs/rulings.md, shared-flag); else nothing."""
    if first.stored is not None and first.stored == second.stored:
        return _ONE_VALUE
    engines = {first.engine, second.engine}
    return "are not ordered, and one of them is strong" if engines == {Engine.THREAD, Engine.ATOMIC} else ""


def _is_in_practice(first: Access, second: Access) -> bool:
    """Whether the tensor core is known to keep operations of one thread in order that the ISA does not list."""
    if first.pipe is None or first.pipe != second.pipe:
        return False
    overwrites = first.engine is second.engine is Engine.MMA and not first.write
    return overwrites or _operations(first, second) in PIPELINED_IN_PRACTICE


def _is_in_turn(first: Access, second: Access, views: Views) -> bool:
    """MMAs of two threads on one accumulator, issued one behind the other."""
    return (
        first.engine is second.engine is Engine.MMA
        and first.tile == second.tile
        and bool(views.execution[second.start] >> first.start & 1)
    )


def _kind(first: Access, second: Access) -> str:
    """The ID that the catalog of hazards has for a pair."""
    engines = first.engine, second.engine
    if Engine.DEALLOC in engines or second.engine is Engine.ALLOC:
        return "H14"
    if first.engine is Engine.ALLOC:
        return "H15"
    if first.space.tensor:
        return HAZARDS[_operations(first, second)]
    if Engine.BARRIER in engines:
        return "M4"
    tensor_core = (Engine.MMA, Engine.WGMMA)
    if second.engine in tensor_core:
        return "H17" if first.engine is Engine.LOAD else "H16"
    if first.engine in tensor_core:
        return "H18" if second.engine is Engine.LOAD else "H19"
    if Engine.STORE in engines:
        return "H27"
    if first.engine is Engine.LOAD:
        return "H17"
    if second.engine is Engine.LOAD:
        return "H20"
    return "G1"
