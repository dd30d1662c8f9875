# SPDX-License-Identifier: Apache-2.0
"""`porter scan`: an inventory of sources; never edits."""

from __future__ import annotations

from pathlib import Path

import click
from rich import box
from rich.table import Table
from rich.text import Text

from porter.cli.context import Session, command
from porter.diagnostics import ExitCode
from porter.report import json as report_json
from porter.report.inventory import Construct, Inventory, take_inventory


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@command
def scan(session: Session, paths: tuple[Path, ...]) -> ExitCode:
    """List kernels and inline PTX of files or trees, and which of it exists on Hopper only."""
    found = take_inventory(paths)
    session.report(found.diagnostics)
    session.show(_table(found), _summary(found))
    if session.verbosity > 0:
        for file in found.files:
            session.show(*(Text(f"{where}: not read") for where in file.unread))
            session.show(*(Text(note) for note in file.notes))
    session.write_json(_document(found))
    return ExitCode.OK


def _table(found: Inventory) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading, right in (("file", False), ("lines", True), ("parsed", True), ("kernels", False),
                           ("Hopper only", False), ("other inline PTX", False)):  # fmt: skip
        table.add_column(heading, justify="right" if right else "left")
    for file in found.files:
        hopper = [c for c in file.constructs if c.status == "hopper"]
        unknown = [c for c in file.constructs if c.status == "unknown"]
        both = sum(c.count for c in file.constructs if c.status == "both")
        others = [f"{both} on both"] if both else []
        others += [f"{c.count} {c.name} (unknown)" for c in unknown]
        table.add_row(
            file.path,
            str(file.lines),
            f"{file.coverage:.1%}",
            "\n".join(file.kernels),
            "\n".join(f"{c.count} {c.name}" for c in hopper),
            "\n".join(others),
        )
    return table


def _summary(found: Inventory) -> Text:
    kernels = sum(len(f.kernels) for f in found.files)
    lines = sum(f.lines for f in found.files)
    return Text(
        f"{len(found.files)} files, {lines} lines, {found.coverage:.2%} of the bytes parsed, "
        f"{kernels} kernels, {found.hopper_only} Hopper-only instructions"
    )


def _document(found: Inventory) -> dict[str, object]:
    def construct(c: Construct) -> dict[str, object]:
        return {"name": c.name, "status": c.status, "count": c.count, "first": report_json.location(c.first)}

    files = [
        {
            "path": f.path,
            "lines": f.lines,
            "bytes": f.nbytes,
            "coverage": f.coverage,
            "kernels": list(f.kernels),
            "constructs": [construct(c) for c in f.constructs],
            "unread": [report_json.location(where) for where in f.unread],
        }
        for f in found.files
    ]
    body = {
        "target": found.target,
        "coverage": found.coverage,
        "hopper_only": found.hopper_only,
        "files": files,
        "diagnostics": report_json.diagnostics(found.diagnostics),
    }
    return report_json.document("scan", ExitCode.OK, body)
