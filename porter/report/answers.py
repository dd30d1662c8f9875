# SPDX-License-Identifier: Apache-2.0
"""Documents of commands as short answers for programs that read every word: what was found, grouped by cause, and
where; what is in order is a line. The documents have the rest."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from porter.report import coverage
from porter.report.findings import Document, findings_of, shown

_MOST_CAUSES = 6
_MOST_NAMED = 8
_LONGEST = 240
_OF_HAZARDS = "PT41"
"""Begins the IDs of messages that say of hazards what these say themselves."""
_ADDED = "--- /dev/null"
Answer = dict[str, Any]


@functools.cache
def schema() -> Answer:
    """The JSON Schema of all answers."""
    text = resources.files("porter.report").joinpath("schemas/answer.schema.json").read_text("utf-8")
    loaded: Answer = json.loads(text)
    return loaded


def answer(document: Document, diff: bool = False) -> Answer:
    """The answer to a call. `diff`: with the diffs of sources that a port changes, without files that it adds."""
    found: Answer = {"kind": document["kind"], "exit_code": document["exit_code"]}
    found |= _BY_KIND.get(document["kind"], _nothing)(document)
    causes = list(_causes(document))
    if causes:
        found["causes"] = causes[:_MOST_CAUSES]
    if len(causes) > _MOST_CAUSES:
        found["more_causes"] = len(causes) - _MOST_CAUSES
    if diff and document["kind"] == "port":
        found["diff"] = "".join(source_diffs(document))
    return found


def source_diffs(document: Document) -> Iterator[str]:
    """The diffs of a port's sources: a header that it brings along is the same for all."""
    return (f["diff"] for f in document["files"] if f["changed"] and _ADDED not in f["diff"])


def edit_groups(document: Document, rule: str | None) -> Answer:
    """What a port changes, for a review: its rules, or of one rule the texts of its edits."""
    groups = [g for g in document["groups"] if rule is None or g["rule"] == rule]
    if rule is not None:
        texts = [_edit(g, e) for g in groups for e in g["edits"]]
        about = {"rule": rule, "safety": groups[0]["safety"], "reason": groups[0]["reason"]} if groups else {}
        return {"kind": "review", "exit_code": document["exit_code"], **about, "edits": texts}
    by_rule: dict[str, Answer] = {}
    for g in groups:
        one = by_rule.setdefault(g["rule"], {"rule": g["rule"], "safety": g["safety"], "what": g["title"], "edits": 0})
        one["edits"] += len(g["edits"])
        if g["safety"] != "safe":
            one["reason"] = _cut(g["reason"])
    listed = [one for one in by_rule.values() if one["safety"] != "safe"]
    safe = [f"{one['rule']} x{one['edits']}" for one in by_rule.values() if one["safety"] == "safe"]
    found = {"kind": "review", "exit_code": document["exit_code"], "safe": safe}
    return found | ({"to_review": listed} if listed else {}) | _left(document)


def _edit(group: Document, edit: Document) -> Answer:
    return {
        "at": f"{shown(edit['path'])}:{edit['from']['line']}",
        "becomes": edit["replacement"],
        "notes": group["notes"],
    }


