# SPDX-License-Identifier: Apache-2.0
"""Hazards as they are reported."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from porter.ptx import ast
from porter.ptx.calls import inlined
from porter.sim.check.catalog import HazardKind
from porter.sim.check.rulings import Ruling

Level = Literal["strict", "practice"]
Severity = Literal["error", "review"]


@dataclass(frozen=True)
class Site:
    """One of the two accesses: what it is, the instruction and who executed it."""

    what: str
    opcode: str
    ptx_line: int
    loc: ast.SourceLoc | None
    block: tuple[int, int, int] | None = None
    warp: int | None = None
    lane: int | None = None

    @property
    def who(self) -> str:
        parts = [] if self.block is None else ["block " + ",".join(map(str, self.block))]
        if self.warp is not None:
            parts.append(f"warp {self.warp}" + ("" if self.lane is None else f" lane {self.lane}"))
        return " ".join(parts)

    @property
    def place(self) -> str:
        """Source file and line, with the calls it was inlined through, or the PTX line."""
        if self.loc is None:
            return f"PTX line {self.ptx_line}"
        first, *rest = self.loc.outwards()
        through = inlined(first.file, ((loc.file, loc.line) for loc in rest))
        return f"{first.file}:{first.line}{through} (PTX line {self.ptx_line})"


@dataclass(frozen=True)
class Edge:
    """An ordering that some pair of accesses lacked, in words without addresses, and what would supply it. `relied`:
    more than the letter of the ISA asks for it, but in practice something else orders this pair. `waited`: where the
    threads that issued the first access have waited for it, if what lacks comes behind that."""

    missing: str
    remedy: str
    relied: bool = False
    waited: ast.SourceLoc | None = None


_ADDRESS = re.compile(r" \([^)]*\)")


@functools.cache
def edge(missing: str, remedy: str, relied: bool = False, waited: ast.SourceLoc | None = None) -> Edge:
    return Edge(_ADDRESS.sub("", missing), remedy, relied, waited)


@dataclass
class Hazard:
    """Two accesses without the edge that must be between them. `first` is None where one access is enough.

    `race` is RAW, WAR, WAW or empty. `missing` is the edge, `remedy` the instruction that would supply it.
    `strict` marks what only the letter of the PTX ISA forbids; `ruling` says why practice tolerates the hazard.
    `count` is how often the pair was seen, `seed` that of the first run that showed it, where there were several.
    `edges` are those of all pairs that were seen.
    """

    kind: HazardKind
    severity: Severity
    race: str
    kernel: str
    first: Site | None
    second: Site
    where: str
    missing: str
    remedy: str
    strict: bool
    count: int = 1
    seed: int | None = None
    edges: set[Edge] = field(default_factory=set)
    ruling: Ruling | None = None

    @property
    def message(self) -> str:
        race = f"{self.race}: " if self.race else ""
        return f"{race}{self.kind.title}; missing: {self.missing}"

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for hazards between the same source lines."""
        first = None if self.first is None else (self.first.loc or self.first.ptx_line, self.first.opcode)
        return self.kind.id, first, self.second.loc or self.second.ptx_line, self.second.opcode, self.severity


def collect(into: list[Hazard], found: Iterable[Hazard]) -> None:
    """Add hazards, those already there only to their count."""
    known = {hazard.identity: hazard for hazard in into}
    for hazard in found:
        same = known.get(hazard.identity)
        if same is None:
            known[hazard.identity] = hazard
            into.append(hazard)
        else:
            same.count += hazard.count
            same.edges |= hazard.edges
