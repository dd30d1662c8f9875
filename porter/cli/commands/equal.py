# SPDX-License-Identifier: Apache-2.0
"""Options of `porter equal`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import (
    Command,
    compile_options,
    keep_option,
    no_mend_option,
    problem_option,
    rules_option,
    style_option,
    target_option,
    trust_option,
)


@click.command(cls=Command)
@click.argument("path", metavar="ORIGINAL", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, metavar="[PORT] [-- PROGRAM ARGUMENTS...]")
@click.option("--port", "port_path", type=click.Path(path_type=Path), metavar="FILE",
              help="The same as PORT.")  # fmt: skip
@compile_options
@click.option("--case", "case_path", type=click.Path(path_type=Path), metavar="FILE",
              help="The case to use instead of the one beside the kernel.")  # fmt: skip
@click.option("--entry", default=None, metavar="NAME", help="The kernel of PORT, where it is called otherwise.")
@click.option("--params", default=None, metavar="LIST",
              help="The parameters of PORT in its order, where that is another: each by the name that it has in the "
                   "case, or by its number in the original, from 1 on.")  # fmt: skip
@click.option("--sizes", multiple=True, metavar="SIZES",
              help="`default`, `all`, or M=128,N=256,...; repeatable [default: all of the case].")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0), default=60.0, show_default=True, metavar="N",
              help="For each case; the first size is looked at however long it takes.")  # fmt: skip
@style_option
@problem_option
@target_option
@rules_option
@keep_option
@no_mend_option
@trust_option
def equal() -> None:
    """Whether ORIGINAL and its port leave the same, told from what the compiler made of both, without a run.

    ORIGINAL is a kernel with its case, a case file, or a directory: then every case below it. PORT is a finished port,
    or a kernel that somebody wrote for the same case; without it Porter makes one, in the --style that is asked for.
    Sizes and indices are numbers, data are terms: each byte of the output has to be made of the same data by the same
    operations in the same order.

    equal: at the sizes that are named, for all data, and for every schedule, as the synchronization of both is proved
    there (exit code 0). differs: with the element and both places (exit code 5). Else it is not known, and why is said
    (exit code 6).

    A program with its own main() and no case beside it runs whole, as does its port, with its arguments: `porter equal
    program.cu port.cu -- 256 256 64`. The kernels that both launch are compared at these launches.
    """
