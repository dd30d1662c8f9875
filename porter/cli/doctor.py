# SPDX-License-Identifier: Apache-2.0
"""`porter doctor`: what is here, and what each missing part disables."""

from __future__ import annotations

from rich.table import Table

from porter.cli.config import FILE, read_config
from porter.cli.context import Session, command
from porter.diagnostics import ExitCode
from porter.report import json as report_json
from porter.report.environment import Probe, is_usable, probe
from porter.report.exits import doctor_exit
from porter.report.tables import plain_table


@command
def doctor(session: Session) -> ExitCode:
    probes = [*probe(session.toolkit), _configuration(session)]
    code = doctor_exit(is_usable(probes))
    session.show(_table(probes))
    body = {"usable": code is ExitCode.OK, "probes": [vars(p) for p in probes]}
    session.write_json(report_json.document("doctor", code, body))
    return code


def _configuration(session: Session) -> Probe:
    """The file that sources here have their settings from."""
    found = session.config
    what = f"{found}: {', '.join(read_config(found).values) or 'no key'}" if found is not None else f"no {FILE} here"
    return Probe("configuration", found is not None, what, "settings of a project's own")


def _table(probes: list[Probe]) -> Table:
    table = plain_table("part", "", "found", "needed for")
    for p in probes:
        mark = "yes" if p.found else "NO" if p.required else "no"
        table.add_row(p.name, mark, p.what, p.needed_for)
    return table
