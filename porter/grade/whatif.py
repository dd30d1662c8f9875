# SPDX-License-Identifier: Apache-2.0
"""What `--what-if` says, applied to a shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from porter.grade import changes
from porter.grade.changes import Impossible
from porter.grade.shape import Problem, Shape

_SIZES = re.compile(r"(\d+)x(\d+)(?:x(\d+))?")

_PLAIN: dict[str, Callable[[Shape], Shape]] = {
    "m128": changes.full_rate,
    "wide": changes.wider,
    "specialize": changes.specialize,
    "pair": changes.pair,
    "persistent": changes.persistent,
    "overlap": changes.overlap,
    "bulk-store": changes.bulk_store,
    "ahead": changes.ahead,
}
"""In the order in which they build on each other."""


def read_problem(text: str) -> Problem:
    """`4096x4096x4096`. Raises ValueError."""
    match = _SIZES.fullmatch(text.strip())
    if match is None or match[3] is None or "0" in match.groups():
        raise ValueError(f"`{text}` is not MxNxK")
    return Problem(int(match[1]), int(match[2]), int(match[3]))


def apply(text: str, shape: Shape, problem: Problem) -> tuple[Shape, Problem]:
    """The changes of one option. Their order means nothing: roles and pairs come first, then the tile, which is that of
    both blocks of a pair, then the stages and the blocks of an SM; and what fits is asked of the result.

    Raises ValueError for a change that is none, Impossible for one that the chip or the kernel does not allow.
    """
    plain: list[str] = []
    tiles: list[tuple[int, int, int | None]] = []
    counts: list[int] = []
    shared: list[int] = []
    for item in text.split(","):
        name, _, value = (part.strip() for part in item.partition("="))
        if name == "problem":
            problem = read_problem(value)
        elif name in _PLAIN and not value:
            plain.append(name)
        elif name == "stages" and value.isdigit():
            counts.append(int(value))
        elif name == "blocks" and value.isdigit():
            shared.append(max(1, int(value)))
        elif name == "tile" and (match := _SIZES.fullmatch(value)):
            tiles.append((int(match[1]), int(match[2]), int(match[3]) if match[3] else None))
        else:
            known = ", ".join(["tile=MxN[xK]", "stages=N", "blocks=N", "problem=MxNxK", *_PLAIN])
            raise ValueError(f"`{item.strip()}` is none of {known}")
    if not (plain or tiles or counts or shared):
        return shape, problem
    if shape.stages is None and counts:
        # a number that nobody read is stated, not changed
        shape = replace(shape, stages=max(1, counts.pop(0)))
    for name in sorted(plain, key=list(_PLAIN).index):
        shape = changes.pair(shape, rows=1) if name == "pair" and tiles else _PLAIN[name](shape)
    for m, n, k in tiles:
        shape = changes.tile(shape, m, n, k)
    for count in counts:
        shape = changes.stages(shape, count)
    for count in shared:
        shape = changes.blocks(shape, count)
    return changes.fitting(shape), problem


__all__ = ["Impossible", "apply", "read_problem"]
