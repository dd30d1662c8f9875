# SPDX-License-Identifier: Apache-2.0
"""Hazards as text in the manner of compute-sanitizer, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from porter.build.entry import display_name, kernel_name, readable
from porter.diagnostics import Diagnostic
from porter.report import json as report_json
from porter.report.exits import hazards_exit
from porter.report.program import finding_body
from porter.report.tables import quantity
from porter.sim.check.causes import Cause, causes, places
from porter.sim.check.hazard import Hazard, Site
from porter.sim.check.rulings import Ruling
from porter.sim.results import DRAWN
from porter.verify.checked import likeness
from porter.verify.hazards import HazardRun, worst
from porter.verify.inherited import Inherited
from porter.verify.outcome import RunFinding, Verdict

_PREFIX = "========="


def text(runs: Sequence[HazardRun], earlier: Sequence[Mapping[str, Any]] = (), every: bool = False) -> Iterator[str]:
    """All runs, one block for each cause of hazards, one line for each ruling that lets some pass, then one line for
    each run. `earlier`: as of `document`. `every`: those that a ruling lets pass have blocks too."""
    for run in runs:
        for number, finding in enumerate(run.findings):
            yield from _finding_block(run, finding, number)
        alike = {id(s.hazard): s for s in run.similar}
        told, ruled = _by_ruling(causes(run.hazards), every)
        for cause in told:
            yield from _cause_block(run, cause, similar=_first(alike, cause))
        had = {id(i.hazard): i for i in run.inherited}
        told, ruled_before = _by_ruling(causes([i.hazard for i in run.inherited]), every)
        for cause in told:
            yield from _cause_block(run, cause, inherited=_first(had, cause))
        for weight, rulings in (("Review", ruled), ("Also in the original", ruled_before)):
            for ruling, found in rulings.items():
                yield _ruling_line(weight, ruling, found)
        if ruled or ruled_before:
            yield f"{_PREFIX}     `porter hazards -v` shows the accesses, docs/rulings.md why practice lets them pass"
            yield _PREFIX
    for run in runs:
        yield f"{_PREFIX} {_summary(run)}"
    if earlier:
        yield f"{_PREFIX} {len(earlier)} of the earlier run"
    if len(runs) != 1 or earlier:
        yield f"{_PREFIX} verdict: {_worst(runs, earlier).value}"


def _by_ruling(found: Sequence[Cause], every: bool) -> tuple[list[Cause], dict[Ruling, list[Cause]]]:
    """Causes that are told one by one; the others by the ruling that lets them pass. With `every` all are told."""
    told, ruled = list[Cause](), dict[Ruling, list[Cause]]()
    for cause in found:
        rulings = {h.ruling for h in cause.hazards}
        ruling = next(iter(rulings)) if len(rulings) == 1 and cause.lead.severity == "review" else None
        if every or ruling is None:
            told.append(cause)
        else:
            ruled.setdefault(ruling, []).append(cause)
    return told, ruled


def _ruling_line(weight: str, ruling: Ruling, found: Sequence[Cause]) -> str:
    """What one ruling lets pass, with the place that was seen most."""
    kinds = ", ".join(dict.fromkeys(f"{cause.lead.kind.id} [{cause.lead.kind.code.id}]" for cause in found))
    most = max(found, key=lambda cause: cause.count)
    pairs = sum(len(cause.hazards) for cause in found)
    return (
        f"{_PREFIX} {weight}: ruling {ruling}, {kinds}: {quantity(len(found), 'cause')} "
        f"({quantity(pairs, 'pair')} of accesses), most at {most.lead.second.place}, {most.count} times"
    )


def _worst(runs: Sequence[HazardRun], earlier: Sequence[Mapping[str, Any]]) -> Verdict:
    """The verdict on all; those of an earlier run are clean or to review."""
    if not earlier:
        return worst(runs)
    before = Verdict.CLEAN if all(run["verdict"] == Verdict.CLEAN.value for run in earlier) else Verdict.REVIEW
    now = worst(runs) if runs else before
    return before if now is Verdict.CLEAN else now


def _first(known: Mapping[int, Inherited], cause: Cause) -> Inherited | None:
    """That of the first hazard of a cause which has one."""
    return next((known[id(h)] for h in cause.hazards if id(h) in known), None)


def _summary(run: HazardRun) -> str:
    found = causes(run.hazards)
    errors = sum(c.lead.severity == "error" for c in found)
    counts = f"{quantity(errors, 'error')}, {len(found) - errors} to review"
    if len(run.hazards) > len(found):
        counts += f" ({len(run.hazards)} pairs of accesses)"
    if run.inherited:
        counts += f", {len(causes([i.hazard for i in run.inherited]))} also in the original"
    if run.known:
        counts += f", {len(causes(run.known))} known before"
    if run.findings:
        counts += f", the run ended with {run.findings[0].code.id}"
    return (
        f"{run.name} {run.program} ({run.arch}, {run.level} level, {run.schedule} schedule): "
        f"{run.counted.value}, {counts}; {run.warp_instructions} warp instructions"
    )


def _cause_block(
    run: HazardRun, cause: Cause, inherited: Inherited | None = None, similar: Inherited | None = None
) -> Iterator[str]:
    hazard = cause.lead
    race = f"{hazard.race} hazard" if hazard.race else "Hazard"
    level = ", by the letter of the PTX ISA" if all(h.strict for h in cause.hazards) else ""
    weight = hazard.severity.capitalize() if inherited is None else "Also in the original"
    head = f"{weight}: {race} {hazard.kind.id} [{hazard.kind.code.id}]"
    yield f"{_PREFIX} {head}: {hazard.kind.title}"
    yield f"{_PREFIX}     in {hazard.where}, kernel {kernel_name(hazard.kernel)}{level}"
    if hazard.first is not None:
        yield from _site("first access", hazard.first)
        yield from _more("first", cause.first_sites)
    yield from _site("second access" if hazard.first is not None else "access", hazard.second)
    yield from _more("second" if hazard.first is not None else "", cause.second_sites)
    for missing, remedy in cause.edges:
        yield f"{_PREFIX}     missing: {missing}"
        if remedy:
            yield f"{_PREFIX}     add: {remedy}"
    yield f"{_PREFIX}     rule: {hazard.kind.rule} ({hazard.kind.source})"
    rulings = dict.fromkeys(h.ruling for h in cause.hazards if h.ruling is not None and h.severity == "review")
    for ruling in rulings:
        yield f"{_PREFIX}     ruling: {ruling} (docs/rulings.md)"
    if inherited is not None:
        site = inherited.original.second
        yield f"{_PREFIX}     in the original: {site.opcode} at {site.place}"
    if similar is not None:
        yield f"{_PREFIX}     {likeness(similar)}"
    if len(cause.hazards) > 1:
        yield f"{_PREFIX}     {len(cause.hazards)} pairs of accesses, seen {cause.count} times"
    elif cause.count > 1:
        yield f"{_PREFIX}     seen {cause.count} times"
    yield from _replay(run, min((h.seed for h in cause.hazards if h.seed is not None), default=None))
    yield _PREFIX


def _more(role: str, sites: Sequence[Site]) -> Iterator[str]:
    """The other places of an access, folded; nothing where there is one only."""
    if len({(s.loc or s.ptx_line, s.opcode) for s in sites}) < 2:
        return
    yield f"{_PREFIX}     all {role + ' ' if role else ''}accesses:"
    for place in places(sites):
        yield f"{_PREFIX}         {place.opcode} at {place.text}"


def _site(role: str, site: Site) -> Iterator[str]:
    who = f" by {site.who}" if site.who else ""
    yield f"{_PREFIX}     {role}: {site.what}{who}"
    yield f"{_PREFIX}         {site.opcode} at {site.place}"


def _finding_block(run: HazardRun, finding: RunFinding, number: int) -> Iterator[str]:
    yield f"{_PREFIX} Error: {finding.code.id}: {readable(finding.message)}"
    if finding.where:
        yield f"{_PREFIX}     {finding.where}"
    yield from _replay(run, run.finding_seeds[number] if run.finding_seeds else run.replay)
    yield _PREFIX


def _replay(run: HazardRun, seed: int | None) -> Iterator[str]:
    """How to see one finding again, alone."""
    if run.schedule in DRAWN and seed is not None:
        yield f"{_PREFIX}     replay: --schedule {run.schedule} --seed {seed}"


# JSON ---------------------------------------------------------------------------------------------------


def document(
    runs: Sequence[HazardRun], errors: Sequence[Diagnostic] = (), earlier: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """`earlier` are runs of an earlier document that were not made again."""
    code = hazards_exit(runs, errors)
    body = {
        "verdict": _worst(runs, earlier).value,
        "runs": [*earlier, *map(run_body, runs)],
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
        "findings": [finding_body(f) for f in run.findings],
        "hazards": [hazard(h) for h in run.hazards],
        "causes": [cause_body(c, run.hazards) for c in causes(run.hazards)],
        "baseline": run.baseline,
        "inherited": [{**hazard(i.hazard), "original": hazard(i.original)} for i in run.inherited],
        "known": [hazard(h) for h in run.known],
        "digest": run.digest or None,
    }


def cause_body(cause: Cause, hazards: Sequence[Hazard]) -> dict[str, Any]:
    """One cause: which of the run's hazards it has, by their index, and its places, folded."""
    number = {id(h): i for i, h in enumerate(hazards)}
    lead = cause.lead
    return {
        "id": lead.kind.code.id,
        "hazard": lead.kind.id,
        "severity": lead.severity,
        "kernel": display_name(lead.kernel),
        "hazards": [number[id(h)] for h in cause.hazards],
        "first": [place.text for place in places(cause.first_sites)],
        "second": [place.text for place in places(cause.second_sites)],
        "count": cause.count,
    }


def hazard(h: Hazard) -> dict[str, Any]:
    return {
        "id": h.kind.code.id,
        "hazard": h.kind.id,
        "severity": h.severity,
        "strict_only": h.strict,
        "ruling": h.ruling,
        "race": h.race or None,
        "title": h.kind.title,
        "kernel": display_name(h.kernel),
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
    places = site.loc.outwards() if site.loc is not None else ()
    inlined = [{"path": loc.file, "line": loc.line, "column": loc.column or None} for loc in places]
    return {
        "what": site.what,
        "opcode": site.opcode,
        "ptx_line": site.ptx_line or None,
        "source": inlined,
        "block": None if site.block is None else list(site.block),
        "warp": site.warp,
        "lane": site.lane,
    }
