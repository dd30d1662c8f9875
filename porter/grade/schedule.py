# SPDX-License-Identifier: Apache-2.0
"""When what happens on one SM, in clocks: loads, MMAs and epilogues of the blocks that share it.

Each step is put as early as what it waits for allows: a load waits for its stage to be free and for the path to shared
memory, MMAs for the load and the tensor core, an epilogue for the last of them. Blocks take turns as they are ready.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from porter.grade.clocks import Clocks
from porter.grade.shape import Shape

_BUFFERS = 2
"""Accumulators of a block whose epilogue is overlapped."""


@dataclass(frozen=True)
class Activity:
    """Something that takes time: `lane` is the engine or role that does it, of block `block` on the SM."""

    block: int
    lane: str
    name: str
    start: float
    end: float


@dataclass
class Schedule:
    """`end` in clocks; `tiles`, by tile, when the last block has finished its one; `busy` of the engines."""

    end: float = 0.0
    tiles: list[float] = field(default_factory=list)
    busy: dict[str, float] = field(default_factory=dict)
    activities: list[Activity] = field(default_factory=list)


_Request = tuple[str, float, float, str]
"""Engine, earliest start, clocks, name."""


@dataclass(frozen=True)
class _Block:
    shape: Shape
    clocks: Clocks
    steps: int
    tiles: int
    stages: int

    def run(self) -> Generator[_Request, float, Sequence[float]]:
        """Asks for engines and is sent when each can start; returns when each tile is stored."""
        c, shape = self.clocks, self.shape
        ahead = shape.persistent and shape.roles == "specialized"
        begun = c.launch
        release: list[float] = [0.0] * self.stages
        ready = [begun] * shape.issuers
        stored: list[float] = []
        for tile in range(self.tiles):
            if tile and not shape.persistent:
                begun = stored[-1] + c.launch
            # The columns that this tile adds to are read by an epilogue until then.
            free = begun
            if shape.epilogue.overlapped and shape.persistent:
                free = max(free, stored[tile - _BUFFERS] if tile >= _BUFFERS else 0.0)
            elif tile:
                free = max(free, stored[-1])
            earliest = begun if tile == 0 or ahead else max(begun, stored[-1])
            ready = [max(r, free) for r in ready]
            turns = self._ahead if shape.ahead else self._turns
            done = yield from turns(tile, free, earliest, release, ready)
            after = max(done, stored[-1]) if stored else done
            start = yield "epilogue", after, c.drain, f"tile {tile}"
            stored.append(start + c.drain)
        return stored

    def _load(
        self, number: int, earliest: float, release: Sequence[float], share: float = 1.0
    ) -> Generator[_Request, float, tuple[str, float]]:
        """The name of the stage of a number, and when a share of its operands has landed."""
        c, at = self.clocks, number % self.stages
        name = f"tile {number // self.steps} stage {at}"
        start = yield "TMA", max(release[at], earliest), c.fill * share, name
        return name, start + c.load + max(c.fill, c.transfer) * share

    def _turns(
        self, tile: int, free: float, earliest: float, release: list[float], ready: list[float]
    ) -> Generator[_Request, float, float]:
        """The stages of a tile, one after the other; when all is done."""
        c, shape, done = self.clocks, self.shape, free
        for step in range(self.steps):
            at = (tile * self.steps + step) % self.stages
            name, landed = yield from self._load(tile * self.steps + step, earliest, release)
            freed = 0.0
            for group in _together([max(landed, r) for r in ready], c.burst, shape.in_turns):
                shared = len(group) * c.mma
                begin = yield "tensor core", max(landed, *(ready[i] for i in group)), shared, name
                end = begin + shared + c.tail
                freed = max(freed, end)
                for issuer in group:
                    ready[issuer] = end + c.issue if shape.waits_each else begin + max(c.issue, shared)
                    if not (c.mufu or c.instructions):
                        continue
                    after = end if shape.work.waits_mma else begin
                    issued = yield "issue", after, c.instructions, name
                    worked = issued + c.instructions
                    if c.mufu:
                        evaluated = yield "MUFU", after, c.mufu, name
                        worked = max(worked, evaluated + c.mufu)
                    ready[issuer] = max(ready[issuer], worked)
                    freed = max(freed, worked) if not shape.work.waits_mma else freed
            release[at] = freed
            done = max(done, freed)
        return done

    def _ahead(
        self, tile: int, free: float, earliest: float, release: list[float], ready: list[float]
    ) -> Generator[_Request, float, float]:
        """The same where the first MMAs of a stage are issued once the results of those of the stage before are in
        registers: they run beside what threads compute from these. Their operands have a ring of their own."""
        c, done, begun = self.clocks, free, tile * self.steps
        early, late = list(release), [0.0] * len(ready)
        name, landed = yield from self._load(begun, earliest, early, c.ahead_load)
        known = yield from self._first(name, [max(r, landed) for r in ready])
        for step in range(self.steps):
            here = name
            early[(begun + step) % self.stages] = max(known)
            _, second = yield from self._load(begun + step, earliest, release, 1 - c.ahead_load)
            begins = [max(k, r) for k, r in zip(known, ready, strict=True)]
            if step + 1 < self.steps:
                name, landed = yield from self._load(begun + step + 1, earliest, early, c.ahead_load)
                # whoever issues waits for the operands, and computes then
                begins = [max(b, landed) for b in begins]
                known = yield from self._first(name, begins)
            freed = yield from self._behind(here, second, begins, ready, late)
            release[(begun + step) % self.stages] = freed
            done = max(done, freed)
        return done

    def _first(self, name: str, begins: Sequence[float]) -> Generator[_Request, float, list[float]]:
        """When the first MMAs of all issuers are complete."""
        c, known = self.clocks, []
        for begin in begins:
            start = yield "tensor core", begin, c.mma * c.ahead, name
            known.append(start + c.mma * c.ahead + c.ahead_tail)
        return known

    def _behind(
        self, name: str, landed: float, begins: Sequence[float], ready: list[float], late: list[float]
    ) -> Generator[_Request, float, float]:
        """What threads compute, and the MMAs behind it; when these are complete. `late`: when those of the stage before
        were, for each issuer."""
        c, rest, freed = self.clocks, self.clocks.mma * (1 - self.clocks.ahead), 0.0
        worked = []
        for begin, before in zip(begins, late, strict=True):
            issued = yield "issue", begin, c.instructions, name
            after = max(issued + c.instructions, before + c.instructions * self.shape.late)
            if c.mufu:
                evaluated = yield "MUFU", begin, c.mufu, name
                after = max(after, evaluated + c.mufu)
            worked.append(after)
        for issuer, after in sorted(enumerate(worked), key=lambda item: item[1]):
            start = yield "tensor core", max(after, landed), rest, name
            late[issuer] = start + rest + c.tail
            ready[issuer] = (max(after, landed) if self.shape.late else late[issuer]) + c.issue
            freed = max(freed, late[issuer])
        return freed


def _together(ready: Sequence[float], burst: float, in_turns: bool) -> list[list[int]]:
    """Issuers of MMAs in the order in which they are ready. Those who are so before another has issued its own share
    the tensor core: MMAs run in the order of their issue, so that all of them end with the last, unless issuers take
    turns."""
    groups: list[list[int]] = []
    for issuer in sorted(range(len(ready)), key=lambda i: ready[i]):
        if groups and not in_turns and ready[issuer] < ready[groups[-1][0]] + burst:
            groups[-1].append(issuer)
        else:
            groups.append([issuer])
    return groups


def schedule(
    shape: Shape, clocks: Clocks, steps: int, tiles: int, blocks: int, stages: int, keep: bool = False
) -> Schedule:
    """`blocks` that share an SM, each with `tiles` tiles of `steps` stages. `keep` the activities too."""
    found = Schedule(tiles=[0.0] * tiles)
    free: dict[str, float] = {}
    queue: list[tuple[float, int, _Request]] = []
    running = [_Block(shape, clocks, steps, tiles, stages).run() for _ in range(blocks)]
    for number, block in enumerate(running):
        request = next(block)
        heapq.heappush(queue, (request[1], number, request))
    while queue:
        _, number, (engine, earliest, length, name) = heapq.heappop(queue)
        start = max(earliest, free.get(engine, 0.0))
        free[engine] = start + length
        found.busy[engine] = found.busy.get(engine, 0.0) + length
        if keep and length:
            end = start + (clocks.load + max(length, clocks.transfer) if engine == "TMA" else length)
            found.activities.append(Activity(number, engine, name, start, end))
        try:
            request = running[number].send(start)
            heapq.heappush(queue, (request[1], number, request))
        except StopIteration as stop:
            found.tiles = [max(a, b) for a, b in zip(found.tiles, stop.value, strict=True)]
    found.end = found.tiles[-1]
    return found
