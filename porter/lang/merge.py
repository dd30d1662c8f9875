# SPDX-License-Identifier: Apache-2.0
"""Three-way merge of texts by lines, with conflicts marked as git marks them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from porter.lang.diff import split_lines
from porter.lang.matching import LineMatcher


@dataclass(frozen=True)
class Merged:
    """`text` holds a marked region for each of the `conflicts`."""

    text: bytes
    conflicts: int


def merge(base: bytes, mine: bytes, theirs: bytes, mine_is: str = "yours", theirs_is: str = "port") -> Merged:
    """The changes from `base` to `mine` and to `theirs` together. Where both change the same lines, or lines that
    touch, and not alike, both stand there between markers with the names of the sides."""
    if mine in (base, theirs):
        return Merged(theirs, 0)
    if theirs == base:
        return Merged(mine, 0)
    o, a, b = split_lines(base), split_lines(mine), split_lines(theirs)
    pieces: list[bytes] = []
    conflicts = 0
    at_o = at_a = at_b = 0
    for o0, a0, b0, length in _unchanged(o, a, b):
        old, left, right = o[at_o:o0], a[at_a:a0], b[at_b:b0]
        if left in (old, right):
            pieces += right
        elif right == old:
            pieces += left
        else:
            conflicts += 1
            pieces += _marked(left, right, mine_is, theirs_is)
        pieces += o[o0 : o0 + length]
        at_o, at_a, at_b = o0 + length, a0 + length, b0 + length
    return Merged(b"".join(pieces), conflicts)


def _unchanged(o: list[bytes], a: list[bytes], b: list[bytes]) -> Iterator[tuple[int, int, int, int]]:
    """Runs of lines that all three have: where they begin in each, and how many lines; the end as one of none."""
    left = LineMatcher(o, a).get_matching_blocks()
    right = LineMatcher(o, b).get_matching_blocks()
    i = j = 0
    while i < len(left) and j < len(right):
        one, two = left[i], right[j]
        start, end = max(one.a, two.a), min(one.a + one.size, two.a + two.size)
        if start < end:
            yield start, one.b + start - one.a, two.b + start - two.a, end - start
        if one.a + one.size < two.a + two.size:
            i += 1
        else:
            j += 1
    yield len(o), len(a), len(b), 0


def _marked(left: list[bytes], right: list[bytes], mine_is: str, theirs_is: str) -> Iterator[bytes]:
    head = 0
    while head < min(len(left), len(right)) and left[head] == right[head]:
        head += 1
    tail = 0
    while tail < min(len(left), len(right)) - head and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    yield from left[:head]
    yield b"<<<<<<< %s\n" % mine_is.encode()
    yield from _ended(left[head : len(left) - tail])
    yield b"=======\n"
    yield from _ended(right[head : len(right) - tail])
    yield b">>>>>>> %s\n" % theirs_is.encode()
    yield from left[len(left) - tail :]


def _ended(lines: list[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line if line.endswith(b"\n") else line + b"\n"
