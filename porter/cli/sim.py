# SPDX-License-Identifier: Apache-2.0
"""`porter sim`: run a kernel on the CPU simulator and show what it did."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from porter.build.toolchain import find_toolkit
from porter.cli.building import make_builder
from porter.cli.context import Session, command
from porter.cli.inputs import require_directories, require_file, require_program
from porter.cli.options import read_launch, read_sizes, sim_options
from porter.cli.programs import program_request
from porter.cli.tracing import recorder, show_trace
from porter.diagnostics import ExitCode
from porter.report import json as report_json
from porter.report.exits import STATUS_EXIT, program_exit
from porter.report.program import finding_body, finding_diagnostic
from porter.report.tables import plain_table
from porter.verify.backends import run_finding
from porter.verify.bare import read_argument, read_module, run_bare
from porter.verify.builder import ORIGINAL_ARCH
from porter.verify.case import Case, cases_if_any, load_case
from porter.verify.prepare import run_once
from porter.verify.program.source import Request, run_source_or_executable
from porter.verify.settings import SimOptions

_SHOWN = 8


@command
def sim(
    session: Session,
    path: Path,
    arguments: tuple[str, ...],
    case_path: Path | None,
    arch: str | None,
    family: str,
    sizes: str,
    kernel: str | None,
    grid: str,
    block: str,
    cluster: str,
    smem: int,
    args: tuple[str, ...],
    include_dirs: tuple[Path, ...],
    defines: tuple[str, ...],
    libraries: tuple[str, ...],
    flags: tuple[str, ...],
    trace_path: Path | None,
    timeline: bool,
    trace_blocks: str | None,
    trace_kernel: str | None,
    trace_limit: int | None,
    seed: int,
    schedule: str,
    arithmetic: str,
    budget: int | None,
) -> ExitCode:
    require_file(path, "sim")
    require_directories("-I", include_dirs)
    printed: list[str] = []
    recording = recorder(trace_path, timeline, trace_blocks, trace_kernel, trace_limit)
    settings = sim_options(seed, schedule, arithmetic, budget, printed.append)
    options = dataclasses.replace(settings, trace=recording)
    case_file = case_path or _case_beside(path)

    def traced() -> dict[str, Any]:
        return show_trace(session, recording, trace_path, timeline, session.out)

    if path.suffix == ".ptx":
        launch = read_launch(grid, block, cluster, smem)
        report = _ptx(path, kernel, launch, args, options)
    elif case_file is not None:
        report = _case(session, load_case(case_file), path, arch or ORIGINAL_ARCH, family, sizes, options)
    else:
        require_program(path)
        request = program_request(path, arguments, arch, include_dirs, defines, flags, libraries)
        return _program(session, request, options, traced)
    return _finish(session, path, report, printed, traced)


def _case_beside(path: Path) -> Path | None:
    return path if path.suffix in (".yaml", ".yml") else next(iter(cases_if_any(path)), None)


def _ptx(path: Path, kernel: str | None, launch: Any, args: Sequence[str], options: SimOptions) -> dict[str, Any]:
    module, entry = read_module(path, kernel)
    result = run_bare(module, entry, launch, [read_argument(a) for a in args], options)
    tensors = {f"argument {i}": array for i, array in result.buffers.items()}
    return {"kernel": entry.name, "arch": module.target, "result": result, "tensors": tensors,
            "opcodes": result.opcodes}  # fmt: skip


def _case(
    session: Session, case: Case, path: Path, arch: str, family: str, sizes: str, options: SimOptions
) -> dict[str, Any]:
    builder = make_builder(find_toolkit(session.toolkit))
    problem, built, result = run_once(case.on(path), read_sizes([sizes], case)[0], family, arch, builder, options)
    tensors = {t.name: result.after[t.name].elements() for t in problem.outputs}
    opcodes = dict(result.stats.opcodes) if result.stats is not None else {}
    return {"kernel": built.entry, "arch": arch, "result": result, "tensors": tensors, "opcodes": opcodes}


def _finish(
    session: Session,
    path: Path,
    report: Mapping[str, Any],
    printed: Sequence[str],
    traced: Callable[[], dict[str, Any]],
) -> ExitCode:
    result = report["result"]
    code = STATUS_EXIT[result.status]
    found = [finding_diagnostic(f, path) for f in result.findings]
    session.report(found)
    session.show(*(Text(line, end="") for line in printed))
    table = plain_table("output", "type", "shape", "first elements", "sha256")
    outputs = []
    for name, array in report["tensors"].items():
        first = " ".join(f"{float(v):.6g}" for v in array.reshape(-1)[:_SHOWN])
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        shape = "x".join(map(str, array.shape))
        table.add_row(name, str(array.dtype), shape, first, digest[:16])
        outputs.append({"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "sha256": digest,
                        "first": [float(v) for v in array.reshape(-1)[:_SHOWN]]})  # fmt: skip
    session.show(table)
    session.show(
        Text(
            f"{report['kernel']} ({report['arch']}): {result.status}, {result.warp_instructions} warp "
            f"instructions in {result.seconds:.2f} s"
        )
    )
    opcodes = dict(sorted(report["opcodes"].items(), key=lambda item: -item[1]))
    if session.verbosity > 0:
        session.show(*(Text(f"{count:>12}  {name}") for name, count in opcodes.items()))
    body = {
        "kernel": report["kernel"],
        "arch": report["arch"],
        "status": result.status,
        "warp_instructions": result.warp_instructions,
        "seconds": result.seconds,
        "opcodes": opcodes,
        "outputs": outputs,
        "printed": "".join(printed),
        "findings": [finding_body(f) for f in result.findings],
        **traced(),
    }
    session.write_json(report_json.document("sim", code, body))
    return code


def _program(session: Session, request: Request, options: SimOptions, traced: Callable[[], dict[str, Any]]) -> ExitCode:
    outcome = run_source_or_executable(request, options, find_toolkit(session.toolkit))
    session.show(Text(outcome.stdout, end=""))
    if outcome.stderr:
        session.err.print(outcome.stderr, end="", soft_wrap=True)
    session.report(outcome.diagnostics)
    runs = [record.outcome for record in outcome.launches if record.outcome]
    found = [run_finding(f) for one in runs for f in one.findings]
    session.report([finding_diagnostic(f, request.path) for f in found])
    code = program_exit(outcome)
    launched = sum(one.stats.warp_instructions for one in runs)
    session.show(
        Text(
            f"{request.path.name}: exit status {outcome.exit_status}, {len(outcome.launches)} launches, "
            f"{launched} warp instructions, {outcome.status}"
        )
    )
    body = {
        "kernel": "",
        "arch": request.arch or ORIGINAL_ARCH,
        "status": outcome.status,
        "exit_status": outcome.exit_status,
        "warp_instructions": launched,
        "seconds": sum(one.stats.seconds for one in runs),
        "opcodes": {},
        "outputs": [],
        "printed": outcome.stdout,
        "findings": [finding_body(f) for f in found],
        "diagnostics": report_json.diagnostics(outcome.diagnostics),
        **traced(),
    }
    session.write_json(report_json.document("sim", code, body))
    return code
