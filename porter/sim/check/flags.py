# SPDX-License-Identifier: Apache-2.0
"""Synchronization through flags: releases and acquires of memory locations, and fences with relaxed accesses.

Every location that a strong operation has written remembers what its value carries: of the last store, and of
the atomics that followed it (a release sequence, PTX ISA 8.8). What a scope does not reach is not carried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from porter.ptx.memory_order import MemoryOrder, Scope
from porter.sim.check.foreign import Imports, Known, join

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class Carried:
    """What one block has put into a location's value, and the scope up to which it did: what is ordered before it in
    memory, what only in execution, which also a relaxed read learns, or what only practice takes for ordered."""

    block: int
    scope: Scope
    known: Known
    how: Literal["memory", "execution", "practice"] = "memory"


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """What a location's value carries; locations that one instruction of a warp writes share it."""

    carried: tuple[Carried, ...] = ()

    def joined(self, parts: Iterable[Carried]) -> Value:
        """After an atomic operation, which carries on what was there."""
        held: dict[tuple[int, Scope, str], Carried] = {}
        for part in (*self.carried, *parts):
            had = held.setdefault((part.block, part.scope, part.how), part)
            if had is not part:
                known = join(had.known, part.known)
                held[part.block, part.scope, part.how] = Carried(part.block, part.scope, known, part.how)
        return Value(tuple(held.values()))


_NOTHING = Value()


class Flags:
    """All flags of a launch, by memory and byte offset; waves of blocks share them."""

    def __init__(self) -> None:
        self.locations: dict[Any, dict[int, Value]] = {}


@dataclass
class Learned:
    """By warp, what relaxed reads brought that no fence has acquired yet, and what no scope reaches."""

    held: dict[tuple[Scope, bool], Known] = field(default_factory=dict)
    """By the narrowest scope that a fence must have, and whether only practice takes it for ordered."""
    missed: dict[Scope, Known] = field(default_factory=dict)
    """By the scope that would have brought it: for reports."""


