# SPDX-License-Identifier: Apache-2.0
"""Stores of a lane as those of rows: two in every eight columns of one, and of another for the half below. That lanes
have the elements of a fragment of MMAs, those of row `lane / 4`, is for PTX to say."""

from __future__ import annotations

from dataclasses import dataclass

from porter.ptx.wgmma import COLUMN_GROUP

ROW_BYTES = 128
"""Of a row that leave together."""
_WIDTHS = (1, 2, 4)


@dataclass(frozen=True)
class Put:
    """A store of a turn: the `index` of its statement, the values of the loops around that, where its `size` bytes go,
    and how much further those of the next turn (`forward`)."""

    index: int
    values: tuple[int, ...]
    at: int
    size: int
    forward: int


@dataclass(frozen=True)
class Rows:
    """Stores of `step` columns a turn, of elements of `nbytes`, in `halves` rows of each lane. `places`: by statement,
    for each turn of its loops their values, the half and the column in the turn; `pairs`: whether a statement stores
    two neighbours."""

    nbytes: int
    step: int
    halves: int
    places: dict[int, list[tuple[tuple[int, ...], int, int]]]
    pairs: dict[int, bool]

    @property
    def warp_bytes(self) -> int:
        """What a warp stages: two parts, whose rows are so far apart that lanes of a quarter meet other banks."""
        return 2 * COLUMN_GROUP * self.halves * (ROW_BYTES + max(16, COLUMN_GROUP * self.nbytes))

    def texts(self, index: int, names: list[str]) -> tuple[str, str]:
        """The half and the column of a statement, of the variables of the loops around it."""
        found = self.places[index]
        return _text(names, [(v, h) for v, h, _ in found]), _text(names, [(v, c) for v, _, c in found])


def rows_of(puts: list[Put]) -> Rows | str:
    """What stores of a turn are, or what they lack."""
    sizes = {put.size for put in puts}
    found = [_of_elements(puts, n) for n in dict.fromkeys((max(sizes), max(sizes) // 2)) if n in _WIDTHS]
    return next((f for f in found if isinstance(f, Rows)), found[0] if found else "elements of 1, 2 or 4 bytes")


def _of_elements(puts: list[Put], nbytes: int) -> Rows | str:
    """What stores of a turn are, of elements of so many bytes."""
    if any(put.size not in (nbytes, 2 * nbytes) for put in puts):
        return "that all stores of a turn have the same elements"
    step = puts[0].forward
    if any(put.forward != step for put in puts):
        return "that all stores of a turn have as many columns"
    if step <= 0 or step % (COLUMN_GROUP * nbytes) or ROW_BYTES % step:
        return (
            f"turns of this loop that store whole groups of {COLUMN_GROUP} columns, of which some are {ROW_BYTES} bytes"
        )
    rows: list[list[Put]] = []
    for put in puts:
        near = next((row for row in rows if abs(put.at - row[0].at) < ROW_BYTES), None)
        if near is None:
            rows.append(near := [])
        near.append(put)
    if len(rows) > 2:
        return "one row, or two, of each lane in a turn of this loop"
    places: dict[int, list[tuple[tuple[int, ...], int, int]]] = {}
    pairs = {put.index: put.size == 2 * nbytes for put in puts}
    wanted = sorted(c for g in range(0, step // nbytes, COLUMN_GROUP) for c in (g, g + 1))
    for half, members in enumerate(rows):
        least, found = min(put.at for put in members), []
        for put in members:
            column, rest = divmod(put.at - least, nbytes)
            found += [column, column + 1] if pairs[put.index] else [column]
            places.setdefault(put.index, []).append((put.values, half, column))
            if rest or column % COLUMN_GROUP > 1 or (pairs[put.index] and column % COLUMN_GROUP):
                return f"whole groups of {COLUMN_GROUP} columns in a turn of this loop"
        if sorted(found) != wanted:
            return f"each of {step // nbytes} columns once in a turn of this loop"
    made = Rows(nbytes, step // nbytes, len(rows), places, pairs)
    for index in places:
        if "" in made.texts(index, ["i"] * len(places[index][0][0])):
            return "which row and column each turn of an inner loop stores"
    return made


def _text(names: list[str], found: list[tuple[tuple[int, ...], int]]) -> str:
    """A number as a sum of multiples of variables; empty where it is none."""
    slopes = []
    for axis in range(len(names)):
        slope = 0
        for values, number in found:
            for others, other in found:
                alike = all(a == b for i, (a, b) in enumerate(zip(values, others, strict=True)) if i != axis)
                if alike and others[axis] != values[axis] and not slope:
                    apart = others[axis] - values[axis]
                    if (other - number) % apart:
                        return ""
                    slope = (other - number) // apart
        slopes.append(slope)
    base = found[0][1] - sum(s * v for s, v in zip(slopes, found[0][0], strict=True))
    if any(base + sum(s * v for s, v in zip(slopes, values, strict=True)) != n for values, n in found):
        return ""
    parts = [name if s == 1 else f"{s} * {name}" for s, name in zip(slopes, names, strict=True) if s]
    return " + ".join([*([str(base)] if base or not parts else []), *parts])
