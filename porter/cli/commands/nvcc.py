# SPDX-License-Identifier: Apache-2.0
"""Options of `porter nvcc`."""

from __future__ import annotations

import click

from porter.cli.commands.shared import Command


@click.command(cls=Command, context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.option("--mode", type=click.Choice(["eager", "deferred"]), default="deferred", show_default=True,
              help="When tensor-core operations take effect; PORTER_MODE changes it at run time.")  # fmt: skip
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[NVCC ARGUMENTS]")
def nvcc() -> None:
    """Run nvcc with its usual arguments; code for sm_100a comes out for Hopper, with tcgen05 emulated.

    The result is an ordinary executable with the program's own main(). Host code that asks for the compute
    capability is told 10.0.
    """
