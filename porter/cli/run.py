# SPDX-License-Identifier: Apache-2.0
"""`porter run`: a program with its own main(), its kernels on the CPU simulator."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from porter.build.entry import kernel_name
from porter.build.toolchain import find_toolkit
from porter.cli.context import Session, command
from porter.cli.inputs import require_directories, require_file, require_program
from porter.cli.launches import require_launch, run_launch
from porter.cli.options import sim_options
from porter.cli.programs import program_request
from porter.cli.tracing import recorder, show_trace
from porter.report import hazards as report_hazards
from porter.report import json as report_json
from porter.report.exits import own_status, program_status
from porter.report.program import finding_body, finding_diagnostic, launch_body, launch_line
from porter.verify.backends import run_finding
from porter.verify.hazards import HazardRun
from porter.verify.program import ProgramOutcome
from porter.verify.program.source import check_program, run_source_or_executable


@command
def run(
    session: Session,
    program: Path | None,
    arguments: tuple[str, ...],
    arch: str | None,
    multiprocessors: int | None,
    ptx_path: Path | None,
    launch_path: Path | None,
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    libraries: tuple[str, ...],
    flags: tuple[str, ...],
    check: bool,
    level: Any,
    trace_path: Path | None,
    timeline: bool,
    trace_blocks: str | None,
    trace_kernel: str | None,
    trace_limit: int | None,
    seed: int,
    schedule: str,
    arithmetic: str,
    budget: int | None,
) -> int:
    recording = recorder(trace_path, timeline, trace_blocks, trace_kernel, trace_limit)
    options = dataclasses.replace(sim_options(seed, schedule, arithmetic, budget), trace=recording)
    launch = require_launch(program, ptx_path, launch_path)
    if program is None:
        assert launch is not None
        code, body = run_launch(session, launch, ptx_path, arch, level if check else None, options)
        body |= show_trace(session, recording, trace_path, timeline, session.err)
        session.write_json(report_json.document("run", code, body))
        return code
    found = _found(program)
    require_file(found, "run")
    require_directories("-I", include_dirs)
    require_program(found)
    toolkit = find_toolkit(session.toolkit)
    checked: HazardRun | None = None
    with session.progress() as tell:
        request = program_request(
            found, arguments, arch, include_dirs, defines, flags, libraries, multiprocessors=multiprocessors,
            attached=not session.json, tell=tell, report=session.report,
        )  # fmt: skip
        if check:
            checked, (outcome,) = check_program(request, toolkit, level, options, [seed])
        else:
            outcome = run_source_or_executable(request, options, toolkit)
    return _report(session, found, outcome, checked, show_trace(session, recording, trace_path, timeline, session.err))


def _found(program: Path) -> Path:
    """The file meant: as a shell does, a bare name that is no file here is looked for on PATH."""
    if not program.exists() and program.name == str(program) and (there := shutil.which(str(program))):
        return Path(there)
    return program


def _report(
    session: Session, path: Path, outcome: ProgramOutcome, checked: HazardRun | None, trace: dict[str, Any]
) -> int:
    session.report(outcome.diagnostics)
    runs = [record.outcome for record in outcome.launches if record.outcome]
    findings = [run_finding(f) for one in runs for f in one.findings]
    if checked is not None and not session.json and session.verbosity >= 0:
        for line in report_hazards.text([checked], every=session.verbosity > 0):
            session.err.print(line, soft_wrap=True)
    elif checked is None:
        session.report([finding_diagnostic(f, path) for f in findings])
    own, code = own_status(outcome), int(program_status(outcome, checked))
    instructions = sum(one.stats.warp_instructions for one in runs)
    if not session.json and session.verbosity >= 0:
        session.err.print(
            f"{path.name}: exit status {own}, {len(outcome.launches)} launches, {instructions} warp instructions, "
            f"{checked.verdict.value if checked else outcome.status}",
            soft_wrap=True,
        )
        if session.verbosity > 0:
            lines = (f"  {launch_line(record, kernel_name(record.kernel))}" for record in outcome.launches)
            for line, same in groupby(lines):
                count = len(list(same))
                session.err.print(line + (f" ({count} times)" if count > 1 else ""), soft_wrap=True)
    body = {
        "program": str(path),
        "status": outcome.status,
        "exit_status": own,
        "warp_instructions": instructions,
        "seconds": sum(one.stats.seconds for one in runs),
        "launches": [launch_body(record) for record in outcome.launches],
        "stdout": outcome.stdout,
        "stderr": outcome.stderr,
        "findings": [finding_body(f) for f in findings],
        "diagnostics": report_json.diagnostics(outcome.diagnostics),
        "hazards": None if checked is None else report_hazards.run_body(checked),
        **trace,
    }
    session.write_json(report_json.document("run", code, body))
    sys.stdout.flush()
    return code
