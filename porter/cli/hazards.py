# SPDX-License-Identifier: Apache-2.0
"""`porter hazards`: asynchronous bugs found by happens-before, without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.inputs import read_document, require_program
from porter.cli.launches import check_launch, require_launch
from porter.cli.options import Level, read_launch, read_sizes, sim_options
from porter.cli.programs import program_request, require_triton
from porter.cli.prove import prove_cases, prove_launch, prove_program
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError
from porter.report import hazards as report_hazards
from porter.report.exits import hazards_exit
from porter.report.formats import render
from porter.verify.bare import read_argument, read_module
from porter.verify.budget import Budget
from porter.verify.case import cases_if_any, cases_of, load_case
from porter.verify.hazard_cases import Search, hazards_of_case, settled
from porter.verify.hazards import HazardRun, check_bare
from porter.verify.known_hazards import without_known
from porter.verify.prepare import PortOf
from porter.verify.problem import LaunchValues
from porter.verify.program.source import Request, check_program
from porter.verify.settings import DRAWN, SimOptions

Kind = Literal["launch", "ptx", "program", "cases"]
"""What is looked at."""


@command
def hazards(
    session: Session,
    path: Path | None,
    arguments: tuple[str, ...],
    case_path: Path | None,
    port_path: Path | None,
    only: str | None,
    arch: str | None,
    is_triton: bool,
    prove: bool,
    level: str | None,
    seeds: int,
    jobs: int,
    seconds: float | None,
    resume_path: Path | None,
    baseline_path: Path | None,
    sizes: str,
    sarif_path: Path | None,
    kernels: tuple[str, ...],
    grid: str,
    block: str,
    cluster: str,
    smem: int,
    args: tuple[str, ...],
    ptx_path: Path | None,
    launch_path: Path | None,
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    libraries: tuple[str, ...],
    flags: tuple[str, ...],
    seed: int,
    schedule: str,
    arithmetic: str,
    budget: int | None,
) -> ExitCode:
    _require_path(path)
    launch_file, chosen = require_launch(path, ptx_path, launch_path), cast("Level | None", level)
    request = partial(program_request, path or Path(), arguments, arch, include_dirs, defines, flags, libraries)
    told, kernel, kind = _told(baseline_path, prove), next(iter(kernels), None), _kind_of(path, case_path, is_triton)
    if prove:
        return _prove(session, kind, path, case_path, port_path, only, arch, sizes, seconds,
                      (launch_file, ptx_path, kernel), chosen, request,
                      sim_options(seed, schedule, arithmetic, budget))  # fmt: skip
    options = sim_options(seed, "random" if seeds > 1 and schedule not in DRAWN else schedule, arithmetic, budget)
    numbers, errors, earlier = range(seed, seed + seeds), list[Diagnostic](), list[Mapping[str, Any]]()
    _require_cases(kind, {"--seconds": seconds is not None, "--resume": resume_path is not None})
    if path is None:
        assert launch_file is not None
        runs = [check_launch(launch_file, ptx_path, kernel, arch, chosen or "practice", options, numbers, jobs)]
    elif kind == "ptx":
        launch = read_launch(grid, block, cluster, smem)
        runs = [_ptx(path, kernel, launch, args, chosen or "practice", options, numbers, jobs)]
    elif kind == "program":
        runs = [_program(session, replace(request(), kernels=kernels), chosen or "practice", options, numbers)]
    else:
        programs = ["kernel"] if arch else [only] if only else ["port"] if port_path else ["original", "port"]
        search = Search(programs, options, numbers, _ports(session, port_path), chosen, arch or "",
                        port_path is not None, jobs, settled(_told(resume_path)))  # fmt: skip
        runs, earlier = _cases(session, path, case_path, sizes, search, errors, port_path, Budget(seconds))
    return _report(session, without_known(runs, told), errors, earlier, sarif_path)


def _require_path(path: Path | None) -> None:
    """Raises FILE_NOT_FOUND."""
    if path is not None and not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)


def _told(earlier: Path | None, prove: bool = False) -> dict[str, Any]:
    """The document of an earlier run. Raises BAD_OPTION, and what reading one raises."""
    if earlier is not None and prove:
        raise PorterError(Code.BAD_OPTION, option="--baseline", problem="is of runs; --prove makes none")
    return read_document(earlier, "hazards") if earlier is not None else {"runs": []}


def _prove(
    session: Session, kind: Kind, path: Path | None, case: Path | None, port: Path | None, only: str | None,
    arch: str | None, sizes: str, seconds: float | None, launch: tuple[Path | None, Path | None, str | None],
    level: Level | None, request: Callable[[], Request], settings: SimOptions,
) -> ExitCode:  # fmt: skip
    """`launch`: a launch file, the PTX that it is for, and the kernel. `request` builds a program."""
    if path is None:
        file, ptx, kernel = launch
        assert file is not None
        return prove_launch(session, file, ptx, kernel, arch, seconds, level or "practice")
    if kind == "ptx":
        problem = "needs --launch FILE for PTX: what is proved follows from the launch and the boxes of tensor maps"
        raise PorterError(Code.BAD_OPTION, option="--prove", problem=problem)
    if kind == "program":
        return prove_program(session, request(), settings, seconds, level or "practice")
    programs = [only] if only else ["port"] if port else ["original", "port"]
    return prove_cases(session, path, case, port, programs, arch, sizes, seconds, level or "strict")


def _kind_of(path: Path | None, case: Path | None, is_triton: bool) -> Kind:
    """Raises what a program, or a script, has to be asked for before it is run."""
    if is_triton:
        require_triton(path or Path())
        return "program"
    if path is None:
        return "launch"
    if case is not None:
        return "cases"
    if path.suffix == ".ptx":
        return "ptx"
    if not path.is_file() or cases_if_any(path):
        return "cases"
    require_program(path)
    return "program"


def _require_cases(kind: str, given: Mapping[str, bool]) -> None:
    """Raises BAD_OPTION."""
    for option, is_given in given.items():
        if is_given and kind != "cases":
            raise PorterError(Code.BAD_OPTION, option=option, problem="is for kernels with a case")


def _report(
    session: Session,
    runs: Sequence[HazardRun],
    errors: Sequence[Diagnostic],
    earlier: Sequence[Mapping[str, Any]],
    sarif_path: Path | None,
) -> ExitCode:
    session.report(errors)
    *lines, last = report_hazards.text(runs, earlier, session.verbosity > 0)
    if not session.json and session.verbosity >= 0:
        for line in lines:
            session.out.print(Text(line), soft_wrap=True)
    session.conclude(Text(last, overflow="fold", no_wrap=True))
    document = report_hazards.document(runs, errors, earlier)
    session.write_json(document)
    if sarif_path is not None:
        _write(sarif_path, render("sarif", [document]))
    return hazards_exit(runs, errors)


def _ports(session: Session, port: Path | None) -> PortOf:
    # A program with its own main() starts sooner without the port engine.
    from porter.cli.making import Ports

    return partial(Ports(session).of_case, port=port)


def _cases(
    session: Session,
    path: Path,
    case_path: Path | None,
    sizes: str,
    search: Search,
    errors: list[Diagnostic],
    port: Path | None,
    time: Budget,
) -> tuple[list[HazardRun], list[Mapping[str, Any]]]:
    """Each case of a path; of a directory one that cannot be run does not hide the others."""
    from porter.cli.porting import case_of_port

    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    cases = map(load_case, cases_of(path)) if case_path is None else [load_case(case_path).on(path)]
    runs: list[HazardRun] = []
    earlier: list[Mapping[str, Any]] = []
    with session.progress() as tell:
        for case in cases:
            if time.is_spent:
                errors.append(Diagnostic(Code.TIME_SPENT, Location(str(case.path)), {"seconds": time.seconds}))
                continue
            if tell is not None:
                tell(case.name)
            try:
                chosen = read_sizes([sizes], case_of_port(case, port))
                found = hazards_of_case(case, chosen, builder, search)
                runs += found.runs
                errors += found.left
                earlier += found.earlier
            except PorterError as error:
                if not path.is_dir():
                    raise
                errors += error.diagnostics
    return runs, earlier


def _ptx(
    path: Path,
    kernel: str | None,
    launch: LaunchValues,
    args: Sequence[str],
    level: Level,
    options: SimOptions,
    seeds: Sequence[int],
    jobs: int,
) -> HazardRun:
    module, entry = read_module(path, kernel)
    values = [read_argument(a) for a in args]
    return check_bare(module, entry, launch, values, path.name, level, options, seeds, jobs)


def _program(session: Session, request: Request, level: Level, options: SimOptions, seeds: Sequence[int]) -> HazardRun:
    return check_program(request, find_toolkit(session.toolkit), level, options, seeds)[0]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=path, reason=error.strerror) from None
