# SPDX-License-Identifier: Apache-2.0
"""`porter grade`: how near to its chip's nominal rate a kernel would come, and what holds it there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from porter.cli.candidates import Candidate, calibration_of, grade_with
from porter.cli.context import FULL_RATE, NATIVE, Session, command
from porter.cli.grading import of_case, of_launch, of_program, of_ptx
from porter.cli.inputs import require_directories, require_file, require_program
from porter.cli.launches import require_launch
from porter.cli.options import read_sizes
from porter.cli.timing import calibrate
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, exit_code_of
from porter.grade.calibration_file import Calibration
from porter.grade.model import Grade, missing
from porter.grade.shape import Problem
from porter.grade.whatif import apply, read_problem
from porter.lang.sources import CUDA_ENDINGS, is_python
from porter.report import grade as report_grade
from porter.report import json as report_json
from porter.verify.case import Case, cases_if_any, load_case


@command
def grade(
    session: Session,
    path: Path | None,
    arguments: tuple[str, ...],
    case_path: Path | None,
    port_path: Path | None,
    kernel: str | None,
    arch: str | None,
    problem: str,
    what_if: tuple[str, ...],
    timeline: Path | None,
    include_dirs: tuple[Path, ...],
    ptx_path: Path | None,
    launch_path: Path | None,
    calibration_path: Path | None,
    record_path: Path | None,
    output: Path,
    sizes: str,
) -> ExitCode:
    require_directories("-I", include_dirs)
    if record_path is not None:
        if path or ptx_path or launch_path:
            raise PorterError(Code.BAD_OPTION, option="--calibrate", problem="takes no kernel")
        return calibrate(session, record_path, output)
    size, using = _problem(problem), calibration_of(session, calibration_path)
    launch = require_launch(path, ptx_path, launch_path)
    notes: list[Diagnostic] = []
    if launch is not None:
        found = of_launch(launch, ptx_path)
    else:
        assert path is not None
        found, notes = _read(session, path, arguments, arch, case_path, port_path, include_dirs, sizes)
    where = path or launch
    if kernel is not None:
        found = [c for c in found if kernel in c.kernel]
    graded: list[tuple[str, Candidate, Grade]] = []
    unknown: list[Diagnostic] = []
    shown = [c for c in found if c.reading.shape is not None] or found
    for candidate in shown:
        _grade(candidate, size, what_if, using, graded, unknown, str(where))
    if not shown:
        facts = f"a kernel called {kernel}" if kernel is not None else "a kernel"
        unknown.append(Diagnostic(Code.GRADE_UNKNOWN, None, {"kernel": str(where), "facts": facts}))
    session.report([*notes, *unknown])
    unproved = _unproved(session.style, port_path, [what for _, what, _ in graded])
    session.show(*report_grade.text(graded, unproved))
    if using is not None:
        session.show(Text(f"constants of a B200 are those of {using.device.get('name', 'a calibration')}"))
    body = report_grade.body(graded, unproved) | {"calibration": None if using is None else dict(using.device)}
    if timeline is not None and graded:
        body["timeline"] = {"path": str(timeline), "events": report_grade.write_timeline(graded, timeline)}
    code = exit_code_of([*notes, *unknown])
    diagnostics = report_json.diagnostics([*notes, *unknown])
    session.write_json(report_json.document("grade", code, {**body, "diagnostics": diagnostics}))
    return code


def _unproved(style: str | None, finished: Path | None, shown: Iterable[Candidate]) -> str:
    """What is said of a port that was made for this, in a style whose ports a run proves; empty for others."""
    made = finished is None and any(one.label == "port" for one in shown)
    return report_grade.UNPROVED.format(style=style) if made and style in (FULL_RATE, NATIVE) else ""


def _problem(text: str) -> Problem:
    try:
        return read_problem(text)
    except ValueError as error:
        raise PorterError(Code.BAD_OPTION, option="--problem", problem=str(error)) from None


def _read(
    session: Session, path: Path, arguments: tuple[str, ...], arch: str | None, case_path: Path | None,
    port_path: Path | None, include_dirs: tuple[Path, ...], sizes: str,
) -> tuple[list[Candidate], list[Diagnostic]]:  # fmt: skip
    require_file(path, "grade")
    if path.suffix in (".yaml", ".yml"):
        return of_case(session, _sized(load_case(path), sizes), port_path)
    beside = case_path or next(iter(cases_if_any(path)), None)
    if beside is not None:
        case = _sized(load_case(beside).on(path), sizes)
        return of_case(session, replace(case, include_dirs=(*case.include_dirs, *include_dirs)), port_path)
    if path.suffix.lower() in CUDA_ENDINGS or is_python(path):
        require_program(path)
        return of_program(session, path, arguments, arch, include_dirs)
    return of_ptx(path), []


def _sized(case: Case, sizes: str) -> Case:
    """The case at a size, which may choose what is compiled."""
    return replace(case, sizes={**case.sizes, **read_sizes([sizes], case)[0]})


def _grade(
    candidate: Candidate, size: Problem, what_if: tuple[str, ...], using: Calibration | None,
    graded: list[tuple[str, Candidate, Grade]], unknown: list[Diagnostic], where: str,
) -> None:  # fmt: skip
    """Grade a kernel, and what it would be if; what lacks facts is named."""
    for change in ("", *what_if):
        shape = candidate.reading.shape
        problem = size
        try:
            if change and shape is not None:
                shape, problem = apply(change, shape, size)
            gaps = missing(shape) if shape is not None else candidate.reading.unknown
            if shape is not None and not gaps:
                graded.append((change, candidate, grade_with(shape, problem, using)))
                continue
        except ValueError as error:
            raise PorterError(Code.BAD_OPTION, option="--what-if", problem=f"{change}: {error}") from None
        facts = "; ".join(candidate.reading.unknown or gaps)
        said = Diagnostic(Code.GRADE_UNKNOWN, Location(where), {"kernel": candidate.kernel, "facts": facts})
        if said not in unknown and not what_if:
            unknown.append(said)
    if what_if and not any(c is candidate for _, c, _ in graded):
        facts = "; ".join(candidate.reading.unknown)
        unknown.append(Diagnostic(Code.GRADE_UNKNOWN, Location(where), {"kernel": candidate.kernel, "facts": facts}))
