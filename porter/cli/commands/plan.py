# SPDX-License-Identifier: Apache-2.0
"""Options of `porter plan`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    keep_option,
    plan_style_option,
    problem_option,
    rules_option,
    target_option,
)


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are.")  # fmt: skip
@click.option("--pipeline", is_flag=True,
              help="Show mbarriers, rings, copies, roles and launch of each kernel.")  # fmt: skip
@click.option("--steps", is_flag=True,
              help="Make the ports with steps of --style native, and show of each who refused it, PTX or a run, and "
                   "why, or that it was taken, with its grade.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=None, metavar="N",
              help="Processes that read the files [default: one per CPU for directories].")  # fmt: skip
@rules_option
@keep_option
@target_option
@plan_style_option
@problem_option
def plan() -> None:
    """Show the decisions of a port: warpgroups, Tensor Memory, batches in flight, and where each accumulator moves.

    Exit code 3: constructs are refused; they are named with their place, and the kernels that stay because of them.
    """
