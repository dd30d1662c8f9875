# SPDX-License-Identifier: Apache-2.0
"""Options of `porter run`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    compile_options,
    launch_options,
    simulator_options,
    trace_options,
    trust_option,
)


@click.command(cls=Command, context_settings={"allow_interspersed_args": False})
@click.argument("program", type=click.Path(path_type=Path), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PROGRAM ARGUMENTS...]")
@click.option("--arch", default=None, metavar="ARCH",
              help="Source: compile for this target (default sm_90a). Executable: run as on this chip.")  # fmt: skip
@click.option("--multiprocessors", type=click.IntRange(min=1), default=None, metavar="N",
              help="How many the device reports [default: 8].")  # fmt: skip
@launch_options
@compile_options
@click.option("--hazards", "check", is_flag=True, help="Also look for hazards, as `porter hazards` does.")
@click.option("--level", type=click.Choice(["strict", "practice"]), default="practice", show_default=True,
              help="With --hazards: what counts as an error.")  # fmt: skip
@trace_options
@simulator_options
@trust_option
def run() -> None:
    """Run PROGRAM with its own main() and its arguments, its kernels on the simulator. No GPU takes part.

    PROGRAM is CUDA source, which is compiled first, or an executable that holds PTX and was linked with `-cudart
    shared`. Options of Porter stand before it: `porter run --trace out.json -- ./program --size 256`. The program
    has the terminal's input and output; what Porter says goes to standard error.

    The exit status is the program's own (128 + N if signal N ended it), unless Porter has something to say about its
    kernels: 5 for a run-time error or a hazard, 6 where a call or an instruction is not supported, so that there is no
    verdict.
    """
