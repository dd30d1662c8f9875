# SPDX-License-Identifier: Apache-2.0
"""`porter verify` of programs with their own main()."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from porter.build.port_plan import materialize
from porter.build.toolchain import find_toolkit
from porter.build.tree import own_first
from porter.cli.context import Session
from porter.cli.inputs import require_program
from porter.cli.making import Ports
from porter.cli.programs import program_request
from porter.diagnostics import Code, PorterError
from porter.verify.case import cases_if_any
from porter.verify.gate import GateOptions
from porter.verify.program.compare import verify_programs
from porter.verify.results import VerifyResult
from porter.verify.settings import SimOptions

Build = tuple[Sequence[Path], Sequence[str], Sequence[str], Sequence[str]]
"""Include directories, macros, options of nvcc, libraries."""


def is_program(path: Path, arguments: Sequence[str]) -> bool:
    """Whether a path is run whole: it has no case, and a main().

    Raises:
        PorterError: what `require_program` raises, where arguments say that a program is meant.
    """
    if not path.is_file() or path.suffix in (".yaml", ".yml", ".py", ".ptx") or cases_if_any(path):
        return False
    try:
        require_program(path)
    except PorterError as error:
        if arguments or error.diagnostic.code is not Code.NOTHING_TO_RUN:
            raise
        return False
    return True


def verify_program(
    session: Session,
    path: Path,
    port: Path | None,
    arguments: Sequence[str],
    build: Build,
    options: SimOptions,
    hazards: bool,
    prove_seconds: float,
) -> VerifyResult:
    """Original and port with their own main(); without `port` one is made.

    Raises:
        PorterError: what porting, compiling and running raise.
    """
    toolkit = find_toolkit(session.toolkit)
    original = program_request(path, arguments, None, *build)
    if port is None:
        if not original.is_source:
            problem = "needs --port FILE: of an executable no port is made"
            raise PorterError(Code.BAD_OPTION, option=str(path), problem=problem)
        gate = GateOptions(tuple(build[0]), tuple(build[1]), tuple(build[2]), session.toolkit, target=session.target)
        plan, notes = Ports(session, proves=prove_seconds, options=gate).of_file(path, None, tuple(build[0]))
        if plan is None:
            raise PorterError.of(notes)
        session.report(notes)
        port = materialize(plan, path)
    with session.progress() as tell:
        first, second = (
            program_request(p, arguments, None, dirs, *build[1:], tell=tell, report=session.report)
            for p, dirs in ((path, build[0]), (port, (*own_first(path, port, build[0]), path.parent)))
        )
        return verify_programs(first, second, toolkit, options, hazards, session.target, prove_seconds)