class FlagUser:
    """The threads of a wave as users of flags. Blocks have their numbers within the grid.

    Where `cumulative`, what a fence of the atomic's thread would have ordered is kept apart, as `lenient`: after
    `__threadfence(); __syncthreads();` an atomic of one thread, as much code has it. The ISA wants that thread's own
    fence behind the barrier, and one behind its atomic before others read (ruling `fence-before-barrier`).
    """

    def __init__(
        self, flags: Flags, imports: Imports, first_block: int, warps_per_block: int, cumulative: bool
    ) -> None:
        self.flags = flags
        self.imports = imports
        self.lenient = Imports(imports.clocks, imports.first, "lenient import")
        self.clocks = imports.clocks
        self.first_block = first_block
        self.per_block = warps_per_block
        self.cumulative = cumulative
        # By warp: what its fences have released, by scope.
        self.fenced: dict[int, dict[Scope, Known]] = {}
        self.learned: dict[int, Learned] = {}
        # The value that a warp's loads last saw at a location, so that polling finds out at once that nothing is new.
        self.seen: dict[tuple[int, Any, int], tuple[MemoryOrder, Value]] = {}
        # By warp: the last message that its fences make of its past, with all that it tells.
        self._practice: dict[int, tuple[Array, Known]] = {}

    def block(self, warp: int) -> int:
        return self.first_block + warp // self.per_block

    def needed(self, warp: int, block: int) -> Scope:
        """The narrowest scope that takes in a warp and a block."""
        if block == self.block(warp):
            return Scope.CTA
        size = self.clocks.per_cluster // self.per_block
        return Scope.CLUSTER if block // size == self.block(warp) // size else Scope.GPU

    # Operations ---------------------------------------------------------------------------------------

    def fence(self, warp: int, scope: Scope, acquires: bool = True, releases: bool = True) -> None:
        """fence.acq_rel, fence.sc, membar, and those of one side."""
        if releases and scope >= Scope.GPU:
            self.clocks.mark_fenced(warp)
        held = self.learned[warp].held if acquires and warp in self.learned else {}
        for needed, practice in [kind for kind in held if kind[0] <= scope]:
            self._receive(warp, held.pop((needed, practice)), practice)
        if releases:
            known = self.imports.everything(warp, self.clocks.release(warp))
            self.fenced.setdefault(warp, {}).update({s: known for s in Scope if s <= scope})

    def add_fenced(self, warp: int, message: Array) -> None:
        """A fence of .cluster scope that releases some accesses, whose message is of these alone."""
        known, fenced = {self.imports.cluster(warp): message}, self.fenced.setdefault(warp, {})
        for scope in (Scope.CTA, Scope.CLUSTER):
            fenced[scope] = join(fenced.get(scope, {}), known)

    def held(self, warp: int, scope: Scope) -> Iterator[Array]:
        """What relaxed reads have brought of the warp's cluster, that a fence of this scope can acquire."""
        for (needed, practice), known in self.learned[warp].held.items() if warp in self.learned else ():
            rows = known.get(self.imports.cluster(warp))
            if rows is not None and needed <= scope and not practice:
                yield rows

    def missed(self, first: int, count: int) -> Iterable[tuple[Known, Scope]]:
        """What warps read but did not get, because a scope does not reach so far, and the scope that would."""
        for learned in (self.learned.get(warp) for warp in range(first, first + count)):
            for needed, known in learned.missed.items() if learned is not None else ():
                yield known, needed

    def _receive(self, warp: int, known: Known, practice: bool) -> None:
        (self.lenient if practice else self.imports).receive(warp, known)

    def read(self, warp: int, memory: Any, offsets: Iterable[int], order: MemoryOrder) -> None:
        """A strong load of some locations."""
        places = self.flags.locations.get(memory, {})
        news = []
        for offset in offsets:
            value = places.get(offset)
            if value is None or self.seen.get((warp, memory, offset)) == (order, value):
                continue
            self.seen[warp, memory, offset] = order, value
            news.append(value)
        self._learn(warp, news, order, atomic=False)

    def _learn(self, warp: int, values: Iterable[Value], order: MemoryOrder, atomic: bool) -> None:
        for part in {id(part): part for value in values for part in value.carried}.values():
            practice, needed = part.how == "practice", self.needed(warp, part.block)
            learned = self.learned.setdefault(warp, Learned())
            if part.how == "execution" and needed > Scope.CLUSTER:
                continue  # The order of execution is asked for within a cluster alone.
            if needed > min(part.scope, order.scope):
                learned.missed[needed] = join(learned.missed.get(needed, {}), part.known)
            elif order.acquires or part.how == "execution":
                self._receive(warp, part.known, practice)
            else:
                if atomic and self.cumulative and warp in self.fenced:
                    self.lenient.receive(warp, part.known)
                kind = needed, practice
                learned.held[kind] = join(learned.held.get(kind, {}), part.known)

    def write(self, warp: int, memory: Any, offsets: Iterable[int], order: MemoryOrder) -> None:
        """A strong store to some locations."""
        parts = self._parts(warp, order)
        places = self.flags.locations.setdefault(memory, {}) if parts else self.flags.locations.get(memory, {})
        value = _NOTHING.joined(parts)
        for offset in offsets:
            if parts or offset in places:
                places[offset] = value

    def update(self, warp: int, memory: Any, offsets: Iterable[int], order: MemoryOrder) -> None:
        """An atomic operation or a reduction of some locations, by lanes of a warp, none of which learns what another
        reads."""
        if order.acquires:
            for offset in offsets:
                self._learn(warp, [self._at(memory, offset)], order, atomic=True)
                self._carry_on(memory, [offset], self._parts(warp, order))
            return
        offsets = list(offsets)
        parts = self._parts(warp, order)
        if order.reads:
            self._learn(warp, [self._at(memory, offset) for offset in offsets], order, atomic=True)
        self._carry_on(memory, offsets, parts)

    def _at(self, memory: Any, offset: int) -> Value:
        return self.flags.locations.get(memory, {}).get(offset, _NOTHING)

    def _carry_on(self, memory: Any, offsets: Iterable[int], parts: list[Carried]) -> None:
        if not parts:
            return
        places = self.flags.locations.setdefault(memory, {})
        after: dict[Value, Value] = {}
        for offset in offsets:
            before = places.get(offset, _NOTHING)
            if before not in after:
                after[before] = before.joined(parts)
            places[offset] = after[before]

    def _parts(self, warp: int, order: MemoryOrder) -> list[Carried]:
        """What a strong write of a warp tells."""
        parts: list[Carried] = []
        block = self.block(warp)
        if order.releases:
            known = self.imports.everything(warp, self.clocks.release(warp))
            parts.append(Carried(block, order.scope, known))
        if self.clocks.parks(warp):
            known = {self.imports.cluster(warp): self.clocks.execution(warp)}
            parts.append(Carried(block, order.scope, known, "execution"))
        elif not self.clocks.all_met(warp):
            known = {self.imports.cluster(warp): self.clocks.starts(warp)}
            parts.append(Carried(block, order.scope, known, "execution"))
        fenced = self.fenced.get(warp, {})
        told: list[Known] = []
        for scope in sorted((s for s in fenced if s <= order.scope), reverse=True):
            if not any(fenced[scope] is known for known in told):
                told.append(fenced[scope])
                parts.append(Carried(block, scope, fenced[scope]))
        if fenced and self.cumulative and order.scope >= Scope.GPU:
            parts.append(Carried(block, order.scope, self._by_fences(warp), "practice"))
        return parts

    def _by_fences(self, warp: int) -> Known:
        """What fences have covered, by whichever thread; the same object while that does not change."""
        message = self.clocks.fenced_message(warp)
        had = self._practice.get(warp)
        if had is None or not np.array_equal(had[0], message):
            known = join(self.imports.everything(warp, message), self.lenient.everything(warp, message))
            had = self._practice[warp] = message, known
        return had[1]

    def overwrite(self, memory: Any, offsets: Iterable[int]) -> None:
        """Ordinary stores: the values carry nothing any more."""
        places = self.flags.locations.get(memory, {})
        for offset in places.keys() & set(offsets):
            places[offset] = _NOTHING
