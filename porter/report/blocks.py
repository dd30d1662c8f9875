# SPDX-License-Identifier: Apache-2.0
"""Diagnostics as blocks of text in the manner of compilers: what, where with the source line, why, next
step."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from porter.diagnostics import Diagnostic, Location, Severity

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_MAX_LINE = 160


def source_line(where: Location) -> str | None:
    """The text of the line, without its end, or None if the file cannot be read."""
    if not where.line:
        return None
    try:
        with Path(where.path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if number == where.line:
                    return line.rstrip(b"\r\n").decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
    return None


def block(diagnostic: Diagnostic, explain: bool = True) -> Text:
    """The block of one diagnostic, ending in a newline. With `explain` the detail and next step follow.

    Names in the message are shortened; in JSON they are whole. Carets are drawn under the span's characters; a place is
    shown whether or not it can be read.
    """
    # what asks for help loads no compilers
    from porter.build.entry import readable

    info = diagnostic.code.value
    text = Text()
    text.append(f"{info.severity.value}[{info.id}]", style=_STYLES[info.severity])
    text.append(f": {readable(diagnostic.message)}\n", style="bold")
    where = diagnostic.where
    if where is not None:
        text.append("  --> ", style="blue")
        text.append(f"{where}\n")
        line = source_line(where)
        if line is not None:
            _excerpt(text, where, line)
    for line in diagnostic.detail.rstrip().splitlines():
        text.append("   = ", style="blue")
        text.append(f"{line}\n")
    if explain and info.severity is not Severity.NOTE:
        text.append("   = ", style="blue")
        text.append(f"{info.detail}\n", style="dim")
        text.append("   = ", style="blue")
        text.append("next: ", style="bold")
        text.append(f"{info.next_step}\n")
    return text


def _excerpt(text: Text, where: Location, line: str) -> None:
    number = str(where.line)
    pad = " " * len(number)
    text.append(f" {pad} |\n {number} | ", style="blue")
    text.append(f"{line[:_MAX_LINE].expandtabs(4)}\n")
    if where.column:
        # Columns count bytes; the caret has to stand under characters.
        before = line.encode("utf-8", "replace")[: where.column - 1].decode("utf-8", "replace")
        indent = len(before.expandtabs(4))
        if indent <= _MAX_LINE:
            text.append(f" {pad} | ", style="blue")
            text.append(" " * indent + "^" * _width(where, line, before, indent) + "\n", style="bold red")


def _width(where: Location, line: str, before: str, indent: int) -> int:
    """Characters that are underlined: those of the span on its first line, as far as that is shown."""
    if where.end <= where.start:
        return 1
    data = line.encode("utf-8", "replace")
    stop = where.end_column - 1 if where.end_line == where.line else len(data)
    upto = data[:stop].decode("utf-8", "replace")
    marked = upto[: len(before)].expandtabs(4) + upto[len(before) :].rstrip()
    return max(1, min(len(marked.expandtabs(4)), _MAX_LINE) - indent)
