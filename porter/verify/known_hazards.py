# SPDX-License-Identifier: Apache-2.0
"""Hazards that an earlier run has told: what is known of a kernel, whatever lines have moved since."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from porter.build.entry import display_name
from porter.sim.check.hazard import Hazard, Site
from porter.verify.hazards import HazardRun

Key = tuple[str, ...]
"""What a hazard keeps where lines move: kernel, kind, severity, and opcode and file of its accesses."""
Lines = tuple[int, ...]


def without_known(runs: Sequence[HazardRun], document: Mapping[str, Any]) -> list[HazardRun]:
    """The runs, of which what a document of `porter hazards --format json` has is `known`. As many of one `Key` are
    known as the document has of it: those on the same lines first, then those that lie nearest to one of them."""
    earlier: dict[tuple[str, str], dict[Key, list[Lines]]] = {}
    for run in document["runs"]:
        of_run = earlier.setdefault((run["name"], run["program"]), {})
        for found in (*run["hazards"], *run.get("known", ())):
            kernel = found.get("kernel") or display_name(run["kernel"])
            of_run.setdefault(_told_key(kernel, found), []).append(_told_lines(found))
    return [_of(run, earlier.get((run.name, run.program), {})) for run in runs]


def _of(run: HazardRun, earlier: Mapping[Key, Sequence[Lines]]) -> HazardRun:
    of_key: dict[Key, list[Hazard]] = {}
    for hazard in run.hazards:
        of_key.setdefault(_key(hazard), []).append(hazard)
    known = {id(h) for key, found in of_key.items() for h in _known(found, earlier.get(key, ()))}
    return dataclasses.replace(
        run,
        hazards=tuple(h for h in run.hazards if id(h) not in known),
        known=tuple(h for h in run.hazards if id(h) in known),
    )


def _known(found: Sequence[Hazard], earlier: Sequence[Lines]) -> Iterator[Hazard]:
    pairs = sorted(
        (sum(abs(a - b) for a, b in zip(_lines(hazard), lines, strict=True)), i, j)
        for i, hazard in enumerate(found)
        for j, lines in enumerate(earlier)
    )
    taken, left = set[int](), set(range(len(earlier)))
    for _, i, j in pairs:
        if i not in taken and j in left:
            taken.add(i)
            left.discard(j)
            yield found[i]


def _key(hazard: Hazard) -> Key:
    sites = [_site_key(s.opcode, s.loc.file if s.loc else "") for s in _sites(hazard)]
    return display_name(hazard.kernel), hazard.kind.id, hazard.severity, *sites


def _lines(hazard: Hazard) -> Lines:
    return tuple(s.loc.line if s.loc else s.ptx_line for s in _sites(hazard))


def _sites(hazard: Hazard) -> list[Site]:
    return [s for s in (hazard.first, hazard.second) if s is not None]


def _told_key(kernel: str, found: Mapping[str, Any]) -> Key:
    sites = [_site_key(s["opcode"], s["source"][0]["path"] if s["source"] else "") for s in _told_sites(found)]
    return kernel, found["hazard"], found["severity"], *sites


def _told_lines(found: Mapping[str, Any]) -> Lines:
    return tuple(s["source"][0]["line"] if s["source"] else s["ptx_line"] or 0 for s in _told_sites(found))


def _told_sites(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [s for s in (found["first"], found["second"]) if s is not None]


def _site_key(opcode: str, file: str) -> str:
    return f"{opcode} {PurePath(file).name}"
