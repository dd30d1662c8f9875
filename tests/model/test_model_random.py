# SPDX-License-Identifier: Apache-2.0
"""Random kernels: where the model accepts one, no path of it reads a stale accumulator, and each move is needed."""

from __future__ import annotations

import pytest
from kernels import kernel
from modelled import WRAPPERS, Modelled
from random_kernels import Generator, Machine, Moves, Statement, Wrong

PATHS = 60


class Kernel:
    """A random kernel with the moves that the model has placed, by line."""

    def __init__(self, seed: int) -> None:
        generator = Generator(seed)
        self.program: list[Statement] = generator.program()
        self.text = kernel("\n".join(generator.lines), before=WRAPPERS)
        self.model = Modelled(self.text).place()
        self._start = self.text.index(generator.lines[0])
        tiles = {a.name for a in self.model.accumulators.accumulators}
        cleared = {self._line(z.node.start_byte) for z in self.model.builder.zeroing.values()}
        self.moves = Moves(tiles, self._by_line(self.model.loads), self._by_line(self.model.stores), cleared)

    def _line(self, at: int) -> int:
        return self.text.count("\n", self._start, at)

    def _by_line(self, moves: list[tuple[int, str]]) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for at, name in moves:
            found.setdefault(self._line(at), set()).add(name)
        return found

    @property
    def accepted(self) -> bool:
        return not self.model.problems and not self.model.refusals

    def follow(self) -> tuple[int, int]:
        """(loads that paths came to, those among them that brought stale registers up to date).

        Raises:
            Wrong: a path of the port goes wrong.
        """
        made: set[tuple[int, str]] = set()
        useful: set[tuple[int, str]] = set()
        for seed in range(PATHS):
            machine = Machine(self.moves, seed)
            machine.path(self.program)
            made |= machine.made
            useful |= machine.useful
        return len(made), len(useful)


def follow(seeds: range) -> None:
    kernels = [k for k in map(Kernel, seeds) if k.accepted]
    made = useful = 0
    for k in kernels:
        try:
            counts = k.follow()
        except Wrong as wrong:
            pytest.fail(f"{wrong}\n{k.model.marked}")
        made, useful = made + counts[0], useful + counts[1]
    assert len(kernels) > len(seeds) / 2
    assert made > len(kernels) / 4
    # a wait in a branch of its own is taken for that of the accumulator
    assert useful > 0.9 * made


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_no_path_goes_wrong(first: int) -> None:
    follow(range(first, first + 30))


@pytest.mark.slow
def test_no_path_of_many_goes_wrong() -> None:
    follow(range(120, 1200))


def without(moves: dict[int, set[str]]) -> None:
    line = min(moves)
    moves[line] = set()


@pytest.mark.parametrize("kind", ["loads", "stores"])
def test_a_missing_move_is_seen(kind: str) -> None:
    """The machine itself: of the kernels with such moves, without the first one many go wrong."""
    missed = seen = 0
    for k in map(Kernel, range(60)):
        moves = getattr(k.moves, kind)
        if not k.accepted or not moves:
            continue
        without(moves)
        try:
            k.follow()
            missed += 1
        except Wrong:
            seen += 1
    assert seen > missed / 2
