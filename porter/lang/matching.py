# SPDX-License-Identifier: Apache-2.0
"""Which lines of two texts are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_MOST_PAIRS = 5_000_000
"""Of equal lines, which `difflib` looks at again and again. Texts with more consist of few different lines."""
_MOST_CHANGES = 2_000
"""Lines that go or come, in such texts. Where there are more they have changed as a whole."""


class LineMatcher(SequenceMatcher[T], Generic[T]):
    """What `difflib` finds, in time that does not grow with the square of a text of equal lines: of two texts what
    lies between their common head and tail, which for a port is most of a file, is compared."""

    def __init__(self, a: Sequence[T], b: Sequence[T]) -> None:
        head = _common(a, b)
        tail = _common(a[head:][::-1], b[head:][::-1])
        self._head = head
        self._tail, self._end = Match(len(a) - tail, len(b) - tail, tail), Match(len(a), len(b), 0)
        self._inner = a[head : len(a) - tail], b[head : len(b) - tail]
        super().__init__(None, *self._inner, autojunk=False)

    def get_opcodes(self) -> list[tuple[Any, int, int, int, int]]:
        codes: list[tuple[Any, int, int, int, int]] = []
        at_a = at_b = 0
        for a, b, size in self.get_matching_blocks():
            if at_a < a or at_b < b:
                tag = "replace" if at_a < a and at_b < b else "delete" if at_a < a else "insert"
                codes.append((tag, at_a, a, at_b, b))
            if size:
                codes.append(("equal", a, a + size, b, b + size))
            at_a, at_b = a + size, b + size
        return codes

    def get_matching_blocks(self) -> list[Match]:
        inner: list[Match] = super().get_matching_blocks() if self._is_cheap() else list(_fewest(*self._inner))
        blocks = [Match(0, 0, self._head)]
        for a, b, size in [*(Match(m.a + self._head, m.b + self._head, m.size) for m in inner), self._tail]:
            last = blocks[-1]
            if (last.a + last.size, last.b + last.size) == (a, b):
                blocks[-1] = Match(last.a, last.b, last.size + size)
            elif size:
                blocks.append(Match(a, b, size))
        return [*(m for m in blocks if m.size), self._end]

    def _is_cheap(self) -> bool:
        old, new = Counter(self._inner[0]), Counter(self._inner[1])
        return sum(count * new[line] for line, count in old.items()) <= _MOST_PAIRS


def _common(a: Sequence[T], b: Sequence[T]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _fewest(a: Sequence[T], b: Sequence[T]) -> Iterator[Match]:
    """The matches that leave the fewest lines (E. W. Myers, An O(ND) Difference Algorithm, 1986); none if those are
    too many."""
    furthest = {1: 0}
    steps: list[dict[int, int]] = []
    for changes in range(min(len(a) + len(b), _MOST_CHANGES) + 1):
        steps.append(dict(furthest))
        for diagonal in range(-changes, changes + 1, 2):
            down = diagonal == -changes or (
                diagonal != changes and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
            )
            x = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            furthest[diagonal] = x
            if x >= len(a) and y >= len(b):
                yield from _walked(steps, len(a), len(b))
                return


def _walked(steps: Sequence[dict[int, int]], x: int, y: int) -> list[Match]:
    found = []
    for changes in range(len(steps) - 1, -1, -1):
        furthest, diagonal = steps[changes], x - y
        if changes == 0:
            found.append(Match(0, 0, x))
            break
        down = diagonal == -changes or (
            diagonal != changes and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
        )
        before = diagonal + 1 if down else diagonal - 1
        from_x = furthest[before]
        start = from_x if down else from_x + 1
        found.append(Match(start, start - diagonal, x - start))
        x, y = from_x, from_x - before
    return [m for m in reversed(found) if m.size]
