# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of the checker: every mutant of a kernel run once, and who notices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from porter.verify.backends import RunResult, SimBackend
from porter.verify.builder import BuiltKernel
from porter.verify.images import Image
from porter.verify.mutants import Mutant, mutants
from porter.verify.problem import LaunchValues, Problem
from porter.verify.settings import SimOptions

_BUDGET_FACTOR = 20


@dataclass(frozen=True)
class MutantRow:
    """`by_value`: an output differs from the unmutated kernel's. `by_run`: the ID of the error that ended the
    run, such as a deadlock. `by_hazard`: the kinds of hazards reported as errors. `reason`: why nobody could
    notice."""

    mutant: Mutant
    by_value: bool
    by_run: str
    by_hazard: tuple[str, ...]
    reason: str = ""

    @property
    def caught(self) -> bool:
        """Whether the checking run notices without looking at values."""
        return bool(self.by_run or self.by_hazard)


@dataclass(frozen=True)
class MutationResult:
    """`baseline` is the unmutated kernel's run, whose hazards would hide those of mutants."""

    kernel: str
    baseline: RunResult
    rows: tuple[MutantRow, ...]

    @property
    def survivors(self) -> tuple[MutantRow, ...]:
        return tuple(r for r in self.rows if not r.caught)


def mutate(
    kernel: BuiltKernel,
    problem: Problem,
    launch: LaunchValues,
    images: Mapping[str, Image],
    options: SimOptions,
    progress: Callable[[int, int], None] | None = None,
) -> MutationResult:
    """Run a kernel and all its mutants in checking mode on the same inputs."""
    settings = dataclasses.replace(options, checking=options.checking or "strict")
    baseline = SimBackend(settings).run(kernel, problem, launch, images)
    if baseline.status != "ok":
        return MutationResult(kernel.entry, baseline, ())
    # A mutant may poll for ever.
    limit = _BUDGET_FACTOR * max(baseline.warp_instructions, 10_000)
    backend = SimBackend(dataclasses.replace(settings, budget=min(limit, options.budget or limit)))
    known = {h.identity for h in baseline.hazards}
    rows = []
    found = mutants(kernel.module, kernel.entry)
    for number, mutant in enumerate(found):
        if progress is not None:
            progress(number, len(found))
        changed = dataclasses.replace(kernel, module=mutant.module)
        result = backend.run(changed, problem, launch, images)
        ids = sorted({h.kind.id for h in result.hazards if h.severity == "error" and h.identity not in known})
        ended = result.findings[0].code.id if result.status != "ok" and result.findings else ""
        row = MutantRow(mutant, not ended and _differs(baseline, result), ended, tuple(ids))
        rows.append(row if row.caught else dataclasses.replace(row, reason=_reason(row, baseline)))
    return MutationResult(kernel.entry, baseline, tuple(rows))


def _differs(one: RunResult, other: RunResult) -> bool:
    return any(not np.array_equal(one.after[name].data, other.after[name].data) for name in one.after)


def _reason(row: MutantRow, baseline: RunResult) -> str:
    if row.by_value:
        return ""
    if row.mutant.instruction.line not in baseline.stats.lines:
        return "not reached in this run"
    if row.mutant.instruction.parts[:2] == ("tcgen05", "relinquish_alloc_permit"):
        return "matters only to other blocks on the SM"
    return "nothing in this run depends on it"
