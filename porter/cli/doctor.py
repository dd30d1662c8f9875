# SPDX-License-Identifier: Apache-2.0
"""`porter doctor`: what is here, and what each missing part disables."""

from __future__ import annotations

from rich import box
from rich.table import Table

from porter.cli.context import Session, command
from porter.diagnostics import ExitCode
from porter.report import json as report_json
from porter.report.environment import Probe, is_usable, probe


@command
def doctor(session: Session) -> ExitCode:
    probes = probe(session.toolkit)
    code = ExitCode.OK if is_usable(probes) else ExitCode.FINDINGS
    session.show(_table(probes))
    body = {"usable": code is ExitCode.OK, "probes": [vars(p) for p in probes]}
    session.write_json(report_json.document("doctor", code, body))
    return code


def _table(probes: list[Probe]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("part", "", "found", "needed for"):
        table.add_column(heading)
    for p in probes:
        mark = "yes" if p.found else "NO" if p.required else "no"
        table.add_row(p.name, mark, p.what, p.needed_for)
    return table
