# SPDX-License-Identifier: Apache-2.0
"""Hazards by cause: one missing edge shows in many pairs of accesses."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from porter.ptx import ast
from porter.ptx.calls import inlined
from porter.sim.check.hazard import Hazard, Site

_HELPER_LINES = 24
"""Lines of one inlined call that lie this close are one place: a helper's, not those of all that a kernel calls."""


@dataclass(frozen=True)
class Cause:
    """Hazards of one kind with one first access, or with one second access and one remedy; the first found leads."""

    hazards: tuple[Hazard, ...]

    @property
    def lead(self) -> Hazard:
        return self.hazards[0]

    @property
    def count(self) -> int:
        """How often pairs of the cause were seen."""
        return sum(hazard.count for hazard in self.hazards)

    @property
    def edges(self) -> list[tuple[str, str]]:
        """(what is missing, the instruction that supplies it), each once."""
        return list(dict.fromkeys((hazard.missing, hazard.remedy) for hazard in self.hazards))

    @property
    def first_sites(self) -> list[Site]:
        return [hazard.first for hazard in self.hazards if hazard.first is not None]

    @property
    def second_sites(self) -> list[Site]:
        return [hazard.second for hazard in self.hazards]


def causes(hazards: Sequence[Hazard]) -> list[Cause]:
    """The causes, in the order in which they were found first."""
    group = list(range(len(hazards)))

    def root(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    for same in _alike(hazards):
        for i, j in pairwise(same):
            a, b = sorted((root(i), root(j)))
            group[b] = a
    members: dict[int, list[Hazard]] = {}
    for i, hazard in enumerate(hazards):
        members.setdefault(root(i), []).append(hazard)
    return [Cause(tuple(found)) for found in members.values()]


def _alike(hazards: Sequence[Hazard]) -> Iterator[list[int]]:
    """Numbers of hazards that have a cause in common."""
    firsts: dict[Hashable, list[tuple[Site, int]]] = {}
    seconds: dict[Hashable, list[tuple[Site, int]]] = {}
    for i, h in enumerate(hazards):
        kind = h.kind.id, h.severity, h.kernel
        if h.first is not None:
            firsts.setdefault(kind, []).append((h.first, i))
        seconds.setdefault((*kind, h.first is None, h.missing, h.remedy), []).append((h.second, i))
    for sites in (*firsts.values(), *seconds.values()):
        yield from _by_place(sites)


def _by_place(sites: Sequence[tuple[Site, int]]) -> Iterator[list[int]]:
    calls: dict[Hashable, list[tuple[int, int]]] = {}
    for site, i in sites:
        loc = site.loc
        if loc is None:
            calls.setdefault(("PTX", site.ptx_line), []).append((0, i))
        elif loc.inlined_at is None:
            calls.setdefault((loc.file, loc.line), []).append((0, i))
        else:
            calls.setdefault((loc.file, loc.inlined_at), []).append((loc.line, i))
    for found in calls.values():
        found.sort()
        same = [found[0][1]]
        for (before, _), (line, i) in pairwise(found):
            if line - before > _HELPER_LINES:
                yield same
                same = []
            same.append(i)
        yield same


@dataclass(frozen=True)
class Place:
    """Accesses by one opcode from one file and one chain of calls: all their lines; `ptx_lines` likewise."""

    what: str
    opcode: str
    file: str
    lines: tuple[int, ...]
    ptx_lines: tuple[int, ...]
    inlined_at: ast.SourceLoc | None

    @property
    def text(self) -> str:
        """`epilogue.cuh:40, 41, 44, inlined at gemm.cu:10 (PTX lines 100, 104)`."""
        ptx = f"PTX line{'s' if len(self.ptx_lines) > 1 else ''} {_listed(self.ptx_lines)}"
        if not self.file:
            return ptx
        calls = self.inlined_at.outwards() if self.inlined_at is not None else ()
        through = inlined(self.file, ((loc.file, loc.line) for loc in calls))
        return f"{self.file}:{_listed(self.lines)}{through} ({ptx})"


def places(sites: Sequence[Site]) -> list[Place]:
    """Sites folded: those of one opcode, file and chain of calls are one place."""
    folded: dict[Hashable, list[Site]] = {}
    for site in sites:
        loc = site.loc
        chain = ("", None) if loc is None else (loc.file, loc.inlined_at)
        folded.setdefault((site.what, site.opcode, chain), []).append(site)
    return [
        Place(
            found[0].what,
            found[0].opcode,
            "" if found[0].loc is None else found[0].loc.file,
            tuple(sorted({site.loc.line for site in found if site.loc is not None})),
            tuple(sorted({site.ptx_line for site in found})),
            None if found[0].loc is None else found[0].loc.inlined_at,
        )
        for found in folded.values()
    ]


def _listed(numbers: tuple[int, ...], most: int = 12) -> str:
    left = len(numbers) - most
    return ", ".join(map(str, numbers[:most])) + (f" and {left} more" if left > 0 else "")
