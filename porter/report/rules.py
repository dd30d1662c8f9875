# SPDX-License-Identifier: Apache-2.0
"""Rules and their examples, for terminals and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from porter.diagnostics import Code, Diagnostic, ExitCode, Location
from porter.passes.rule_examples import Tried
from porter.report import json as report_json
from porter.rules.accept import example_lines
from porter.rules.explain import Site
from porter.rules.rule import Rule


def as_written(path: str) -> str:
    """A path from where the user stands, if it is below that."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def list_document(rules: Sequence[Rule]) -> dict[str, Any]:
    entries = [
        {
            "id": r.id,
            "title": r.title,
            "kind": r.kind,
            "library": r.library,
            "safety": r.safety.value,
            "becomes": r.becomes,
            "path": r.source,
        }
        for r in rules
    ]
    return report_json.document("rules-list", ExitCode.OK, {"rules": entries})


def site_lines(sites: Sequence[Site], rules: Sequence[Rule]) -> Iterator[list[tuple[str, str]]]:
    """Lines of text with styles: each place, what it is, and its rules, the one that won first."""
    files = {rule.id: as_written(rule.source) for rule in rules}
    if not sites:
        yield [("no rule is tried on this line", "")]
    for site in sites:
        yield [(site.text, "bold"), (f"  column {site.column}", "dim")]
        if site.means:
            yield [("  is ", "cyan"), (site.means, "")]
        for trial in sorted(site.trials, key=lambda t: not t.won):
            words = " ".join(w for w in (trial.outcome, f"({trial.by})" if trial.by else "") if w)
            pattern = f"  `{trial.pattern}`" if trial.pattern else ""
            where = f"  {files[trial.rule]}" if trial.rule in files else ""
            yield [
                (f"  {trial.rule:<8} ", "cyan"),
                (words, "green" if trial.won else "yellow"),
                (pattern + where, "dim"),
            ]
            if trial.why:
                yield [(f"           {trial.why}", "")]


def explain_document(path: Path, line: int, sites: Sequence[Site], diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    places = [
        {
            "column": s.column,
            "text": s.text,
            "means": s.means,
            "rules": [{**asdict(t), "won": t.won} for t in s.trials if t.rule],
            "note": " ".join(w for t in s.trials if not t.rule for w in (t.outcome, t.why) if w),
        }
        for s in sites
    ]
    body = {"path": str(path), "line": line, "places": places, "diagnostics": report_json.diagnostics(diagnostics)}
    return report_json.document("rules-explain", ExitCode.OK, body)


def problems(tried: Sequence[Tried], written: Sequence[Tried], accept: bool) -> list[Diagnostic]:
    """A message for each example that does not hold, but for those that were `written`."""
    code = Code.RULE_EXAMPLE_LEFT if accept else Code.RULE_EXAMPLE
    lines = _lines(tried)
    said = []
    for one in tried:
        for problem in () if one in written else one.problems:
            first, _, rest = problem.partition("\n")
            where = Location(as_written(one.rule.source), lines.get((one.rule.source, one.rule.id, one.number), 0))
            values = {"rule": one.rule.id, "number": one.number + 1, "problem": first}
            said.append(Diagnostic(code, where, values, rest))
    return said


def _lines(tried: Sequence[Tried]) -> Mapping[tuple[str, str, int], int]:
    files = {t.rule.source for t in tried if t.problems}
    return {(f, rule, n): line for f in files for (rule, n), line in example_lines(Path(f)).items()}


def summary(tried: Sequence[Tried], written: Sequence[Tried]) -> str:
    failed = sum(bool(t.problems) for t in tried) - len(written)
    parts = [f"{len(tried)} examples of {len({t.rule.id for t in tried})} rules"]
    parts += [f"{len(written)} written"] if written else []
    return ", ".join(parts) + (f": {failed} do not hold" if failed else ": all hold")


def test_document(
    tried: Sequence[Tried], written: Sequence[Tried], diagnostics: Sequence[Diagnostic], code: ExitCode
) -> dict[str, Any]:
    examples = [
        {
            "rule": t.rule.id,
            "example": t.number + 1,
            "path": t.rule.source,
            "holds": not t.problems or t in written,
            "written": t in written,
            "problems": list(t.problems),
        }
        for t in tried
    ]
    body = {"examples": examples, "diagnostics": report_json.diagnostics(diagnostics)}
    return report_json.document("rules-test", code, body)
