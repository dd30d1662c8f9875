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
from porter.cli.inputs import cases_beside, require_directories, require_file
from porter.cli.options import read_gpu_options, read_sizes, sim_options, split_list
from porter.cli.porting import plan_of_case
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError
from porter.report import hazards as report_hazards
from porter.report import verification
from porter.report.exits import verification_exit
from porter.report.terminal import detail_lines, not_run_lines, summary_line, verdict_table
from porter.verify.case import Case, load_case
from porter.verify.results import VerifyResult
from porter.verify.sweep import Wanted, verify_cases


@command
def verify(
    session: Session,
    path: Path,
    case_path: Path | None,
    port_path: Path | None,
    source: Path | None,
    include_dirs: tuple[Path, ...],
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
    if case_path is not None:
        require_file(path, "verify --case")
    items: Sequence[Path | Case] = [load_case(case_path).on(path)] if case_path is not None else cases_beside(path)
    if port_path is not None:
        require_file(port_path, "verify --port")
        if path.is_dir():
            raise PorterError(Code.BAD_OPTION, option="--port", problem="is for one kernel, not a directory")
    if families and not split_list(families):
        raise PorterError(Code.BAD_OPTION, option="--families", problem="no family is named")
    if source is not None:
        require_file(source, "verify --source")
    require_directories("-I", include_dirs)
    settings = sim_options(seed, schedule, arithmetic, budget)
    wanted = Wanted(
        replace(settings, gpu=read_gpu_options(mode, gpu_timeout, session.toolkit)),
        backend,
        against,
        split_list(families) or None,
        partial(read_sizes, sizes) if sizes else None,
        hazards,
        None if original_only else partial(plan_of_case, port=port_path),
        port_path is not None,
        source,
        include_dirs,
        path.is_dir(),
    )
    builder = make_builder(find_toolkit(session.toolkit) if session.toolkit else None)
    with session.progress() as tell:
        result = verify_cases(items, wanted, builder, tell)
    session.report(host_headers_note(path, getattr(builder, "stood_in", ())))
    _show(session, result)
    session.write_json(verification.document(result))
    return verification_exit(result)


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
