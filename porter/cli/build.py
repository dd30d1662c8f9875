# SPDX-License-Identifier: Apache-2.0
"""`porter build`: compile original and port, and show what each kernel takes before and after."""

from __future__ import annotations

from pathlib import Path

from porter.build.dsl import DslCompiled
from porter.build.host_headers import directories_of, host_headers_note
from porter.build.nvcc import CompileRequest, compile_ptx
from porter.build.port_plan import materialize
from porter.build.ptxas import assemble
from porter.build.table import ResourceRow, compare_modules, compile_assembled, require_shared_memory, row
from porter.build.toolchain import Toolkit, find_toolkit
from porter.cli.building import compilable
from porter.cli.context import Session, command
from porter.cli.inputs import require_file, require_source
from porter.cli.porting import plan_of
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, exit_code_of
from porter.lang.sources import is_python
from porter.report import json as report_json
from porter.report.terminal import resource_table
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, compile_request
from porter.verify.case import cases_if_any, load_case
from porter.verify.dsl import compile_case
from porter.verify.line_map import placed_in_original
from porter.verify.problem import Problem, bind


@command
def build(session: Session, file: Path, port_path: Path | None, case_path: Path | None) -> ExitCode:
    for path in (file, *([port_path] if port_path else [])):
        require_file(path, "build")
        require_source(path)
    toolkit = find_toolkit(session.toolkit)
    plan, left = plan_of(file, port_path)
    if plan is None:
        session.report(left)
        session.write_json(report_json.error(left, ExitCode.UNPORTED))
        return ExitCode.UNPORTED
    ported = materialize(plan, file)
    problem = _problem(file, case_path)
    with session.progress() as tell:
        if tell is not None:
            tell(f"building {file} and its port")
        rows, stood_in = (
            _from_case(problem, file, ported, toolkit)
            if problem
            else _whole(file, ported, toolkit, session.include_dirs)
        )
    left += host_headers_note(file, stood_in)
    if not rows:
        raise PorterError(Code.NOTHING_TO_BUILD, path=file)
    warnings = [w for row in rows for w in _warnings(row, file)]
    code = exit_code_of(left)
    told = session.verbosity > 0 or code is not ExitCode.OK
    session.report([*(d for d in left if told or d.code is Code.HOST_HEADERS), *warnings])
    session.show(resource_table(rows))
    body = {
        "toolkit": toolkit.name,
        "kernels": [row.as_json() for row in rows],
        "diagnostics": report_json.diagnostics([*left, *warnings]),
    }
    session.write_json(report_json.document("build", code, body))
    return code


def _problem(file: Path, case_path: Path | None) -> Problem | None:
    found = [case_path] if case_path is not None else cases_if_any(file)
    return bind(load_case(found[0])) if found else None


def _from_case(problem: Problem, file: Path, ported: Path, toolkit: Toolkit) -> tuple[list[ResourceRow], list[str]]:
    """The kernels, and the headers that were stood in for."""
    if problem.case.dsl is not None:
        original, _ = compile_case(problem, file, ORIGINAL_ARCH)
        port = _port_of(problem, file, ported)
        sides = (original.ptx, ORIGINAL_ARCH), (port.ptx, PORT_ARCH)
        for one, (ptx, arch), path in zip((original, port), sides, (file, ported), strict=True):
            require_shared_memory(assemble(toolkit, ptx, arch).resources, one.dynamic_smem, arch, path)
        return compare_modules(*sides, toolkit, dynamic=(original.dynamic_smem, port.dynamic_smem)), []
    before = compile_assembled(compile_request(problem, file, ORIGINAL_ARCH, compilable), toolkit)
    after = compile_assembled(compile_request(problem, ported, PORT_ARCH, compilable), toolkit)
    return [row(before.display_name or problem.case.entry, before, after)], [*before.stood_in, *after.stood_in]


def _port_of(problem: Problem, file: Path, ported: Path) -> DslCompiled:
    try:
        return compile_case(problem, ported, PORT_ARCH)[0]
    except PorterError as error:
        raise placed_in_original(error, file, ported, problem.case.include_dirs) from None


def _whole(
    file: Path, ported: Path, toolkit: Toolkit, include_dirs: tuple[Path, ...]
) -> tuple[list[ResourceRow], list[str]]:
    if is_python(file):
        # Only a case says how a Python kernel is constructed and called.
        raise PorterError(Code.CASE_NOT_FOUND, path=file)
    here = (file.parent, *include_dirs)
    before = compile_ptx(CompileRequest(file, ORIGINAL_ARCH, include_dirs=here), toolkit)
    beside = directories_of(file, include_dirs)
    after = compile_ptx(CompileRequest(ported, PORT_ARCH, include_dirs=here, quote_dirs=beside), toolkit)
    rows = compare_modules((before.ptx, ORIGINAL_ARCH), (after.ptx, PORT_ARCH), toolkit)
    return rows, [*before.stood_in, *after.stood_in]


def _warnings(row: ResourceRow, file: Path) -> list[Diagnostic]:
    where = Location(str(file))
    texts = [(row.before_arch, w) for w in row.before_warnings]
    texts += [(row.after_arch, w) for w in row.after_warnings]
    return [Diagnostic(Code.PTXAS_WARNING, where, {"text": f"{arch}: {text}"}) for arch, text in texts]
