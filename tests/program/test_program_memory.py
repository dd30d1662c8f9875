# SPDX-License-Identifier: Apache-2.0
"""Variables, managed and registered memory, cooperative launches and driver calls of programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from porter.build.toolchain import Toolkit
from porter.diagnostics import Code
from porter.sim import Options
from porter.verify.program import ProgramOptions, ProgramOutcome, run_program

Run = Callable[..., ProgramOutcome]


@pytest.fixture(scope="session")
def program(built: Callable[..., Path], toolkit: Toolkit) -> Path:
    return built(Path(__file__).parent / "host_memory.cu", "sm_90a", libraries=("cuda",))


@pytest.fixture
def run(program: Path) -> Run:
    def start(*args: str, **options: object) -> ProgramOutcome:
        return run_program(program, args, ProgramOptions(**options))  # type: ignore[arg-type]

    return start


def test_variables_keep_what_launches_and_copies_leave_in_them(run: Run) -> None:
    outcome = run("symbols")
    assert outcome.stdout.splitlines() == [
        "counted 5",
        "then 11 of 4 bytes",
        "factors 1 20 30 4",
        "past the end cudaErrorInvalidValue",
    ]
    assert outcome.status == "ok"
    # Variables are none of the program's allocations.
    assert [size for _, size in outcome.allocations] == [4, 16]
    begun = [{name for name in ("counter", "factors") if name in launch.as_begun} for launch in outcome.launches]
    assert begun == [{"counter", "factors"}, {"factors"}, {"factors"}, set()]


def test_managed_variables_are_the_hosts_too(run: Run) -> None:
    assert run("managed").stdout == "managed 43\n"


def test_registered_memory_is_one_for_host_and_device(run: Run) -> None:
    outcome = run("registered")
    assert outcome.stdout.splitlines() == [
        "before cudaErrorInvalidValue",
        "register cudaSuccess",
        "again cudaErrorHostMemoryAlreadyRegistered",
        "doubled 2 5998",
        "unregister cudaSuccess 200",
        # No longer the device's: the kernel faults, and the host's copy stays.
        "later cudaErrorLaunchFailure 200",
    ]


@pytest.mark.parametrize("mode", ["functional", "checking"])
def test_blocks_of_a_cooperative_launch_wait_for_each_other(run: Run, mode: str) -> None:
    simulator = Options(mode=mode, level="practice", resident=2)  # type: ignore[arg-type]
    outcome = run("cooperative", "6", simulator=simulator)
    assert outcome.stdout == "launch cudaSuccess\nsums 63 63\n"
    assert outcome.launches[0].cooperative
    assert outcome.launches[0].outcome is not None
    assert not [h for h in outcome.launches[0].outcome.hazards if h.severity == "error"]


def test_a_cooperative_launch_that_does_not_fit_is_refused(run: Run) -> None:
    outcome = run("cooperative", "65", multiprocessors=2)
    assert outcome.stdout.splitlines()[0] == "launch cudaErrorCooperativeLaunchTooLarge"
    assert not outcome.launches


def test_rows_with_a_pitch(run: Run) -> None:
    assert run("pitched").stdout == "pitch 1 value 7 gap ff\n"


def test_host_functions_run(run: Run) -> None:
    assert run("host-function").stdout == "seen 5\n"


def test_the_driver_library_answers_beside_the_runtime(run: Run) -> None:
    outcome = run("driver", multiprocessors=3)
    assert outcome.stdout.splitlines() == [
        "0 0 3 multiprocessors of Porter simulated sm_90, 2468 2222 2468",
        "free 0 twice 1",
    ]
    assert outcome.status == "ok"


def test_a_driver_call_that_is_not_answered_names_itself(run: Run) -> None:
    outcome = run("module")
    assert (outcome.stdout, outcome.exit_status, outcome.status) == ("", 126, "incomplete")
    assert [(d.code, d.values) for d in outcome.diagnostics] == [
        (Code.PROGRAM_UNANSWERED, {"function": "cuModuleLoad"})
    ]
