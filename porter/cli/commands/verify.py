# SPDX-License-Identifier: Apache-2.0
"""Options of `porter verify`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    compile_options,
    gpu_options,
    keep_option,
    no_mend_option,
    problem_option,
    prove_option,
    resume_option,
    rules_option,
    simulator_options,
    style_option,
    target_option,
    tmem_check_option,
    trust_option,
)
from porter.verify.backend_names import BACKENDS


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, metavar="[-- PROGRAM ARGUMENTS...]")
@click.option("--case", "case_path", type=click.Path(path_type=Path), metavar="FILE",
              help="The case to use instead of the one beside the kernel.")  # fmt: skip
@click.option("--port", "port_path", type=click.Path(path_type=Path), metavar="FILE",
              help="A finished port to verify; without it Porter makes one.")  # fmt: skip
@click.option("--source", type=click.Path(path_type=Path), metavar="FILE",
              help="Recorded cases: the CUDA C++ file the kernel was compiled from, to make the port of.")  # fmt: skip
@compile_options
@click.option("--original-only", is_flag=True, help="Only compare the original with the reference.")
@click.option("--families", multiple=True, metavar="NAMES", help="Input families, comma-separated, or `all`.")
@click.option("--sizes", multiple=True, metavar="SIZES",
              help="`default`, `all`, or M=128,N=256,...; repeatable [default: `default` with all input families, "
                   "and with one each what that cannot show: other instantiations, edges, a long loop, three blocks a "
                   "dimension, many tiles of a block, what is beyond constants].")  # fmt: skip
@click.option("--hazards/--no-hazards", default=None,
              help="Also look for hazards in the same runs, with the first input family of each size "
                   "[default: on the simulator, where there is a port].")  # fmt: skip
@prove_option
@simulator_options
@click.option("--backend", type=click.Choice(BACKENDS), default="sim", show_default=True,
              help="Where kernels run; `auto` takes a GPU if there is one.")  # fmt: skip
@gpu_options
@tmem_check_option
@click.option("--against", type=click.Path(path_type=Path), metavar="FILE",
              help="A record to compare the port with, instead of running the original.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0), default=None, metavar="N",
              help="Begin no new input family after N seconds; what is left has no verdict (exit code 6).")  # fmt: skip
@resume_option
@click.option(
    "--grade",
    "grades",
    is_flag=True,
    help="Also say in a line how near original and port come to their chips' nominal rates (docs/grade.md).",
)
@click.option("--full", is_flag=True, help="With --format json: figures of each run of a clean verification, too.")
@rules_option
@keep_option
@no_mend_option
@target_option
@style_option
@problem_option
@trust_option
def verify() -> None:
    """Verify PATH: a kernel with its case beside it, a case file, or every case below a directory.

    The kernel is ported unless --port or --original-only is given; original and port are built, run on the
    same inputs, and compared with the float64 reference and with each other. A recorded case (porter capture) is
    compared with what was recorded, in the hardware's arithmetic; it has a port if its source is known. On the
    simulator the integer inputs run once more under a random schedule: a buffer given back too early shows only
    there. Ports of CuTe DSL kernels run under the late, the eager and two random schedules, whatever is asked for.
    Values and synchronization are checked in one go, on the levels of `porter hazards`. What the port has from its
    original is said, and sets no exit code. What they leave in variables of the module or in scratch tensors is there
    in a second launch. The last lines say what was not run, and what is proved of the synchronization of both on their
    PTX, without a run.

    A program with its own main() and no case beside it runs whole, with its arguments: `porter verify --port port.cu
    program.cu -- 256 256 64`. After each launch original and port have to hold the same bits in memory.
    """
