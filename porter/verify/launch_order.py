# SPDX-License-Identifier: Apache-2.0
"""Launches one after another, each on the memory that the ones before it left."""

from __future__ import annotations

from collections.abc import Sequence

from porter.verify.backends import RunResult, SimBackend
from porter.verify.hazards import OneRun
from porter.verify.launch_file import PtxLaunch
from porter.verify.settings import SimOptions


def run_in_order(launches: Sequence[PtxLaunch], settings: SimOptions) -> list[RunResult]:
    """Run launches of one file until one does not end well. Variables of a module are left as they are, too."""
    done: list[RunResult] = []
    state: dict[str, dict[str, bytes]] = {}
    for launch in launches:
        held = state.setdefault(str(launch.problem.case.kernel), {})
        result = SimBackend(settings, held, keeps=True).run(
            launch.kernel,
            launch.problem,
            launch.launch,
            launches[0].images,
            done[-1].left if done else None,
            launch.overlaps,
        )
        held.update(result.variables)
        done.append(result)
        if result.status != "ok":
            break
    return done


def as_one(results: Sequence[RunResult]) -> OneRun:
    """What is told of launches together."""
    return OneRun(
        results[-1].status,
        [f for r in results for f in r.findings],
        [h for r in results for h in r.hazards],
        sum(r.warp_instructions for r in results),
        sum(r.seconds for r in results),
    )
