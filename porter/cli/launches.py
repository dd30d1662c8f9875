# SPDX-License-Identifier: Apache-2.0
"""Launch files on the command line: `--ptx FILE --launch launch.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from porter.build.entry import kernel_name
from porter.cli.context import Session
from porter.cli.options import Level
from porter.diagnostics import Code, Diagnostic, ExitCode, PorterError
from porter.report import hazards as report_hazards
from porter.report import json as report_json
from porter.report.exits import launch_exit
from porter.report.program import finding_body, finding_diagnostic
from porter.verify.backends import RunResult
from porter.verify.hazards import HazardRun, OneRun, check_runs
from porter.verify.launch_file import PtxLaunch, against_expected, load_launches
from porter.verify.launch_order import as_one, run_in_order
from porter.verify.outcome import RunFinding
from porter.verify.settings import SimOptions


def require_launch(path: Path | None, ptx: Path | None, launch: Path | None) -> Path | None:
    """The launch file, if one is meant: then it stands in place of the program.

    Raises:
        PorterError: BAD_OPTION.
    """
    if launch is None:
        if ptx is not None:
            raise PorterError(Code.BAD_OPTION, option="--ptx", problem="needs --launch FILE, which says how to run it")
        if path is None:
            raise PorterError(Code.BAD_OPTION, option="PATH", problem="name a file, or a launch with --launch")
    elif path is not None:
        raise PorterError(Code.BAD_OPTION, option="--launch", problem=f"stands in place of {path}; choose one")
    return launch


def check_launch(
    launch: Path, ptx: Path | None, kernel: str | None, arch: str | None, level: Level, options: SimOptions,
    seeds: Sequence[int], jobs: int = 1,
) -> HazardRun:  # fmt: skip
    """What is found in the launches of a file under a schedule with each seed, in `jobs` processes.

    Raises:
        PorterError: what `load_launches` raises.
    """
    found = load_launches(launch, ptx, kernel, arch, options.seed)

    def run(settings: SimOptions) -> OneRun:
        return as_one(run_in_order(found, settings))

    return check_runs(run, *_named(found), level, options, seeds, jobs)


def run_launch(
    session: Session, launch: Path, ptx: Path | None, arch: str | None, level: Level | None, options: SimOptions
) -> tuple[ExitCode, dict[str, Any]]:
    """Run the launches of a file, with a `level` in the checking simulator too; say what came of it. The exit code,
    and what the JSON document holds.

    Raises:
        PorterError: what `load_launches` raises.
    """
    found = load_launches(launch, ptx, None, arch, options.seed)
    results: list[RunResult] = []
    differing: list[Diagnostic] = []
    findings: list[RunFinding] = []

    def run(settings: SimOptions) -> OneRun:
        results.extend(run_in_order(found, settings))
        one = as_one(results)
        findings.extend(one.findings)
        if one.status == "ok":
            differing.extend(against_expected(found[-1], results[-1]))
        return one

    checked: HazardRun | None = None
    one: HazardRun | OneRun
    if level is not None:
        one = checked = check_runs(run, *_named(found), level, options, [options.seed])
    else:
        one = run(options)
    session.report(differing)
    if checked is None:
        session.report(finding_diagnostic(f, found[0].problem.case.kernel) for f in findings)
    elif not session.json and session.verbosity >= 0:
        for line in report_hazards.text([checked], every=session.verbosity > 0):
            session.err.print(line, soft_wrap=True)
    _say(session, found, one, checked, differing)
    code = launch_exit(one.status, checked, differing)
    return code, _body(found, results, one, checked, findings, differing)


def _named(found: Sequence[PtxLaunch]) -> tuple[str, str, str, str]:
    """What a run of launches is called: the file, what it is, its kernels, the chip."""
    kernels = dict.fromkeys(launch.kernel.entry for launch in found)
    return found[0].problem.case.name, "kernel", ", ".join(kernels), found[0].kernel.arch


def _say(
    session: Session, found: Sequence[PtxLaunch], one: HazardRun | OneRun, checked: HazardRun | None,
    differing: Sequence[Diagnostic],
) -> None:  # fmt: skip
    compared = [t for t in found[-1].problem.tensors.values() if t.after is not None]
    held = f", {len(compared) - len(differing)} of {len(compared)} tensors as expected" if compared else ""
    verdict = checked.verdict.value if checked else one.status
    kernels = ", ".join(dict.fromkeys(kernel_name(launch.kernel.entry) for launch in found))
    session.remark(f"{kernels} ({found[0].kernel.arch}): {one.warp_instructions} warp instructions, {verdict}{held}")


def _body(
    found: Sequence[PtxLaunch], results: Sequence[RunResult], one: HazardRun | OneRun, checked: HazardRun | None,
    findings: Sequence[RunFinding], differing: Sequence[Diagnostic],
) -> dict[str, Any]:  # fmt: skip
    return {
        "program": str(found[0].problem.case.kernel),
        "status": one.status,
        "exit_status": 0,
        "warp_instructions": one.warp_instructions,
        "seconds": one.seconds,
        "launches": [
            {
                "kernel": launch.kernel.entry,
                "grid": list(launch.launch.grid),
                "block": list(launch.launch.block),
                "cluster": list(launch.launch.cluster),
                "dynamic_smem": launch.launch.dynamic_smem,
                "status": result.status,
                "warp_instructions": result.warp_instructions,
                "repeated": False,
            }
            for launch, result in zip(found, results, strict=False)
        ],
        "stdout": "",
        "stderr": "",
        "findings": [finding_body(f) for f in findings],
        "diagnostics": report_json.diagnostics(differing),
        "hazards": None if checked is None else report_hazards.run_body(checked),
    }
