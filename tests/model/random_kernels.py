# SPDX-License-Identifier: Apache-2.0
"""Random kernels around two accumulators, and a machine that runs original and port of them side by side.

The machine follows one thread along one path. An accumulator's value is the history of what was done to it, once as
the original has it and once as registers and Tensor Memory of the port hold it, moved where the model says.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

NAMES = ("acc", "sum")
COLLECTIVE = ("arrive", "mma", "fresh", "commit", "wait")


@dataclass
class Statement:
    """`lines` first to `last` of the text; `arms` of an `if`, or the body of a loop."""

    kind: str
    first: int
    last: int
    name: str = ""
    number: int = 0
    arms: list[list[Statement]] = field(default_factory=list)


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.mma_allowed = True
        self.loops = 0
        self.collective: list[Statement] = []

    def program(self) -> list[Statement]:
        statements = []
        for name in NAMES:
            value = self.random.choice((" = {0}", " = {}", ""))
            statements.append(self._line("zeroed" if value else "declared", f"float {name}[8]{value};", name))
        statements += self._block(3, self.random.randint(3, 6))
        self._stay(statements, [], False)
        return statements

    def _stay(self, statements: list[Statement], around: list[list[Statement]], apart: bool) -> None:
        """Threads of a warp do not leave one by one where the warp would have to meet again for an MMA."""
        for i, s in enumerate(statements):
            if s.kind in ("break", "continue", "return") and (apart or s.number):
                loops = around if s.kind == "return" else around[-1:]
                later = [t for body in loops for t in every(body) if s.kind != "continue" or t.first > s.first]
                if s.kind == "return":
                    later += [t for t in self.collective if t.first > s.first]
                if any(t.kind in COLLECTIVE for t in later):
                    statements[i] = Statement("other", s.first, s.last)
                    self.lines[s.first] = f"out[{s.first}] = 1.f;"
            for arm in s.arms:
                inside = [*around, arm] if s.kind in ("loop", "do") else around
                self._stay(arm, inside, apart or s.kind == "lanes")

    def _line(self, kind: str, text: str, name: str = "", number: int = 0) -> Statement:
        self.lines.append(text)
        at = len(self.lines) - 1
        made = Statement(kind, at, at, name, number)
        if kind in COLLECTIVE:
            self.collective.append(made)
        return made

    def _block(self, depth: int, count: int) -> list[Statement]:
        return [s for _ in range(count) for s in self._some(depth)]

    def _some(self, depth: int) -> list[Statement]:
        name = self.random.choice(NAMES)
        number = len(self.lines)
        choices = ["read", "read", "change", "fill", "zero"]
        if self.mma_allowed:
            choices += ["batch"] * 5 + ["loose"]
        if depth:
            choices += ["if", "if", "loop", "loop", "do", "lanes"]
        choices += ["leave"]
        kind = self.random.choice(choices)
        if kind == "batch":
            return self._batch(name)
        if kind == "loose":
            return [self._one_of_a_batch(name)]
        if kind == "read":
            return [self._line("read", f"out[{number}] = {name}[0];", name)]
        if kind == "change":
            text = self.random.choice((f"{name}[0] = {number}.f;", f"{name}[1] *= {number}.f;"))
            return [self._line("change", text, name)]
        if kind == "fill":
            return [self._line("fill", f"for (int i = 0; i < 8; ++i) {name}[i] = out[i];", name)]
        if kind == "zero":
            return [self._line("zero", f"for (int i = 0; i < 8; ++i) {name}[i] = 0.f;", name)]
        if kind == "leave":
            way = self.random.choice(("break", "continue", "return") if self.loops else ("return",))
            who = "threadIdx.x" if self.random.random() < 0.5 else "steps"
            return [self._line(way, f"if ({who} == {number}) {way};", number=int(who != "steps"))]
        return [self._nested(kind, depth - 1)]

    def _nested(self, kind: str, depth: int) -> Statement:
        first = len(self.lines)
        heads = {"if": f"if (steps > {first}) {{", "lanes": f"if (threadIdx.x > {first}) {{", "do": "do {",
                 "loop": f"for (int k{first} = 0; k{first} < steps; ++k{first}) {{"}  # fmt: skip
        self.lines.append(heads[kind])
        allowed, loops = self.mma_allowed, self.loops
        self.mma_allowed = allowed and kind != "lanes"
        self.loops += kind in ("loop", "do")
        arms = [self._block(depth, self.random.randint(1, 3))]
        if kind == "if" and self.random.random() < 0.4:
            self.lines.append("} else {")
            arms.append(self._block(depth, self.random.randint(1, 3)))
        elif kind == "if":
            arms.append([])
        self.mma_allowed, self.loops = allowed, loops
        self.lines.append("} while (--steps > 0);" if kind == "do" else "}")
        return Statement(kind, first, len(self.lines) - 1, arms=arms)

    def _batch(self, name: str) -> list[Statement]:
        kind = "mma" if self.random.random() < 0.8 else "fresh"
        found = [self._line("arrive", "arrive();"), self._line(kind, f"{kind}({name}, a, b);", name)]
        if self.random.random() < 0.2:
            other = self.random.choice(NAMES)
            found.append(self._line("mma", f"mma({other}, a, b);", other))
        found.append(self._line("commit", "commit();"))
        pending = 0 if self.random.random() < 0.8 else 1
        return [*found, self._line("wait", f"wait<{pending}>();", number=pending)]

    def _one_of_a_batch(self, name: str) -> Statement:
        kind = self.random.choice(COLLECTIVE)
        if kind in ("mma", "fresh"):
            return self._line(kind, f"{kind}({name}, a, b);", name)
        if kind == "wait":
            return self._line(kind, "wait<0>();")
        return self._line(kind, f"{kind}();")


class Undefined(Exception):
    """The original itself does what is not allowed: the path says nothing about the port."""


class Wrong(Exception):
    """The port differs from the original."""


class _Leave(Exception):
    def __init__(self, way: str) -> None:
        self.way = way


@dataclass
class _Tile:
    value: Any = "undefined"
    registers: Any = "undefined"
    tensor_memory: Any = "undefined"
    groups: int = -1
    """Groups committed since its last MMA; -1 if that MMA is over."""
    committed: bool = True
    changed: bool = False
    """By threads of the original since their last wgmma.fence."""
    moved: bool = False
    """By threads of the port since the warps last met."""
    stale: bool = False
    """Whether an MMA or a zeroing left the registers behind."""
    loaded: int = -1
    """Line of the load that has brought them up to date, until something touches them."""


@dataclass
class Moves:
    """What a port does for the accumulators `tiles`: by line, those that are loaded in front of it and stored behind
    it; and the lines of zeroings that clear the tile in Tensor Memory instead of registers."""

    tiles: set[str]
    loads: dict[int, set[str]]
    stores: dict[int, set[str]]
    cleared: set[int]


class Machine:
    """Follows one path, and makes the moves that `Moves` says."""

    def __init__(self, moves: Moves, seed: int) -> None:
        self.moves = moves
        self.random = random.Random(seed)
        self.tiles = {name: _Tile() for name in NAMES}
        self.steps = 0
        self.wrong = ""
        self.made: set[tuple[int, str]] = set()
        """Loads on the path, by line."""
        self.useful: set[tuple[int, str]] = set()
        """Those that brought registers up to date which were touched then."""
        self.lanes = 0
        """Depth of branches that only a part of the warp takes."""
        self.returned = False
        self.left: list[set[str]] = []
        """By loop, innermost last: how others of the warp may have left its body."""

    @property
    def diverged(self) -> bool:
        return bool(self.lanes or self.returned or any(self.left))

    def path(self, program: list[Statement]) -> None:
        """Run one random path.

        Raises:
            Wrong: registers that are read, or the tile that an MMA adds to, are not what the original has; or a move
            that the whole warp has to make is made by a part of it, or without the order it needs.
        """
        try:
            self._block(program)
        except _Leave:
            pass
        except Undefined:
            return
        if self.wrong:
            raise Wrong(self.wrong)

    def _block(self, statements: list[Statement]) -> None:
        for s in statements:
            for name in sorted(self.moves.loads.get(s.first, ())):
                self._load(name, s.first)
            self._statement(s)
            for name in sorted(self.moves.stores.get(s.last, ())):
                self._store(name)

    def _load(self, name: str, line: int) -> None:
        tile = self.tiles[name]
        self._whole_warp(f"{name} is loaded by a part of a warp")
        if tile.groups >= 0:
            raise Wrong(f"{name} is loaded while an MMA runs")
        self.made.add((line, name))
        tile.loaded = line if tile.stale else -1
        tile.stale = False
        tile.registers, tile.moved = tile.tensor_memory, True

    def _whole_warp(self, wrong: str) -> None:
        # where an MMA follows, the original is at fault
        if self.diverged:
            self.wrong = self.wrong or wrong

    def _store(self, name: str) -> None:
        tile = self.tiles[name]
        self._whole_warp(f"{name} is stored by a part of a warp")
        if tile.groups >= 0:
            raise Wrong(f"{name} is stored while an MMA runs")
        tile.tensor_memory, tile.moved = tile.registers, True

    def _statement(self, s: Statement) -> None:
        self.steps += 1
        if self.steps > 400:
            raise Undefined
        if s.kind in COLLECTIVE:
            if self.diverged:
                raise Undefined
            self._tensor_core(s)
        elif s.kind in ("loop", "do"):
            self._loop(s)
        elif s.kind == "if":
            self._block(self.random.choice(s.arms))
        elif s.kind == "lanes":
            if self.random.random() < 0.5:
                self.lanes += 1
                self._block(s.arms[0])
                self.lanes -= 1
            else:
                self._others_leave(s.arms[0])
        elif s.kind in ("break", "continue", "return"):
            if self.random.random() < 0.3:
                raise _Leave(s.kind)
            if s.number:
                self._others_leave([s])
        elif s.kind != "other":
            self._threads(s)

    def _others_leave(self, statements: list[Statement], inside: bool = False) -> None:
        for s in statements:
            if s.kind == "return":
                self.returned = True
            elif s.kind in ("break", "continue") and not inside:
                self.left[-1].add(s.kind)
            for arm in s.arms:
                self._others_leave(arm, inside or s.kind in ("loop", "do"))

    def _loop(self, s: Statement) -> None:
        lanes = self.lanes
        self.left.append(set())
        for _ in range(self.random.randint(int(s.kind == "do"), 3)):
            self.left[-1].discard("continue")
            self.lanes = lanes
            try:
                self._block(s.arms[0])
            except _Leave as leave:
                if leave.way == "return":
                    raise
                if leave.way == "break":
                    break
        self.left.pop()
        self.lanes = lanes

    def _threads(self, s: Statement) -> None:
        if s.name not in self.moves.tiles:
            return
        tile = self.tiles[s.name]
        if tile.groups >= 0:
            raise Undefined
        if s.kind in ("zero", "zeroed"):
            tile.value = "zero"
            if s.first in self.moves.cleared:
                if self.lanes or any(self.left):
                    self.wrong = self.wrong or f"{s.name} is cleared by a part of a warp"
                tile.tensor_memory, tile.stale = "zero", True
            else:
                tile.registers = "zero"
            tile.changed = True
            return
        if tile.loaded >= 0:
            self.useful.add((tile.loaded, s.name))
        if s.kind == "read" and _known(tile.value) and tile.registers != tile.value:
            raise Wrong(f"line {s.first}: {tile.registers} for {tile.value}")
        elif s.kind == "fill":
            tile.value = tile.registers = ("fill", s.first, self.steps)
        elif s.kind == "change":
            tile.value = ("change", s.first, tile.value)
            tile.registers = ("change", s.first, tile.registers)
        tile.changed = True

    def _tensor_core(self, s: Statement) -> None:
        if s.kind == "arrive":
            for tile in self.tiles.values():
                tile.changed = tile.moved = False
        elif s.kind == "commit":
            for tile in self.tiles.values():
                tile.groups += tile.groups >= 0
                tile.committed = True
        elif s.kind == "wait":
            for tile in self.tiles.values():
                if not tile.committed:
                    raise Undefined
                if tile.groups > s.number:
                    tile.groups = -1
        else:
            tile = self.tiles[s.name]
            if tile.changed:
                raise Undefined
            if tile.moved:
                raise Wrong(f"line {s.first}: nothing orders the MMA behind the move")
            old, held = (tile.value, tile.tensor_memory) if s.kind == "mma" else ("", "")
            tile.value, tile.tensor_memory = ("mma", s.first, old), ("mma", s.first, held)
            if _known(tile.value) and tile.tensor_memory != tile.value:
                raise Wrong(f"line {s.first}: adds to {held} instead of {old}")
            tile.groups, tile.committed, tile.stale = 0, False, True


def _known(value: Any) -> bool:
    while isinstance(value, tuple) and value[0] != "fill":
        value = value[-1]
    return value != "undefined"


def every(statements: list[Statement]) -> Iterator[Statement]:
    for s in statements:
        yield s
        for arm in s.arms:
            yield from every(arm)
