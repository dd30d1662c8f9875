# SPDX-License-Identifier: Apache-2.0
"""What a proof says does not depend on the schedule in which the one execution behind it went."""

from __future__ import annotations

import pytest
import sm100_idiom_kernels
import sm100_idiom_loads
import sm100_reported
from beside_runs import launched_by
from sm100_idioms import checked

from porter.facts.machine import Schedule
from porter.sync.checked import Verdict, check

KERNELS = {**sm100_idiom_kernels.KERNELS, **sm100_idiom_loads.KERNELS, **sm100_reported.KERNELS}
SCHEDULES = {
    "forward, work lands at once": Schedule(),
    "backward, work lands late": Schedule(backward=True, late=True),
    "shuffled": Schedule(seed=1),
    "shuffled, work lands late": Schedule(seed=2, late=True),
}
PLANTED = [(name, mistake) for name in sorted(KERNELS.keys() - {"dependent"}) for mistake in ("", *KERNELS[name].wrong)]
"""What "dependent" runs first is another kernel."""


def answers(name: str, mistake: str, monkeypatch: pytest.MonkeyPatch) -> dict[object, list[str]]:
    """What is said, and under which schedules. What else follows from a mistake depends on who comes first."""
    what = KERNELS[name].wrong[mistake][0] if mistake else None
    launched = launched_by(monkeypatch, lambda: checked(KERNELS[name], what))
    found: dict[object, list[str]] = {}
    for schedule, chosen in SCHEDULES.items():
        said = check(launched, chosen)
        is_wrong = said.verdict is Verdict.ERROR
        kinds = frozenset() if is_wrong else frozenset((f.level, f.kind, f.first, f.second) for f in said.findings)
        found.setdefault((said.verdict, kinds, "" if is_wrong else said.unknown), []).append(schedule)
    return found


@pytest.mark.spread(6)
@pytest.mark.parametrize(
    ("name", "mistake"), PLANTED, ids=[f"{name}-{mistake or 'right'}" for name, mistake in PLANTED]
)
def test_all_schedules_give_one_answer(name: str, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(name, mistake, monkeypatch)
    assert len(found) == 1, found
