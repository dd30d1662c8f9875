# SPDX-License-Identifier: Apache-2.0
"""Options of `porter explain`."""

from __future__ import annotations

import click

from porter.cli.commands.shared import Command, rules_option


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[ID|exit-codes|0xWORD]")
@click.option("--list", "every", is_flag=True, help="List all diagnostics.")
@click.option("--idesc", "instruction", is_flag=True, help="The word is an instruction descriptor of tcgen05.mma.")
@rules_option
def explain() -> None:
    """Explain a diagnostic (PT0001), a rule (PTR110), the exit codes, or the word of a matrix descriptor: its fields
    on Hopper and on SM100, what is illegal, and what a port makes of it.

    \b
    porter explain 0x4000004000010840
    porter explain --idesc 0x08200490
    """
