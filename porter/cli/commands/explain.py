# SPDX-License-Identifier: Apache-2.0
"""Options of `porter explain`."""

from __future__ import annotations

import click

from porter.cli.commands.shared import Command, rules_option


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[ID|exit-codes]")
@click.option("--list", "every", is_flag=True, help="List all diagnostics.")
@rules_option
def explain() -> None:
    """Explain a diagnostic (PT0001), a rule (PTR110), or the exit codes."""
