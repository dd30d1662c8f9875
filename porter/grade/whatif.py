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
    "pair": changes.pair,
    "m128": changes.full_rate,
    "specialize": changes.specialize,
    "overlap": changes.overlap,
}


def read_problem(text: str) -> Problem:
    """`4096x4096x4096`. Raises ValueError."""
    match = _SIZES.fullmatch(text.strip())
    if match is None or match[3] is None or "0" in match.groups():
        raise ValueError(f"`{text}` is not MxNxK")
    return Problem(int(match[1]), int(match[2]), int(match[3]))


def apply(text: str, shape: Shape, problem: Problem) -> tuple[Shape, Problem]:
    """The changes of one option, from left to right.

    Raises ValueError for a change that is none, Impossible for one that the chip or the kernel does not allow.
    """
    for item in text.split(","):
        name, _, value = (part.strip() for part in item.partition("="))
        if name == "problem":
            problem = read_problem(value)
        elif name in _PLAIN and not value:
            shape = _PLAIN[name](shape)
        elif name == "stages" and value.isdigit():
            shape = _stages(shape, int(value))
        elif name == "blocks" and value.isdigit():
            shape = changes.blocks(shape, max(1, int(value)))
        elif name == "tile" and (match := _SIZES.fullmatch(value)):
            shape = changes.tile(shape, int(match[1]), int(match[2]), int(match[3]) if match[3] else None)
        else:
            known = ", ".join(["tile=MxN[xK]", "stages=N", "blocks=N", "problem=MxNxK", *_PLAIN])
            raise ValueError(f"`{item.strip()}` is none of {known}")
    return shape, problem


def _stages(shape: Shape, count: int) -> Shape:
    """A number that nobody read is stated; one that is known is changed."""
    if shape.stages is None:
        return replace(shape, stages=max(1, count))
    return changes.stages(shape, count)


__all__ = ["Impossible", "apply", "read_problem"]
