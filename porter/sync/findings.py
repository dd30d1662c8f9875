# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a kernel's synchronization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "strict", "review"]
_LEVELS: tuple[Level, ...] = ("error", "strict", "review")
"""The worst first."""


@dataclass(frozen=True)
class Finding:
    """`kind` is an ID of the catalog of hazards, or a word of its own for what the catalog has no ID of (`deadlock`,
    `phase`, `bytes`, `count`, `columns`). `first` and `second` are instructions."""

    kind: str
    level: Level
    text: str
    second: int | None
    first: int | None = None
    between_blocks: bool = False

    @property
    def identity(self) -> tuple[str, int | None, int | None]:
        """Equal for findings about one pair of instructions."""
        return self.kind, self.first, self.second


class Findings:
    """Findings, one of each pair of places."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None, int | None], Finding] = {}

    def add(
        self, kind: str, text: str, second: int | None, *, first: int | None = None, level: Level = "error",
        between_blocks: bool = False,
    ) -> None:  # fmt: skip
        found = Finding(kind, level, text, second, first, between_blocks)
        known = self._found.setdefault(found.identity, found)
        if _LEVELS.index(level) < _LEVELS.index(known.level):
            self._found[found.identity] = found

    def all(self) -> list[Finding]:
        return sorted(self._found.values(), key=lambda f: _LEVELS.index(f.level))
