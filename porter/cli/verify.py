# SPDX-License-Identifier: Apache-2.0
"""`porter verify`: original, port and reference compared on the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.text import Text

from porter.build.host_headers import host_headers_note
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.grading import brief
from porter.cli.inputs import cases_beside, read_document, require_directories, require_file
from porter.cli.kit import verify_record
from porter.cli.making import Ports
from porter.cli.options import read_gpu_options, read_sizes, sim_options, split_list
from porter.cli.verify_program import is_program, verify_program
from porter.diagnostics import Code, ExitCode, PorterError
from porter.report import alike, verification
from porter.report import coverage as report_coverage
from porter.report import hazards as report_hazards
from porter.report import proofs as report_proofs
from porter.report.exits import verification_exit
from porter.report.grade import Brief
from porter.report.terminal import detail_lines, summary_line, verdict_tables
from porter.verify.budget import Budget, settled
from porter.verify.case import Case, load_case
from porter.verify.gate import GateOptions
from porter.verify.kit.record import is_kit_record
from porter.verify.results import VerifyResult
from porter.verify.sweep import Wanted, verify_cases


@command
def verify(
    session: Session,
    path: Path,
    arguments: tuple[str, ...],
    case_path: Path | None,
    port_path: Path | None,
    source: Path | None,
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    libraries: tuple[str, ...],
    flags: tuple[str, ...],
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
    tmem_check: bool,
    against: Path | None,
    seconds: float | None,
    resume_path: Path | None,
    grades: bool,
    prove_seconds: float,
    full: bool,
) -> ExitCode:
    _require_options(include_dirs, tmem_check, backend, port_path is not None and original_only)
    settings = sim_options(seed, schedule, arithmetic, budget)
    if case_path is None and is_program(path, arguments):
        _require_for_program(families, sizes, backend, against, original_only, seconds, resume_path, grades)
        build = (include_dirs, defines, flags, libraries)
        proves = 0 if hazards is False else prove_seconds
        found = verify_program(session, path, port_path, arguments, build, settings, hazards is not False, proves)
        return _finish(session, found, full)
    _require_for_cases(path, arguments, case_path, port_path, source, (*defines, *flags, *libraries), families)
    items: Sequence[Path | Case] = [load_case(case_path).on(path)] if case_path is not None else cases_beside(path)
    if against is not None and is_kit_record(against):
        return verify_record(session, items, against, port_path)
    ports = Ports(session, seconds, prove_seconds, asks=True, options=GateOptions(include_dirs))
    wanted = Wanted(
        replace(settings, gpu=read_gpu_options(mode, gpu_timeout, session.toolkit, tmem_check)),
        backend,
        against,
        split_list(families) or None,
        partial(read_sizes, sizes) if sizes else None,
        hazards,
        None if original_only else partial(ports.of_case, port=port_path),
        port_path is not None,
        source,
        include_dirs,
        path.is_dir(),
        Budget(seconds, settled(read_document(resume_path, "verify")) if resume_path is not None else {}),
        ports.known,
        prove_seconds=prove_seconds,
    )
    return _run(session, path, items, wanted, grades, full)


def _run(
    session: Session, path: Path, items: Sequence[Path | Case], wanted: Wanted, grades: bool, full: bool
) -> ExitCode:
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    with session.progress() as tell:
        result = verify_cases(items, wanted, builder, tell)
        graded = [_grade(session, item, wanted) for item in items] if grades else []
    session.report(host_headers_note(path, getattr(builder, "stood_in", ())))
    return _finish(session, result, full, graded)


def _grade(session: Session, item: Path | Case, wanted: Wanted) -> Brief:
    """The programs that were verified."""
    case = item if isinstance(item, Case) else load_case(item)
    case = replace(case, include_dirs=(*case.include_dirs, *wanted.include_dirs), source=wanted.source or case.source)
    return brief(session, case, None, wanted.port_of or (lambda case: (None, [])))


def _require_options(include_dirs: Sequence[Path], tmem_check: bool, backend: str, both: bool) -> None:
    """Raises BAD_OPTION; `both`: a port is given, and none is wanted."""
    if both:
        raise PorterError(Code.BAD_OPTION, option="--port, --original-only", problem="choose one")
    require_directories("-I", include_dirs)
    if tmem_check and backend == "sim":
        problem = "is for --backend gpu; the simulator checks every access"
        raise PorterError(Code.BAD_OPTION, option="--tmem-check", problem=problem)


def _require_for_program(
    families: Sequence[str],
    sizes: Sequence[str],
    backend: str,
    against: Path | None,
    original_only: bool,
    seconds: float | None,
    resume: Path | None,
    grades: bool,
) -> None:
    """Options that only cases have.

    Raises:
        PorterError: BAD_OPTION.
    """
    given = {"--families": families, "--sizes": sizes, "--against": against, "--original-only": original_only}
    given["--backend"] = backend not in ("sim", "auto")
    given |= {"--seconds": seconds is not None, "--resume": resume, "--grade": grades}
    for option, value in given.items():
        if value:
            raise PorterError(Code.BAD_OPTION, option=option, problem="is for kernels with a case, not whole programs")


def _require_for_cases(
    path: Path, arguments: Sequence[str], case: Path | None, port: Path | None, source: Path | None,
    build: Sequence[str], families: Sequence[str],
) -> None:  # fmt: skip
    """Raises FILE_NOT_FOUND, IS_DIRECTORY, BAD_OPTION."""
    for file, option in ((path if case else None, "--case"), (port, "--port"), (source, "--source")):
        if file is not None:
            require_file(file, f"verify {option}")
    if port is not None and path.is_dir():
        raise PorterError(Code.BAD_OPTION, option="--port", problem="is for one kernel, not a directory")
    if families and not split_list(families):
        raise PorterError(Code.BAD_OPTION, option="--families", problem="no family is named")
    if arguments or build:
        problem = "is for programs with their own main(); a case says how its kernel is built"
        raise PorterError(Code.BAD_OPTION, option=[*arguments, *build][0], problem=problem)


def _finish(session: Session, result: VerifyResult, full: bool, graded: Sequence[Brief] = ()) -> ExitCode:
    document = verification.document(result)
    _show(session, result, report_coverage.lines(document))
    session.show(*(Text(one.line) for one in graded))
    if session.format == "json" and not full:
        document = verification.summary(document)
    session.write_json(document | ({"grades": [one.body() for one in graded]} if graded else {}))
    return verification_exit(result)


def _show(session: Session, result: VerifyResult, coverage: Sequence[str]) -> None:
    session.report(alike.of_rows(result.rows))
    for row in result.rows:
        if session.verbosity > 0 and not session.json:
            for line in report_hazards.text(row.hazards, every=session.verbosity > 1):
                session.out.print(Text(line), soft_wrap=True)
    session.report(result.errors)
    session.report(
        d for found in result.proofs for d in report_proofs.wrong(found, Code.HAZARD_PROVED, Code.UNEQUAL_PROVED)
    )
    if result.rows:
        session.show(*verdict_tables(result))
    if session.verbosity > 0:
        for row in result.rows:
            session.show(*(Text(line) for line in detail_lines(row)))
    session.conclude(summary_line(result))
    session.show(*(Text(line, style="dim") for line in coverage))
    session.show(*(Text(line, style="dim") for found in result.proofs for line in report_proofs.brief(found)))
