# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a kernel's synchronization."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

Level = Literal["error", "strict", "review"]
_LEVELS: tuple[Level, ...] = ("error", "strict", "review")
"""The worst first."""


@dataclass(frozen=True)
class Finding:
    """`kind` is an ID of the catalog of hazards, or a word of its own for what the catalog has no ID of (`deadlock`,
    `phase`, `bytes`, `count`, `columns`, `mask`, `aligned`, `outside`). `first` and `second` are instructions.
    `missing`: the edge that is, without names and numbers. `pairs` of these two are wrong, the first when threads
    execute the second for time `turn`."""

    kind: str
    level: Level
    text: str
    second: int | None
    first: int | None = None
    between_blocks: bool = False
    missing: str = ""
    pairs: int = 1
    turn: int | None = None

    @property
    def identity(self) -> tuple[str, int | None, int | None]:
        """Equal for findings about one pair of instructions."""
        return self.kind, self.first, self.second

    def joined(self, other: Finding) -> Finding:
        """Both as one: the worse, and of these the one that begins first."""
        first, then = (other, self) if _order(other) < _order(self) else (self, other)
        between = first.between_blocks and then.between_blocks
        return replace(first, pairs=first.pairs + then.pairs, between_blocks=between)


def _order(finding: Finding) -> tuple[int, int]:
    return _LEVELS.index(finding.level), finding.turn or 0


def by_cause(findings: Iterable[Finding], place: Callable[[int | None], object]) -> list[Finding]:
    """One for all that have the same ID, level, two places and missing edge."""
    found: dict[object, Finding] = {}
    for finding in findings:
        missing = finding.missing or _NUMBERS.sub("", finding.text)
        key = finding.kind, finding.level, missing, place(finding.first), place(finding.second)
        found[key] = found[key].joined(finding) if key in found else finding
    return list(found.values())


_NUMBERS = re.compile(r"\d+")


class Findings:
    """Findings, one of each pair of places."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None, int | None], Finding] = {}
        self._more: Counter[tuple[str, int | None, int | None]] = Counter()
        """Pairs that were counted alone."""

    def add(
        self, kind: str, text: str, second: int | None, *, first: int | None = None, level: Level = "error",
        between_blocks: bool = False, missing: str = "", turn: int | None = None,
    ) -> None:  # fmt: skip
        found = Finding(kind, level, text, second, first, between_blocks, missing, turn=turn)
        known = self._found.get(found.identity)
        self._found[found.identity] = found if known is None else known.joined(found)

    def again(
        self, kind: str, second: int | None, first: int | None, level: Level, between_blocks: bool, turn: int
    ) -> bool:  # fmt: skip
        """Count a pair of which nothing need be told: one of these two places is known that is as bad, and begins no
        later."""
        known = self._found.get((kind, first, second))
        if known is None or known.between_blocks > between_blocks:
            return False
        if (_LEVELS.index(level), turn) < _order(known):
            return False
        self._more[known.identity] += 1
        return True

    def all(self) -> list[Finding]:
        found = [replace(f, pairs=f.pairs + self._more[f.identity]) for f in self._found.values()]
        return sorted(found, key=lambda f: _LEVELS.index(f.level))
