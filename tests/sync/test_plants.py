# SPDX-License-Identifier: Apache-2.0
"""Mistakes of each kind in programs of the corpus: what does something wrong is not proved."""

from __future__ import annotations

import pytest
from edits import NotThereError
from mistakes import PLANTS, Plant
from planting import Planted
from plants import HARMLESS, LATE, PROGRAMS, REVIEWED, SECONDS, SECONDS_LATE

from porter.facts.machine import Schedule

QUICK = ("gemm_ws", "port")
EACH = 7
"""Of the mistakes in one program each one with such a number is in `make test`, but for late ones."""
SCHEDULES = (Schedule(), Schedule(backward=True, late=True), Schedule(seed=1), Schedule(seed=2, late=True))
ALL = [(*program, plant) for program in PROGRAMS for plant in PLANTS if program in LATE or not plant.late]


def planted(kernel: str, program: str, plant: Plant) -> Planted:
    try:
        return Planted(kernel, program, plant.edit)
    except NotThereError:
        pytest.skip("it has no place for it")


def is_slow(number: int, kernel: str, program: str, plant: Plant) -> bool:
    is_right = (kernel, program, plant.name) in HARMLESS
    return (kernel, program) != QUICK or plant.late or is_right or number % EACH != 0


@pytest.mark.parametrize(("kernel", "program", "plant"), [
    pytest.param(
        kernel, program, plant, marks=[pytest.mark.slow] if is_slow(number, kernel, program, plant) else [],
        id=f"{kernel}-{program}-{plant.name}",
    )
    for number, (kernel, program, plant) in enumerate(ALL)
])  # fmt: skip
def test_what_does_something_wrong_is_not_proved(kernel: str, program: str, plant: Plant) -> None:
    with_mistake, unit = planted(kernel, program, plant), PROGRAMS[kernel, program]
    said = with_mistake.said(SECONDS_LATE if plant.late else SECONDS, unit)
    reason = HARMLESS.get((kernel, program, plant.name))
    if reason is not None:
        assert said.verdict == "strict" if reason == REVIEWED else not said.is_refused
        assert not said.elsewhere
    elif plant.late:
        assert said.verdict != "proved"
    elif not said.is_refused:
        # a proof that has not come so far names the turns that it has come to
        assert not with_mistake.is_come_to(unit) or (said.verdict == "up to" and said.elsewhere)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "program"), LATE)
def test_without_a_mistake_they_are_proved(kernel: str, program: str) -> None:
    said = Planted(kernel, program, lambda text: text).said(SECONDS_LATE, PROGRAMS[kernel, program])
    assert (said.verdict, said.elsewhere) == ("proved", ())


@pytest.mark.slow
@pytest.mark.parametrize("plant", [p for p in PLANTS if not p.late], ids=lambda plant: plant.name)
@pytest.mark.parametrize(("kernel", "program"), [("gemm_ws", "port"), ("gemm_cluster", "original")])
def test_all_schedules_give_one_verdict(kernel: str, program: str, plant: Plant) -> None:
    with_mistake = planted(kernel, program, plant)
    assert len({with_mistake.checked({}, schedule).verdict for schedule in SCHEDULES}) == 1


def test_every_kind_is_there() -> None:
    assert {plant.kind for plant in PLANTS} >= {
        "arrivals", "bytes", "waits", "shared memory", "Tensor Memory", "unwritten", "registers", "proxy", "columns",
        "setmaxnreg", "named barrier", "cluster barrier", "ended block", "deadlock",
    }  # fmt: skip
    assert sum(plant.late for plant in PLANTS) * len(LATE) >= 10