def _causes(document: Document) -> Iterator[Answer]:
    """Errors and warnings by their cause: how often, the first place, what to do."""
    hazards = [f for f in findings_of([document]) if f.flows]
    for f in hazards:
        edges = dict.fromkeys(f.edges)
        missing = "; ".join(f"{lack}, supplied by {by}" if by else lack for lack, by in edges)
        places = list(dict.fromkeys(spot.place for spot in f.flows[0] if spot.place))
        yield {
            "id": f.about.id,
            "severity": f.level,
            "what": _cut(f.about.title),
            "missing": _cut(missing),
            "at": places,
        }
    for cause in document.get("causes", ()):
        if cause["severity"] == "note" or (hazards and cause["id"].startswith(_OF_HAZARDS)):
            continue
        one = {"id": cause["id"], "severity": cause["severity"], "what": _cut(cause["message"])}
        for where in cause["locations"][:1]:
            one["at"] = ":".join([shown(where["path"]), *([str(where["line"])] if where["line"] else [])])
        if cause["count"] > 1:
            one["count"] = cause["count"]
        if cause["severity"] == "error" and cause["next_step"]:
            one["next"] = _cut(cause["next_step"])
        yield one


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _named(names: Sequence[str]) -> list[str]:
    more = len(names) - _MOST_NAMED
    return [*names[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]


def _nothing(document: Document) -> Answer:
    return {}


def _scan(d: Document) -> Answer:
    hopper = {t["name"]: t["count"] for t in d["totals"] if t["status"] == "hopper"}
    kernels = [f"{shown(f['path'])}: {name}" for f in d["files"] for name in f["kernels"]]
    return {"kernels": _named(kernels), "hopper_only": dict(list(hopper.items())[:_MOST_NAMED]), "effort": d["efforts"],
            "parsed": d["coverage"]}  # fmt: skip


def _left(d: Document) -> Answer:
    left = [{"kernel": k["kernel"], "at": f"{shown(k['path'])}:{k['line']}", "why": [_cut(w) for w in k["why"][:3]]}
            for k in d.get("left", ())]  # fmt: skip
    return {"left": left} if left else {}


def _plan(d: Document) -> Answer:
    kernels = [{"kernel": k["kernel"], "at": f"{shown(k['path'])}:{k['line']}", "mma_rows": k["mma_rows"],
                "tensor_memory_columns": k["columns"], "batches_in_flight": k["in_flight"]}
               for k in d["kernels"][:_MOST_NAMED]]  # fmt: skip
    return {"kernels": kernels, **_left(d)}


def _port(d: Document) -> Answer:
    groups = Counter(g["safety"] for g in d["groups"])
    proofs = [p["equality"]["status"] for p in d.get("proofs", ()) if p.get("equality")]
    return {"written": _named([shown(path) for path in d["written"]]), "edit_groups": dict(groups),
            **({"equal_on_ptx": proofs} if proofs else {}), **_left(d)}  # fmt: skip


def _verify(d: Document) -> Answer:
    counts = Counter(row["verdict"] for row in d["rows"])
    found: Answer = {"verdict": d["verdict"], "runs": dict(counts)}
    if d["verdict"] != "clean":
        bad = [f"{row['family']} {_sizes(row)}: {row['verdict']}" for row in d["rows"] if row["verdict"] != "clean"]
        found["rows"] = _named(bad)
    return found | {"coverage": [_cut(line) for line in coverage.lines(d)]}


def _sizes(row: Document) -> str:
    return " ".join(f"{name}={value}" for name, value in row["sizes"].items())


def _hazards(d: Document) -> Answer:
    runs = [f"{r['name']} {r['program']}: {r['verdict']} ({r['level']} level)" for r in d["runs"]]
    return {"verdict": d["verdict"], "runs": _named(runs)}


def _equal(d: Document) -> Answer:
    cases = [{"name": c["name"], "status": c["status"], "sizes": c["sizes"][:2]} for c in d["cases"][:_MOST_NAMED]]
    for one, c in zip(cases, d["cases"], strict=False):
        one |= {"why": _cut(c["why"])} if c["why"] else {}
    return {"cases": cases}


def _grade(d: Document) -> Answer:
    kernels = [f"{k['program']} {k['kernel']}: {k['percent_of_nominal']:.1f} % of {k['chip']}'s nominal rate, "
               f"limited by {k['limit']}" for k in d["kernels"][:_MOST_NAMED]]  # fmt: skip
    lifts = [f"{lift['change']}: {lift['gain_percent']:+.0f} %" for k in d["kernels"][-1:] for lift in k["lifts"][:2]]
    return {"kernels": kernels, "would_lift": lifts}


def _map(d: Document) -> Answer:
    entries = [{"names": e["names"][:3], "status": e["status"], "becomes": e["becomes"],
                "conditions": [_cut(c) for c in e["conditions"]], "rules": [r["id"] for r in e["rules"]]}
               for e in d["entries"][:3]]  # fmt: skip
    return {"entries": entries, **({"wrong_advice": [_cut(str(c)) for c in d["claims"][:2]]} if d["claims"] else {})}


def _explain(d: Document) -> Answer:
    return {"entries": d["entries"]}


def _case_new(d: Document) -> Answer:
    return {"written": [shown(path) for path in d["written"]], "guesses": d["guesses"]}


_BY_KIND: Mapping[str, Callable[[Document], Answer]] = {
    "scan": _scan, "plan": _plan, "port": _port, "verify": _verify, "hazards": _hazards, "equal": _equal,
    "grade": _grade, "map": _map, "explain": _explain, "case-new": _case_new,
}  # fmt: skip
