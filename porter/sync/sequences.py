# SPDX-License-Identifier: Apache-2.0
"""Values that a loop computes from its counters, for every number that the counters can be: whether they repeat.

What is a line at each place in a period (`porter.sync.lines`) is known for all turns. What takes a counter apart
otherwise is looked at for all turns that 31 bits of a size allow, instead of being argued about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from porter.facts.code import Loop
from porter.facts.flow import Flow
from porter.ptx import ast
from porter.ptx.bits import unsigned

Numbers = npt.NDArray[np.uint64]
LARGEST_SIZE = (1 << 31) - (1 << 16)
"""Sizes of kernels are below it: what is rounded up to tiles has to fit as well."""
_DEEPEST = 40
_MOST_WAYS = 16
"""Ways through a turn that give a register other values."""
_MOST_REPEATED = 1024
"""The same, where loops inside give several."""
WIDTHS = {"u32": 32, "b32": 32, "s32": 32, "u64": 64, "s64": 64, "b64": 64}


Key = str | tuple[int, str]
"""A register at the head of a loop, or what an instruction takes from the launch, or a register `ANYWHERE`."""
ANYWHERE = -1


Held = TypeVar("Held")
"""How the values of a register in many turns are held."""


class Holding(Protocol[Held]):
    def number(self, number: int) -> Held: ...
    def counted(self, first: Sequence[int], step: int) -> Held: ...
    def computed(self, ins: ast.Instruction, given: Sequence[Held]) -> Held: ...
    def key(self, row: Held) -> Hashable: ...


class NoSequenceError(Exception):
    """A value that is not computed by integer instructions alone from what stands at the head of the loop."""


@dataclass(frozen=True)
class Counted:
    """A register at the head of a loop for any number of turns: `first` are those of one period, and `step` is how far
    they move in each. No `first`: the lanes have others, and all move so far."""

    first: tuple[int, ...]
    step: int


def evenly(values: Sequence[int], period: int) -> Counted:
    """Of values of two periods in a row."""
    return Counted(tuple(unsigned(v, 64) for v in values[:period]), unsigned(values[period] - values[0], 64))


Ways = frozenset[tuple[int, int]]
"""Branches, each with an instruction that it has led to."""


@lru_cache(maxsize=1 << 14)
def reaching(flow: Flow, loop: Loop, at: int, name: str, taken: Ways | None = None) -> frozenset[int | None]:
    """The instructions of a turn of a loop that may give a register the value that it has ahead of another one; None
    stands for what it is at the head. Branches go where they are `taken`.

    Raises:
        NoSequenceError: the loop is entered elsewhere than at its head.
    """
    found: set[int | None] = set()
    todo, seen = [at], {at}
    while todo:
        here = todo.pop()
        if here == loop.head:
            found.add(None)
            continue
        for before in flow.code.predecessors[here]:
            if before not in loop.members:
                raise NoSequenceError
            if taken is not None and flow.code.code[before].parts[0] == "bra" and (before, here) not in taken:
                continue
            if name in flow.writes[before]:
                found.add(before)
                if flow.code.code[before].guard is None:
                    continue
            if before not in seen:
                seen.add(before)
                todo.append(before)
    return frozenset(found)


@lru_cache(maxsize=64)
def whole(flow: Flow) -> Loop:
    """A kernel as the body of a loop."""
    return Loop(0, tuple(range(len(flow.code.code))))


class EachTurn:
    """The values in each of some turns."""

    def __init__(self, turns: Numbers) -> None:
        self._turns = turns

    def number(self, number: int) -> Numbers:
        return np.array([unsigned(number, 64)], np.uint64)

    def counted(self, first: Sequence[int], step: int) -> Numbers:
        period = np.uint64(len(first))
        found: Numbers = np.array(first, np.uint64)[self._turns % period] + np.uint64(step) * (self._turns // period)
        return found

    def computed(self, ins: ast.Instruction, given: Sequence[Numbers]) -> Numbers:
        return _computed(ins, given)

    def key(self, row: Numbers) -> Hashable:
        return row.tobytes()


class Values(Generic[Held]):
    """The values of a loop's registers in many turns: one row for each way through the turn that may have given
    them. Which way it is depends on the turn's place in its period alone, so what holds for each row holds."""

    def __init__(
        self, flow: Flow, loop: Loop, heads: Mapping[Key, Counted], symbols: Mapping[str, int], kind: Holding[Held],
        taken: Ways | None = None, asked: set[Key] | None = None,
        repeated: Mapping[tuple[int, str], Collection[int]] | None = None,
    ) -> None:  # fmt: skip
        """`repeated`: by instruction and register all numbers that it has there in any turn, where a loop inside
        computes it."""
        self._repeated = repeated or {}
        self._most = _MOST_REPEATED if repeated else _MOST_WAYS
        self._asked = asked if asked is not None else set()
        self._flow, self._loop, self._heads, self._symbols, self._kind = flow, loop, heads, symbols, kind
        self._taken = taken
        self._known: dict[int, list[Held]] = {}
        self._under_way: set[int] = set()
        self.used: set[Key] = set()
        """What was asked for of what is known from the start."""

    def of(self, at: int, operand: ast.Operand, depth: int) -> list[Held]:
        """Raises NoSequenceError: also for more ways than are looked at."""
        match operand:
            case ast.Imm(value, is_float=False):
                return [self._kind.number(int(value))]
            case ast.Reg(name):
                return self._register(at, self._flow.code.renamed(at, name), depth)
            case ast.SpecialReg(name):
                return [self._known_from_start((at, name))]
            case ast.Sym(name, offset) if name in self._symbols:
                return [self._kind.number(self._symbols[name] + offset)]
        raise NoSequenceError

    def _register(self, at: int, name: str, depth: int) -> list[Held]:
        if depth > _DEEPEST:
            raise NoSequenceError
        if (ANYWHERE, name) in self._heads:
            return [self._known_from_start((ANYWHERE, name))]
        if (at, name) in self._repeated:
            return [self._kind.number(number) for number in sorted(self._repeated[at, name])]
        rows = [
            row
            for place in reaching(self._flow, self._loop, at, name, self._taken)
            for row in self.given(place, name, depth)
        ]  # fmt: skip
        if len(rows) > 1:
            rows = list({self._kind.key(row): row for row in rows}.values())
        if len(rows) > self._most:
            raise NoSequenceError
        return rows

    def _known_from_start(self, key: Key) -> Held:
        self._asked.add(key)
        if key not in self._heads or not self._heads[key].first:
            raise NoSequenceError
        self.used.add(key)
        return self._kind.counted(self._heads[key].first, self._heads[key].step)

    def given(self, place: int | None, name: str, depth: int) -> list[Held]:
        """What the instruction at a place gives a register; without one what it is at the head.

        Raises:
            NoSequenceError: as `of`.
        """
        if place is None:
            return [self._known_from_start(name)]
        if (place, name) in self._heads:
            return [self._known_from_start((place, name))]
        if place not in self._known:
            if place in self._under_way:
                # it is computed from itself, in a loop
                raise NoSequenceError
            self._under_way.add(place)
            ins = self._flow.code.code[place]
            operands = [self.of(place, o, depth + 1) for o in ins.operands[1 : 3 if ins.parts[0] == "selp" else None]]
            if math.prod(map(len, operands)) > self._most:
                raise NoSequenceError
            # which one is selected is a way through the turn like others
            ways = ((given,) for rows in operands for given in rows) if ins.parts[0] == "selp" else product(*operands)
            self._under_way.discard(place)
            self._known[place] = [self._kind.computed(ins, list(given)) for given in ways]
        return self._known[place]


