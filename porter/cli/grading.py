# SPDX-License-Identifier: Apache-2.0
"""Kernels that are to be graded, with what is known of their launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from porter.build.entry import kernel_name
from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session
from porter.cli.making import Ports
from porter.cli.programs import program_request
from porter.diagnostics import Diagnostic
from porter.grade.model import STANDARD, Grade
from porter.grade.reading import Launch, read_shape
from porter.report import grade as report_grade
from porter.tune.candidates import Candidate, calibration_of, candidate, grade_with, with_stages_of
from porter.verify.builder import parse_ptx
from porter.verify.case import Case
from porter.verify.launch_file import load_launch
from porter.verify.launched import launched_record
from porter.verify.prepare import PortOf, prepare
from porter.verify.program.source import run_source_or_executable
from porter.verify.ptx_files import ptx_texts
from porter.verify.settings import SimOptions


def of_case(
    session: Session, case: Case, port: Path | None, port_of: PortOf | None = None
) -> tuple[list[Candidate], list[Diagnostic]]:
    """The original of a case and its port; diagnostics say why a port is missing. `port_of` stands for a port that is
    made already.

    Raises:
        PorterError: what binding, porting and compiling raise.
    """
    builder = make_builder(find_toolkit(session.toolkit))
    found, notes = prepare(
        case,
        ["original", "port"],
        builder,
        case.sizes,
        0,
        port_of or partial(Ports(session, proves=0, runs=False).of_case, port=port),
        finished=port is not None,
    )
    read = [candidate(p.program, p.kernel, p.problem, p.launch) for p in found if p.kernel.function is not None]
    return [read[0], *(with_stages_of(read[0], one) for one in read[1:])] if read else [], notes


def brief(session: Session, case: Case, port: Path | None, port_of: PortOf | None = None) -> report_grade.Brief:
    """Original and port of a case, on the problem that published figures share, without what would lift them. Nothing
    is run.

    Raises:
        PorterError: what binding, porting and compiling raise.
    """
    found, notes = of_case(session, case, port, port_of)
    using = calibration_of(session, None)
    rows: list[tuple[str, Candidate, Grade]] = []
    unknown = [note.message for note in notes]
    for one in found:
        shape = one.reading.shape
        if shape is None or one.gaps:
            unknown.append(f"{one.label} {one.kernel}: not known: {'; '.join(one.reading.unknown or one.gaps)}")
        else:
            rows.append(("", one, grade_with(shape, STANDARD, using, lifts=False)))
    return report_grade.Brief(case.name, rows, unknown)


def of_launch(launch: Path, ptx: Path | None) -> list[Candidate]:
    """The kernel of a launch file.

    Raises:
        PorterError: what `load_launch` raises.
    """
    found = load_launch(launch, ptx)
    return [candidate("kernel", found.kernel, found.problem, found.launch)]


def of_ptx(path: Path) -> list[Candidate]:
    """All kernels in a file that holds PTX, of those for several chips each.

    Raises:
        PorterError: what `ptx_texts` and `parse_ptx` raise.
    """
    modules = [parse_ptx(text, str(path)) for text in ptx_texts(path)]
    return [
        Candidate("kernel", kernel_name(entry.name), module.target, read_shape(module, entry))
        for module in modules for entry in module.entries()
    ]  # fmt: skip


def of_program(
    session: Session, path: Path, arguments: Sequence[str], arch: str | None, include_dirs: Iterable[Path]
) -> tuple[list[Candidate], list[Diagnostic]]:
    """The kernels that a program launches, in the order of their first launches.

    Raises:
        PorterError: what building and running raise.
    """
    request = program_request(path, arguments, arch, tuple(include_dirs))
    outcome = run_source_or_executable(request, SimOptions(), find_toolkit(session.toolkit))
    first = {record.kernel: record for record in reversed(outcome.launches)}
    found = []
    for record in reversed(first.values()):
        module = parse_ptx(record.ptx, str(path))
        function = module.function(record.kernel)
        reading = read_shape(module, function, Launch(**launched_record(record, function)))
        found.append(Candidate("kernel", kernel_name(record.kernel), module.target, reading))
    return found, list(outcome.diagnostics)
