# SPDX-License-Identifier: Apache-2.0
"""`porter nvcc`: an SM100 program built so that it runs on a Hopper GPU."""

from __future__ import annotations

from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.context import Session, command
from porter.diagnostics import Code, ExitCode, PorterError
from porter.report import json as report_json
from porter.verify.gpu.nvcc import build_program


@command
def nvcc(session: Session, mode: str, arguments: tuple[str, ...]) -> ExitCode:
    if not arguments:
        raise PorterError(Code.BAD_OPTION, option="nvcc", problem="needs the arguments of an nvcc call")
    built = build_program(arguments, find_toolkit(session.toolkit), mode)
    session.show(Text(f"{built.lowered} modules lowered, {len(built.sites)} instructions emulated"))
    if session.verbosity > 0:
        session.show(*(Text(line) for line in built.commands))
    body = {"modules": built.lowered, "instructions": len(built.sites), "mode": mode}
    session.write_json(report_json.document("nvcc", ExitCode.OK, body))
    return ExitCode.OK
