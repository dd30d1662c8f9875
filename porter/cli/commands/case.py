# SPDX-License-Identifier: Apache-2.0
"""Options of `porter case` and its commands."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from porter.cli.commands.shared import Command, rules_option, trust_option

_Command = partial(Command, group="case")


@click.group()
def case() -> None:
    """Cases, which say how to run a kernel: begin one from its sources.

    \b
    porter case new gemm.cu
    porter case new gemm.cu --program main.cu -- 256 256 512
    """


@case.command(name="new", cls=_Command)
@click.argument("kernel", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS...]")
@click.option("--entry", default=None, metavar="NAME", help="Which kernel, where the file has several.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Where the case is written  [default: case.yaml beside KERNEL]")  # fmt: skip
@click.option("--program", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="A program that launches the kernel, .cu or built for the simulator: it is run there with "
                   "ARGUMENTS, the draft held against its launch  [default: KERNEL, if it has a main()]")  # fmt: skip
@click.option("--no-run", is_flag=True, help="Run no program, even if KERNEL has a main().")
@click.option("-I", "include_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Where else local headers are.")  # fmt: skip
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="Macros for the program.")
@click.option("--flag", "flags", multiple=True, metavar="FLAG", help="Further arguments of nvcc for the program.")
@rules_option
@trust_option
def case_new() -> None:
    """Write a draft of case.yaml for KERNEL, a CUDA C++ or CuTe DSL file.

    It comes from host code that launches the kernel (grid, block, cluster, shared memory, tensor maps, arguments as
    expressions over sizes), from checks that this code makes, and from the kernel's text. What no source says is a
    guess, marked so on its line; the reference always is one. A float64 reference is proposed for products of matrices
    and for attention. Nothing is compiled unless a program is run.

    \b
    porter case new gemm.cu && porter verify gemm.cu
    """
