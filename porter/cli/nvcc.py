# SPDX-License-Identifier: Apache-2.0
"""`porter nvcc`: an SM100 program built so that it runs on a Hopper GPU."""

from __future__ import annotations

import click
from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.context import Session, command
from porter.diagnostics import Code, ExitCode, PorterError
from porter.report import json as report_json
from porter.verify.gpu.nvcc import build_program


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.option("--mode", type=click.Choice(["eager", "deferred"]), default="deferred", show_default=True,
              help="When tensor-core operations take effect; PORTER_MODE changes it at run time.")  # fmt: skip
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[NVCC ARGUMENTS]")
@command
def nvcc(session: Session, mode: str, arguments: tuple[str, ...]) -> ExitCode:
    """Run nvcc with its usual arguments; code for sm_100a comes out for Hopper, with tcgen05 emulated.

    The result is an ordinary executable with the program's own main(). Host code that asks for the compute
    capability is told 10.0.
    """
    if not arguments:
        raise PorterError(Code.BAD_OPTION, option="nvcc", problem="needs the arguments of an nvcc call")
    built = build_program(arguments, find_toolkit(session.toolkit), mode)
    session.show(Text(f"{built.lowered} modules lowered, {len(built.sites)} instructions emulated"))
    if session.verbosity > 0:
        session.show(*(Text(line) for line in built.commands))
    body = {"modules": built.lowered, "instructions": len(built.sites), "mode": mode}
    session.write_json(report_json.document("nvcc", ExitCode.OK, body))
    return ExitCode.OK
