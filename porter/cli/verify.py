# SPDX-License-Identifier: Apache-2.0
"""`porter verify`: original, port and reference compared on the same inputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, cast

from rich.text import Text

from porter.build.host_headers import host_headers_note
from porter.build.port_plan import PortPlan
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.inputs import cases_beside, require_directories, require_file
from porter.cli.options import read_gpu_options, read_sizes, sim_options, split_list
from porter.cli.porting import plan_of
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError
from porter.report import hazards as report_hazards
from porter.report import verification
from porter.report.exits import verification_exit
from porter.report.terminal import detail_lines, not_run_lines, summary_line, verdict_table
from porter.verify.backends import Backend
from porter.verify.builder import Builder
from porter.verify.case import Case, load_case
from porter.verify.checked import Checking
from porter.verify.choose_backend import make_backend
from porter.verify.coverage import Coverage
from porter.verify.further import further_sizes
from porter.verify.hazards import usual_level
from porter.verify.oracle import require_trusted
from porter.verify.record import ReplayBackend, load
from porter.verify.results import Row, VerifyResult
from porter.verify.runner import Again, VerifyOptions
from porter.verify.runner import verify as run_case
from porter.verify.settings import SimOptions

Schedule = Literal["eager", "late", "random"]
_DSL_SEEDS = 2
"""Random schedules under which ports of CuTe DSL kernels run."""


@command
def verify(
    session: Session,
    path: Path,
    case_path: Path | None,
    port_path: Path | None,
    source: Path | None,
    source_dirs: tuple[Path, ...],
    original_only: bool,
    families: tuple[str, ...],
    sizes: tuple[str, ...],
    hazards: bool | None,
    seed: int,
    schedule: str,
    arithmetic: str,
    budget: int | None,
    backend: str,
    mode: str,
    gpu_timeout: float,
    against: Path | None,
) -> ExitCode:
    if port_path is not None and original_only:
        raise PorterError(Code.BAD_OPTION, option="--port, --original-only", problem="choose one")
    cases = [load_case(case_path)] if case_path is not None else None
    paths = [] if cases is not None else cases_beside(path)
    if cases is not None:
        cases = [_with_kernel(cases[0], path)]
    if port_path is not None:
        require_file(port_path, "verify --port")
        if path.is_dir():
            raise PorterError(Code.BAD_OPTION, option="--port", problem="is for one kernel, not a directory")
    if families and not split_list(families):
        raise PorterError(Code.BAD_OPTION, option="--families", problem="no family is named")
    if source is not None:
        require_file(source, "verify --source")
    require_directories("-I", source_dirs)
    began = time.perf_counter()
    if any(_is_recorded(item) for item in cases or paths):
        arithmetic = "exact"  # What hardware computed is compared with in its own arithmetic.
    settings = replace(
        sim_options(seed, schedule, arithmetic, budget), gpu=read_gpu_options(mode, gpu_timeout, session.toolkit)
    )
    backend_used = make_backend(backend, settings)
    checks = backend_used.name == "sim" and against is None
    if hazards and not checks:
        raise PorterError(Code.BAD_OPTION, option="--hazards", problem="needs --backend sim and no --against")
    if against is not None:
        backend_used = ReplayBackend(load(against), against, backend_used)
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    rows: list[Row] = []
    errors: list[Diagnostic] = []
    coverage: list[Coverage] = []
    under = partial(_under, settings) if checks else None
    with session.progress() as tell:
        options = VerifyOptions(split_list(families) or None, ({},), seed, schedule, tell, under=under)
        for item in cases if cases is not None else paths:
            try:
                case = _with_source(item if isinstance(item, Case) else load_case(item), source, source_dirs)
                require_trusted(case)
                checking = _checking(settings) if checks and hazards is not False else None
                chosen = replace(options, sizes=read_sizes(sizes, case), checking=checking)
                if backend_used.name == "sim":
                    dsl_port = case.dsl is not None and not original_only
                    chosen = replace(chosen, again=other_schedules(dsl_port, settings))
                if not sizes and against is None and not original_only:
                    chosen = replace(chosen, further=further_sizes(case))
                found, left = _one(case, port_path, original_only, builder, backend_used, chosen, bool(hazards))
                if found is not None:
                    rows += found.rows
                    coverage += found.coverage
                errors += left
            except PorterError as error:
                # One bad case must not hide the others of a directory.
                if not path.is_dir():
                    raise
                errors += [_named(d, item) for d in error.diagnostics]
    result = VerifyResult(
        tuple(rows),
        backend_used.name,
        schedule,
        backend_used.arithmetic,
        seed,
        time.perf_counter() - began,
        tuple(errors),
        tuple(coverage),
    )
    session.report(host_headers_note(path, getattr(builder, "stood_in", ())))
    _show(session, result)
    session.write_json(verification.document(result))
    return verification_exit(result)


def _checking(settings: SimOptions) -> Callable[[str], Checking]:
    """Backends that look for hazards, by program."""

    def checking(program: str) -> Checking:
        level = usual_level(program)
        return Checking(make_backend("sim", replace(settings, checking=level)), level, settings.schedule)

    return checking


def other_schedules(dsl_port: bool, settings: SimOptions) -> tuple[Again, ...]:
    """The other schedules: a random one, or for ports of CuTe DSL kernels all there are, with several seeds."""
    wanted: list[tuple[Schedule, int]] = [("random", settings.seed + n) for n in range(_DSL_SEEDS if dsl_port else 1)]
    if dsl_port:
        wanted = [("late", settings.seed), ("eager", settings.seed), *wanted]
    others = [(schedule, seed) for schedule, seed in wanted if (schedule, seed) != (settings.schedule, settings.seed)]
    return tuple(
        Again(make_backend("sim", replace(settings, schedule=schedule, seed=seed)), schedule,
              seed if schedule == "random" else None)
        for schedule, seed in others
    )  # fmt: skip


def _under(settings: SimOptions, schedule: str) -> Backend:
    """The simulator with another schedule."""
    return make_backend("sim", replace(settings, schedule=cast(Schedule, schedule)))


def _with_kernel(case: Case, path: Path) -> Case:
    """The case given by --case, run on the kernel given as PATH."""
    require_file(path, "verify --case")
    if path.suffix in (".yaml", ".yml"):
        return case
    return replace(case, kernel=path) if case.recorded is None else replace(case, source=path)


def _is_recorded(item: Path | Case) -> bool:
    try:
        return (item if isinstance(item, Case) else load_case(item)).recorded is not None
    except PorterError:
        return False  # It is reported when its turn comes.


def _with_source(case: Case, source: Path | None, include_dirs: tuple[Path, ...]) -> Case:
    if case.recorded is None:
        if source is not None or include_dirs:
            raise PorterError(Code.BAD_OPTION, option="--source, -I", problem=f"{case.path} is no recorded case")
        return case
    return replace(case, source=source or case.source, include_dirs=(*case.include_dirs, *include_dirs))


def _named(diagnostic: Diagnostic, item: Path | Case) -> Diagnostic:
    if diagnostic.where is not None:
        return diagnostic
    return replace(diagnostic, where=Location(str(item.path if isinstance(item, Case) else item)))


def _one(
    case: Case,
    port_path: Path | None,
    original_only: bool,
    builder: Builder,
    backend: Backend,
    options: VerifyOptions,
    hazards: bool,
) -> tuple[VerifyResult | None, list[Diagnostic]]:
    plan: PortPlan | None = None
    notes: list[Diagnostic] = []
    if case.recorded is not None and case.source is None and port_path is None:
        original_only = True  # PTX and cubins are not ported.
    if not original_only:
        source = case.to_port if port_path is None else case.kernel
        plan, notes = plan_of(source, port_path, case.include_dirs, case.entry)
        if plan is None:
            return None, notes
    if plan is None and not hazards:
        # Hazards that nobody asked for are looked for to judge a port.
        options = replace(options, checking=None)
    return run_case(case, plan, builder, backend, options), []


def _show(session: Session, result: VerifyResult) -> None:
    said: list[Diagnostic] = []
    for row in result.rows:
        # What a compiler refused, or where a run stops, is the same for every input family.
        session.report(d for d in row.diagnostics if d not in said)
        said += row.diagnostics
        if session.verbosity > 0 and not session.json:
            for line in report_hazards.text(row.hazards):
                session.out.print(Text(line), soft_wrap=True)
    session.report(result.errors)
    if result.rows:
        session.show(verdict_table(result))
    if session.verbosity > 0:
        for row in result.rows:
            session.show(*(Text(line) for line in detail_lines(row)))
    session.show(summary_line(result), *not_run_lines(result))
