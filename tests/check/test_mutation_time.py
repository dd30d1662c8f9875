# SPDX-License-Identifier: Apache-2.0
"""Mutation that ends before it is done: what was run is the result, and it says what was not."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutation_kernels import setup

from porter.report import mutation as report_mutation
from porter.verify import mutant_runs
from porter.verify.budget import Budget
from porter.verify.mutation import mutate
from porter.verify.settings import SimOptions

BODY = "    bar.sync 0;\n" * 9


def ticking(seconds: float) -> Budget:
    """Each look at the clock takes a second, and it is looked at twice."""
    times = iter(range(1000))
    return Budget(seconds, clock=lambda: float(next(times)))


def test_no_mutant_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    whole = mutate([setup(tmp_path, BODY, 64)], SimOptions())
    assert (whole.stopped, whole.not_run) == ("", 0)
    assert len(whole.rows) > 8
    for seconds, done in ((1.5, 0), (3.5, 4), (5.5, 8)):
        part = mutate([setup(tmp_path, BODY, 64)], SimOptions(), time=ticking(seconds))
        assert (part.stopped, len(part.rows), part.not_run) == ("time", done, len(whole.rows) - done)
        assert [(r.mutant.how, r.caught) for r in part.rows] == [(r.mutant.how, r.caught) for r in whole.rows[:done]]


def test_what_is_said_of_it(tmp_path: Path) -> None:
    part = mutate([setup(tmp_path, BODY, 64)], SimOptions(), time=ticking(3.5))
    *_, line = report_mutation.table("k", "port", part)
    none = mutate([setup(tmp_path, BODY, 64)], SimOptions(), time=ticking(1.5))
    *_, said = report_mutation.table("k", "port", none)
    assert str(said) == f"k port: no mutants run; stopped: {none.not_run} mutants not run"
    assert str(line).endswith(f"stopped: {part.not_run} mutants not run")
    (kernel,) = report_mutation.document("port", [("k", part, "")], 6)["kernels"]  # type: ignore[arg-type]
    assert (kernel["stopped"], kernel["not_run"], len(kernel["mutants"])) == ("time", part.not_run, 4)


def test_an_interrupt_leaves_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    outcome = mutant_runs.MutantRuns.outcome

    def run(self: mutant_runs.MutantRuns, numbers: frozenset[int]) -> mutant_runs.Outcome:
        ran.append(numbers)
        if len(ran) == 6:
            raise KeyboardInterrupt
        return outcome(self, numbers)

    monkeypatch.setattr(mutant_runs.MutantRuns, "outcome", run)
    part = mutate([setup(tmp_path, BODY, 64)], SimOptions())
    assert (part.stopped, len(part.rows)) == ("interrupted", 4)
