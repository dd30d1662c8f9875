# SPDX-License-Identifier: Apache-2.0
"""One kernel and its port as a page of HTML that needs nothing else: sources and PTX side by side, edit groups,
hazards, values, resources, the order of a run."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rich.text import Span, Text

import porter
from porter.build.table import COLUMNS
from porter.lang.matching import LineMatcher
from porter.ptx import ast
from porter.report import coverage
from porter.report.findings import Document, findings_of
from porter.report.templating import environment
from porter.report.terminal import sizes_text
from porter.verify.compare import ULP_BINS

MOST_FLOWS = 8
"""Pairs of accesses of one hazard that are drawn."""


@dataclass(frozen=True)
class Source:
    """One file before and after; `old` is None for a file that the port adds. `compiled` is where the compiler read the
    port's text, if that is another place."""

    path: str
    old: str | None
    new: str
    compiled: str = ""


def source(path: str, old: bytes | None, new: bytes, compiled: str = "") -> Source:
    """Of bytes; what is no UTF-8 shows as signs that say so."""
    return Source(
        path, None if old is None else old.decode("utf-8", "replace"), new.decode("utf-8", "replace"), compiled
    )


@dataclass(frozen=True)
class Assembly:
    """The PTX of one kernel of the port: its text, and the source lines of its lines, innermost first."""

    kernel: str
    arch: str
    text: str
    places: Mapping[int, Sequence[tuple[str, int]]]


@dataclass(frozen=True)
class Subject:
    """What a page is about. `documents` are those of the commands that were run."""

    title: str
    documents: Sequence[Document]
    sources: Sequence[Source] = ()
    assembly: Assembly | None = None
    timeline: Sequence[Text] = field(default=())


@dataclass(frozen=True)
class _Row:
    """A line of the original and the line of the port beside it; numbers are 0 where there is none."""

    old: int
    old_text: str
    new: int
    new_text: str
    changed: bool


def html(subject: Subject) -> str:
    files = [list(_rows(s)) for s in subject.sources]
    found = findings_of(subject.documents)
    row_of = _compiled_rows(subject.sources, files)
    words = {
        "subject": subject,
        "version": porter.__version__,
        "documents": subject.documents,
        "of": {d["kind"]: d for d in subject.documents},
        "files": [
            {"name": s.path, "added": s.old is None, "rows": rows, "changes": sum(r.changed for r in rows)}
            for s, rows in zip(subject.sources, files, strict=True)
        ],
        "groups": list(_groups(subject, files)),
        "hazards": [f for f in found if f.flows],
        "ends": [f for f in found if not f.flows and not f.changes and f.about.id.startswith("PT4")],
        "messages": [f for f in found if not f.flows and not f.changes and not f.about.id.startswith("PT4")],
        "ptx": _ptx(subject.assembly, row_of) if subject.assembly is not None else [],
        "timeline": [list(_signs(line)) for line in subject.timeline],
        "headings": dict(COLUMNS),
        "coverage": [line for d in subject.documents for line in coverage.lines(d)],
        "bins": [f"≤{n}" if n else "0" for n in ULP_BINS] + [f">{ULP_BINS[-1]}"],
        "sizes_text": sizes_text,
        "rows_of": lambda spot: row_of.get((os.path.realpath(spot.path), spot.line), "") if spot.path else "",
        "most_flows": MOST_FLOWS,
        "others": [d for d in subject.documents if d["kind"] not in _OWN],
        "scalars": _scalars,
    }
    return environment().get_template("page.html.j2").render(**words)


_OWN = {"port", "verify", "hazards", "build", "grade", "error"}
"""Kinds of documents that have a section of their own; of others the figures are shown."""


def _rows(source: Source) -> Iterator[_Row]:
    """The lines of both sides, in pairs where they are the same."""
    old, new = (source.old or "").splitlines(), source.new.splitlines()
    for tag, a0, a1, b0, b1 in LineMatcher(old, new).get_opcodes():
        for i in range(max(a1 - a0, b1 - b0)):
            a, b = a0 + i, b0 + i
            yield _Row(
                a + 1 if a < a1 else 0,
                old[a] if a < a1 else "",
                b + 1 if b < b1 else 0,
                new[b] if b < b1 else "",
                tag != "equal",
            )


def _compiled_rows(sources: Sequence[Source], files: Sequence[Sequence[_Row]]) -> dict[tuple[str, int], str]:
    """The row of each line that the compiler reads, as `file:row`; of an original too that it may have read."""
    found: dict[tuple[str, int], str] = {}
    for number, (one, rows) in enumerate(zip(sources, files, strict=True)):
        names = [(os.path.realpath(one.compiled or one.path), "new")]
        if one.compiled:
            names.append((os.path.realpath(one.path), "old"))
        for name, side in names:
            found |= {(name, getattr(row, side)): f"{number}:{i}" for i, row in enumerate(rows) if getattr(row, side)}
    return found


def _ptx(assembly: Assembly, row_of: Mapping[tuple[str, int], str]) -> list[dict[str, Any]]:
    """Each line of PTX with the rows that it comes from."""
    real = functools.cache(os.path.realpath)
    lines = []
    for n, text in enumerate(assembly.text.splitlines(), 1):
        keys = [key for path, line in assembly.places.get(n, ()) if (key := row_of.get((real(path), line)))]
        lines.append({"number": n, "text": text, "keys": " ".join(dict.fromkeys(keys))})
    return lines


def places_of(function: ast.Function) -> dict[int, list[tuple[str, int]]]:
    """The source lines of each line of PTX of a kernel, innermost first."""
    found: dict[int, list[tuple[str, int]]] = {}
    for instruction in ast.flattened(function.body or ()):
        for loc in instruction.loc.outwards() if instruction.loc is not None else ():
            found.setdefault(instruction.line, []).append((loc.file, loc.line))
    return found


def _groups(subject: Subject, files: Sequence[Sequence[_Row]]) -> Iterator[dict[str, Any]]:
    """The edit groups with the rows of their edits. A review may have left its decision as `state`."""
    row_of: dict[tuple[str, int], str] = {}
    for number, (source, rows) in enumerate(zip(subject.sources, files, strict=True)):
        row_of |= {(source.path, row.old): f"{number}:{i}" for i, row in enumerate(rows)}
    for document in subject.documents:
        for g in document.get("groups", ()):
            keys = [
                row_of.get((e["path"], line), "")
                for e in g["edits"]
                for line in range(e["from"]["line"], e["to"]["line"] + 1)
            ]
            state = g.get("state", "shown" if g["safety"] == "sketch" else "applied")
            yield {**g, "state": state, "keys": " ".join(dict.fromkeys(k for k in keys if k))}


def _signs(line: Text) -> Iterator[tuple[str, str]]:
    """(style, text) of a line of a timeline."""
    styles = [""] * len(line.plain)
    for span in [Span(0, len(styles), str(line.style)), *line.spans]:
        styles[span.start : span.end] = [str(span.style)] * (min(span.end, len(styles)) - span.start)
    for style, part in groupby(zip(styles, line.plain, strict=True), key=lambda sign: sign[0]):
        yield style, "".join(sign for _, sign in part)


def _scalars(document: Document) -> dict[str, Any]:
    return {k: v for k, v in document.items() if isinstance(v, str | int | float) and k not in ("schema_version",)}
