# SPDX-License-Identifier: Apache-2.0
"""`porter capture`: the launches of a real program become cases."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from porter.build.entry import function_name
from porter.build.toolchain import find_toolkit
from porter.cli.context import Session, command
from porter.cli.inputs import require_directories, require_file
from porter.cli.programs import program_request, require_triton
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError
from porter.report import json as report_json
from porter.report.exits import capture_exit
from porter.report.tables import plain_table, quantity
from porter.verify.capture.events import Captured, Refusal
from porter.verify.capture.program import CaptureOptions, capture_program
from porter.verify.capture.simulated import capture_simulated
from porter.verify.capture.write import Source, Written, cases_summary, write_cases
from porter.verify.program import build_runtime
from porter.verify.program.runner import SCRIPT
from porter.verify.program.source import executable_of
from porter.verify.record import environment


@command
def capture(
    session: Session,
    program: tuple[str, ...],
    output: Path,
    kernel: str,
    limit: int,
    max_bytes: int,
    source: Path | None,
    texts: tuple[Path, ...],
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    flags: tuple[str, ...],
    libraries: tuple[str, ...],
    backend: str,
    arch: str | None,
    multiprocessors: int,
) -> ExitCode:
    try:
        re.compile(kernel)
    except re.error as error:
        raise PorterError(Code.BAD_OPTION, option="--kernel", problem=str(error)) from None
    if source is not None:
        require_file(source, "capture --source")
    for text in texts:
        require_file(text, "capture --ptx")
    require_directories("-I", include_dirs)
    options = CaptureOptions(kernel, limit, max_bytes)
    toolkit = find_toolkit(session.toolkit)
    with tempfile.TemporaryDirectory(prefix="porter-capture-") as scratch:
        folder = Path(scratch)
        with session.progress() as tell:
            if tell is not None:
                tell(f"running {program[0]}")
            notes: tuple[Diagnostic, ...] = ()
            target = arch
            if backend == "gpu":
                captured = capture_program(program, folder, options, toolkit)
            else:
                require_file(Path(program[0]), "capture --backend sim")
                if Path(program[0]).suffix == SCRIPT:
                    require_triton(Path(program[0]))
                request = program_request(
                    Path(program[0]), program[1:], arch, include_dirs, defines, flags, libraries, tell=tell
                )
                path = executable_of(request, toolkit, folder)
                target = request.target or arch
                runtime = None if request.is_script else build_runtime(toolkit)
                captured, notes = capture_simulated(
                    [str(path), *program[1:]], folder, options, request.target, multiprocessors, runtime
                )
            captured = replace(captured, images=(*captured.images, *(text.read_bytes() for text in texts)))
            facts = environment(shlex.join(program), device=captured.device.get("name", ""))
            chip = None if target is None else int(re.sub(r"\D", "", target) or 0)
            written = write_cases(captured, output, facts, Source(source, include_dirs), chip, tell)
    return _report(session, program, captured, written, notes)


def _report(
    session: Session, program: tuple[str, ...], captured: Captured, written: Written, notes: Iterable[Diagnostic]
) -> ExitCode:
    rows = cases_summary(written.cases)
    left_out = [_left_out(r) for r in written.refusals]
    diagnostics = [*notes, *left_out]
    if not rows:
        reason = "it launched none"
        if captured.exit_status:
            reason = f"it ended with exit status {captured.exit_status}"
        if written.refusals:
            reason = written.refusals[0].text
        values = {"program": program[0], "reason": reason}
        diagnostics.append(Diagnostic(Code.CAPTURE_NOTHING, None, values))
    session.report(diagnostics)
    if rows:
        session.show(_table(rows))
    launches = f"{len(written.refusals)} launch{'es' * (len(written.refusals) != 1)}"
    ended = f", {program[0]} ended with exit status {captured.exit_status}" if captured.exit_status else ""
    session.show(Text(f"{quantity(len(rows), 'case')}, {launches} left out{ended}"))
    code = capture_exit(written)
    body: dict[str, Any] = {
        "program": list(program),
        "program_exit_status": captured.exit_status,
        "device": dict(captured.device),
        "cases": rows,
        "diagnostics": report_json.diagnostics(diagnostics),
    }
    session.write_json(report_json.document("capture", code, body))
    return code


def _left_out(refusal: Refusal) -> Diagnostic:
    values = {"kernel": function_name(refusal.kernel) if refusal.kernel else "any kernel", "reason": refusal.text}
    return Diagnostic(Code.CAPTURE_LEFT_OUT, None, values)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = plain_table("case", "kernel", "grid", "block", "cluster", "shared", "tensors", "maps", "MiB")
    for row in rows:
        numbers = [" ".join(map(str, row[name])) for name in ("grid", "block", "cluster")]
        table.add_row(
            str(Path(row["path"]).parent), function_name(row["kernel"]), *numbers, str(row["dynamic_smem"]),
            str(row["tensors"]), str(row["tensor_maps"]), f"{row['bytes'] / 2**20:.1f}",
        )  # fmt: skip
    return table