def _signed(values: Numbers, width: int) -> npt.NDArray[np.int64]:
    return (values << np.uint64(64 - width)).view(np.int64) >> np.int64(64 - width)


def _cut(values: Numbers, width: int) -> Numbers:
    return values & np.uint64((1 << width) - 1)


def _computed(ins: ast.Instruction, given: Sequence[Numbers]) -> Numbers:
    parts = ins.parts
    width = WIDTHS.get(parts[-1], 0)
    if not width:
        raise NoSequenceError
    operation = _OPERATIONS.get(parts[0])
    if parts[0] in ("cvt", "cvta"):
        return _converted(parts, width, given[0])
    if parts[0] in ("mul", "mad"):
        return _product(parts, width, given)
    if operation is None or len(parts) > 3:
        raise NoSequenceError
    is_signed = parts[-1][0] == "s"
    return _cut(operation([_cut(g, width) for g in given], width, is_signed), width)


def _converted(parts: tuple[str, ...], width: int, given: Numbers) -> Numbers:
    if parts[0] == "cvta":
        return given
    to = WIDTHS.get(parts[-2], 0)
    if not to or len(parts) != 3:
        raise NoSequenceError
    return _cut(_signed(given, width).view(np.uint64) if parts[-1][0] == "s" else _cut(given, width), to)


