# SPDX-License-Identifier: Apache-2.0
"""`porter build`: compile original and port, and show what each kernel takes before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from porter.build.host_headers import host_headers_note
from porter.build.port_plan import PortPlan, materialize
from porter.build.table import ResourceRow
from porter.build.toolchain import find_toolkit
from porter.cli.comparing import THERE, Comparing, Subject, Told, lines_of, wrong_in
from porter.cli.context import Session, command
from porter.cli.gate import host_hint
from porter.cli.inputs import require_directories, require_file, require_source
from porter.cli.making import Ports
from porter.cli.porting import plan_on
from porter.diagnostics import Code, ExitCode, PorterError, exit_code_of, worst_exit
from porter.lang.sources import is_python
from porter.project.include_dirs import stated_directories
from porter.report import json as report_json
from porter.report.terminal import resource_table
from porter.tune.searching import compilable
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.depot import depots
from porter.verify.gate import GateOptions
from porter.verify.launching import port_problem
from porter.verify.problem import bind
from porter.verify.resources import assembler_warnings, rows_of_case, rows_of_files
from porter.verify.room import crowded


@command
def build(
    session: Session,
    file: Path,
    port_path: Path | None,
    case_path: Path | None,
    include_dirs: tuple[Path, ...],
    tmem_check: bool,
    prove_seconds: float,
) -> ExitCode:
    for path in (file, *([port_path] if port_path else [])):
        require_file(path, "build")
        require_source(path)
    require_directories("-I", include_dirs)
    toolkit = replace(find_toolkit(session.toolkit), tmem_check=tmem_check)
    found = [case_path] if case_path is not None else cases_if_any(file)
    case = load_case(found[0]) if found else None
    include_dirs = (*include_dirs, *stated_directories(file))
    if case is not None:
        case = replace(case, include_dirs=(*case.include_dirs, *include_dirs))
        include_dirs = case.include_dirs
    plan, left = Ports(session, proves=prove_seconds).of_file(file, port_path, include_dirs)
    if plan is None:
        session.report(left)
        session.write_json(report_json.error(left, exit_code_of(left)))
        return exit_code_of(left)
    ported = materialize(plan, file)
    if case is None and is_python(file):
        # Only a case says how a Python kernel is constructed and called.
        raise PorterError(Code.CASE_NOT_FOUND, path=file)
    hint = host_hint([file.read_bytes()])
    with session.progress() as tell:
        if tell is not None:
            tell(f"building {file} and its port")
        if case is not None:
            problem = bind(case)
            own = port_problem(problem, case.port if port_path is not None else None)
            rows, stood_in = rows_of_case(problem, own, file, ported, toolkit, compilable, session.target, hint)
        else:
            rows, stood_in = rows_of_files(file, ported, toolkit, include_dirs, session.target, hint)
    left += host_headers_note(file, stood_in)
    if not rows:
        raise PorterError(Code.NOTHING_TO_BUILD, path=file)
    warnings = [*(w for row in rows for w in assembler_warnings(row, file)), *depots(rows, file), *crowded(rows, file)]
    compared = _compared(session, file, plan, case, rows, include_dirs, prove_seconds)
    code = worst_exit([exit_code_of(left), exit_code_of(wrong_in(compared))])
    told = session.verbosity > 0 or code is not ExitCode.OK
    session.report([*(d for d in left if told or d.code is Code.HOST_HEADERS), *warnings, *wrong_in(compared)])
    session.show(resource_table(rows), *map(Text, lines_of(compared)))
    body = {
        "toolkit": toolkit.name,
        "kernels": [row.as_json() for row in rows],
        "diagnostics": report_json.diagnostics([*left, *warnings, *wrong_in(compared)]),
    }
    body |= {"proofs": [one.body for one in compared]} if compared else {}
    session.write_json(report_json.document("build", code, body))
    return code


def _compared(
    session: Session, file: Path, plan: PortPlan, case: Case | None, rows: Sequence[ResourceRow],
    include_dirs: tuple[Path, ...], seconds: float,
) -> list[Told]:  # fmt: skip
    """What is proved of the kernels that were built."""
    if not seconds:
        return []
    entries = [row.entries[0] for row in rows if row.entries[0]]
    subject = Subject(file, lambda case: plan_on(case, plan), entries, cases=[case] if case is not None else [])
    return Comparing(session, seconds, GateOptions(include_dirs, target=session.target), THERE).compare([subject])
