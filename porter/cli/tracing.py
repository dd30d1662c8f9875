# SPDX-License-Identifier: Apache-2.0
"""What --trace and --timeline ask for: the recording, its file, the picture."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from porter.cli.context import Session
from porter.diagnostics import Code, PorterError
from porter.report import timeline as report_timeline
from porter.report import trace as report_trace
from porter.verify.settings import Recorder, make_recorder

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def recorder(
    trace_path: Path | None, timeline: bool, blocks: str | None, kernel: str | None, limit: int | None
) -> Recorder | None:
    """What the options ask to record, or None.

    Raises:
        PorterError: BAD_OPTION; WRITE_FAILED if the file's directory is not there, before any work is done.
    """
    wanted = None if blocks is None else _selection(blocks)
    if trace_path is None and not timeline:
        return None
    if trace_path is not None and not trace_path.parent.is_dir():
        raise PorterError(Code.WRITE_FAILED, path=trace_path, reason="no such directory")
    return make_recorder(wanted, kernel, limit)


def _selection(text: str) -> Callable[[int], bool]:
    if text == "all":
        return lambda block: True
    ranges = []
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            problem = f"`{item}` is neither a number nor a range such as 0-3 (nor `all`)"
            raise PorterError(Code.BAD_OPTION, option="--trace-blocks", problem=problem)
        ranges.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return lambda block: any(block in r for r in ranges)


def show_trace(
    session: Session, found: Recorder | None, path: Path | None, timeline: bool, console: Console
) -> dict[str, Any]:
    """Write the file, print the picture on `console`, say what was left out; returns what the JSON document
    holds of it.

    Raises:
        PorterError: WRITE_FAILED.
    """
    if found is None:
        return {}
    missing = report_trace.left_out(found)
    if timeline and not session.json:
        for line in report_timeline.lines(found, console.width, console.options.ascii_only):
            console.print(line, soft_wrap=True)
    body: dict[str, Any] = {"left_out": missing}
    if path is not None:
        count = report_trace.write(found, path)
        body |= {"path": str(path), "events": count}
        _note(session, f"trace: {count} events in {path} (the axis is {report_trace.AXIS})")
    if missing:
        _note(session, f"trace: left out {missing}; see --trace-blocks and --trace-limit")
    return {"trace": body}


def _note(session: Session, text: str) -> None:
    if not session.json and session.verbosity >= 0:
        session.err.print(text, soft_wrap=True)
