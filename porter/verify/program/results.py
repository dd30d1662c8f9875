# SPDX-License-Identifier: Apache-2.0
"""A program's launches taken together."""

from __future__ import annotations

from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location
from porter.sim.check.hazard import Hazard, collect
from porter.verify.backends import run_finding
from porter.verify.hazards import OneRun
from porter.verify.outcome import RunFinding
from porter.verify.program.runner import ProgramOutcome

_LAST_LINES = 5


def has_failed(outcome: ProgramOutcome, path: Path) -> list[Diagnostic]:
    """That a program has failed by its own account, with what it said last."""
    if outcome.exit_status == 0:
        return []
    ended, said = _ended(outcome)
    return [Diagnostic(Code.PROGRAM_RETURNED, Location(str(path)), {"ended": ended}, said)]


def _ended(outcome: ProgramOutcome) -> tuple[str, str]:
    """How a program ended, and what it said last."""
    status = outcome.exit_status
    ended = f"returned {status}" if status > 0 else f"was ended by signal {-status}"
    said = [line.rstrip() for text in (outcome.stdout, outcome.stderr) for line in text.splitlines() if line.strip()]
    return ended, "; ".join(said[-_LAST_LINES:])


def as_run(outcome: ProgramOutcome) -> OneRun:
    """All launches of a program as one run. A program that fails is an error, whatever its kernels did."""
    done = [record.outcome for record in outcome.launches if record.outcome is not None]
    hazards: list[Hazard] = []
    for one in done:
        collect(hazards, one.hazards)
    status: str = outcome.status
    findings = [run_finding(f) for one in done for f in one.findings]
    if status == "ok" and outcome.exit_status != 0:
        status = "error"
        ended, said = _ended(outcome)
        findings.append(RunFinding(Code.PROGRAM_RETURNED, f"the program {ended}", said))
    return OneRun(
        status=status,
        findings=findings,
        hazards=hazards,
        warp_instructions=sum(one.stats.warp_instructions for one in done),
        seconds=sum(one.stats.seconds for one in done),
    )
