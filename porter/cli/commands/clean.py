# SPDX-License-Identifier: Apache-2.0
"""Options of `porter clean`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if there is a comment to remove.")
def clean() -> None:
    """Remove the comments that `porter port --mark` left in files or trees: lines of `// porter[PT2503]: ...` and
    `# porter[...]: ...`. All other bytes stay."""
