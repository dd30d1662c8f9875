# SPDX-License-Identifier: Apache-2.0
"""What a result says of places in sources, in one form for all formats that list findings: diagnostics, hazards by
their cause, edits. Read from the JSON documents of commands, so that a saved one will do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from porter.diagnostics import Code, Location
from porter.diagnostics.types import CodeInfo
from porter.ptx.calls import inlined
from porter.report.blocks import source_line
from porter.sim.check.catalog import KINDS

Level = Literal["error", "warning", "note"]
Document = Mapping[str, Any]
_STUCK = re.compile(r"(?<=\w)\{\w+\}")
_NAMES = re.compile(r"\{(\w+)[^}]*\}")
_BY_ID = {code.value.id: code.value for code in Code}


@dataclass(frozen=True)
class Spot:
    """A place: 1-based lines and columns, 0 for none; columns count characters. `text` says what is there, `name` what
    it is called where there is no file."""

    path: str
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    text: str = ""
    name: str = ""

    @property
    def place(self) -> str:
        """`src/gemm.cu:12`, as one would name it from here, or what the place is called."""
        return f"{shown(self.path)}{f':{self.line}' if self.line else ''}" if self.path else self.name


def shown(path: str) -> str:
    """A path below the working directory without it."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here)


@dataclass(frozen=True)
class Change:
    """The text at a spot, from its first column up to its last, becomes another."""

    spot: Spot
    text: str


@dataclass(frozen=True)
class About:
    """The rule that a finding is one of: `id`, a line, why it matters, what to do."""

    id: str
    title: str
    detail: str
    help: str


