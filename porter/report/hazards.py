# SPDX-License-Identifier: Apache-2.0
"""Hazards as text in the manner of compute-sanitizer, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from porter.diagnostics import Diagnostic
from porter.report import json as report_json
from porter.sim.check.hazard import Hazard, Site
from porter.verify.hazards import HazardRun, worst
from porter.verify.results import RunFinding, worst_exit

_PREFIX = "========="
_LONGEST_NAME = 80


def text(runs: Sequence[HazardRun]) -> Iterator[str]:
    """All runs, one block for each hazard, then one line for each run."""
    for run in runs:
        for number, finding in enumerate(run.findings):
            yield from _finding_block(run, finding, number)
        for hazard in run.hazards:
            yield from _hazard_block(run, hazard)
    for run in runs:
        yield f"{_PREFIX} {_summary(run)}"
    if len(runs) > 1:
        yield f"{_PREFIX} verdict: {worst(runs).value}"


def _summary(run: HazardRun) -> str:
    errors = sum(h.severity == "error" for h in run.hazards)
    reviews = len(run.hazards) - errors
    counts = f"{errors} errors, {reviews} to review"
    if run.findings:
        counts += f", the run ended with {run.findings[0].code.id}"
    return (
        f"{run.name} {run.program} ({run.arch}, {run.level} level, {run.schedule} schedule): "
        f"{run.verdict.value}, {counts}; {run.warp_instructions} warp instructions"
    )


def _hazard_block(run: HazardRun, hazard: Hazard) -> Iterator[str]:
    race = f"{hazard.race} hazard" if hazard.race else "Hazard"
    level = ", by the letter of the PTX ISA" if hazard.strict else ""
    head = f"{hazard.severity.capitalize()}: {race} {hazard.kind.id} [{hazard.kind.code.id}]"
    yield f"{_PREFIX} {head}: {hazard.kind.title}"
    yield f"{_PREFIX}     in {hazard.where}, kernel {_short(hazard.kernel)}{level}"
    if hazard.first is not None:
        yield from _site("first access", hazard.first)
    yield from _site("second access" if hazard.first is not None else "access", hazard.second)
    yield f"{_PREFIX}     missing: {hazard.missing}"
    if hazard.remedy:
        yield f"{_PREFIX}     add: {hazard.remedy}"
    yield f"{_PREFIX}     rule: {hazard.kind.rule} ({hazard.kind.source})"
    if hazard.count > 1:
        yield f"{_PREFIX}     seen {hazard.count} times"
    yield from _replay(run, hazard.seed)
    yield _PREFIX


def _short(kernel: str) -> str:
    """Names that compilers make up can be longer than any line."""
    return kernel if len(kernel) <= _LONGEST_NAME else kernel[: _LONGEST_NAME - 3] + "..."


def _site(role: str, site: Site) -> Iterator[str]:
    who = f" by {site.who}" if site.who else ""
    yield f"{_PREFIX}     {role}: {site.what}{who}"
    yield f"{_PREFIX}         {site.opcode} at {site.place}"


def _finding_block(run: HazardRun, finding: RunFinding, number: int) -> Iterator[str]:
    yield f"{_PREFIX} Error: {finding.code.id}: {finding.message}"
    yield f"{_PREFIX}     {finding.where}"
    yield from _replay(run, run.finding_seeds[number] if run.finding_seeds else run.replay)
    yield _PREFIX


def _replay(run: HazardRun, seed: int | None) -> Iterator[str]:
    """How to see one finding again, alone."""
    if run.schedule == "random" and seed is not None:
        yield f"{_PREFIX}     replay: --schedule random --seed {seed}"


# JSON ---------------------------------------------------------------------------------------------------


def document(runs: Sequence[HazardRun], errors: Sequence[Diagnostic] = ()) -> dict[str, Any]:
    code = worst_exit([*(r.exit_code for r in runs), *(e.code.value.exit_code for e in errors)])
    body = {
        "verdict": worst(runs).value,
        "runs": [run_body(r) for r in runs],
        "diagnostics": report_json.diagnostics(errors),
    }
    return report_json.document("hazards", code, body)


def run_body(run: HazardRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "program": run.program,
        "kernel": run.kernel,
        "arch": run.arch,
        "level": run.level,
        "schedule": run.schedule,
        "seeds": list(run.seeds),
        "replay_seed": run.replay,
        "verdict": run.verdict.value,
        "status": run.status,
        "warp_instructions": run.warp_instructions,
        "seconds": run.seconds,
        "findings": [report_json.finding(f) for f in run.findings],
        "hazards": [hazard(h) for h in run.hazards],
    }


def hazard(h: Hazard) -> dict[str, Any]:
    return {
        "id": h.kind.code.id,
        "hazard": h.kind.id,
        "severity": h.severity,
        "strict_only": h.strict,
        "race": h.race or None,
        "title": h.kind.title,
        "where": h.where,
        "first": None if h.first is None else _site_json(h.first),
        "second": _site_json(h.second),
        "missing": h.missing,
        "remedy": h.remedy,
        "rule": h.kind.rule,
        "reference": h.kind.source,
        "count": h.count,
        "seed": h.seed,
    }


def _site_json(site: Site) -> dict[str, Any]:
    loc = site.loc
    inlined = []
    while loc is not None:
        inlined.append({"path": loc.file, "line": loc.line, "column": loc.column or None})
        loc = loc.inlined_at
    return {
        "what": site.what,
        "opcode": site.opcode,
        "ptx_line": site.ptx_line or None,
        "source": inlined,
        "block": None if site.block is None else list(site.block),
        "warp": site.warp,
        "lane": site.lane,
    }
