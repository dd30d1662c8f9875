# SPDX-License-Identifier: Apache-2.0
"""Options of `porter capture`."""

from __future__ import annotations

from pathlib import Path

import click

from porter.cli.commands.shared import Command, compile_options, trust_option


@click.command(cls=Command, context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGUMENTS...]")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("captured"), show_default=True,
              metavar="DIR", help="Where the cases are written, a folder each.")  # fmt: skip
@click.option("--kernel", default="", metavar="REGEX",
              help="Only kernels whose mangled or readable name this matches somewhere.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
              help="Most launches; one like an earlier one is not counted.")  # fmt: skip
@click.option("--max-bytes", type=click.IntRange(min=1), default=1 << 30, show_default=True, metavar="BYTES",
              help="Most memory that a launch may reach.")  # fmt: skip
@click.option("--source", type=click.Path(path_type=Path), metavar="FILE",
              help="CUDA C++ file of the kernels: ports are made of it.")  # fmt: skip
@click.option("--ptx", "texts", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
              help="PTX of kernels that the program carries as binaries only; repeatable.")  # fmt: skip
@compile_options
@click.option("--backend", type=click.Choice(["gpu", "sim"]), default="gpu", show_default=True,
              help="Where the program runs; the simulator takes .cu files and programs built for it.")  # fmt: skip
@click.option("--arch", default=None, metavar="ARCH", help="Simulator: the chip, sm_90a or sm_100a.")
@click.option("--multiprocessors", type=click.IntRange(min=1), default=8, show_default=True, metavar="N",
              help="Simulator: how many the device reports.")  # fmt: skip
@trust_option
def capture() -> None:
    """Run PROGRAM and make a case of each of its launches: kernel, launch values, parameters, tensor maps, and the
    memory that it reaches, before and after. `porter verify DIR` then runs them on any backend, without the program.

    Options of Porter stand before PROGRAM, whose output goes to standard error. On a GPU the launches are seen
    through CUDA's injection mechanism and CUPTI, in PROGRAM and all that it starts: programs with the CUDA runtime
    or driver, PyTorch extensions, CuTe DSL.
    """
