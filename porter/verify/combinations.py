# SPDX-License-Identifier: Apache-2.0
"""Sizes at which two conditions of a case's programs come together as they do at none of those that are looked at: each
of them was seen both ways, and what a port does where both hold was not.

A *feature* of a block is what a comparison of the text came to in it: all lanes of a warp alike, or some lanes one way
and some the other. The conditions are those of the compiled code, so that alignments are among them as well as edges.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, product
from typing import NamedTuple

from porter.diagnostics import PorterError
from porter.verify.case_program import Program
from porter.verify.further import extents_of, unit_of, work
from porter.verify.problem import Problem, bind
from porter.verify.proving import Sizes

_MORE = 3
"""Tiles of a size, where a tile of the port is one of the original."""
_LONGER = 18
"""Times as much work as the least of all sizes has: a ring of usual length comes round twice."""

_FEW = 4
"""Values of a size that show what goes by it."""

Feature = tuple[object, object]
"""A place of a text, and what a comparison came to there."""
Features = frozenset[Feature]


class Seen(NamedTuple):
    """What comparisons came to in the `first` and in the `last` block of both programs, and by comparison how near its
    sides came to its other result."""

    first: Features
    last: Features
    near: Mapping[object, int]


@dataclass(frozen=True)
class _Made:
    """Sizes that are changed, and the features of blocks that there are then; `near` as seen, where it was executed."""

    changes: dict[str, int]
    blocks: Sequence[Features]
    near: Mapping[object, int]


class Combinations:
    """Those of both programs of a case, by the sizes that are looked at anyway. `seen_at`: None for sizes that are not
    understood. `tiles`: as many tiles of the original may be one of the port's."""

    def __init__(
        self, programs: Sequence[Program], seen_at: Callable[[Sizes], Seen | None], chosen: Sequence[Sizes],
        tiles: int = 1,
    ) -> None:  # fmt: skip
        self._programs, self._seen_at, self._tiles = programs, seen_at, tiles
        self._case = programs[0].case
        self._chosen = [sizes for sizes in chosen if self._is_alike(chosen[0], sizes)]
        self._base = min(self._chosen, key=lambda sizes: work(bind(self._case, sizes)))
        self._units = self._steps_of()

    def sizes(self) -> list[Sizes]:
        """Few sizes, beside those that are chosen, with all pairs of features that there are in a block where two sizes
        are those that are looked at, or few tiles and a part of one. What blocks have where two sizes are changed
        follows from what each changes, but for comparisons of both of them, and behind a condition of one of them."""
        there = self._executed({})
        if there is None:
            return []
        values = self._values()
        alone = {name: list(self._alone(there, name, of_name)) for name, of_name in values.items()}
        told = {name: _telling(there, ones) for name, ones in alone.items()}
        made = [one for ones in alone.values() for one in ones]
        for some, others in combinations(alone, 2):
            made += self._met(there, alone[some], alone[others])
            pairs = product(told[some], told[others])
            made = [self._both(there, a, b) for a, b in pairs if self._is_small(a.changes | b.changes)] + made
        made += self._behind(there, told, values)
        # what was executed counts, not what follows for the same sizes
        pool = list({tuple(sorted(one.changes.items())): one for one in made}.values())
        pool.sort(key=lambda one: work(self._bound(one.changes)))
        seen = [(s.first, s.last) for sizes in self._chosen if (s := self._seen_at(sizes)) is not None]
        return [{**self._base, **pool[index].changes} for index in _fewest([one.blocks for one in pool], seen)]

    def _bound(self, changes: Mapping[str, int]) -> Problem:
        return bind(self._case, {**self._base, **changes})

    def _is_alike(self, base: Sizes, sizes: Sizes) -> bool:
        """Whether both programs take sizes, and are compiled for them as for others."""
        try:
            return all(p.compiled_for(sizes) == p.compiled_for(base) for p in self._programs)
        except PorterError:
            return False

    def _executed(self, changes: dict[str, int]) -> _Made | None:
        sizes = {**self._base, **changes}
        seen = self._seen_at(sizes) if self._is_alike(self._base, sizes) else None
        return None if seen is None else _Made(changes, (seen.first, seen.last), seen.near)

    def _alone(self, there: _Made, name: str, values: Sequence[int]) -> Iterator[_Made]:
        """What is seen with other values of a size, also with those at which comparisons come to what they come to at
        none of these."""
        found = [one for value in values if (one := self._executed({**there.changes, name: value})) is not None]
        yield from found
        was, unit = int(self._base[name]), self._units[name]
        aims, ones = set[int](), [*found, there]
        came: dict[object, set[object]] = defaultdict(set)
        for place, what in (feature for one in ones for block in one.blocks for feature in block):
            came[place].add(what)
        for place in (place for place in there.near if len(came[place]) == 1):
            near = [(one.near[place], one.changes.get(name, was)) for one in ones if place in one.near]
            apart, value = min(near)
            aims |= {value + apart, value - apart} if apart < max(near)[0] else set()
        for value in sorted(v for v in aims.difference(values) if v > 0 and v % unit == 0):
            changes = {**there.changes, name: value}
            if self._is_small(changes) and (one := self._executed(changes)) is not None:
                yield one

    def _behind(
        self, there: _Made, told: Mapping[str, Sequence[_Made]], values: Mapping[str, Sequence[int]]
    ) -> Iterator[_Made]:
        """What is seen with other values of a second size where a first one brings blocks to further comparisons."""
        reached = set(there.near)
        for name, one in ((name, one) for name, ones in told.items() for one in ones):
            if one.near.keys() <= reached:
                continue
            reached |= one.near.keys()
            for other in (other for other in told if other != name):
                telling = {two.changes[other] for two in told[other]}
                telling.update(values[other][:: len(values[other]) // _FEW + 1])
                yield from self._alone(one, other, sorted(telling))

    def _met(self, there: _Made, some: Sequence[_Made], others: Sequence[_Made]) -> Iterator[_Made]:
        """What is seen where both sizes bring a comparison that goes by both of them nearest to its other result."""
        both = []
        for place, apart in there.near.items():
            nearest = [
                min((o for o in ones if place in o.near), key=lambda o: o.near[place], default=there)
                for ones in (some, others)
            ]
            if all(any(o.near.get(place, apart) != apart for o in ones) for ones in (some, others)):
                changes = nearest[0].changes | nearest[1].changes
                both += [changes] if len(changes) > 1 and changes not in both else []
        yield from (one for changes in both if (one := self._executed(changes)) is not None)

    def _both(self, there: _Made, one: _Made, other: _Made) -> _Made:
        """Two sizes that are changed together, each of which changes its own features; where the grid grows with both,
        there also are blocks that are the last ones in one way alone."""
        changes = one.changes | other.changes
        blocks = [a & b | a - was | b - was for was, a, b in zip(there.blocks, one.blocks, other.blocks, strict=True)]
        count, *grown = (math.prod(self._bound(c).launch.grid) for c in ({}, one.changes, other.changes, changes))
        if min(grown) > count and grown[0] * grown[1] == grown[2] * count:
            blocks += [*one.blocks, *other.blocks]
        return _Made(changes, blocks, {})

    def _values(self) -> Mapping[str, list[int]]:
        """By size, those that are looked at, few tiles, and one with a part of one; of turns a part alone."""
        found = {}
        extents, steps = extents_of(self._case)
        for name, unit in self._units.items():
            values = {int(sizes[name]) for sizes in self._chosen}
            if name in extents:
                values |= {extents[name] * n for n in range(1, self._tiles + _MORE) if extents[name] % unit == 0}
                first = extents[name] * (self._tiles if name not in steps else 0)
                values |= {v for part in _parts(extents[name] // unit) if (v := first + unit * part) % unit == 0}
            found[name] = sorted(v for v in values if self._is_small({name: v}))
        return found

    def _steps_of(self) -> Mapping[str, int]:
        """By size, what all values of it are multiples of."""
        problem = bind(self._case, self._base)
        found = {}
        for name, value in self._base.items():
            if not isinstance(value, int) or isinstance(value, bool):
                continue
            values = {int(sizes[name]) for sizes in self._chosen}
            if any(values):
                found[name] = math.gcd(unit_of(self._case, problem, name), *values)
        return found

    def _is_small(self, changes: Mapping[str, int]) -> bool:
        try:
            return work(self._bound(changes)) <= _LONGER * work(self._bound({}))
        except PorterError:
            return False


def _telling(there: _Made, ones: Sequence[_Made]) -> list[_Made]:
    """Few of some that have all pairs of features, beside what is there."""
    return [ones[index] for index in _fewest([one.blocks for one in ones], [there.blocks])]


def _parts(units: int) -> Iterator[int]:
    """Numbers below `units` of which one bit is set, or two that are next to each other, or of what they lack one."""
    for power in (1 << i for i in range(units.bit_length())):
        yield from (n for n in (power, 3 * power, units - power) if 0 < n < units)


def _fewest(pool: Sequence[Sequence[Features]], seen: Sequence[Sequence[Features]]) -> list[int]:
    """Few of a pool, by their indices, with each pair of features in one block that is in none which is seen."""
    where: dict[Feature, int] = {}
    bits = 0
    of: list[int] = []
    for blocks in (*pool, *seen):
        of.append((1 << bits + len(blocks)) - (1 << bits))
        for block in blocks:
            for feature in block:
                where[feature] = where.get(feature, 0) | 1 << bits
            bits += 1
    known = reduce(int.__or__, of[len(pool) :], 0)
    distinct = set(where.values())
    together = {both for one in distinct for other in distinct if (both := one & other) and not both & known}
    left = Counter(frozenset(index for index in range(len(pool)) if both & of[index]) for both in together)
    found = []
    while left:
        counts = Counter[int]()
        for owners, count in left.items():
            counts.update(dict.fromkeys(owners, count))
        best = min(counts, key=lambda index: (-counts[index], index))
        found.append(best)
        left = Counter({owners: count for owners, count in left.items() if best not in owners})
    return found
