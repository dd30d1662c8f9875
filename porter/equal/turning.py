# SPDX-License-Identifier: Apache-2.0
"""Follows an execution turn by turn: which instructions each turn of a loop comes to, with which numbers, and what the
whole cluster holds where all of its warps have made as many periods of their loops.

Such a cut stands still: each warp waits at the head of its loop, and every other one until nothing moves. Where the
synchronization is right that is one state whatever the schedule, and what is behind it can be followed from any words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from porter.equal.contents import Contents, Stored, Taken
from porter.equal.forms import Forms
from porter.equal.meaning import Follower, Then
from porter.equal.outcome import Outcome, of_cluster
from porter.equal.words import Words
from porter.facts.events import NotUnderstood, WarpName
from porter.facts.instructions.registry import computes
from porter.facts.machine import Machine, Noted
from porter.facts.state import Group, Warp
from porter.facts.values import Value, bits, first, is_known
from porter.ptx.bits import signed
from porter.sync.turns import Recorder

LoopOf = tuple[WarpName, int, int]
"""A warp, the head of a loop, and the lowest lane of those that go together."""
Entry = tuple[int, object, object]
Stream = list[tuple[Entry, tuple[Value, ...]]]
"""What is come to: an instruction and what tells it from others; with the numbers that it takes."""


class Turn(NamedTuple):
    """A way back to the head of a loop. `around`: turns so far of the loops around it, `begins`: how long the streams
    of its warp are then. `numbers` are registers at the head."""

    around: int
    lanes: int
    begins: dict[int, int]
    numbers: Mapping[str, Value]


@dataclass
class Log:
    """What an execution comes to: by warp, and by the lowest lane of those that go together, instructions with the
    lanes that they are executed for, signs of comparisons, and numbers that are loaded. `on_data`:
    instructions that take or give data, or access memory."""

    streams: dict[WarpName, dict[int, Stream]] = field(default_factory=lambda: defaultdict(dict))
    turns: dict[LoopOf, list[Turn]] = field(default_factory=lambda: defaultdict(list))
    on_data: set[int] = field(default_factory=set)
    gives_numbers: set[int] = field(default_factory=set)
    """Those of them that have given numbers as well."""
    data_alone: dict[int, set[str]] = field(default_factory=dict)
    """By instruction that has been come to the registers of it that have not been numbers."""


class Register(NamedTuple):
    """A register of some lanes that have come to an instruction, of so many bytes."""

    warp: WarpName
    at: int
    lanes: int
    name: str
    size: int


Stop = tuple[WarpName, int, int, int, int]
"""A warp, the head of a loop, the lowest lane, its turns so far around it, and its number of turns."""


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class State:
    """What a cluster holds at a cut, as one array of words. `shape` says which, and is the same at cuts that are
    alike, `sums` which of them are of registers that are sums of symbols."""

    words: Words
    shape: tuple[object, ...]
    sums: Mask


class Behind(Protocol):
    """Places behind the loops of some lanes; others of their warps wait for these there."""

    @property
    def lanes(self) -> Mapping[WarpName, int]: ...

    @property
    def places(self) -> frozenset[int]: ...

    @property
    def ask(self) -> frozenset[int]: ...

    def control(self, machine: Machine, contents: Contents) -> object: ...


class ReachedError(Exception):
    """The last cut that is asked for."""


class TurnFollower(Follower):
    """`stops`: the cut at which a warp stops there; behind these comes one at `marks`, if there are any. At those of
    `given` the words that stand there are taken for what the cluster holds, if they are of the same shape. Unless it
    `records`, of what is come to only the instructions that have to do with data are told. `ends`: whether nothing is
    executed behind the last cut, which raises ReachedError."""

    def __init__(self, machine: Machine, stops: Mapping[Stop, int] | None = None,
                 given: Mapping[int, State] | None = None, forms: Forms | None = None,
                 records: bool = True, marks: Behind | None = None, ends: bool = False) -> None:  # fmt: skip
        super().__init__(machine, forms)
        self.control: object = None
        """At the cut behind the loops, all numbers that what follows takes."""
        self.loads_far = False
        """Whether a number came from global memory behind that."""
        self._behind, self._ends = marks, ends
        if marks is not None:
            machine.marks, machine.on_mark = marks.places, self._mark
        self.log = Log()
        self.recorder = Recorder(machine)
        self._records = records
        machine.on_numbers = self._noting if records else None
        self.states: list[State] = []
        self._stops, self._given = stops or {}, given or {}
        self._taken_lanes = 0
        self._lane = 0
        self._all = {(warp, lane) for warp, _, lane, *_ in self._stops}
        self._waiting: dict[tuple[WarpName, int], tuple[int, Group]] = {}
        self._counts: dict[tuple[WarpName, int, int, int], int] = defaultdict(int)
        self._around: dict[LoopOf, int] = defaultdict(int)
        self._marks = [0]
        self._cuts = len(set(self._stops.values()))
        machine.on_head, machine.on_rest = self._turn, self._cut
        machine.on_comparison, machine.on_load = (self._compared, self._loaded) if records else (None, None)

    @property
    def outcomes(self) -> list[Outcome]:
        """What is left between cuts."""
        stored = self.contents.stored
        ends = [*self._marks[1:], len(stored)]
        parts: list[Sequence[Stored]] = [stored[a:b] for a, b in zip(self._marks, ends, strict=True)]
        return [of_cluster(part) for part in parts]

    @property
    def maps(self) -> frozenset[int]:
        """The addresses of tensor maps that were looked at, since the cut behind the loops if there was one."""
        return frozenset(self._machine.maps.known)

    # What is come to ----------------------------------------------------------------------------------

    def follow(self, warp: Warp, group: Group) -> Then | None:
        self._taken_lanes, self._lane = 0, first(group.lanes)
        then = super().follow(warp, group)
        self._note_data(group)
        if self._records:
            self._note(warp, group)
        return self._watched(warp, group, then)

    def follow_row(self, warp: Warp, group: Group, row: tuple[int, ...]) -> bool:
        if not super().follow_row(warp, group, row):
            return False
        log, registers, flow = self.log, group.registers, self._machine.flow
        stream, made = self._stream(warp, group.lanes), set[str]()
        for at in row:
            uses = flow.sorted_uses[at]
            numbers = tuple(None if name in made else registers.get(name) for name in uses)
            if self._records:
                stream.append(((at, group.lanes, group.lanes), numbers))
            known = log.data_alone.setdefault(at, set(uses))
            if known and numbers.count(None) != len(uses):
                known.difference_update(name for name, n in zip(uses, numbers, strict=True) if n is not None)
            made |= flow.writes[at]
        log.on_data.update(row)
        return True

    def _one(self, warp: Warp, group: Group, path: Words, paths: dict[int, Words]) -> None:
        self._note_data(group)
        if self._records:
            self._note(warp, group)
        self.log.on_data.add(group.pc)
        super()._one(warp, group, path, paths)

    def _note_data(self, group: Group) -> None:
        known = self.log.data_alone.get(group.pc)
        if known is None:
            known = self.log.data_alone[group.pc] = set(self._machine.flow.uses[group.pc])
        if known and (numbers := [name for name in known if group.registers.get(name) is not None]):
            known.difference_update(numbers)

    def _note(self, warp: Warp, group: Group) -> None:
        stream = self._stream(warp, group.lanes)
        entry = group.pc, group.lanes, self._taken_lanes
        if stream and stream[-1][0] == entry:
            # it has waited
            return
        stream.append((entry, tuple(map(group.registers.get, self._machine.flow.sorted_uses[group.pc]))))

    def _noting(self, warp: Warp, group: Group) -> Callable[[Noted], None]:
        self._lane = first(group.lanes)
        return self._stream(warp, group.lanes).append

    def _stream(self, warp: Warp, lanes: int) -> Stream:
        return self.log.streams[warp.name].setdefault(first(lanes), [])

    def _watched(self, warp: Warp, group: Group, then: Then | None) -> Then | None:
        """Note whether the instruction has to do with data."""
        flow, at, lanes = self._machine.flow, group.pc, group.lanes
        ins, log = flow.decoded[at], self.log
        if then is None or ins is None or (at in log.on_data and at in log.gives_numbers):
            return then
        if at not in log.on_data and not (
            computes(ins) and all(is_known(group.registers.get(name), lanes) for name in flow.uses[at])
        ):
            log.on_data.add(at)

        def noted() -> None:
            then()
            known = all(is_known(group.registers.get(name), lanes) for name in flow.writes[at])
            (log.gives_numbers if known else log.on_data).add(at)

        return noted

    def _taken(self, warp: Warp, group: Group, path: Words | None) -> Taken | None:
        found = super()._taken(warp, group, path)
        self._taken_lanes = found.mask if found is not None else 0
        return found

    def _compared(self, warp: Warp, at: int, sides: tuple[tuple[int, int], ...]) -> None:
        self.recorder.comparison(warp, at, sides)
        signs = tuple((a == b, a < b, signed(a, 32) < signed(b, 32), signed(a, 64) < signed(b, 64)) for a, b in sides)
        self._told(warp, (at, signs, None))

    def _loaded(self, warp: Warp, at: int, found: Mapping[str, Value]) -> None:
        self._told(warp, (at, tuple(sorted(found.items())), None))

    def _told(self, warp: Warp, entry: Entry) -> None:
        self.log.streams[warp.name].setdefault(self._lane, []).append((entry, ()))

    def _turn(self, warp: Warp, group: Group, place: int) -> None:
        head = group.pc
        if self._records:
            self.recorder.head(warp, group, place)
        if place not in self._machine.flow.heads[head].members:
            return
        lane = first(group.lanes)
        key = warp.name, head, lane
        around = self._around[key]
        if self._records:
            self._record(warp, group, key, around)
        for inner in self._machine.flow.inside[head]:
            self._around[warp.name, inner, lane] += 1
        self._counts[(*key, around)] += 1
        cut = self._stops.get((*key, around, self._counts[(*key, around)]))
        if cut is not None:
            self._waiting[warp.name, lane] = cut, group
            group.wait(lambda: len(self.states) > cut, lambda: "other warps have to make as many turns")

    def _record(self, warp: Warp, group: Group, key: LoopOf, around: int) -> None:
        numbers = {
            name: value for name in self._machine.flow.live[group.pc]
            if (value := group.registers.get(name)) is not None and is_known(value, group.lanes)
        }  # fmt: skip
        begins = {lane: len(stream) for lane, stream in self.log.streams[warp.name].items()}
        self.log.turns[key].append(Turn(around, group.lanes, begins, numbers))

    # Cuts ---------------------------------------------------------------------------------------------

    def _cut(self) -> bool:
        """Nothing moves: all warps with a loop are at the same cut.

        Raises:
            NotUnderstood: some are not.
            ReachedError: there are no more.
        """
        if not self._waiting:
            return self._cut_behind()
        number = len(self.states)
        groups = [group for block in self._machine.blocks for warp in block.warps for group in warp.groups]
        here = all(cut == number and group in groups and group.ready is not None
                   for cut, group in self._waiting.values())  # fmt: skip
        if not here or self._waiting.keys() != self._all:
            raise NotUnderstood("turns of loops that do not come to one cut")
        self._waiting.clear()
        self._stand(number)
        if self._ends and self._behind is None and number + 1 == self._cuts:
            raise ReachedError
        return True

    def _mark(self, warp: Warp, group: Group) -> bool:
        """Have a group wait behind its loops until all do."""
        assert self._behind is not None
        turning = self._behind.lanes.get(warp.name, 0)
        # lanes that make no turns are there ahead of the last cut, or behind it
        if not turning or len(self.states) > self._cuts or (group.lanes & turning and len(self.states) < self._cuts):
            return False
        group.wait(lambda: len(self.states) > self._cuts, lambda: "other warps have to leave their loops")
        return True

    def _cut_behind(self) -> bool:
        """Nothing moves: whether all warps with a loop are behind it."""
        machine, number = self._machine, len(self.states)
        if self._behind is None or number != self._cuts:
            return False
        held = [group for warp, group in self._groups() if warp.name in self._behind.lanes]
        if not any(group.pc in self._behind.places for group in held) or any(g.pc in self._behind.ask for g in held):
            return False
        self.control = self._behind.control(machine, self.contents)
        machine.maps.known.clear()
        machine.on_load = machine.on_load or self._loaded_behind
        self._stand(number)
        if self._ends:
            raise ReachedError
        return True

    def _loaded_behind(self, warp: Warp, at: int, found: Mapping[str, Value]) -> None:
        self.loads_far |= bool(found) and "global" in self._machine.code.code[at].parts

    def _stand(self, number: int) -> None:
        """Note what the cluster holds, or have it hold what is given.

        Raises:
            NotUnderstood: that is of something else.
        """
        pieces, shape = self._pieces()
        sums = np.concatenate([self._sums(piece, of).reshape(-1) for piece, of in zip(pieces, shape, strict=True)])
        self.states.append(State(np.concatenate([piece.reshape(-1) for piece in pieces]), tuple(shape), sums))
        self._marks.append(len(self.contents.stored))
        given = self._given.get(number)
        if given is not None:
            if given.shape != tuple(shape):
                raise NotUnderstood("a cut that holds something else than the one before")
            self._put(np.where(given.sums, self.states[-1].words, given.words))

    def _pieces(self) -> tuple[list[Words], list[object]]:
        contents, flow = self.contents, self._machine.flow
        pieces: list[Words] = [contents.shared, contents.tensor]
        shape: list[object] = ["shared", "tensor"]
        for warp, group in self._groups():
            held = contents.held_by(warp)
            lanes = np.fromiter(bits(group.lanes), np.intp)
            names = sorted(flow.live[group.pc] & held.keys()) if group.pc < len(flow.live) else []
            for name in names:
                if not is_known(group.registers.get(name), group.lanes):
                    pieces.append(held[name][lanes])
                    shape.append(Register(warp.name, group.pc, group.lanes, name, held[name].shape[1]))
        for warp, memory in sorted(contents.local.items(), key=lambda item: item[0].name):
            for address, data in sorted(memory.items()):
                pieces.append(data)
                shape.append((warp.name, address))
        return pieces, shape

    def _sums(self, piece: Words, of: object) -> Mask:
        """Which bytes of what is held are of sums of symbols; those of registers may be."""
        found = np.zeros(piece.shape, np.bool_)
        forms = self.contents.forms
        if forms is not None and isinstance(of, Register) and piece.shape[1] in (4, 8):
            found[forms.which_of_symbols(piece)] = True
        return found

    def _groups(self) -> list[tuple[Warp, Group]]:
        found = [(warp, group) for block in self._machine.blocks for warp in block.warps for group in warp.groups]
        return sorted(found, key=lambda one: (one[0].name, one[1].pc, one[1].lanes))

    def _put(self, words: Words) -> None:
        """Have the cluster hold other words in the same places."""
        contents, start = self.contents, 0

        def taken(old: Words) -> Words:
            nonlocal start
            start += old.size
            return words[start - old.size : start].reshape(old.shape)

        contents.shared[...] = taken(contents.shared)
        contents.tensor[...] = taken(contents.tensor)
        flow = self._machine.flow
        for warp, group in self._groups():
            held = contents.held_by(warp)
            lanes = np.fromiter(bits(group.lanes), np.intp)
            for name in sorted(flow.live[group.pc] & held.keys()) if group.pc < len(flow.live) else []:
                if not is_known(group.registers.get(name), group.lanes):
                    data = held[name].copy()
                    data[lanes] = taken(data[lanes])
                    held[name] = data
        for _, memory in sorted(contents.local.items(), key=lambda item: item[0].name):
            for _, data in sorted(memory.items()):
                data[...] = taken(data)
        contents.forget()
