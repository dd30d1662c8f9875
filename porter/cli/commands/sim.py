# SPDX-License-Identifier: Apache-2.0
"""Options of `porter sim`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command, compile_options, simulator_options, trace_options, trust_option


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, metavar="[-- PROGRAM ARGUMENTS...]")
@click.option("--case", "case_path", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--arch", default=None, metavar="ARCH", help="Compile for this target (default sm_90a).")
@click.option("--family", default="integers", show_default=True, help="Input family, with a case.")
@click.option("--sizes", default="default", show_default=True, help="Problem size, with a case.")
@click.option("--kernel", default=None, metavar="NAME", help="PTX: which entry, if there are several.")
@click.option("--grid", default="1", show_default=True, metavar="X,Y,Z", help="PTX: blocks.")
@click.option("--block", default="32", show_default=True, metavar="X,Y,Z", help="PTX: threads.")
@click.option("--cluster", default="1", show_default=True, metavar="X,Y,Z", help="PTX: blocks of a cluster.")
@click.option("--smem", type=click.IntRange(min=0), default=0, metavar="BYTES", help="PTX: dynamic shared memory.")
@click.option("--arg", "args", multiple=True, metavar="VALUE",
              help="PTX: an argument: a number, or a buffer such as f32[1024]=iota.")  # fmt: skip
@compile_options
@trace_options
@simulator_options
@trust_option
def sim() -> None:
    """Run PATH on the simulator: a PTX module (with --grid, --block, --arg), a kernel with a case, or a whole
    program with its own main(), given as .cu source or as an executable."""
