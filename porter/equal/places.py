# SPDX-License-Identifier: Apache-2.0
"""Whether the numbers that data operations take, coordinates, addresses, descriptors, counts, are lines in the turn for
every turn that there can be, and lines in the size.

A number that moves with the turn has to be computed by instructions that keep lines (`porter.sync.lines`) of registers
that are lines at the head of the loop, which in turn have to be what the turn before leaves in them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from porter.equal.periods import Growing, IrregularError, moved
from porter.equal.turning import Log, Stream, Turn
from porter.facts.code import Loop
from porter.facts.deciding import deciding
from porter.facts.events import WarpName
from porter.facts.flow import Flow
from porter.facts.instructions.registry import computes
from porter.facts.launched import GLOBAL
from porter.facts.values import Value, bits, of_lane
from porter.ptx import ast, table
from porter.ptx.bits import signed
from porter.ptx.shared_window import RANK_SHIFT
from porter.sync.following import that_synchronize
from porter.sync.lines import Line, Lines, NoLineError, Row
from porter.sync.sequences import LARGEST_SIZE, Counted, Key, NoSequenceError, Values, evenly, reaching, whole
from porter.sync.sizes import Given


def _numbers_for_data(flow: Flow, log: Log, at: int) -> frozenset[str]:
    """The registers of an instruction that have to do with data; what synchronization asks for is proved with it, and
    so are comparisons that decide about anything else."""
    is_comparison = flow.code.code[at].parts[0] == "setp" and flow.writes[at].isdisjoint(deciding(flow)[at + 1])
    if not is_comparison and at not in log.on_data:
        return frozenset()
    known = _synchronizing(flow)
    if at not in known:
        known[at] = that_synchronize(flow, at)
    names = flow.uses[at] - known[at]
    return names - log.data_alone.get(at, set())


@lru_cache(maxsize=16)
def _synchronizing(flow: Flow) -> dict[int, set[str]]:
    """Of instructions that were asked for, the registers that have to repeat for synchronization."""
    return {}


_ACCESSES = frozenset(("ld", "st", "ldu", "atom", "red"))


Fixed = Mapping[WarpName, Mapping[tuple[int, str], Value]]
"""By warp, instruction and register, or special register, numbers that the launch gives whatever the size is."""


def loops_of_lines(
    found: Growing, period: int, first: int, symbols: Mapping[str, int], step: int, fixed: Fixed
) -> list[LoopLines]:  # fmt: skip
    """What is known of numbers in loops from `first` units on, as long as a size can be that grows by `step` with each
    of them.

    Raises:
        IrregularError: at an instruction with data that takes a number that does not move evenly, as far as is known.
    """
    turns, ahead = found.of_period(period), found.of_period(first)
    assert turns is not None
    assert ahead is not None
    seen: dict[object, LoopLines] = {}
    periods = LARGEST_SIZE // (step * period) + 1
    for key, of_loop in found.turns.items():
        warp, head, *_ = key
        start = ahead[key] - 1
        window = of_loop[start : start + 2 * turns[key]]
        if len(window) < 2 * turns[key]:
            raise IrregularError("a loop with too few turns", head)
        base = warp.rank << RANK_SHIFT
        own = {name: base + offset for name, offset in symbols.items()}
        loop = found.flow.heads[head]
        tainted = _moving(found.flow, loop.body, _counters(window, turns[key]), found.log)
        for at, name in moved(found, key, window, turns[key]):
            if name in _numbers_for_data(found.flow, found.log, at) - tainted:
                raise IrregularError("a number that moves, and nobody knows by what", at)
        given = {place: value for place, value in fixed[warp].items() if place[0] in loop.body}
        taken = _taken_again(found.flow, loop, found.log.streams[warp], window, tainted)
        for lane in _lanes(window, tainted, [*given.values(), *(value for _, _, value in taken)]):
            heads = _heads(window, turns[key], lane)
            heads |= {place: Counted((n,), 0) for place, v in given.items() if (n := of_lane(v, lane)) is not None}
            repeated = _repeated(taken, lane)
            known = head, tuple(sorted(heads.items(), key=str)), base, tuple(sorted(repeated.items(), key=str))
            if known not in seen:
                lines = Lines(turns[key], periods)
                seen[known] = LoopLines(found.flow, loop, heads, own, lines, found.log, frozenset(tainted), repeated)
                seen[known].require()
    return list(seen.values())


def _counters(window: Sequence[Turn], period: int) -> set[str]:
    """Registers that do not repeat."""
    names = set[str]().union(*(turn.numbers for turn in window))
    return {
        name for name in names
        if any(a.numbers.get(name) != b.numbers.get(name) for a, b in zip(window, window[period:], strict=False))
    }  # fmt: skip


def _moving(flow: Flow, body: Collection[int], moving: set[str], log: Log, sources: Collection[int] = ()) -> set[str]:
    """The registers whose numbers are computed of those that move. Comparisons are looked at by themselves."""
    found = set(moving)
    places = [at for at in body if flow.writes[at] and flow.code.code[at].parts[0] != "setp"
              and (at not in log.on_data or at in log.gives_numbers)]  # fmt: skip
    grows = True
    while grows:
        grows = False
        for at in places:
            if not flow.writes[at] <= found and (at in sources or not flow.uses[at].isdisjoint(found)):
                found |= flow.writes[at]
                grows = True
    return found


def _lanes(window: Sequence[Turn], tainted: Collection[str], given: Collection[Value]) -> Sequence[int]:
    """Those whose registers may differ."""
    lanes = bits(window[0].lanes)
    differ = any(isinstance(value, tuple) for turn in window for value in (*turn.numbers.values(), *given))
    return lanes if differ and tainted else lanes[:1]


def _heads(window: Sequence[Turn], period: int, lane: int) -> dict[Key, Counted]:
    """The registers that are lines at the head of a loop."""
    found: dict[Key, Counted] = {}
    for name in window[0].numbers:
        numbers = [v for turn in window if (v := of_lane(turn.numbers.get(name), lane)) is not None]
        if len(numbers) == 2 * period and len({b - a for a, b in zip(numbers, numbers[period:], strict=False)}) == 1:
            found[name] = evenly(numbers, period)
    return found


_Taken = Collection[tuple[tuple[int, str], int, Value]]
"""Instruction and register, lanes, and what these have there."""


def _taken_again(
    flow: Flow, loop: Loop, streams: Mapping[int, Stream], window: Sequence[Turn], moving: set[str]
) -> _Taken:
    """What is taken in some turns of registers that do not move, and that loops inside make or that are parameters."""
    inside = {name for inner in flow.inside[loop.head] for at in flow.heads[inner].body for name in flow.writes[at]}
    names = inside.union(*(flow.writes[at] for at in loop.body if _is_parameter(flow, at)))
    names -= _of_others(flow, loop) | moving
    found = set[tuple[tuple[int, str], int, Value]]()
    for lane, stop in window[-1].begins.items() if names else ():
        for (at, lanes, _), values in streams[lane][window[0].begins.get(lane, 0) : stop]:
            if isinstance(at, int) and isinstance(lanes, int) and not flow.uses[at].isdisjoint(names):
                uses = zip(sorted(flow.uses[at]), values, strict=True)
                found |= {((at, name), lanes, value) for name, value in uses if name in names}
    return found


def _of_others(flow: Flow, loop: Loop) -> set[str]:
    """Registers of a loop that are made of what is neither computed nor a parameter, as what is loaded from memory."""
    made = {at: ins for at in loop.body if (ins := flow.decoded[at]) is not None and not _is_parameter(flow, at)}
    found = {name for at, ins in made.items() if not computes(ins) for name in flow.writes[at]}
    while more := {n for at in made if not flow.uses[at].isdisjoint(found) for n in flow.writes[at]} - found:
        found |= more
    return found


def _is_parameter(flow: Flow, at: int) -> bool:
    return flow.code.code[at].parts[:2] == ("ld", "param")


def _repeated(taken: _Taken, lane: int) -> dict[tuple[int, str], frozenset[int]]:
    """The numbers of a lane by instruction and register: as turns go the same ways, these are all that it takes."""
    found: dict[tuple[int, str], set[int | None]] = defaultdict(set)
    for key, lanes, value in taken:
        if lanes >> lane & 1:
            found[key].add(of_lane(value, lane))
    return {
        key: frozenset(n for n in numbers if n is not None) for key, numbers in found.items() if None not in numbers
    }


@dataclass
class LoopLines:
    """One lane of a warp in a loop: `heads` are lines at its head, as far as was seen."""

    flow: Flow
    loop: Loop
    heads: Mapping[Key, Counted]
    symbols: Mapping[str, int]
    lines: Lines
    log: Log
    moving: frozenset[str]
    """Registers that do not repeat, as far as they are numbers."""
    repeated: Mapping[tuple[int, str], Collection[int]]
    """By instruction all numbers of those that do, where they are not followed."""

    def __post_init__(self) -> None:
        self._values: Values[Row] = Values(
            self.flow, self.loop, self.heads, self.symbols, self.lines, repeated=self.repeated
        )

    def require(self) -> None:
        """Raises IrregularError: at an instruction with data that takes a register that is no line."""
        for at in self.loop.body:
            for name in _numbers_for_data(self.flow, self.log, at) & self.moving:
                try:
                    self._require_line(at, name)
                except (NoLineError, NoSequenceError) as error:
                    opcode = self.flow.code.code[at].parts[0]
                    raise IrregularError(f"an operand of {opcode} is not known to move evenly", at) from error
        self._require_heads()

    def takes_lines(self, at: int) -> bool:
        """Whether an instruction takes lines alone."""
        try:
            for name in self.flow.uses[at] & self.moving:
                self._require_line(at, name)
            self._require_heads()
        except (NoLineError, NoSequenceError, IrregularError):
            return False
        return True

    def leaves(self, name: str) -> bool:
        """Whether what the loop leaves in a register is a line in the number of its periods."""
        try:
            for at in self.loop.body:
                if any(to not in self.loop.members for to in self.flow.code.successors[at]):
                    self._require_line(at, name)
            self._require_heads()
        except (NoLineError, NoSequenceError, IrregularError):
            return False
        return True

    def _require_line(self, at: int, name: str) -> None:
        for place in reaching(self.flow, self.loop, at, name):
            for row in self._values.given(place, name, 0):
                step = self.lines.step(row)
                if step is None or (step and not self._may_move(at, name, row)):
                    raise NoLineError

    def _may_move(self, at: int, name: str, row: Row) -> bool:
        """Whether memory that an instruction accesses is global, where the number is an address, or is stored."""
        parts = self.flow.code.code[at].parts
        if parts[0] not in _ACCESSES or "global" in parts:
            return True
        return name not in stored(self.flow, at) and self.lines.exact(row[0])[0] >= GLOBAL

    def _require_heads(self) -> None:
        """What was taken for a line at the head is what the turn before leaves there."""
        done: set[Key] = set()
        while todo := self._values.used - done:
            key = todo.pop()
            done.add(key)
            if not isinstance(key, str):
                continue
            try:
                if not self._is_left(key):
                    raise NoLineError
            except (NoLineError, NoSequenceError) as error:
                raise IrregularError("a register that data are found by is not known to move evenly", self.loop.head) \
                    from error  # fmt: skip

    def _is_left(self, name: str) -> bool:
        counted = self.heads[name]
        head = self.lines.counted(counted.first, counted.step)
        ahead = [*head[1:], Line(head[0].first + head[0].step, head[0].step, head[0].width)]
        rows = [row for place in self._latches(name) for row in self._values.given(place, name, 0)]
        return all(
            any(self._same(row[turn % len(row)], line) for row in rows) for turn, line in enumerate(ahead)
        )  # fmt: skip

    def _same(self, one: Line, other: Line) -> bool:
        try:
            return self.lines.exact(one) == self.lines.exact(other)
        except NoLineError:
            return False

    def _latches(self, name: str) -> set[int | None]:
        """The instructions that may give a register what it has when the loop begins again."""
        found: set[int | None] = set()
        for before in self.flow.code.predecessors[self.loop.head]:
            if before not in self.loop.members:
                continue
            writes = name in self.flow.writes[before]
            if writes:
                found.add(before)
            if not writes or self.flow.code.code[before].guard is not None:
                found |= reaching(self.flow, self.loop, before, name)
        return found


def stored(flow: Flow, at: int) -> set[str]:
    """The registers whose values an access stores."""
    decoded = flow.decoded[at]
    if decoded is None or decoded.parts[0] not in _ACCESSES:
        return set()
    values = [operand for row, operand in decoded.bound if row.kind != "memory"]
    names = (flow.code.register(at, part) for operand in values for part in table.items(operand))
    return {name for name in names if name is not None} & flow.uses[at]


# Outside of loops, and by the size --------------------------------------------------------------------


@dataclass
class Behind:
    """Numbers that follow the size, or what loops leave in their counters: they have to be sums and multiples of it.
    `given`: the instructions that take from the launch what moves with the size, and what that is in each block,
    `fits`: whether the numbers of one have room in their type for all sizes."""

    flow: Flow
    log: Log
    loops: Sequence[LoopLines]
    given: Collection[int]
    fits: Callable[[int], bool]
    blocks: Sequence[Mapping[Key, Counted]]
    symbols: Mapping[str, int]
    lines: Lines

    def __post_init__(self) -> None:
        self._by_block: list[Values[Row]] = [
            Values(self.flow, whole(self.flow), numbers, self.symbols, self.lines) for numbers in self.blocks
        ]
        body = range(len(self.flow.writes))
        self._inside = {at: loop for loop in self.loops for at in loop.loop.body}
        of_size = _moving(self.flow, body, set(), self.log, self.given)
        left = set[str]().union(*(loop.moving for loop in self.loops))
        self._moving = of_size | _moving(self.flow, [at for at in body if at not in self._inside], left, self.log)
        self._of_size = of_size
        self._under_way: set[tuple[int, str]] = set()

    def require(self) -> None:
        """Raises IrregularError: at an instruction with data that takes a number that is no such sum, as far as is
        known."""
        for at in range(len(self.flow.uses)):
            names = _numbers_for_data(self.flow, self.log, at) & (self._of_size if at in self._inside else self._moving)
            if "global" not in self.flow.code.code[at].parts and names & stored(self.flow, at):
                raise IrregularError("a number that follows the size, and is stored where others load it", at)
            if not all(self._is_even(at, name) for name in names):
                opcode = self.flow.code.code[at].parts[0]
                raise IrregularError(f"an operand of {opcode} is not known to move evenly with the size", at)

    def _is_even(self, at: int, name: str) -> bool:
        if (at, name) in self._under_way:
            return True
        self._under_way.add((at, name))
        # what is found to be no sum ends all
        return all(self._is_sum(place, name, at) for place in reaching(self.flow, whole(self.flow), at, name))

    def _is_line(self, place: int, name: str) -> bool:
        """Whether it follows from what the launch gives alone, and is a line in the period of the size."""
        try:
            rows = [row for values in self._by_block for row in values.given(place, name, 0)]
            return all(self.lines.step(row) is not None for row in rows)
        except (NoLineError, NoSequenceError):
            return False

    def _is_sum(self, place: int | None, name: str, at: int) -> bool:
        """Of what is given at a place to an instruction `at` another one."""
        if place is None or self._is_line(place, name):
            return True
        inside = self._inside.get(place)
        if inside is not None and name in inside.moving:
            if at not in inside.loop.members and not all(loop.leaves(name) for loop in self._around(place)):
                return False
            if name not in self._of_size:
                return True
        if place in self.given:
            return self.flow.code.code[place].parts[0] in ("ld", "mov")
        ins = self.flow.code.code[place]
        moving = [n for o in ins.operands[1:] if (n := self.flow.code.register(place, o)) in self._moving]
        if not moving:
            return self.flow.uses[place].isdisjoint(self._moving)
        return self._keeps_sums(place) and all(self._is_even(place, n) for n in moving if n is not None)

    def _keeps_sums(self, at: int) -> bool:
        parts, operands = self.flow.code.code[at].parts, self.flow.code.code[at].operands
        plain = all(isinstance(o, (ast.Reg, ast.Imm, ast.Sym, ast.SpecialReg)) for o in operands)
        if not plain or parts[-1] not in _INTEGERS:
            return False
        match parts[0]:
            case "mov" | "cvta" | "add" | "sub" | "neg" | "selp":
                return len(parts) < 4
            case "shl":
                return isinstance(operands[2], ast.Imm)
            case "mul" | "mad" if "hi" not in parts:
                factors = [self.flow.code.register(at, o) in self._moving for o in operands[1:3]]
                return sum(factors) < 2 and ("lo" in parts or self._fits(at))
            case "cvt":
                return len(parts) == 3 and parts[1] in _INTEGERS and (parts[1][1:] <= parts[2][1:] or self._fits(at))
        return False

    def _around(self, at: int) -> list[LoopLines]:
        inside = self._inside.get(at)
        return [loop for loop in self.loops if inside is not None and loop.loop is inside.loop]

    def _fits(self, at: int) -> bool:
        """In a loop a line has room for all turns where it has some for the first ones and for the last ones."""
        return self.fits(at) and all(loop.takes_lines(at) for loop in self._around(at))


_INTEGERS = frozenset(("u32", "b32", "s32", "u64", "s64", "b64"))


def given_as_lines(given: Mapping[int, Given], period: int) -> tuple[set[int], dict[Key, Counted]]:
    """The instructions that take from the launch what moves with a size, and all numbers that it gives. `given`: what
    it gives a block, by units of the size, from one on for two periods, and for some more.

    Raises:
        IrregularError: it does not move evenly.
    """
    moving: set[int] = set()
    numbers: dict[Key, Counted] = {}
    for key in given[1]:
        values = [of_run.get(key) for of_run in given.values()]
        known = [value for value in values if isinstance(value, int)]
        if len(known) == len(values):
            numbers[key] = evenly(known[: 2 * period], period)
        if values.count(values[0]) == len(values):
            continue
        if len(known) < len(values) or any(
            number != known[0] + (known[1] - known[0]) * (units - 1) for units, number in zip(given, known, strict=True)
        ):
            raise IrregularError("what the launch gives does not move evenly with the size", key[0])
        moving.add(key[0])
    return moving, numbers


@dataclass
class Room:
    """Whether numbers that an instruction takes have room in their type for all sizes: they go on, for so many periods,
    as they have moved from one execution to another one."""

    flow: Flow
    shorter: Log
    longer: Log
    periods: int

    @cached_property
    def _taken(self) -> list[dict[int, dict[_Stream, list[tuple[int, tuple[Value, ...]]]]]]:
        return [_numbers_by_place(log) for log in (self.shorter, self.longer)]

    def __call__(self, at: int) -> bool:
        before, now = (taken.get(at, {}) for taken in self._taken)
        kind = self.flow.code.code[at].parts[-1]
        width, is_signed = int(kind[1:]), kind[0] == "s"
        low, high = (-(1 << width - 1), 1 << width - 1) if is_signed else (0, 1 << width)
        if before.keys() != now.keys() or not now:
            return False

        def has_room(one: int | None, other: int | None) -> bool:
            if one is None or other is None:
                return False
            first, last = (signed(v, width) if is_signed else v for v in (one, other))
            return low <= last + (last - first) * self.periods < high

        for stream, longer in now.items():
            shorter = before[stream]
            # what a loop takes in its first turns, and in its last ones
            for some in (longer[: len(shorter)], longer[-len(shorter) :]):
                if len(some) < len(shorter) or any(
                    one[0] != other[0] for one, other in zip(shorter, some, strict=True)
                ):
                    return False
                for (lanes, values), (_, others) in zip(shorter, some, strict=True):
                    for pair in zip(values, others, strict=True):
                        of_lanes = bits(lanes) if any(isinstance(value, tuple) for value in pair) else bits(lanes)[:1]
                        if not all(has_room(*(of_lane(value, lane) for value in pair)) for lane in of_lanes):
                            return False
        return True


_Stream = tuple[WarpName, int]


def _numbers_by_place(log: Log) -> dict[int, dict[_Stream, list[tuple[int, tuple[Value, ...]]]]]:
    """By instruction the lanes that come to it and the numbers that they take, in order."""
    found: dict[int, dict[_Stream, list[tuple[int, tuple[Value, ...]]]]] = defaultdict(dict)
    for warp, streams in log.streams.items():
        for lane, stream in streams.items():
            for (at, lanes, _), values in stream:
                if isinstance(at, int) and isinstance(lanes, int):
                    found[at].setdefault((warp, lane), []).append((lanes, values))
    return found
