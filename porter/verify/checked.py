# SPDX-License-Identifier: Apache-2.0
"""Hazards among the results of a verification: the checked runs of a row, and what they say as diagnostics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location
from porter.sim.check.causes import Cause, causes, places
from porter.sim.check.hazard import Hazard, Level
from porter.verify.backends import Backend, RunResult
from porter.verify.builder import BuiltKernel
from porter.verify.case import Case
from porter.verify.hazards import HazardRun, against_original
from porter.verify.inherited import Inherited
from porter.verify.line_map import LineMap


@dataclass(frozen=True)
class Checking:
    """A backend that looks for hazards, at a level and with a schedule. `lacks_fences`: as of a `HazardRun`."""

    backend: Backend
    level: Level
    schedule: str
    lacks_fences: bool = False


def checked_run(
    case: Case, program: str, kernel: BuiltKernel, checking: Checking, seed: int, result: RunResult
) -> HazardRun:
    """What a backend that looks for hazards found in one run."""
    bad = bool(result.hazards) or result.status != "ok"
    return HazardRun(case.name, program, kernel.entry, kernel.arch, checking.level, checking.schedule, (seed,),
                     result.status, result.findings, tuple(result.hazards), result.warp_instructions, result.seconds,
                     seed if bad else None, lacks_fences=checking.lacks_fences)  # fmt: skip


def judged(runs: Sequence[HazardRun], sources: Sequence[Path]) -> tuple[HazardRun, ...]:
    """Runs of an original and its port, compiled from `sources`, with what the port inherits told apart; the original
    alone as it is."""
    if [run.program for run in runs] != ["original", "port"]:
        return tuple(runs)
    port, original = against_original(runs[1], runs[0], LineMap(*sources))
    return original, port


def hazard_diagnostics(kernel: Path, runs: Sequence[HazardRun]) -> Iterator[Diagnostic]:
    """Errors for what counts, warnings for what a port has from its original, one for each cause; what only the letter
    of the ISA forbids there is in the table. `kernel` stands for a place that is not known."""
    for run in runs:
        alike = {id(s.hazard): s for s in run.similar}
        for cause in causes(run.hazards):
            if not run.baseline and cause.lead.severity == "error":
                like = next((alike[id(h)] for h in cause.hazards if id(h) in alike), None)
                yield _hazard(kernel, run, cause, like)
        had = {id(i.hazard): i.original for i in run.inherited if i.original.severity == "error"}
        for cause in causes([i.hazard for i in run.inherited if id(i.hazard) in had]):
            yield _inherited(kernel, run, cause, had[id(cause.lead)])


def _where(kernel: Path, hazard: Hazard) -> Location:
    loc = hazard.second.loc
    return Location(str(kernel)) if loc is None else Location(loc.file, loc.line)


def _hazard(kernel: Path, run: HazardRun, cause: Cause, alike: Inherited | None) -> Diagnostic:
    """What a report of hazards says in several lines, as one diagnostic."""
    hazard = cause.lead
    lines = _lines(run, cause)
    if alike is not None:
        lines.append(likeness(alike))
    return Diagnostic(
        hazard.kind.code, _where(kernel, hazard), {"id": hazard.kind.id, "what": hazard.kind.title}, "\n".join(lines)
    )


def likeness(found: Inherited) -> str:
    """How an introduced hazard differs from the one that the original has in its place."""
    text = f"the original has {found.original.kind.id} in the same place, where it lacks: {found.original.missing}"
    return text + (f"; the port lacks beyond that: {found.more}" if found.more else "")


def _inherited(kernel: Path, run: HazardRun, cause: Cause, original: Hazard) -> Diagnostic:
    kind = cause.lead.kind
    values = {"id": kind.id, "what": kind.title, "place": original.second.place}
    return Diagnostic(Code.HAZARD_INHERITED, _where(kernel, cause.lead), values, "\n".join(_lines(run, cause)))


def _lines(run: HazardRun, cause: Cause) -> list[str]:
    hazard = cause.lead
    sites = [s for s in (hazard.first, hazard.second) if s is not None]
    lines = [f"{run.program}: {hazard.where}"]
    lines += [f"{s.what} by {s.who}: {s.opcode} at {s.place}" for s in sites]
    lines += [f"missing: {missing}" + (f"; add {remedy}" if remedy else "") for missing, remedy in cause.edges]
    if len(cause.hazards) > 1:
        lines.append(f"{len(cause.hazards)} pairs of accesses")
        lines += [f"{place.opcode} at {place.text}" for place in places([*cause.first_sites, *cause.second_sites])]
    return lines
