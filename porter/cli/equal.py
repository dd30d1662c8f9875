# SPDX-License-Identifier: Apache-2.0
"""`porter equal`: an original and its port compared on PTX, without a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from porter.build.port_plan import PortPlan
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.inputs import each_case, require_file
from porter.cli.judging import PARTS
from porter.cli.making import Ports
from porter.cli.options import read_sizes
from porter.cli.porting import case_of_port
from porter.cli.verify_program import Build, is_program, verify_program
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError
from porter.lang.sources import CUDA_ENDINGS
from porter.report import equality as report_equality
from porter.verify.budget import Budget
from porter.verify.case import Case
from porter.verify.equality import Equality
from porter.verify.proved import proofs_of
from porter.verify.settings import SimOptions


@command
def equal(
    session: Session,
    path: Path,
    arguments: tuple[str, ...],
    port_path: Path | None,
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    libraries: tuple[str, ...],
    flags: tuple[str, ...],
    case_path: Path | None,
    entry: str | None,
    params: str | None,
    sizes: tuple[str, ...],
    seconds: float,
) -> ExitCode:
    mapped = {"--entry": entry, "--params": params}
    if case_path is None and is_program(path, ()):
        finished, arguments = _port_of(port_path, arguments, lambda p: p.suffix.lower() in CUDA_ENDINGS)
        _refuse(mapped | {"--sizes": sizes or None}, "is for a kernel with a case")
        build = (include_dirs, defines, flags, libraries)
        return _programs(session, path, finished, arguments, build, seconds / PARTS)
    for_programs = {"-I": include_dirs, "-D": defines, "-l": libraries, "--nvcc-flag": flags}
    _refuse({option: value or None for option, value in for_programs.items()}, "is for a program with its own main()")
    finished, more = _port_of(port_path, arguments, lambda p: True)
    if more:
        raise PorterError(Code.BAD_OPTION, option=more[0], problem="is an argument of a program, and this is none")
    _require(path, finished, mapped)
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    ports, found = Ports(session, asks=True), list[Equality]()
    unported: list[Diagnostic] = []

    def compare(case: Case) -> None:
        plan, said = ports.of_case(case, finished)
        if plan is None:
            unported.extend(said)
            return
        plan = _mapped(plan, case, entry, params)
        chosen = read_sizes(sizes or ["all"], case_of_port(case, finished))
        proofs = proofs_of(case, plan, builder, chosen, seconds / PARTS, "none", Budget.of_work(seconds))
        found.extend([proofs.equality] if proofs.equality is not None else [])

    left = each_case(session, path, case_path, compare)
    return _report(session, found, [*unported, *left])


def _port_of(
    port_path: Path | None, arguments: Sequence[str], is_port: Callable[[Path], bool]
) -> tuple[Path | None, tuple[str, ...]]:
    """The port, which may be the first argument, and the others. Raises BAD_OPTION."""
    if not arguments or not is_port(Path(arguments[0])):
        return port_path, tuple(arguments)
    if port_path is not None:
        raise PorterError(Code.BAD_OPTION, option="PORT, --port", problem="choose one")
    return Path(arguments[0]), tuple(arguments[1:])


def _refuse(options: Mapping[str, object], problem: str) -> None:
    """Raises BAD_OPTION: one is given."""
    for option, value in options.items():
        if value is not None:
            raise PorterError(Code.BAD_OPTION, option=option, problem=problem)


def _programs(
    session: Session, path: Path, port: Path | None, arguments: Sequence[str], build: Build, seconds: float
) -> ExitCode:
    """The kernels that a program and its port launch."""
    ran = verify_program(session, path, port, arguments, build, SimOptions(), hazards=False, prove_seconds=seconds)
    found = [proofs.equality for proofs in ran.proofs if proofs.equality is not None]
    return _report(session, found, [d for row in ran.rows for d in row.diagnostics])


def _require(path: Path, finished: Path | None, mapped: Mapping[str, object]) -> None:
    """Raises BAD_OPTION, FILE_NOT_FOUND, IS_DIRECTORY."""
    if finished is not None:
        require_file(finished, "equal --port")
        if path.is_dir():
            raise PorterError(Code.BAD_OPTION, option="--port", problem="is for one kernel, not a directory")
    if finished is None:
        _refuse(mapped, "is for a PORT that is given")


def _mapped(plan: PortPlan, case: Case, entry: str | None, params: str | None) -> PortPlan:
    """The port as it is called and what it takes, where that is not what the case says.

    Raises:
        PorterError: BAD_OPTION.
    """
    changes: dict[str, Any] = {"entry": entry} if entry is not None else {}
    if params is not None:
        changes["params"] = [_param(case, item.strip()) for item in params.split(",")]
    return replace(plan, section={**(plan.section or {}), **changes}) if changes else plan


def _param(case: Case, item: str) -> Any:
    """An argument of the case by its name, or by its number from 1 on. Raises BAD_OPTION."""
    if item in case.params:
        return item
    if not item.isdecimal() or not 1 <= int(item) <= len(case.params):
        names = ", ".join(p if isinstance(p, str) else str(i) for i, p in enumerate(case.params, 1))
        raise PorterError(Code.BAD_OPTION, option="--params", problem=f"`{item}` is none of {names}")
    return case.params[int(item) - 1]


def _report(session: Session, found: Sequence[Equality], errors: Sequence[Diagnostic]) -> ExitCode:
    session.report(errors)
    session.show(*(Text(line) for line in report_equality.text(found)))
    session.write_json(report_equality.document(found, errors))
    return report_equality.equality_exit(found, errors)
