# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown, for pull requests and job summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from porter.build.table import COLUMNS
from porter.report import coverage
from porter.report.findings import Document, findings_of
from porter.report.templating import environment
from porter.report.terminal import sizes_text


def text(documents: Sequence[Document]) -> str:
    page = environment().get_template("report.md.j2")
    words = {"cell": _cell, "coverage": coverage.lines, "compared": _compared, "dash": _dash, "hopper": _hopper,
             "sizes_text": sizes_text, "headings": dict(COLUMNS)}  # fmt: skip
    return page.render(documents=documents, findings=findings_of(documents), **words)


def _cell(value: object) -> str:
    """Text that is one cell of a table."""
    text = "" if value is None else str(value)
    for sign in "\\`|*<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _compared(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """What the comparisons of all outputs come to."""
    bad = [f"{c['tensor']}: {c['mismatches']} of {c['elements']} differ" for c in comparisons if not c["ok"]]
    if not comparisons:
        return "not compared"
    return _cell("; ".join(bad)) if bad else "agrees"


def _dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _hopper(file: Mapping[str, Any]) -> str:
    found = [c for c in file["constructs"] if c["status"] == "hopper"]
    return ", ".join(f"{c['count']} {c['name']}" for c in found)
