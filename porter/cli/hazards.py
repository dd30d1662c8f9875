# SPDX-License-Identifier: Apache-2.0
"""`porter hazards`: asynchronous bugs found by happens-before, without a GPU."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.checking import Prepared, prepare
from porter.cli.context import Session, command
from porter.cli.inputs import require_program
from porter.cli.options import read_launch, read_sizes, sim_options
from porter.cli.programs import Request, run_source_or_executable
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError, worst_exit
from porter.diagnostics.reading import LARGEST_PTX, read_text
from porter.report import hazards as report_hazards
from porter.report import hazards_sarif
from porter.report.exits import hazards_exit
from porter.verify.bare import pick_entry, read_argument
from porter.verify.builder import ORIGINAL_ARCH, Builder, parse_ptx
from porter.verify.case import Case, cases_if_any, cases_of, load_case
from porter.verify.expr import Number
from porter.verify.hazards import HazardRun, OneRun, against_original, check_bare, check_case, check_runs, usual_level
from porter.verify.line_map import LineMap
from porter.verify.program.results import as_run
from porter.verify.settings import SimOptions

Level = Literal["strict", "practice"]


@command
def hazards(
    session: Session,
    path: Path,
    arguments: tuple[str, ...],
    case_path: Path | None,
    port_path: Path | None,
    only: str | None,
    arch: str | None,
    level: str | None,
    seeds: int,
    sizes: str,
    sarif_path: Path | None,
    kernel: str | None,
    grid: str,
    block: str,
    cluster: str,
    smem: int,
    args: tuple[str, ...],
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    libraries: tuple[str, ...],
    flags: tuple[str, ...],
    seed: int,
    schedule: str,
    arithmetic: str,
    budget: int | None,
) -> ExitCode:
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    if seeds > 1 and schedule != "random":
        schedule = "random"
    options = sim_options(seed, schedule, arithmetic, budget)
    chosen = cast("Level | None", level)
    numbers = range(seed, seed + seeds)
    runs: list[HazardRun] = []
    errors: list[Diagnostic] = []
    if path.suffix == ".ptx" and case_path is None:
        launch = read_launch(grid, block, cluster, smem)
        module = parse_ptx(read_text(path, LARGEST_PTX), str(path))
        entry = pick_entry(module, kernel, str(path))
        values = [read_argument(a) for a in args]
        runs.append(check_bare(module, entry, launch, values, path.name, chosen or "practice", options, numbers))
    elif case_path is None and path.is_file() and not cases_if_any(path):
        require_program(path)
        toolkit = find_toolkit(session.toolkit)
        request = Request(path, arguments, arch, include_dirs, defines, flags, libraries)
        label = arch or (ORIGINAL_ARCH if request.is_source else "executable")

        def run(settings: SimOptions) -> OneRun:
            return as_run(run_source_or_executable(request, settings, toolkit, ORIGINAL_ARCH))

        runs.append(check_runs(run, path.name, "program", "", label, chosen or "practice", options, numbers))
    else:
        builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
        programs = [only] if only else ["port"] if port_path else ["original", "port"]
        if arch is not None:
            programs = ["kernel"]
        with session.progress() as tell:
            for case in _cases(path, case_path):
                if tell is not None:
                    tell(case.name)
                try:
                    found, left = _case(case, programs, builder, sizes, port_path, arch, chosen, options, numbers)
                    runs += found
                    errors += left
                except PorterError as error:
                    # One bad case must not hide the others of a directory.
                    if not path.is_dir():
                        raise
                    errors += error.diagnostics
    session.report(errors)
    if not session.json and session.verbosity >= 0:
        for line in report_hazards.text(runs):
            session.out.print(Text(line), soft_wrap=True)
    session.write_json(report_hazards.document(runs, errors))
    if sarif_path is not None:
        _write(sarif_path, json.dumps(hazards_sarif.document(runs), indent=2) + "\n")
    return worst_exit([*map(hazards_exit, runs), *(e.code.value.exit_code for e in errors)])


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=path, reason=error.strerror) from None


def _cases(path: Path, case_path: Path | None) -> list[Case]:
    if case_path is None:
        return [load_case(p) for p in cases_of(path)]
    case = load_case(case_path)
    return [case if path.suffix in (".yaml", ".yml") else dataclasses.replace(case, kernel=path)]


def _case(
    case: Case,
    programs: Sequence[str],
    builder: Builder,
    sizes: str,
    port: Path | None,
    arch: str | None,
    level: Level | None,
    options: SimOptions,
    seeds: Sequence[int],
) -> tuple[list[HazardRun], list[Diagnostic]]:
    runs: list[HazardRun] = []
    left: list[Diagnostic] = []
    for size in read_sizes([sizes], case):
        prepared, left = prepare(case, programs, builder, size, options.seed, port, arch or "")
        checked = {p.program: (p, _check(p, level, options, seeds)) for p in prepared}
        if "port" in checked:
            ported, run = checked["port"]
            base = checked.get("original")
            if base is None and run.hazards:
                base = _baseline(case, builder, size, level, options, seeds)
            if base is not None:
                lines = LineMap(base[0].source, ported.source)
                judged, original = against_original(run, base[1], lines)
                checked["port"] = ported, judged
                if "original" in checked:
                    checked["original"] = base[0], original
        runs += [run for _, run in checked.values()]
    return runs, left


def _check(p: Prepared, level: Level | None, options: SimOptions, seeds: Sequence[int]) -> HazardRun:
    at = level or usual_level(p.program)
    return check_case(p.kernel, p.problem, p.launch, p.images, p.program, at, options, seeds)


def _baseline(
    case: Case,
    builder: Builder,
    size: Mapping[str, Number],
    level: Level | None,
    options: SimOptions,
    seeds: Sequence[int],
) -> tuple[Prepared, HazardRun] | None:
    """The original of a port that is checked alone; None if it is known as a binary only."""
    try:
        (found,), _ = prepare(case, ["original"], builder, size, options.seed)
        return found, _check(found, level, options, seeds)
    except PorterError as error:
        if error.diagnostic.code is Code.CAPTURE_NO_PTX:
            return None
        raise
