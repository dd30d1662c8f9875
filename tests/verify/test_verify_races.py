# SPDX-License-Identifier: Apache-2.0
"""An original whose values depend on the schedule has a race, which its port is not blamed for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes_verify import FakeBackend, FakeBuilder, gemm, write_case

from porter.build.port_plan import PortPlan
from porter.diagnostics import Code, ExitCode
from porter.report.exits import verification_exit
from porter.verify.case import DslSpec, load_case
from porter.verify.outcome import Verdict
from porter.verify.results import VerifyResult
from porter.verify.runner import Again, VerifyOptions, verify
from porter.verify.settings import SimOptions
from porter.verify.sweep import other_schedules

PORT = PortPlan(source=Path("ported.cu"))


def wrong(t: dict[str, np.ndarray]) -> None:
    gemm(t)
    t["C"][3, 5] += 1


def run(tmp_path: Path, late, random, families=("integers",), port=True, others=None, schedule="late") -> VerifyResult:
    """`late` and `random` are the (original, port) that the usual and the second schedule make of them."""
    backend, again = FakeBackend(*late), (Again(FakeBackend(*random)),) if random else ()
    under = None if others is None else lambda name: FakeBackend(others[name], gemm)
    options = VerifyOptions(families, again=again, under=under, schedule=schedule)
    return verify(load_case(write_case(tmp_path)), PORT if port else None, FakeBuilder(), backend, options)


def codes(result: VerifyResult) -> list[Code]:
    return [d.code for row in result.rows for d in row.diagnostics]


@pytest.mark.parametrize("port", [gemm, wrong, "error"])
@pytest.mark.parametrize("original", [wrong, "error"])
def test_a_schedule_that_changes_the_originals_values_shows_its_race(tmp_path: Path, original, port) -> None:
    result = run(tmp_path, (gemm, gemm), (original, port))
    assert codes(result) == [Code.ORIGINAL_RACES]
    assert [r.verdict for r in result.rows] == [Verdict.CLEAN, Verdict.REVIEW]
    assert verification_exit(result) is ExitCode.OK
    (found,) = result.rows[1].diagnostics
    assert "random schedule" in found.message
    assert "porter hazards" in found.code.value.next_step


def test_a_schedule_that_changes_only_the_ports_values_is_the_ports_mistake(tmp_path: Path) -> None:
    result = run(tmp_path, (gemm, gemm), (gemm, wrong))
    assert codes(result) == [Code.PORT_DIFFERS]
    assert verification_exit(result) is ExitCode.DIFFERENT


def test_what_did_not_end_for_lack_of_budget_is_no_race(tmp_path: Path) -> None:
    result = run(tmp_path, (gemm, gemm), ("incomplete", gemm))
    assert codes(result) == [Code.RUN_INCOMPLETE]
    assert verification_exit(result) is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("original", [wrong, "error"])
def test_an_original_that_is_right_under_another_schedule_gives_no_verdict(tmp_path: Path, original) -> None:
    result = run(tmp_path, (original, wrong), None, others={"eager": gemm})
    assert codes(result) == [Code.ORIGINAL_RACES]
    assert verification_exit(result) is ExitCode.INCONCLUSIVE
    result = run(tmp_path, (original, gemm), None, others={"eager": wrong, "late": gemm}, schedule="random")
    assert codes(result) == [Code.ORIGINAL_RACES]


def test_an_original_that_is_wrong_under_every_schedule_is_wrong(tmp_path: Path) -> None:
    result = run(tmp_path, (wrong, wrong), None, others={"eager": wrong})
    assert codes(result) == [Code.ORIGINAL_DIFFERS]
    assert verification_exit(result) is ExitCode.DIFFERENT


# Ports of CuTe DSL kernels ------------------------------------------------------------------------------------


def dsl_run(tmp_path: Path, *others, families=("integers",), dsl=True, port=True) -> VerifyResult:
    """`others` are what eager and random schedules make of the port."""
    case = load_case(write_case(tmp_path))
    names = [("eager", None), *(("random", seed) for seed in range(len(others)))]
    again = tuple(Again(FakeBackend(gemm, p), *name) for p, name in zip(others, names, strict=False))
    options = VerifyOptions(families, again=again)
    case = replace(case, dsl=DslSpec({}, ()) if dsl else None)
    return verify(case, PORT if port else None, FakeBuilder(), FakeBackend(gemm, gemm), options)


def test_a_dsl_port_runs_under_every_schedule_whatever_inputs_are_asked_for(tmp_path: Path) -> None:
    def schedules(**more) -> list[str]:
        return [row.inputs for row in dsl_run(tmp_path, gemm, gemm, gemm, **more).rows]

    rest = ["eager schedule", "random schedule", "random schedule, seed 1"]
    assert schedules() == ["integers", *(f"integers, {name}" for name in rest)]
    assert schedules(families=("normal",)) == ["normal", *(f"normal, {name}" for name in rest)]
    assert schedules(families=("normal",), dsl=False) == ["normal"]
    assert schedules(families=("normal",), port=False) == ["normal"]


def test_a_mistake_that_one_seed_shows_is_found_and_ends_the_search(tmp_path: Path) -> None:
    result = dsl_run(tmp_path, gemm, wrong, gemm, families=("normal",))
    assert codes(result) == [Code.PORT_DIFFERS]
    assert [row.schedule_seed for row in result.rows] == [None, None, 0]
    assert verification_exit(result) is ExitCode.DIFFERENT


@pytest.mark.parametrize("usual", [("late", 3), ("eager", 3), ("random", 3)])
def test_the_schedules_of_a_dsl_port_are_all_there_are_with_two_seeds(usual) -> None:
    settings = SimOptions(schedule=usual[0], seed=usual[1])
    found = {(a.schedule, a.seed) for a in other_schedules(True, settings)}
    assert found | {usual if usual[0] == "random" else (usual[0], None)} == {
        ("late", None), ("eager", None), ("random", 3), ("random", 4),
    }  # fmt: skip
    assert len(other_schedules(False, settings)) == (usual[0] != "random")
