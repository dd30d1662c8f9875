# SPDX-License-Identifier: Apache-2.0
"""`porter grade`: how near to its chip's nominal rate a kernel would come, and what holds it there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rich.text import Text

from porter.cli.context import Session, command
from porter.cli.grading import of_case, of_launch, of_program, of_ptx
from porter.cli.inputs import require_directories, require_file, require_program
from porter.cli.launches import require_launch
from porter.cli.making import Ports
from porter.cli.options import read_sizes
from porter.cli.timing import calibrate
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, exit_code_of
from porter.grade.calibration_file import Calibration
from porter.grade.model import Grade, missing
from porter.grade.shape import Problem
from porter.grade.whatif import Impossible, apply, read_problem
from porter.lang.sources import CUDA_ENDINGS, is_python
from porter.report import grade as report_grade
from porter.report import json as report_json
from porter.tune.candidates import Candidate, calibration_of, grade_with
from porter.tune.styles import AUTO, FULL_RATE, IDIOMATIC, NATIVE
from porter.verify.case import Case, cases_if_any, load_case


@dataclass
class _Found:
    """Grades, with the change that each was asked for; kernels that lack facts; and changes that a kernel, or its chip,
    does not allow."""

    graded: list[tuple[str, Candidate, Grade]] = field(default_factory=list)
    unknown: list[Diagnostic] = field(default_factory=list)
    impossible: list[tuple[str, Candidate, str]] = field(default_factory=list)

    def lacks(self, candidate: Candidate, facts: Iterable[str], where: str) -> None:
        values = {"kernel": candidate.kernel, "facts": "; ".join(facts)}
        said = Diagnostic(Code.GRADE_UNKNOWN, Location(where), values)
        if said not in self.unknown:
            self.unknown.append(said)

    def left_as_they_are(self) -> list[Diagnostic]:
        """What is said of changes that some kernels do not allow.

        Raises:
            PorterError: no kernel allows one.
        """
        made = {change for change, _, _ in self.graded}
        for change, _, why in self.impossible:
            if change not in made:
                raise PorterError(Code.BAD_OPTION, option="--what-if", problem=f"{change}: {why}")
        return [
            Diagnostic(Code.GRADE_NO_CHANGE, None, {"kernel": f"{c.label} {c.kernel}", "change": change, "why": why})
            for change, c, why in self.impossible
        ]  # fmt: skip


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
    ports = Ports(session, proves=0, asks=True, runs=False)
    if launch is not None:
        found = of_launch(launch, ptx_path)
    else:
        assert path is not None
        found, notes = _read(session, path, arguments, arch, case_path, port_path, include_dirs, sizes, ports)
    where = path or launch
    if kernel is not None:
        found = [c for c in found if kernel in c.kernel]
    grades = _Found()
    # a port that cannot be graded beside its original is named
    some = any(c.reading.shape is not None for c in found)
    shown = [c for c in found if c.reading.shape is not None or not some or c.label == "port"]
    for candidate in shown:
        _grade(candidate, size, what_if, using, grades, str(where))
    graded, unknown = grades.graded, grades.unknown
    if not shown:
        facts = f"a kernel called {kernel}" if kernel is not None else "a kernel"
        unknown.append(Diagnostic(Code.GRADE_UNKNOWN, None, {"kernel": str(where), "facts": facts}))
    notes = [*notes, *grades.left_as_they_are()]
    session.report([*notes, *unknown])
    unproved = _unproved(session.style, port_path, [what for _, what, _ in graded], ports.assumed)
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


def _unproved(style: str | None, finished: Path | None, shown: Iterable[Candidate], assumed: bool) -> str:
    """What is said of a port that was made for this, in a style whose ports a run proves; empty for others. `assumed`:
    in the style `auto` it has what a run would have to show."""
    made = finished is None and any(one.label == "port" for one in shown)
    proved = style in (FULL_RATE, IDIOMATIC, NATIVE) or (style == AUTO and assumed)
    return report_grade.UNPROVED.format(style=style) if made and proved else ""


def _problem(text: str) -> Problem:
    try:
        return read_problem(text)
    except ValueError as error:
        raise PorterError(Code.BAD_OPTION, option="--problem", problem=str(error)) from None


def _read(
    session: Session, path: Path, arguments: tuple[str, ...], arch: str | None, case_path: Path | None,
    port_path: Path | None, include_dirs: tuple[Path, ...], sizes: str, ports: Ports,
) -> tuple[list[Candidate], list[Diagnostic]]:  # fmt: skip
    require_file(path, "grade")
    port_of = partial(ports.of_case, port=port_path)
    if path.suffix in (".yaml", ".yml"):
        return of_case(session, _sized(load_case(path), sizes), port_path, port_of)
    beside = case_path or next(iter(cases_if_any(path)), None)
    if beside is not None:
        case = _sized(load_case(beside).on(path), sizes)
        return of_case(session, replace(case, include_dirs=(*case.include_dirs, *include_dirs)), port_path, port_of)
    if path.suffix.lower() in CUDA_ENDINGS or is_python(path):
        require_program(path)
        return of_program(session, path, arguments, arch, include_dirs)
    return of_ptx(path), []


def _sized(case: Case, sizes: str) -> Case:
    """The case at a size, which may choose what is compiled."""
    return replace(case, sizes={**case.sizes, **read_sizes([sizes], case)[0]})


def _grade(
    candidate: Candidate, size: Problem, what_if: tuple[str, ...], using: Calibration | None, found: _Found, where: str
) -> None:
    """Grade a kernel, and what it would be if; what lacks facts is named."""
    shape = candidate.reading.shape
    done = False
    for change in ("", *what_if):
        changed, problem = shape, size
        try:
            if change and shape is not None:
                changed, problem = apply(change, shape, size)
        except Impossible as why:
            found.impossible.append((change, candidate, str(why)))
            continue
        except ValueError as error:
            raise PorterError(Code.BAD_OPTION, option="--what-if", problem=f"{change}: {error}") from None
        gaps = missing(changed) if changed is not None else candidate.reading.unknown
        if changed is not None and not gaps:
            found.graded.append((change, candidate, grade_with(changed, problem, using)))
            done = True
        elif not what_if:
            found.lacks(candidate, candidate.reading.unknown or gaps, where)
    if what_if and not done:
        found.lacks(candidate, candidate.reading.unknown, where)
