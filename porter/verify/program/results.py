# SPDX-License-Identifier: Apache-2.0
"""A program's launches taken together."""

from __future__ import annotations

from porter.sim.check.hazard import Hazard, collect
from porter.verify.backends import run_finding
from porter.verify.hazards import OneRun
from porter.verify.program.runner import ProgramOutcome


def as_run(outcome: ProgramOutcome) -> OneRun:
    """All launches of a program as one run. A program that fails is an error, whatever its kernels did."""
    done = [record.outcome for record in outcome.launches if record.outcome is not None]
    hazards: list[Hazard] = []
    for one in done:
        collect(hazards, one.hazards)
    status: str = outcome.status
    if status == "ok" and outcome.exit_status != 0:
        status = "error"
    return OneRun(
        status=status,
        findings=[run_finding(f) for one in done for f in one.findings],
        hazards=hazards,
        warp_instructions=sum(one.stats.warp_instructions for one in done),
        seconds=sum(one.stats.seconds for one in done),
    )
