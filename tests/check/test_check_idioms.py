# SPDX-License-Identifier: Apache-2.0
"""Kernels in the idioms of different authors: right is clean, and what somebody may forget is an error."""

from __future__ import annotations

import pytest
from sm100_idiom_kernels import KERNELS
from sm100_idioms import checked

from porter.sim.results import Schedule

WRONG = [(name, mistake) for name, kernel in KERNELS.items() for mistake in kernel.wrong]
FIRST = {name: next(iter(kernel.wrong)) for name, kernel in KERNELS.items()}


@pytest.mark.parametrize("name", KERNELS)
def test_right_is_clean(name: str) -> None:
    """At practice level, with right values."""
    outcome, right = checked(KERNELS[name])
    assert (outcome.status, right, outcome.hazards) == ("ok", True, [])


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["eager", "late", "random"])
@pytest.mark.parametrize("name", KERNELS)
def test_right_is_no_error_at_strict_level(name: str, schedule: Schedule) -> None:
    outcome, right = checked(KERNELS[name], None, "strict", schedule)
    assert (outcome.status, right) == ("ok", True)
    # Whether a wait of block scope meets the peer's commit, no text says (docs/rulings.md, mbarrier-scope).
    assert {h.kind.id for h in outcome.hazards} <= ({"M1"} if name == "pair" else set())
    assert not [h for h in outcome.hazards if h.severity == "error"]


@pytest.mark.parametrize(
    ("name", "mistake"),
    [pytest.param(n, m, marks=() if m == FIRST[n] else pytest.mark.slow, id=f"{n}-{m}") for n, m in WRONG],
)
def test_mistakes_are_errors(name: str, mistake: str) -> None:
    change, wanted = KERNELS[name].wrong[mistake]
    outcome, _ = checked(KERNELS[name], change)
    errors = {h.kind.id for h in outcome.hazards if h.severity == "error"} | {f.code.id for f in outcome.findings}
    assert wanted in errors
