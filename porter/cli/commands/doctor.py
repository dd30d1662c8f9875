# SPDX-License-Identifier: Apache-2.0
"""Options of `porter doctor`."""

from __future__ import annotations

import click

from porter.cli.commands.shared import Command


@click.command(cls=Command)
def doctor() -> None:
    """Say which compilers, packages and GPUs are here and what each missing one disables.

    Exit code 1 if something is missing that scan, port, build or verify need.
    """
