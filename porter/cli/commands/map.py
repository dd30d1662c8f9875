# SPDX-License-Identifier: Apache-2.0
"""Options of `porter map`."""

from __future__ import annotations

import click

from porter.cli.commands.shared import Command, rules_option


@click.command(cls=Command)
@click.argument("word", required=False)
@rules_option
def map() -> None:
    """Say what a construct of Hopper becomes on Blackwell, under which conditions, by which rule, and where it is
    written; and what is said about it that is wrong. Without WORD, all names.

    WORD is an instruction with or without modifiers, a name of CuTe, CUTLASS or CuTe DSL or the end of one, or what
    names begin with. Exit code 2: nothing is known of it; what is near is named.

    \b
    porter map wgmma.wait_group
    porter map SM90_64x128x16_F32F16F16_SS
    porter map warpgroup.MmaF16BF16Op
    porter map tcgen05.wait
    """
