# SPDX-License-Identifier: Apache-2.0
"""Options of `porter cc`."""

from __future__ import annotations

import click

from porter.cli.commands.shared import Command


@click.command(
    cls=Command,
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["--help"],
    },
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="COMPILER [ARGUMENTS]")
def cc() -> None:
    """Launch a compiler: what it would compile for sm_90a is ported and compiled for sm_100a; all other calls are
    handed through as they are.

    For builds whose files stay as they are: `cmake -DCMAKE_CUDA_COMPILER_LAUNCHER="porter;cc"`, or `porter cc nvcc` in
    the place of nvcc. The object is for a Blackwell GPU (`porter nvcc` makes SM100 code run on a Hopper GPU). A kernel
    that cannot be ported fails the build, with exit code 3 and its reason. Nothing is run.

    \b
    porter cc nvcc -arch=sm_90a -c gemm.cu -o gemm.o
    """
