# SPDX-License-Identifier: Apache-2.0
"""Options of `porter hazards`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    compile_options,
    keep_option,
    launch_options,
    no_mend_option,
    resume_option,
    rules_option,
    seconds_option,
    simulator_options,
    style_option,
    trust_option,
)


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.argument("arguments", nargs=-1, metavar="[-- PROGRAM ARGUMENTS...]")
@click.option("--case", "case_path", type=click.Path(path_type=Path), metavar="FILE",
              help="The case to use instead of the one beside the kernel.")  # fmt: skip
@click.option("--port", "port_path", type=click.Path(path_type=Path), metavar="FILE",
              help="A finished port to check; without it Porter makes one.")  # fmt: skip
@click.option("--only", type=click.Choice(["original", "port"]), default=None,
              help="Check only one of the two.")  # fmt: skip
@click.option("--arch", default=None, metavar="ARCH", help="Check PATH as it is, compiled for ARCH; no port.")
@click.option("--triton", "is_triton", is_flag=True,
              help="PATH is a Python script that launches Triton's kernels; it is run.")  # fmt: skip
@click.option("--prove", is_flag=True,
              help="Prove synchronization on PTX, for all numbers of turns, instead of looking at runs.")  # fmt: skip
@click.option("--level", type=click.Choice(["strict", "practice"]), default=None,
              help="What counts as an error [default: strict for ports, else practice].")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Runs under the random schedule, or the lagging one, with seeds from --seed on.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Processes; each takes whole runs: of a program, at a size, with a seed.")  # fmt: skip
@seconds_option
@resume_option
@click.option("--baseline", "baseline_path", type=click.Path(path_type=Path), metavar="FILE",
              help="Tell only what the JSON document of an earlier run has not; the rest is to review.")  # fmt: skip
@click.option("--sizes", default="default", show_default=True, help="Problem size, with a case.")
@click.option("--sarif", "sarif_path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Also write the hazards as SARIF 2.1.0.")  # fmt: skip
@click.option("--kernel", "kernels", multiple=True, metavar="NAME",
              help="PTX: which entry, if there are several. Programs: look for hazards in kernels with this in their "
                   "name alone (repeatable); the others only run.")  # fmt: skip
@click.option("--grid", default="1", show_default=True, metavar="X,Y,Z", help="PTX: blocks.")
@click.option("--block", default="32", show_default=True, metavar="X,Y,Z", help="PTX: threads.")
@click.option("--cluster", default="1", show_default=True, metavar="X,Y,Z", help="PTX: blocks of a cluster.")
@click.option("--smem", type=click.IntRange(min=0), default=0, metavar="BYTES",
              help="PTX: dynamic shared memory.")  # fmt: skip
@click.option("--arg", "args", multiple=True, metavar="VALUE",
              help="PTX: an argument: a number, or a buffer such as f32[1024]=iota.")  # fmt: skip
@launch_options
@compile_options
@simulator_options
@rules_option
@keep_option
@style_option
@no_mend_option
@trust_option
def hazards() -> None:
    """Look for hazards in PATH: a kernel with its case (original and port), a case file, every case below a
    directory, a PTX module (with --grid, --block, --arg), or a whole program with its own main(), given as .cu
    source or as an executable. PTX from anywhere runs with a launch file: `porter hazards --ptx FILE --launch
    launch.yaml`. A script that launches Triton's kernels runs with --triton, by the Python that Porter has: kernels are
    compiled for sm_100a (or --arch), tensors lie in host memory.

    Hazards are races between threads and asynchronous operations, found from what is ordered after what, also
    where the values come out right. Verdicts: clean, review, incomplete (exit code 6), error (exit code 5).
    Hazards that the original has too are listed separately; next to a port the original's hazards set no exit code.

    With --prove nothing is run: kernels with a case, and launch files, are proved, to have a hazard (exit code 5), or
    not understood (exit code 6).
    """
