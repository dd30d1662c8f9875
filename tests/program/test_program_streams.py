# SPDX-License-Identifier: Apache-2.0
"""Streams, events, memory of streams, and launches that depend on the one before them, in whole programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import Code
from porter.sim import Options
from porter.sim.check.rulings import Ruling
from porter.verify.program import ProgramOptions, ProgramOutcome, run_program

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def program(built: Callable[..., Path]) -> Path:
    return built(HERE / "dependent_launches.cu", "sm_90a")


def run(program: Path, *words: str, mode: Literal["functional", "checking"] = "checking") -> ProgramOutcome:
    outcome = run_program(program, words, ProgramOptions(simulator=Options(mode=mode)))
    told = ["launch cudaSuccess", "stream cudaSuccess", "right, time 1", "free cudaSuccess"]
    assert outcome.stdout.splitlines() == [*told, "twice cudaErrorInvalidValue"], outcome.stderr
    assert (outcome.exit_status, outcome.status) == (0, "ok")
    return outcome


def found(outcome: ProgramOutcome) -> set[tuple[int, str, str]]:
    """Launch, kind and remedy of all hazards."""
    outcomes = [record.outcome for record in outcome.launches]
    return {(i, h.kind.id, h.remedy) for i, o in enumerate(outcomes) if o for h in o.hazards}


NO_WAIT, LATE = "0", "2"


@pytest.mark.parametrize("words", [("wait",), ("chain",), ("event-recorded-between",), ("malloc-between",)])
def test_a_dependent_launch_that_waits_is_clean(program: Path, words: tuple[str, ...]) -> None:
    outcome = run(program, *words)
    assert outcome.launches[-1].overlaps
    assert not {h for h in found(outcome) if h[1] == "G9"}


@pytest.mark.parametrize("when", [NO_WAIT, LATE])
@pytest.mark.parametrize("mode", ["wait", "event-recorded-between", "malloc-between"])
def test_one_that_does_not_wait_in_time_is_found(program: Path, mode: str, when: str) -> None:
    assert found(run(program, mode, when)) == {(1, "G9", "griddepcontrol.wait")}


def test_a_launch_between_that_does_not_wait_hides_nothing(program: Path) -> None:
    assert (2, "G9", "griddepcontrol.wait") in found(run(program, "chain", NO_WAIT))


ENDED = [
    "not-allowed", "synchronized", "device-synchronized", "event", "memset-between", "copy-between",
    "other-stream",
]  # fmt: skip


@pytest.mark.parametrize("mode", ENDED)
def test_where_the_first_has_ended_nothing_is_found(program: Path, mode: str) -> None:
    """What comes between in the stream, or waits on the host, orders the two launches."""
    outcome = run(program, mode, NO_WAIT)
    assert not found(outcome)
    assert not outcome.launches[-1].overlaps


def test_a_grid_that_never_triggers_its_dependents_is_told_by_a_ruling(program: Path) -> None:
    outcome = run(program, "no-trigger", NO_WAIT)
    assert found(outcome) == {(1, "G9", "griddepcontrol.wait")}
    assert outcome.launches[-1].overlaps
    last = outcome.launches[-1].outcome
    assert last is not None
    assert {(h.severity, h.ruling) for h in last.hazards} == {("error", Ruling.IMPLICIT_TRIGGER)}  # strict


def test_values_are_those_of_launches_in_order(program: Path) -> None:
    run(program, "wait", mode="functional")


def hazards(program: Path, *words: str) -> tuple[int, str]:
    options, arguments = list(words[:-2]), list(words[-2:])
    done = CliRunner().invoke(main, ["hazards", str(program), *options, "--", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize("name", ["consume", "_Z7consumePKiPii"])
def test_a_kernel_is_looked_at_alone(program: Path, name: str) -> None:
    """What depends on another launch is no matter of one kernel alone."""
    assert hazards(program, "--kernel", name, "not-allowed", NO_WAIT)[0] == 0
    code, said = hazards(program, "--kernel", name, "wait", NO_WAIT)
    assert (code, "G9" in said) == (6, False)
    assert "consume may begin while produce runs" in said
    assert hazards(program, "--kernel", name, "--kernel", "produce", "wait", NO_WAIT)[0] == 5
    assert hazards(program, "--kernel", "produce", "wait", NO_WAIT)[0] == 0


def test_kernels_that_are_not_looked_at_only_run(program: Path) -> None:
    looked_at = ProgramOptions(simulator=Options(mode="checking"), looks_at=lambda kernel: "produce" in kernel)
    outcome = run_program(program, ("wait", NO_WAIT), looked_at)
    assert "right, time 1" in outcome.stdout
    assert not found(outcome)
    both = ProgramOptions(simulator=Options(mode="checking"), looks_at=lambda kernel: "consume" in kernel)
    (said,) = run_program(program, ("wait", NO_WAIT), both).diagnostics
    assert said.code is Code.KERNEL_NOT_LOOKED_AT
    assert (said.values["kernel"], said.values["earlier"]) == ("consume", "produce")


def test_a_name_that_no_launch_has_is_refused(program: Path) -> None:
    code, said = hazards(program, "--kernel", "reduce", "wait", NO_WAIT)
    assert code not in (0, 5)
    assert "produce" in said