def _product(parts: tuple[str, ...], width: int, given: Sequence[Numbers]) -> Numbers:
    is_signed = parts[-1][0] == "s"
    a, b = (_signed(g, width).view(np.uint64) if is_signed else _cut(g, width) for g in given[:2])
    rest = given[2] if parts[0] == "mad" else np.uint64(0)
    if "lo" in parts:
        return _cut(a * b + rest, width)
    if width != 32:
        raise NoSequenceError
    if "wide" in parts:
        return _cut(a * b + rest, 64)
    product = a * b
    high = (product.view(np.int64) >> np.int64(32)).view(np.uint64) if is_signed else product >> np.uint64(32)
    return _cut(high + rest, 32)


def _shifted_right(given: list[Numbers], width: int, is_signed: bool) -> Numbers:
    count = np.minimum(given[1], np.uint64(width - 1 if is_signed else 63))
    if is_signed:
        return (_signed(given[0], width) >> count.view(np.int64)).view(np.uint64)
    return np.where(given[1] >= np.uint64(width), np.uint64(0), given[0] >> count)


def _divided(given: list[Numbers], width: int, is_signed: bool) -> tuple[Any, Any]:
    if (given[1] == 0).any():
        raise NoSequenceError
    if not is_signed:
        return given[0] // given[1], given[0] % given[1]
    a, b = (_signed(g, width) for g in given)
    quotient = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return quotient.view(np.uint64), (a - quotient * b).view(np.uint64)


def _extreme(given: list[Numbers], width: int, is_signed: bool, least: bool) -> Numbers:
    a, b = (_signed(g, width) for g in given) if is_signed else given
    return np.where((a < b) == least, given[0], given[1])


_OPERATIONS: dict[str, Callable[[list[Numbers], int, bool], Any]] = {
    "mov": lambda g, w, s: g[0],
    "add": lambda g, w, s: g[0] + g[1],
    "sub": lambda g, w, s: g[0] - g[1],
    "neg": lambda g, w, s: np.uint64(0) - g[0],
    "and": lambda g, w, s: g[0] & g[1],
    "or": lambda g, w, s: g[0] | g[1],
    "xor": lambda g, w, s: g[0] ^ g[1],
    "not": lambda g, w, s: ~g[0],
    "shl": lambda g, w, s: np.where(g[1] >= np.uint64(w), np.uint64(0), g[0] << np.minimum(g[1], np.uint64(63))),
    "shr": _shifted_right,
    "div": lambda g, w, s: _divided(g, w, s)[0],
    "rem": lambda g, w, s: _divided(g, w, s)[1],
    "min": lambda g, w, s: _extreme(g, w, s, least=True),
    "max": lambda g, w, s: _extreme(g, w, s, least=False),
    "selp": lambda g, w, s: g[0],
}
