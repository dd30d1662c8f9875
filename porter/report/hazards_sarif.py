# SPDX-License-Identifier: Apache-2.0
"""Hazards as SARIF 2.1.0: one result for each cause, with a code flow through the two accesses of every pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import porter
from porter.build.entry import display_name
from porter.sim.check.catalog import KINDS
from porter.sim.check.causes import Cause, causes
from porter.sim.check.hazard import Site
from porter.verify.hazards import HazardRun
from porter.verify.outcome import RunFinding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def document(runs: Sequence[HazardRun]) -> dict[str, Any]:
    kinds = sorted({h.kind.id for r in runs for h in r.hazards})
    ended = {f.code.id: f.code.value for r in runs for f in r.findings}
    rules: list[dict[str, Any]] = [
        {
            "id": id,
            "shortDescription": {"text": KINDS[id].title},
            "fullDescription": {"text": f"Required between the accesses: {KINDS[id].rule} ({KINDS[id].source})."},
            "properties": {"diagnostic": KINDS[id].code.id},
        }
        for id in kinds
    ]
    rules += [{"id": id, "shortDescription": {"text": info.detail}} for id, info in sorted(ended.items())]
    index = {str(rule["id"]): i for i, rule in enumerate(rules)}
    results = []
    for run in runs:
        results += [_cause(run, c, index) for c in causes(run.hazards)]
        results += [_finding(run, f, index) for f in run.findings]
    driver = {"name": "porter", "version": porter.__version__, "rules": rules}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _cause(run: HazardRun, cause: Cause, index: dict[str, int]) -> dict[str, Any]:
    """One result, with a code flow for every pair of accesses; all sites but the leading second one are related."""
    h = cause.lead
    message = f"{h.message} ({run.name} {run.program}: {h.where})"
    remedies = list(dict.fromkeys(remedy for _, remedy in cause.edges if remedy))
    if remedies:
        message += f"; add {', or '.join(remedies)}"
    if len(cause.hazards) > 1:
        message += f" ({len(cause.hazards)} pairs of accesses)"
    flows = [[s for s in (pair.first, pair.second) if s is not None] for pair in cause.hazards]
    related = _once([*cause.first_sites, *cause.second_sites[1:]])
    result: dict[str, Any] = {
        "ruleId": h.kind.id,
        "ruleIndex": index[h.kind.id],
        "level": "error" if h.severity == "error" else "warning",
        "message": {"text": message},
        "locations": [_location(h.second)],
        "codeFlows": [
            {"threadFlows": [{"locations": [{"location": _location(s)} for s in sites]}]} for sites in flows
        ],
        "properties": {"race": h.race, "level": run.level, "occurrences": cause.count,
                       "kernel": display_name(h.kernel)},
    }  # fmt: skip
    if related:
        result["relatedLocations"] = [_location(s) for s in related]
    return result


def _once(sites: Sequence[Site]) -> list[Site]:
    """Each place once."""
    return list({(s.loc or s.ptx_line, s.opcode): s for s in reversed(sites)}.values())[::-1]


def _finding(run: HazardRun, f: RunFinding, index: dict[str, int]) -> dict[str, Any]:
    location = _place(f.source, f.line, f"PTX line {f.ptx_line}", f.where)
    return {
        "ruleId": f.code.id,
        "ruleIndex": index[f.code.id],
        "level": "error",
        "message": {"text": f"{f.message} ({run.name} {run.program})"},
        "locations": [location],
    }


def _location(site: Site) -> dict[str, Any]:
    """The source line, or without line information the instruction's place in the PTX."""
    file, line = (site.loc.file, site.loc.line) if site.loc is not None else ("", 0)
    return _place(file, line, f"{site.opcode}, PTX line {site.ptx_line}", f"{site.what} by {site.who}")


def _place(file: str, line: int, name: str, message: str) -> dict[str, Any]:
    found: dict[str, Any] = {"message": {"text": message}, "logicalLocations": [{"name": name}]}
    if file:
        uri = Path(file).as_uri() if Path(file).is_absolute() else Path(file).as_posix()
        found["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": {"startLine": max(line, 1)}}
    return found
