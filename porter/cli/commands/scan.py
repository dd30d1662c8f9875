# SPDX-License-Identifier: Apache-2.0
"""Options of `porter scan`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command, rules_option


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--csv", "as_csv", is_flag=True, help="One line per file and construct, comma-separated.")
@click.option("--no-effort", is_flag=True, help="Do not run the port engine to tell how much work a port is.")
@click.option("--jobs", type=click.IntRange(min=1), default=None, metavar="N",
              help="Processes that read and judge files (default: one per CPU).")  # fmt: skip
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are.")  # fmt: skip
@rules_option
def scan() -> None:
    """List kernels and Hopper constructs of files or trees, what each becomes, and how much work a port is.

    Effort is what the port engine makes of a file: `low` is ported and meaning is kept by construction, `medium`
    is ported with something to look at, `high` is what is left to do by hand.
    """
