# SPDX-License-Identifier: Apache-2.0
"""The runtime stand-in as a program sees it, and what the parent learns of the program."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from porter.build.toolchain import Toolkit, find_host_compiler
from porter.diagnostics import Code, PorterError
from porter.ptx import arch
from porter.ptx.tensormap import TensorMap, TensorMapL2Promotion, TensorMapSwizzle, TensorMapType, TensorMapWide
from porter.sim import GlobalMemory, Options
from porter.verify.program import LaunchRecord, ProgramOptions, ProgramOutcome, run_program
from porter.verify.program.protocol import Op, Reader, Status
from porter.verify.program.runtime import CONNECTION

HERE = Path(__file__).parent

Run = Callable[..., ProgramOutcome]


@pytest.fixture(scope="session")
def program(built: Callable[..., Path]) -> Path:
    return built(HERE / "host_calls.cu", "sm_90a")


@pytest.fixture
def run(program: Path) -> Run:
    def start(*args: str, **options: object) -> ProgramOutcome:
        return run_program(program, args, ProgramOptions(**options))  # type: ignore[arg-type]

    return start


def test_results_reach_the_host(run: Run) -> None:
    outcome = run("accumulate")
    # y = 1 + 3 * 2 x for x = 0 .. 999
    assert outcome.stdout == "sync cudaSuccess\nsum 2998000.0 last 5995.0\n"
    assert outcome.exit_status == 0
    assert outcome.status == "ok"
    assert [launch.grid for launch in outcome.launches] == [(4, 1, 1)] * 3
    assert {launch.block for launch in outcome.launches} == {(256, 1, 1)}
    assert [size for _, size in outcome.allocations] == [4000, 4000]


def test_launches_that_change_memory_all_run(run: Run) -> None:
    outcome = run("accumulate")
    assert [launch.repeated for launch in outcome.launches] == [False] * 3


def test_a_launch_without_effect_is_not_simulated_again(run: Run) -> None:
    outcome = run("repeat")
    # The first changes y, the second leaves it; from then on nothing can change.
    assert [launch.repeated for launch in outcome.launches] == [False, False, True, True, True]
    assert "sum 499500.0 last 999.0" in outcome.stdout


def test_hook_sees_memory_before_and_after(run: Run) -> None:
    seen: list[tuple[str, float]] = []

    def look(when: str, record: LaunchRecord, memory: GlobalMemory) -> None:
        y = int.from_bytes(record.params[1], "little")
        seen.append((when, float(memory.read(y, 4000).view(np.float32)[999])))

    run("accumulate", on_launch=look)
    values = [1.0, 1999.0, 1999.0, 3997.0, 3997.0, 5995.0]
    assert seen == list(zip(["before", "after"] * 3, values, strict=True))


def test_copies_are_checked(run: Run) -> None:
    assert run("copies").stdout.splitlines() == [
        "fresh ffffffff",
        "past the end cudaErrorInvalidValue",
        "host as device cudaErrorInvalidValue",
        "last cudaErrorInvalidValue",
        "then cudaSuccess",
        "free twice cudaErrorInvalidValue",
        "too much memory cudaErrorMemoryAllocation",
    ]


def test_a_fault_stays(run: Run) -> None:
    outcome = run("fault")
    assert outcome.stdout.splitlines() == ["sync cudaErrorLaunchFailure", "later cudaErrorLaunchFailure"]
    assert outcome.status == "error"
    failed = outcome.launches[0].outcome
    assert failed is not None
    assert failed.findings[0].kernel.startswith("_Z14write_past_end")


def test_an_exhausted_budget_is_incomplete(run: Run) -> None:
    outcome = run("accumulate", simulator=Options(max_warp_instructions=10))
    assert outcome.status == "incomplete"
    assert "sync cudaErrorLaunchFailure" in outcome.stdout


def test_kernel_output_stands_between_the_programs(run: Run) -> None:
    assert run("print").stdout == ("before\nkernel says 7 on 900\nkernel says 7 on 900\nafter\nlast cudaSuccess\n")


def test_dynamic_shared_memory_needs_opting_in(run: Run) -> None:
    outcome = run("dynamic-shared")
    assert outcome.stdout.splitlines() == [
        "without cudaErrorInvalidValue",
        "too much cudaErrorInvalidValue",
        "with cudaSuccess",
        "first 36",
    ]
    assert len(outcome.launches) == 1


def test_cluster_attribute(run: Run) -> None:
    outcome = run("clusters", "4")
    assert outcome.stdout.splitlines() == ["launch cudaSuccess", "0 1 0 1 "]
    assert outcome.launches[0].cluster == (2, 1, 1)


def test_grid_must_be_whole_clusters(run: Run) -> None:
    outcome = run("clusters", "3")
    assert outcome.stdout.startswith("launch cudaErrorInvalidClusterSize\n")
    assert not outcome.launches


def test_tensor_map_says_what_the_program_asked_for(run: Run) -> None:
    head, text = run("tensor-map", "128").stdout.splitlines()
    found = re.fullmatch(r"result 0 address (0x[0-9a-f]+)", head)
    assert found is not None
    assert TensorMap.decode(bytes.fromhex(text)) == TensorMap(
        dtype=TensorMapType.BFLOAT16,
        address=int(found[1], 16),
        sizes=(192, 256),
        strides=(384,),
        box=(64, 128),
        swizzle=TensorMapSwizzle.B128,
        l2_promotion=TensorMapL2Promotion.B256,
    )


@pytest.mark.parametrize("form", ["im2col", "w", "w128"])
def test_tensor_maps_for_pixels(run: Run, form: str) -> None:
    head, text = run("pixel-map", form).stdout.splitlines()
    found = re.fullmatch(r"result 0 address (0x[0-9a-f]+)", head)
    assert found is not None
    wide = form != "im2col"
    assert TensorMap.decode(bytes.fromhex(text)) == TensorMap(
        dtype=TensorMapType.FLOAT16,
        address=int(found[1], 16),
        sizes=(32, 9, 7, 3),
        strides=(64, 576, 4032),
        box=(32, 128 if form == "w128" else 64),
        element_strides=(1, 2, 1, 1),
        swizzle=TensorMapSwizzle.B64 if wide else TensorMapSwizzle.NONE,
        lower=(-1,) if wide else (-1, -2),
        upper=(1,) if wide else (1, 0),
        wide={"im2col": None, "w": TensorMapWide.W, "w128": TensorMapWide.W128}[form],
    )


def test_a_map_for_pixels_of_rows_needs_a_swizzle(run: Run) -> None:
    assert run("pixel-map", "unswizzled").stdout.startswith("result 1 ")


def test_illegal_tensor_map_is_refused(run: Run) -> None:
    assert run("tensor-map", "257").stdout.startswith("result 1 ")


def test_device_is_that_of_the_programs_code(run: Run) -> None:
    outcome = run("device", multiprocessors=5)
    optin = arch.limits("sm_90a").shared_per_block
    assert outcome.stdout.splitlines() == [
        f"count 1 capability 9.0 shared {optin} threads 1024 multiprocessors 5",
        "bound 64 second device cudaErrorInvalidDevice",
    ]


def test_device_can_be_another_chip(run: Run) -> None:
    assert "capability 10.0" in run("device", target="sm_100a").stdout


def test_events(run: Run) -> None:
    assert run("events").stdout == "unrecorded cudaErrorInvalidResourceHandle\npositive 1\n"


@pytest.mark.parametrize(
    ("mode", "function", "printed"),
    [("graph", "cudaGraphCreate", ""), ("driver", "cuCtxPopCurrent", "looked up\n")],
)
def test_an_unanswered_call_names_itself_and_stops(run: Run, mode: str, function: str, printed: str) -> None:
    outcome = run(mode)
    assert outcome.stdout == printed
    assert function in outcome.stderr
    assert outcome.exit_status == 126
    assert outcome.status == "incomplete"
    assert [(d.code, d.values) for d in outcome.diagnostics] == [(Code.PROGRAM_UNANSWERED, {"function": function})]


def test_launches_share_variables(run: Run) -> None:
    once, twice = run("variable", "1"), run("variable", "2")
    assert (once.stdout, once.status) == ("counted 4\n", "ok")
    assert (twice.stdout, twice.status) == ("counted 5\n", "ok")


def test_exit_status_is_the_programs(run: Run) -> None:
    assert run().exit_status == 3


def test_a_silent_program_is_ended(run: Run) -> None:
    with pytest.raises(PorterError) as caught:
        run("silent", timeout=0.5)
    assert caught.value.diagnostic.code is Code.PROGRAM_TIMEOUT


def test_no_such_program(tmp_path: Path) -> None:
    with pytest.raises(PorterError) as caught:
        run_program(tmp_path / "absent")
    assert caught.value.diagnostic.code is Code.FILE_NOT_FOUND


def test_a_program_without_the_runtime(tmp_path: Path, toolkit: Toolkit) -> None:
    source = tmp_path / "plain.c"
    source.write_text("int main(void) { return 4; }\n")
    plain = tmp_path / "plain"
    subprocess.run([find_host_compiler().path, "-x", "c", source, "-o", plain], check=True)
    with pytest.raises(PorterError) as caught:
        run_program(plain)
    assert caught.value.diagnostic.code is Code.PROGRAM_NOT_CONNECTED


def test_code_for_another_chip_is_named(run: Run) -> None:
    outcome = run("print", target="sm_100a")
    assert outcome.stdout == "before\nafter\nlast cudaErrorNoKernelImageForDevice\n"
    assert [d.code for d in outcome.diagnostics] == [Code.PROGRAM_NO_PTX]
    assert "sm_90a" in outcome.diagnostics[0].message
    assert outcome.status == "incomplete"


@pytest.mark.parametrize(("target", "expected"), [(None, 1000), ("sm_100a", 1000), ("sm_90a", 900)])
def test_a_program_for_two_chips(built: Callable[..., Path], target: str | None, expected: int) -> None:
    flags = ("-gencode=arch=compute_100a,code=compute_100a",)
    program = built(HERE / "host_calls.cu", "sm_90a", flags=flags)
    outcome = run_program(program, ["print"], ProgramOptions(target=target))
    assert f"kernel says 7 on {expected}" in outcome.stdout


def test_both_ends_number_requests_alike() -> None:
    body = re.search(r"enum class Op : uint32_t \{(.*?)\};", CONNECTION.read_text("utf-8"), re.DOTALL)
    assert body is not None
    names = re.findall(r"(\w+)(?: = (\d+))?,", body[1])
    assert names[0][1] == "1"
    assert [n.upper() for n, _ in names] == [op.name for op in sorted(Op)]
    assert [int(op) for op in sorted(Op)] == list(range(1, len(names) + 1))


def test_statuses_are_the_toolkits(toolkit: Toolkit) -> None:
    header = (toolkit.include_dir / "driver_types.h").read_text("utf-8", "replace")
    numbers = dict(re.findall(r"\b(cudaSuccess|cudaError\w+)\s*=\s*(\d+)", header))
    by_number = {int(number): name for name, number in numbers.items()}
    for status in Status:
        spelled = "cudaSuccess" if status is Status.SUCCESS else f"cudaError{status.name.replace('_', '')}"
        assert by_number[status].lower().startswith(spelled.lower())


def test_a_short_request_is_an_error() -> None:
    with pytest.raises(ValueError, match="ends after 3 bytes"):
        Reader(b"abc").u32()
