# SPDX-License-Identifier: Apache-2.0
"""Warps that a random schedule holds back though they could go on: a GPU promises none of them a turn."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_BEGINS, _BEGINS_LATE = 1 / 32, 1 / 2
"""How likely a step is to be the first one of a hold, and how likely a hold is there from the start."""
_LENGTHS = range(3, 12)
"""Powers of two of steps that a hold lasts at most."""
_QUIET = 64
"""Steps without an arrival, a landing or a store behind which those who run are taken to poll for who is held."""


class Holding:
    """One hold at a time, drawn from `rng`: of one warp, of the warps with its rank in all blocks, or of all but it.

    `ranks`: of each warp of a wave, its place in its block.
    """

    def __init__(self, rng: random.Random, ranks: Array) -> None:
        self._rng = rng
        self._ranks = ranks
        self.held: Array = np.zeros(ranks.size, bool)
        self._until = -1
        self._seen = (-1, -1)
        self._quiet = 0

    @property
    def on(self) -> bool:
        return self._until >= 0

    def step(self, number: int, runnable: Array, done: tuple[int, int]) -> None:
        """Begin or end a hold. `runnable`: indices of warps that can go on. `done`: counts of what warps see of each
        other."""
        if self.on:
            self._quiet = self._quiet + 1 if done == self._seen else 0
            self._seen = done
            if number >= self._until or self._quiet > _QUIET:
                self.give_up()
        elif self._rng.random() < (_BEGINS if number else _BEGINS_LATE):
            self._begin(number, int(runnable[self._rng.randrange(runnable.size)]))

    def _begin(self, number: int, warp: int) -> None:
        kind = self._rng.randrange(3)
        if kind == 0:
            self.held[warp] = True
        elif kind == 1:
            self.held[:] = self._ranks == self._ranks[warp]
        else:
            self.held[:] = True
            self.held[warp] = False
        self._until = number + (1 << self._rng.choice(_LENGTHS))
        self._quiet = 0

    def give_up(self) -> None:
        self.held[:] = False
        self._until = -1
