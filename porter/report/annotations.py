# SPDX-License-Identifier: Apache-2.0
"""Findings as workflow commands, which GitHub shows beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from porter.build.entry import readable
from porter.report import coverage
from porter.report.findings import Document, findings_of

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def lines(documents: Sequence[Document], root: Path) -> Iterator[str]:
    """One command for each finding, errors first: of each kind GitHub shows the first ten of a step."""
    for f in findings_of(documents):
        properties = {"title": f"{f.about.id}: {readable(f.headline or f.about.title)}"}
        if f.spot is not None and f.spot.path:
            path = Path(f.spot.path).resolve()
            place = path.relative_to(root.resolve()) if path.is_relative_to(root.resolve()) else path
            properties |= {"file": place.as_posix()}
            numbers = {"line": f.spot.line, "endLine": f.spot.end_line, "col": f.spot.column}
            properties |= {name: str(value) for name, value in numbers.items() if value}
        listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        yield f"::{_COMMANDS[f.level]} {listed}::{_data(readable(f.message))}"
    for line in (line for d in documents for line in coverage.lines(d)):
        yield f"::notice title=coverage::{_data(line)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
