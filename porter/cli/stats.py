# SPDX-License-Identifier: Apache-2.0
"""`porter stats`: counts by construct, rule, safety label and file."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from pathlib import Path

from rich.table import Table
from rich.text import Text

from porter.cli.context import Session, command
from porter.cli.inputs import processes, require_directories
from porter.cli.porting import look, port_options
from porter.diagnostics import Code, ExitCode, PorterError
from porter.report import json as report_json
from porter.report.tables import plain_table, quantity
from porter.scan.stats import BY, Statistics, take_statistics


@command
def stats(
    session: Session, paths: tuple[Path, ...], as_csv: bool, jobs: int | None, include_dirs: tuple[Path, ...]
) -> ExitCode:
    if as_csv and session.json:
        raise PorterError(Code.BAD_OPTION, option="--csv, --format", problem="choose one")
    require_directories("-I", include_dirs)
    count = processes(jobs, paths)
    with session.counting() as tell:
        found = take_statistics(paths, include_dirs, port_options(session), look, count, tell)
    if as_csv:
        session.write(_csv(found).encode("utf-8", "surrogateescape"))
        return ExitCode.OK
    for by in BY:
        if found.of(by):
            session.show(_table(by, found), Text(""))
    left = f", {quantity(len(found.problems), 'problem')} (porter scan -v names them)" if found.problems else ""
    session.conclude(Text(f"{quantity(found.files, 'file')}{left}"))
    body = {
        "files": found.files,
        "counts": [asdict(c) for c in found.counts],
        "diagnostics": report_json.diagnostics(found.problems),
    }
    session.write_json(report_json.document("stats", ExitCode.OK, body))
    return ExitCode.OK


def _table(by: str, found: Statistics) -> Table:
    table = plain_table()
    table.add_column("Hopper only" if by == "construct" else by, overflow="fold")
    for heading in ("count" if by == "construct" else "edits", "files"):
        table.add_column(heading, justify="right")
    for c in found.of(by):
        table.add_row(c.name, str(c.count), str(c.files))
    return table


def _csv(found: Statistics) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("by", "name", "count", "files"))
    writer.writerows((c.by, c.name, c.count, c.files) for c in found.counts)
    return out.getvalue()
