# SPDX-License-Identifier: Apache-2.0
"""Whether the numbers that data operations take, coordinates, addresses, descriptors, counts, are lines in the turn for
every turn that there can be, and lines in the size.

A number that moves with the turn has to be computed by instructions that keep lines (`porter.sync.lines`) of registers
that are lines at the head of the loop, which in turn have to be what the turn before leaves in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from porter.equal.periods import Entered, Growing, IrregularError
from porter.equal.turning import Log, Turn
from porter.facts.code import Loop
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL
from porter.facts.values import bits, of_lane
from porter.ptx.shared_window import RANK_SHIFT
from porter.sync.lines import Line, Lines, NoLineError, Row
from porter.sync.sequences import LARGEST_SIZE, Counted, Key, NoSequenceError, Values, evenly, reaching, whole
from porter.sync.sizes import Given

_ACCESSES = frozenset(("ld", "st", "ldu", "atom", "red"))


def require_lines(found: Growing, period: int, first: int, symbols: Mapping[str, int], step: int) -> None:
    """That numbers of data operations in all loops move evenly, from `first` periods on, as long as a size can be that
    grows by `step` with each of its units.

    Raises:
        IrregularError: at the instruction that takes one that does not, as far as is known.
    """
    turns = found.of_period(period)
    assert turns is not None
    seen: set[object] = set()
    periods = LARGEST_SIZE // (step * period) + 1
    for key, of_loop in found.turns.items():
        warp, head, _ = key
        start = first * turns[key] - 1
        window = of_loop[start : start + 2 * turns[key]]
        if len(window) < 2 * turns[key]:
            raise IrregularError("a loop with too few turns", head)
        base = warp.rank << RANK_SHIFT
        own = {name: base + offset for name, offset in symbols.items()}
        loop = found.flow.heads[head]
        tainted = _moving(found.flow, loop.body, _counters(window, turns[key]), found.log)
        for lane in _lanes(window, tainted):
            heads = _heads(window, turns[key], lane)
            known = head, tuple(sorted(heads.items(), key=str)), base
            if known not in seen:
                seen.add(known)
                _InLoop(found.flow, loop, heads, own, Lines(turns[key], periods), found.log).require(tainted)


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


def _lanes(window: Sequence[Turn], tainted: Collection[str]) -> Sequence[int]:
    """Those whose registers may differ."""
    lanes = bits(window[0].lanes)
    differ = any(isinstance(value, tuple) for turn in window for value in turn.numbers.values())
    return lanes if differ and tainted else lanes[:1]


def _heads(window: Sequence[Turn], period: int, lane: int) -> dict[Key, Counted]:
    """The registers that are lines at the head of a loop."""
    found: dict[Key, Counted] = {}
    for name in window[0].numbers:
        numbers = [v for turn in window if (v := of_lane(turn.numbers.get(name), lane)) is not None]
        if len(numbers) == 2 * period and len({b - a for a, b in zip(numbers, numbers[period:], strict=False)}) == 1:
            found[name] = evenly(numbers, period)
    return found


@dataclass
class _InLoop:
    """One lane of a warp in a loop: `heads` are lines at its head, as far as was seen."""

    flow: Flow
    loop: Loop
    heads: Mapping[Key, Counted]
    symbols: Mapping[str, int]
    lines: Lines
    log: Log

    def __post_init__(self) -> None:
        self._values: Values[Row] = Values(self.flow, self.loop, self.heads, self.symbols, self.lines)

    def require(self, tainted: Collection[str]) -> None:
        """Raises IrregularError: at an instruction that takes a register among these that is no line."""
        for at in self.loop.body:
            names = self.flow.uses[at] & tainted if at in self.log.on_data else ()
            for name in names:
                try:
                    self._require_line(at, name)
                except (NoLineError, NoSequenceError) as error:
                    opcode = self.flow.code.code[at].parts[0]
                    raise IrregularError(f"an operand of {opcode} is not known to move evenly", at) from error
        self._require_heads()

    def _require_line(self, at: int, name: str) -> None:
        for place in reaching(self.flow, self.loop, at, name):
            for row in self._values.given(place, name, 0):
                step = self.lines.step(row)
                first = self.lines.exact(row[0])[0]
                if step is None or (step and self.flow.code.code[at].parts[0] in _ACCESSES and first < GLOBAL
                                    and name not in self._stored(at)):  # fmt: skip
                    raise NoLineError

    def _stored(self, at: int) -> frozenset[str]:
        """Registers that an access stores."""
        decoded = self.flow.decoded[at]
        assert decoded is not None
        values = [operand for row, operand in decoded.bound if row.kind != "memory"]
        names = (self.flow.code.register(at, part) for operand in values for part in _parts(operand))
        return frozenset(name for name in names if name is not None)

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


def _parts(operand: object) -> Iterator[object]:
    yield from getattr(operand, "items", None) or (operand,)


# The size ---------------------------------------------------------------------------------------------


def require_lines_of_size(
    flow: Flow, log: Log, given: Sequence[Given], symbols: Mapping[str, int], step: int
) -> None:
    """That numbers of data operations that follow a size move evenly with it. `given`: what the launch gives a block
    for one unit of the size, two, …

    Raises:
        IrregularError: as above.
    """
    numbers: dict[Key, Counted] = {}
    moving: set[int] = set()
    for key in given[-1]:
        values = [of_run.get(key) for of_run in given]
        known = [v for v in values if isinstance(v, int)]
        if len(known) == len(values) and len({b - a for a, b in zip(known, known[1:], strict=False)}) == 1:
            numbers[key] = evenly(known, 1)
        if values.count(values[0]) < len(values):
            moving.add(key[0])
    lines = Lines(1, LARGEST_SIZE // step)
    values_of: Values[Row] = Values(flow, whole(flow), numbers, symbols, lines)
    tainted = _moving(flow, range(len(flow.writes)), set(), log, moving)
    # what a parameter is loaded by is an instruction with data as well
    for at in sorted(log.on_data):
        for name in flow.uses[at] & tainted:
            places = reaching(flow, whole(flow), at, name)
            try:
                if any(lines.step(row) is None for p in places for row in values_of.given(p, name, 0)):
                    raise NoLineError
            except (NoLineError, NoSequenceError) as error:
                opcode = flow.code.code[at].parts[0]
                raise IrregularError(f"an operand of {opcode} is not known to move evenly with the size", at) \
                    from error  # fmt: skip


def entered(found: Growing) -> list[Entered]:
    return list(found.turns)
