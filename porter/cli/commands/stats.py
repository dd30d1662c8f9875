# SPDX-License-Identifier: Apache-2.0
"""Options of `porter stats`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command, rules_option


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--csv", "as_csv", is_flag=True, help="One line per count, comma-separated.")
@click.option("--jobs", type=click.IntRange(min=1), default=None, metavar="N",
              help="Processes that read and port files (default: one per CPU).")  # fmt: skip
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are.")  # fmt: skip
@rules_option
def stats() -> None:
    """Count what of Hopper is in files or trees, and the edits that port them, by construct, rule, safety and file."""
