# SPDX-License-Identifier: Apache-2.0
"""Findings as SARIF 2.1.0, within what GitHub's code scanning takes of a file."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import porter
from porter.diagnostics import Location
from porter.report import coverage
from porter.report.blocks import source_line
from porter.report.findings import About, Change, Document, Finding, Spot, findings_of

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# What GitHub shows of a run (docs.github.com, "SARIF support for code scanning"): so many results, and so many steps of
# all flows of a result. It takes only so many places.
MOST_RESULTS = 5000
MOST_STEPS = 1000
MOST_RELATED = 100

ROOT, PORT = "SRCROOT", "PORT"
_PORTS = re.compile(r"^(.*/ports/[0-9a-f]{24}/)(.+)$")
"""Where ports lie that were made for one command: beside no source of the project."""


def document(documents: Sequence[Document], root: Path) -> dict[str, Any]:
    """One run with the findings of all documents; paths lead from `root`, the directory of the checkout."""
    found = findings_of(documents)
    shown, uris = found[:MOST_RESULTS], _Uris(root.resolve())
    rules = _abouts(shown)
    index = {id: i for i, id in enumerate(sorted(rules))}
    seen: Counter[str] = Counter()
    results = [_result(f, index, uris, seen) for f in shown]
    driver = {
        "name": "porter",
        "version": porter.__version__,
        "semanticVersion": porter.__version__,
        "rules": [_rule(rules[id]) for id in sorted(rules)],
    }
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if len(found) > len(shown):
        text = f"{len(found) - len(shown)} more findings are left out: no more than {MOST_RESULTS} are shown"
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": {"text": text}}]
    notes = [{"level": "note", "message": {"text": line}} for d in documents for line in coverage.lines(d)]
    if notes:
        invocation.setdefault("toolExecutionNotifications", []).extend(notes)
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    if uris.bases:
        run["originalUriBaseIds"] = uris.bases
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


class _Uris:
    """Paths as relative URIs, and what they are relative to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bases: dict[str, Any] = {}

    def artifact(self, path: str) -> dict[str, Any]:
        absolute = Path(path) if Path(path).is_absolute() else Path.cwd() / path
        found = _PORTS.match(absolute.as_posix())
        if found:
            base = f"{PORT}{len(self.bases)}"
            uri = f"file://{quote(found[1])}"
            base = next((name for name, known in self.bases.items() if known.get("uri") == uri), base)
            self.bases[base] = {"uri": uri, "description": {"text": "A port that was made for this check."}}
            return {"uri": quote(found[2]), "uriBaseId": base}
        for one in (absolute, absolute.resolve()):
            if one.is_relative_to(self.root):
                self.bases.setdefault(ROOT, {"description": {"text": "The checkout."}})
                return {"uri": quote(one.relative_to(self.root).as_posix()), "uriBaseId": ROOT}
        return {"uri": f"file://{quote(absolute.as_posix())}"}


def _abouts(found: Sequence[Finding]) -> dict[str, About]:
    """What is said of each rule: in the words of its findings where all have the same."""
    rules: dict[str, About] = {}
    headlines: dict[str, set[str]] = {}
    for f in found:
        rules[f.about.id] = f.about
        headlines.setdefault(f.about.id, set()).add(f.headline or f.about.title)
    return {
        id: replace(about, title=next(iter(headlines[id]))) if len(headlines[id]) == 1 else about
        for id, about in rules.items()
    }


def _rule(about: Any) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": about.id, "shortDescription": {"text": about.title or about.id}}
    rule["fullDescription"] = {"text": about.detail or about.title or about.id}
    rule["help"] = {"text": about.help or f"See `porter explain {about.id}`."}
    return rule


def _result(f: Finding, index: dict[str, int], uris: _Uris, seen: Counter[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": f.about.id,
        "ruleIndex": index[f.about.id],
        "level": f.level,
        "message": {"text": f.message},
        "locations": [_location(f.spot, uris)] if f.spot is not None else [],
        "partialFingerprints": {"porter/v1": _fingerprint(f, uris, seen)},
    }
    flows, steps = [], 0
    for flow in f.flows:
        steps += len(flow)
        if steps > MOST_STEPS:
            break
        flows.append({"threadFlows": [{"locations": [{"location": _location(s, uris)} for s in flow]}]})
    if flows:
        result["codeFlows"] = flows
    if f.related:
        result["relatedLocations"] = [_location(s, uris) for s in f.related[:MOST_RELATED]]
    if f.changes:
        result["fixes"] = [_fix(f, uris)]
    if f.properties:
        result["properties"] = dict(f.properties)
    return result


def _fingerprint(f: Finding, uris: _Uris, seen: Counter[str]) -> str:
    """Of what the finding is and of the text of its line, so that it stays when lines are added above; the same text
    again is told apart by its turn."""
    spot = f.spot
    line = source_line(Location(spot.path, spot.line)) if spot is not None and spot.path else None
    where = uris.artifact(spot.path)["uri"] if spot is not None and spot.path else ""
    text = "\0".join([f.about.id, where, (line or "").strip(), *f.identity])
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    seen[digest] += 1
    return f"{digest}:{seen[digest]}"


def _location(spot: Spot, uris: _Uris) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if spot.text:
        found["message"] = {"text": spot.text}
    if spot.name:
        found["logicalLocations"] = [{"name": spot.name}]
    if spot.path:
        found["physicalLocation"] = {"artifactLocation": uris.artifact(spot.path), "region": _region(spot)}
    return found


def _region(spot: Spot) -> dict[str, int]:
    region = {"startLine": max(spot.line, 1)}
    for name, value in (
        ("startColumn", spot.column),
        ("endLine", spot.end_line),
        ("endColumn", spot.end_column),
    ):
        if value:
            region[name] = value
    return region


def _fix(f: Finding, uris: _Uris) -> dict[str, Any]:
    by_path: dict[str, list[Change]] = {}
    for change in f.changes:
        by_path.setdefault(change.spot.path, []).append(change)
    return {
        "description": {"text": f.about.title},
        "artifactChanges": [
            {
                "artifactLocation": uris.artifact(path),
                "replacements": [
                    {"deletedRegion": _region(c.spot), "insertedContent": {"text": c.text}} for c in changes
                ],
            }
            for path, changes in by_path.items()
        ],
    }
