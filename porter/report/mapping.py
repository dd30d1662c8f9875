# SPDX-License-Identifier: Apache-2.0
"""The mapping table for terminals, as JSON, and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from porter.diagnostics import ExitCode
from porter.report import json as report_json
from porter.rules.mapping import STATUS, Answer, Entry, table

_WIDTH = 12
Line = tuple[str, str, str]
"""A label, its style, and the text behind it."""


def map_lines(answer: Answer, titles: Mapping[str, str]) -> Iterator[Line]:
    """All that is known of a word; `titles` are those of rules."""
    for entry in answer.entries:
        yield ", ".join(entry.names), "bold", f"  {entry.family}: {STATUS[entry.status]}"
        for label, texts in _fields(entry, titles):
            for i, text in enumerate(texts):
                yield f"  {label if i == 0 else '':<{_WIDTH}}", "cyan", text
    if answer.claims:
        yield "What is said, and is wrong", "bold", ""
    for claim in answer.claims:
        yield f"  {'said':<{_WIDTH}}", "cyan", f'"{claim.said}"'
        yield f"  {'but':<{_WIDTH}}", "cyan", f"{claim.so} ({', '.join(claim.references)})"


def _fields(entry: Entry, titles: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "is", (entry.what,)
    if entry.becomes:
        yield "becomes", (entry.becomes,)
    yield "conditions", entry.conditions
    if entry.advice:
        yield "advice", (entry.advice,)
    yield "rules", tuple(f"{rule} {titles.get(rule, '')}".rstrip() for rule in entry.rules)
    yield "references", ("; ".join(entry.references),) if entry.references else ()


def name_lines(answer: Answer) -> Iterator[Line]:
    """A line for each construct that a word begins the names of."""
    width = max((len(", ".join(e.names)) for e in answer.entries if len(", ".join(e.names)) < 60), default=0)
    for entry in answer.entries:
        text = entry.becomes if entry.status != "blackwell" else entry.what
        yield f"{', '.join(entry.names):<{width}}", "bold", f"  {STATUS[entry.status]}: {text}"
    words = ", ".join(dict.fromkeys(word for claim in answer.claims for word in claim.words))
    if words:
        yield "What is said and is wrong: ", "bold", words


def map_document(answer: Answer, titles: Mapping[str, str]) -> dict[str, Any]:
    entries = []
    for entry in answer.entries:
        stated = asdict(entry)
        stated["is"] = stated.pop("what")
        stated["rules"] = [{"id": rule, "title": titles.get(rule, "")} for rule in entry.rules]
        entries.append(stated)
    body = {"word": answer.word, "is_family": answer.is_family, "entries": entries,
            "claims": [asdict(c) for c in answer.claims]}  # fmt: skip
    return report_json.document("map", ExitCode.OK, body)


def map_page() -> Iterator[str]:
    """The lines of the page: a table for each family, and the claims."""
    entries, claims = table()
    for family in dict.fromkeys(e.family for e in entries):
        yield from ("", f"## {family}", "", "| construct | | becomes | rules | references |", "|---|---|---|---|---|")
        for e in (e for e in entries if e.family == family):
            names = ", ".join(f"`{n}`" for n in e.names)
            what = " ".join([e.what, *e.conditions])
            becomes = f"*{STATUS[e.status]}*" + (f": {_cell(e.becomes)}" if e.becomes else "")
            becomes += f". {_cell(e.advice)}" if e.advice else ""
            yield f"| {names} | {_cell(what)} | {becomes} | {', '.join(e.rules)} | {'; '.join(e.references)} |"
    yield from ("", "## What is said, and is wrong", "", "| | about | said | but | source |", "|---|---|---|---|---|")
    for c in claims:
        words = ", ".join(f"`{w}`" for w in c.words)
        yield f"| {c.id} | {words} | {_cell(c.said)} | {_cell(c.so)} | {', '.join(c.references)} |"


def _cell(text: str) -> str:
    for mark, shown in (("|", "\\|"), ("*", "\\*"), ("_", "\\_"), ("<", "&lt;")):
        text = text.replace(mark, shown)
    return text
