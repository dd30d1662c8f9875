# SPDX-License-Identifier: Apache-2.0
"""What was verified and checked as JUnit XML: a suite for each case, a test for each run of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from porter.report import coverage
from porter.report.findings import Document, Spot, findings_of, hazard_runs

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no form for."""


@dataclass(frozen=True)
class _Test:
    suite: str
    name: str
    seconds: float
    verdict: str
    """A verdict of Porter's; only clean and review pass."""
    message: str = ""
    text: str = ""


def text(documents: Sequence[Document]) -> str:
    tests = [test for document in documents for test in _tests(document)]
    covered = {case: line for document in documents for case, line in coverage.by_case(document).items()}
    root = ElementTree.Element("testsuites", {"name": "porter", **_counts(tests)})
    for name in dict.fromkeys(t.suite for t in tests):
        mine = [t for t in tests if t.suite == name]
        suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(name), **_counts(mine)})
        if name in covered:
            listed = ElementTree.SubElement(suite, "properties")
            ElementTree.SubElement(listed, "property", {"name": "coverage", "value": _clean(covered[name])})
        for test in mine:
            _case(suite, test)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _counts(tests: Sequence[_Test]) -> dict[str, str]:
    return {
        "tests": str(len(tests)),
        "failures": str(sum(t.verdict == "error" for t in tests)),
        "errors": str(sum(t.verdict == "incomplete" for t in tests)),
        "skipped": "0",
        "time": f"{sum(t.seconds for t in tests):.3f}",
    }


def _case(suite: ElementTree.Element, test: _Test) -> None:
    attributes = {"classname": _clean(test.suite), "name": _clean(test.name), "time": f"{test.seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    kind = {"error": "failure", "incomplete": "error"}.get(test.verdict)
    if kind is not None:
        attributes = {"type": test.verdict, "message": _clean(test.message or test.verdict)}
        ElementTree.SubElement(case, kind, attributes).text = _clean(test.text)
    elif test.text:
        ElementTree.SubElement(case, "system-out").text = _clean(test.text)


def _tests(document: Document) -> Iterator[_Test]:
    if document["kind"] == "verify":
        for row in document["rows"]:
            yield _row(row)
    else:
        for run in hazard_runs(document):
            yield _run(run)
    for d in document["diagnostics"]:
        if d["severity"] == "error":
            where = d["location"]["path"] if d["location"] else ""
            yield _Test(where or "not run", d["id"], 0.0, "incomplete", d["message"], d["detail"])


def _row(row: Mapping[str, Any]) -> _Test:
    sizes = " ".join(f"{name}={value}" for name, value in row["sizes"].items())
    name = " ".join(part for part in (sizes, row["family"]) if part)
    for what in ("schedule", "schedule_seed"):
        name += f" {what} {row[what]}" if row[what] is not None else ""
    seconds = sum(run["seconds"] for run in row["runs"])
    said = [f"{d['id']}: {d['message']}" for d in row["diagnostics"]]
    said += [f"{run['program']}: {f['id']}: {f['message']}" for run in row["runs"] for f in run["findings"]]
    for side in ("original", "port", "between"):
        for c in row[side]:
            if not c["ok"]:
                said.append(f"{side}: {c['tensor']}: {c['mismatches']} of {c['elements']} differ")
    said += [line for run in row["hazards"] for line in _hazards(run)]
    return _Test(row["case"], name, seconds, row["verdict"], said[0] if said else "", "\n".join(said))


def _run(run: Mapping[str, Any]) -> _Test:
    said = list(_hazards(run))
    # next to a port, what the original has is no failure
    verdict = "review" if run["baseline"] and run["verdict"] == "error" else run["verdict"]
    name = f"{run['program']} {run['arch']} {run['level']} level, {run['schedule']} schedule"
    return _Test(run["name"], name, run["seconds"], verdict, said[0] if said else "", "\n".join(said))


def _hazards(run: Mapping[str, Any]) -> Iterator[str]:
    for f in findings_of([{"kind": "hazards", "runs": [run], "diagnostics": []}]):
        sites = [s for flow in f.flows[:1] for s in flow]
        yield "\n".join([f"{f.about.id}: {f.message}", *(f"    {_at(s)}" for s in sites)])


def _at(spot: Spot) -> str:
    return f"{spot.text} at {spot.place}" if spot.text else spot.place


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
