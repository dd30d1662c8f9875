# SPDX-License-Identifier: Apache-2.0
"""Sizes that satisfy what host code asks of them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from porter.scan.draft.numbers import Num, Value, divisors

_MOST_TRIED = 20_000
_FEW = re.compile(
    r"(?:num_?)?(?:h|b|l|g|heads?|batch(?:es)?|groups?|nheads?|count|experts?)(?:_?[qkv])?$", re.IGNORECASE
)
"""Sizes that nothing has to be a multiple of."""


def fixed(conditions: Iterable[Num]) -> dict[str, Value]:
    """Sizes that a condition leaves one value."""
    found: dict[str, Value] = {}
    for condition in conditions:
        for part in parts(condition):
            if part.op == "==" and part.args[0].op == "name" and part.args[1].known is not None:
                found[part.args[0].name] = part.args[1].known
            elif part.op == "name":
                found[part.name] = True
            elif part.op == "not" and part.args[0].op == "name":
                found[part.args[0].name] = False
    return found


def parts(condition: Num) -> Iterable[Num]:
    """What has to hold together."""
    if condition.op == "and":
        for inner in condition.args:
            yield from parts(inner)
    else:
        yield condition


def dividing(conditions: Iterable[Num]) -> list[Num]:
    """What has to hold, without what must not, or need not: a size that is to be no multiple of a number has none of
    its tiles."""
    return [one for condition in conditions for one in parts(condition) if one.op not in ("!=", "not", "%", "or")]


def strides_of(names: Sequence[str], expressions: list[Num], boxes: Mapping[str, int]) -> dict[str, int]:
    """What each size is taken a multiple of."""
    found = {}
    for name in names:
        by = divisors(expressions, name)
        box = boxes.get(name, 1)
        found[name] = math.lcm(by, box) if math.lcm(by, box) <= 1024 else by
    return found


def choose(
    names: Sequence[str], by: Mapping[str, int], reduction: str, conditions: Sequence[Num], given: Mapping[str, Value]
) -> tuple[dict[str, Value], bool]:
    """A size for each name, and whether all conditions hold: few tiles, with several steps of the reduction."""
    order = [n for n in names if n not in given]
    choices = []
    for n in order:
        unit = by.get(n, 1)
        if unit == 1:
            choices.append([2, 4, 1] if _FEW.match(n) else [128, 64, 256, 1, 2, 4, 8])
        elif n == reduction:
            unit = math.lcm(unit, 64) if unit < 64 and math.lcm(unit, 64) <= 512 else unit
            choices.append([unit * f for f in (5, 6, 8, 3, 4, 2, 1, 16)])
        else:
            choices.append([unit * f for f in (2, 3, 1, 4, 8)])
    if order:
        # not all the same: a kernel that mixes two sizes up has to show
        tiles = [i for i, n in enumerate(order) if n != reduction and by.get(n, 1) > 1]
        for at in tiles[1::2]:
            choices[at] = [choices[at][2], *choices[at][:2], *choices[at][3:]]
    first: dict[str, Value] | None = None
    for tried, values in enumerate(itertools.product(*choices)):
        found: dict[str, Value] = {**given, **dict(zip(order, values, strict=True))}
        first = found if first is None else first
        if tried > _MOST_TRIED:
            break
        if all(_holds(c, found) for c in conditions):
            return found, True
    return first or dict(given), False


def _holds(condition: Num, sizes: Mapping[str, Value]) -> bool:
    try:
        return bool(condition.run(sizes))
    except (KeyError, ZeroDivisionError, TypeError):
        return True