@dataclass(frozen=True)
class Finding:
    """`flows` are the pairs of accesses of a hazard, each in their order, `edges` what each lacks and what would supply
    it; `identity` is what tells it from others of its rule wherever its lines move to. `headline`: the finding in a
    line."""

    about: About
    level: Level
    message: str
    spot: Spot | None
    flows: tuple[tuple[Spot, ...], ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    related: tuple[Spot, ...] = ()
    changes: tuple[Change, ...] = ()
    identity: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    headline: str = ""


_LONGEST_HEADLINE = 120
_WEIGHT: dict[Level, int] = {"error": 0, "warning": 1, "note": 2}


def findings_of(documents: Sequence[Document]) -> list[Finding]:
    """All findings, each once, errors first, otherwise in the order of the documents."""
    once: dict[Any, Finding] = {}
    for document in documents:
        for f in _of_document(document):
            once.setdefault((f.about.id, f.spot, f.identity), f)
    return sorted(once.values(), key=lambda f: _WEIGHT[f.level])


def _of_document(document: Document) -> Iterator[Finding]:
    said = [*document.get("findings", ()), *document.get("diagnostics", ())]
    if document["kind"] == "verify":
        for row in document["rows"]:
            # hazards say more of themselves
            known = {cause["id"] for run in row["hazards"] for cause in run["causes"]}
            said += [d for d in row["diagnostics"] if d["id"] not in known]
    if document["kind"] in ("sim", "run"):
        said = list(document.get("diagnostics", ()))
    yield from map(_diagnostic, said)
    for run in hazard_runs(document):
        yield from (_cause(run, cause) for cause in run["causes"])
        yield from (_ended(run, found) for found in run["findings"])
    yield from (_edits(group) for group in document.get("groups", ()) if "edits" in group)


def hazard_runs(document: Document) -> list[Document]:
    """The runs of the checker that a document holds. A verification that ends at the same sites with several inputs
    holds them once for each."""
    if document["kind"] == "hazards":
        return list(document["runs"])
    if document["kind"] == "verify":
        return [run for row in document["rows"] for run in row["hazards"]]
    return []


def _title(info: CodeInfo) -> str:
    """The title of a code, whatever it is said of: `…` for each value, without those that are stuck to a word."""
    return _NAMES.sub("…", _STUCK.sub("", info.title))


def _diagnostic(d: Document) -> Finding:
    info = _BY_ID.get(d["id"])
    title = _title(info) if info else d["message"]
    about = About(d["id"], title, info.detail if info else "", d["next_step"] or "")
    where = d["location"]
    spot = _place(where) if where else None
    message = "\n".join(part for part in (d["message"], d["detail"]) if part)
    first = str(d["message"]).partition("\n")[0]
    return Finding(about, d["severity"], message, spot, identity=(d["message"],),
                   headline=first if len(first) <= _LONGEST_HEADLINE else title)  # fmt: skip


def _place(where: Document) -> Spot:
    path, line, end = where["path"], where["line"] or 0, where.get("end_line") or 0
    column, last = _column(path, line, where["column"] or 0), _column(path, end, where.get("end_column") or 0)
    return Spot(path, line, column, end, last)


def _column(path: str, line: int, column: int) -> int:
    """In characters, where diagnostics count bytes."""
    text = source_line(Location(path, line)) if column else None
    return column if text is None else len(text.encode("utf-8", "replace")[: column - 1].decode("utf-8", "replace")) + 1


def _site(site: Document) -> Spot:
    who = "" if site["block"] is None else "block " + ",".join(map(str, site["block"]))
    who += "" if site["warp"] is None else f" warp {site['warp']}"
    text = f"{site['what']}{f' by {who.strip()}' if who.strip() else ''}: {site['opcode']}"
    name = f"{site['opcode']}, PTX line {site['ptx_line']}"
    if not site["source"]:
        return Spot("", text=text, name=name)
    loc = site["source"][0]
    called = inlined(shown(loc["path"]), ((shown(at["path"]), at["line"]) for at in site["source"][1:]))
    return Spot(loc["path"], loc["line"], loc["column"] or 0, text=text + called, name=name)


def _cause(run: Document, cause: Document) -> Finding:
    pairs = [run["hazards"][i] for i in cause["hazards"]]
    lead = pairs[0]
    kind = KINDS[cause["hazard"]]
    about = About(kind.id, kind.title, f"Required between the accesses: {kind.rule} ({kind.source}).",
                  f"See `porter explain {kind.code.id}`.")  # fmt: skip
    race = f"{lead['race']}: " if lead["race"] else ""
    message = f"{race}{lead['title']}; missing: {lead['missing']} ({run['name']} {run['program']}: {lead['where']})"
    remedies = list(dict.fromkeys(h["remedy"] for h in pairs if h["remedy"]))
    if remedies:
        message += f"; add {', or '.join(remedies)}"
    if len(pairs) > 1:
        message += f" ({len(pairs)} pairs of accesses)"
    flows = [tuple(_site(s) for s in (h["first"], h["second"]) if s is not None) for h in pairs]
    sites = [_site(h["first"]) for h in pairs if h["first"]] + [_site(h["second"]) for h in pairs[1:]]
    related = {(s.path, s.line, s.name if not s.path else ""): s for s in reversed(sites)}
    properties = {"race": lead["race"] or "", "level": run["level"], "occurrences": cause["count"],
                  "kernel": cause["kernel"]}  # fmt: skip
    return Finding(
        about,
        "error" if cause["severity"] == "error" and not run["baseline"] else "warning",
        message,
        _site(lead["second"]),
        tuple(flows),
        tuple((h["missing"], h["remedy"]) for h in pairs),
        tuple(related.values())[::-1],
        identity=(cause["kernel"], run["program"], *(h["opcode"] for h in (lead["first"], lead["second"]) if h)),
        properties=properties,
    )


def _ended(run: Document, f: Document) -> Finding:
    info = _BY_ID[f["id"]]
    about = About(info.id, _title(info), info.detail, info.next_step)
    spot = Spot(f["source"] or "", f["line"] or 0, name=f"PTX line {f['ptx_line']}", text=f["message"])
    message = f"{f['message']} ({run['name']} {run['program']})"
    return Finding(about, "error", message, spot, identity=(run["kernel"], run["program"], f["message"]))


def _edits(group: Document) -> Finding:
    about = About(group["rule"], group["title"], group["reason"], "; ".join(group["references"]))
    changes = tuple(Change(_span(e), e["replacement"]) for e in group["edits"])
    message = f"{group['title']} ({group['safety']}): {group['reason']}"
    message = "\n".join([message, *group["notes"]])
    level: Level = "note" if group["safety"] == "safe" else "warning"
    return Finding(about, level, message, changes[0].spot if changes else None, changes=changes,
                   identity=tuple(e["replacement"] for e in group["edits"][:1]),
                   properties={"safety": group["safety"]})  # fmt: skip


def _span(edit: Document) -> Spot:
    first, last = edit["from"], edit["to"]
    return Spot(edit["path"], first["line"], first["column"], last["line"], last["column"])
