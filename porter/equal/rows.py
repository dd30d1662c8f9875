# SPDX-License-Identifier: Apache-2.0
"""Instructions in a row that make data, of which those that do the same are done at once.

What is made of data has no part in what is done, and so the order among such instructions does not count but for who
takes what another one makes. Elements of a tile are scaled, added and converted one after another by the hundred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from porter.equal.contents import Contents, Taken, fitted
from porter.equal.words import Words
from porter.facts.state import Group, Warp
from porter.facts.values import ALL

_MOST = 64
"""Results that are made at once: more of them do not fit in a cache."""
Read = Callable[[Contents, Warp, Group], Words]
"""Gives the bytes [32, size] of an operand."""


class Given(NamedTuple):
    """An operand of so many bytes, and the register that it is."""

    register: str | None
    size: int
    read: Read


class Made(NamedTuple):
    """What an instruction makes of what it is `given`, for one register. `result` makes it of data [32, bytes], and of
    data [results, 32, bytes] where `kind` says which others may be made at the same time."""

    register: str
    given: tuple[Given, ...]
    result: Callable[[Contents, list[Words]], Words]
    kind: object = None


class Row:
    """Instructions that each make something, in order."""

    def __init__(self, made: Sequence[Made]) -> None:
        self._made = made
        self._levels: list[list[int]] = []
        """Those that are done at once, behind those whose results they take."""
        self._sources: list[list[int | None]] = []
        """By instruction and operand the instruction of the row that has made it."""
        self._newest: dict[str, int] = {}
        depths: list[int] = []
        at_once: dict[tuple[int, object], list[int]] = defaultdict(list)
        for number, one in enumerate(made):
            sources = [None if g.register is None else self._newest.get(g.register) for g in one.given]
            depths.append(1 + max((depths[source] for source in sources if source is not None), default=-1))
            at_once[depths[number], number if one.kind is None else ("of a kind", one.kind)].append(number)
            self._sources.append(sources)
            self._newest[one.register] = number
        for _, numbers in sorted(at_once.items(), key=lambda item: (item[0][0], item[1][0])):
            self._levels += [numbers[start : start + _MOST] for start in range(0, len(numbers), _MOST)]

    def run(self, contents: Contents, warp: Warp, group: Group) -> None:
        """All lanes of a warp execute it."""
        found: dict[int, Words] = {}

        def taken(number: int, place: int) -> Words:
            given, source = self._made[number].given[place], self._sources[number][place]
            return given.read(contents, warp, group) if source is None else fitted(found[source], given.size)

        for numbers in self._levels:
            first = self._made[numbers[0]]
            places = range(len(first.given))
            if len(numbers) == 1:
                found[numbers[0]] = first.result(contents, [taken(numbers[0], place) for place in places])
                continue
            data = [np.concatenate([taken(number, place) for number in numbers]) for place in places]
            results = first.result(contents, [one.reshape(len(numbers), -1, one.shape[-1]) for one in data])
            found.update(zip(numbers, results, strict=True))
        everywhere = Taken(ALL)
        for register, number in self._newest.items():
            contents.put(warp, register, everywhere, found[number])
