# SPDX-License-Identifier: Apache-2.0
"""Options of `porter mutate`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    launch_options,
    problem_option,
    prove_option,
    resume_option,
    rules_option,
    seconds_option,
    simulator_options,
    style_option,
    trust_option,
)


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--case", "case_path", type=click.Path(path_type=Path), metavar="FILE",
              help="The case to use instead of the one beside the kernel.")  # fmt: skip
@click.option("--port", "port_path", type=click.Path(path_type=Path), metavar="FILE",
              help="A finished port to mutate; without it Porter makes one.")  # fmt: skip
@click.option("--original", is_flag=True, help="Mutate the original instead of its port.")
@click.option("--sizes", multiple=True, metavar="NAME=N,...",
              help="Problem size; mutants whose instruction does nothing there run at the further ones "
                   "[default: mutate_sizes of the case, then its other sizes].")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Processes that run mutants.")  # fmt: skip
@click.option("--record", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Keep each port's result in DIR and pass over ports whose result is there already.")  # fmt: skip
@click.option("--again", is_flag=True, help="With --record: pass over none.")
@seconds_option
@prove_option
@resume_option
@launch_options
@simulator_options
@style_option
@problem_option
@rules_option
@trust_option
def mutate() -> None:
    """Drop or weaken each commit, wait, fence, barrier, arrival and allocation of PATH's port in turn. PATH is a
    kernel, a case file, or a directory of cases. With `--ptx FILE --launch launch.yaml` a kernel that Porter did not
    write is mutated.

    Every mutant runs in the checking simulator. The table says whether its values are wrong and which hazards are
    reported; kinds in parentheses are errors only at the strict level. For those that nobody notices it looks for
    what else orders the same accesses. Exit code 1 if a mutant gives wrong values and no hazard, or, with --record,
    if neither a run nor DIR/reviewed.yaml says why a mutant is harmless; 5 if the kernel itself is not clean.
    """
