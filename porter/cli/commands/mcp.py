# SPDX-License-Identifier: Apache-2.0
"""Options of `porter mcp`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command, trust_option


@click.command(cls=Command)
@click.option("--root", type=click.Path(path_type=Path, file_okay=False), default=Path("."), metavar="DIR",
              help="Where paths lead from; none may lead out  [default: the working directory].")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=1), default=300, show_default=True,
              help="Time budget of a call that names none.")  # fmt: skip
@trust_option
def mcp() -> None:
    """Serve scan, case_new, plan, port, review, verify, equal, hazards, grade, explain and map as tools, on standard
    input and output.

    For coding agents (docs/agents.md); needs the extra `mcp`: pip install 'porter-sm100[mcp]'. Code that sources bring
    along, a main() of theirs included, runs only with `--trust` or PORTER_TRUST=1. Originals are not written over.
    """
