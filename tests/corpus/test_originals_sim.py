# SPDX-License-Identifier: Apache-2.0
"""Every corpus original, run by the simulator at every size of its case, gives what its reference says."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_kernels import CASES, QUICK, compiled

from porter.verify.backends import SimBackend, SimOptions
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.results import VerifyResult
from porter.verify.runner import VerifyOptions, verify


def each(quick: str = "") -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", compiled(CASES, quick))


def whole_numbers(path: Path) -> str:
    """The family of whole numbers that a case allows: not every kernel can take large sums."""
    allowed = load_case(path).families
    return "integers" if allowed is None or "integers" in allowed else "index"


def run(path: Path, schedule: str, families: tuple[str, ...], all_sizes: bool) -> VerifyResult:
    case = load_case(path)
    sizes = ({}, *case.other_sizes) if all_sizes else ({},)
    backend = SimBackend(SimOptions(schedule=schedule))  # type: ignore[arg-type]
    options = VerifyOptions(families=families, sizes=sizes, schedule=schedule)
    return verify(case, None, ToolkitBuilder(), backend, options)


def assert_clean(result: VerifyResult) -> None:
    for row in result.rows:
        assert row.verdict is Verdict.CLEAN, [(d.message, d.detail) for d in row.diagnostics]


@pytest.mark.spread(6)
@each(QUICK)
def test_late_completion_at_all_sizes(path: Path) -> None:
    """Asynchronous work lands as late as its waits allow: a kernel that relied on luck would fail here."""
    result = run(path, "late", (whole_numbers(path),), all_sizes=True)
    assert len([row for row in result.rows if not row.added]) == 1 + len(load_case(path).other_sizes)
    assert_clean(result)


@pytest.mark.spread(6)
@each()
@pytest.mark.parametrize("schedule", ["eager", "random"])
def test_other_schedules(path: Path, schedule: str) -> None:
    result = run(path, schedule, ("index",), all_sizes=False)
    assert result.rows
    assert_clean(result)


@pytest.mark.spread(4)
@each()
def test_rounding_stays_within_bounds(path: Path) -> None:
    result = run(path, "late", ("normal", "wide"), all_sizes=False)
    case = load_case(path)
    of_integers = any(t.role == "input" and t.dtype == "s8" for t in case.tensors.values())
    assert result.rows or case.accumulate == "s32" or of_integers
    assert_clean(result)
