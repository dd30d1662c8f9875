# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own tutorials for Hopper and Blackwell run whole, and their results are right.

The inputs are small integers, so every sum is exact in the accumulator and the float64 reference must be met
bit for bit. The programs' own checks are not relied on: NaN passes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from known_kernels import record
from starts import hopper_tutorial, start

from porter.cli.main import main
from porter.sim import GlobalMemory, Options
from porter.sim.results import Schedule
from porter.verify.backends import simulator_options
from porter.verify.hazards import OneRun, check_runs
from porter.verify.outcome import Verdict
from porter.verify.program import LaunchHook, LaunchRecord, ProgramOptions, ProgramOutcome, run_program
from porter.verify.program.results import as_run
from porter.verify.settings import SimOptions

pytestmark = pytest.mark.external

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tutorial:
    """`order` names the program's allocations, `row_major` the matrices whose second index runs fastest."""

    source: str
    arch: str
    args: tuple[str, ...]
    sizes: tuple[int, int, int]
    order: str
    row_major: str
    result: str
    result_type: type[np.floating]


HOPPER = partial(Tutorial, arch="sm_90a", order="ABC", result="C", result_type=np.float16)
BLACKWELL = partial(
    Tutorial, arch="sm_100a", args=(), order="DABC", result="D", result_type=np.float32, row_major="ABCD"
)

TUTORIALS = {
    "wgmma_sm90": HOPPER("hopper/wgmma_sm90.cu", args=("N", "T"), sizes=(256, 128, 256), row_major=""),
    "wgmma_sm90-TN": HOPPER("hopper/wgmma_sm90.cu", args=("T", "N"), sizes=(128, 256, 192), row_major="AB"),
    "wgmma_tma_sm90": HOPPER("hopper/wgmma_tma_sm90.cu", args=("N", "T"), sizes=(256, 128, 256), row_major=""),
    "wgmma_tma_sm90-TN": HOPPER("hopper/wgmma_tma_sm90.cu", args=("T", "N"), sizes=(256, 256, 192), row_major="AB"),
    "01_mma_sm100": BLACKWELL("blackwell/01_mma_sm100.cu", sizes=(256, 512, 128)),
    "02_mma_tma_sm100": BLACKWELL("blackwell/02_mma_tma_sm100.cu", sizes=(256, 256, 192)),
    # Clusters of 4 x 4 blocks, in the last two of them pairs that share an MMA.
    "03_mma_tma_multicast_sm100": BLACKWELL("blackwell/03_mma_tma_multicast_sm100.cu", sizes=(512, 1024, 128)),
    "04_mma_tma_2sm_sm100": BLACKWELL("blackwell/04_mma_tma_2sm_sm100.cu", sizes=(512, 1024, 192)),
    "05_mma_tma_epi_sm100": BLACKWELL("blackwell/05_mma_tma_epi_sm100.cu", sizes=(512, 1024, 128)),
}


def cutlass() -> Path:
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "source"


# Each source takes some 20 s to compile the first time, so only the port of one always runs.
NAMES = [pytest.param(name, marks=pytest.mark.slow) for name in TUTORIALS]
SECONDS = 120
"""Of processor time: what a run may take at the sizes chosen."""

Build = Callable[..., Path]


def run(tutorial: Tutorial, simulator: Options, built: Build, on_launch: LaunchHook | None = None) -> ProgramOutcome:
    root = cutlass()
    executable = built(
        root / "examples/cute/tutorial" / tutorial.source,
        tutorial.arch,
        (root / "include", root / "tools/util/include"),
    )
    args = [*map(str, tutorial.sizes), *tutorial.args]
    return run_program(executable, args, ProgramOptions(simulator, on_launch=on_launch))


@pytest.mark.parametrize(
    "schedule", ["late", pytest.param("eager", marks=pytest.mark.slow), pytest.param("random", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", NAMES)
def test_tutorial(name: str, schedule: Schedule, built: Build) -> None:
    tutorial = TUTORIALS[name]
    extents = dict(zip("MNK", tutorial.sizes, strict=True))
    shapes = {"A": "MK", "B": "NK", "C": "MN", "D": "MN"}
    types = {"A": np.float16, "B": np.float16, "C": tutorial.result_type, "D": tutorial.result_type}
    seen: list[dict[str, Matrix]] = []

    def look(when: str, record: LaunchRecord, memory: GlobalMemory) -> None:
        if when == "before" or "gemm_device" not in record.kernel or record.repeated:
            return
        matrices = {}
        for letter, (address, size) in zip(tutorial.order, record.allocations, strict=True):
            rows, columns = (extents[axis] for axis in shapes[letter])
            dtype = np.dtype(types[letter])
            assert size == rows * columns * dtype.itemsize
            flat = memory.read(address, size).view(dtype).astype(np.float64)
            row_major = letter in tutorial.row_major
            matrices[letter] = flat.reshape(rows, columns) if row_major else flat.reshape(columns, rows).T
        seen.append(matrices)

    started = time.process_time()
    outcome = run(tutorial, Options(schedule=schedule), built, look)

    assert outcome.status == "ok", [str(f) for r in outcome.launches if r.outcome for f in r.outcome.findings]
    assert outcome.exit_status == 0, outcome.stderr
    assert time.process_time() - started < SECONDS
    assert seen
    for matrices in seen:
        a, b = matrices["A"], matrices["B"]
        assert np.unique(a).size > 1
        assert np.unique(b).size > 1
        expected = a @ b.T
        assert np.abs(expected).max() < 2048  # exact in float16 too
        np.testing.assert_array_equal(matrices[tutorial.result], expected)
    if tutorial.arch == "sm_100a":
        assert "Execution is successful." in outcome.stdout
        assert "? yes" not in outcome.stdout  # "Did we encounter NaN in …?"


# What the PTX ISA asks for and the tutorials leave out; where, `porter hazards` says. All of it is common practice.
LEFT_OUT = {
    "wgmma_sm90": {
        "H16",  # fence.proxy.async between cp.async and wgmma
        "H17",  # a barrier behind cp.async.wait_group: each warp waits for its own part, and the four meet in wgmma
    },
    "wgmma_tma_sm90": {"H21", "X1"},  # X1: the pipeline's last loads are in flight when the block ends
    "sm100": {"H1", "H14", "H15", "H16", "H21", "H31", "L1", "L2"},
}


@pytest.mark.parametrize("schedule", ["late", "random"])
@pytest.mark.parametrize("name", NAMES)
def test_tutorial_in_checking_mode(name: str, schedule: Schedule, built: Build) -> None:
    outcomes: list[ProgramOutcome] = []
    started = time.process_time()

    def once(settings: SimOptions) -> OneRun:
        outcomes.append(run(TUTORIALS[name], simulator_options(settings), built))
        return as_run(outcomes[-1])

    arch = TUTORIALS[name].arch
    found = check_runs(once, name, "program", "", arch, "practice", SimOptions(schedule=schedule), [3])
    assert found.verdict in (Verdict.CLEAN, Verdict.REVIEW), [
        (h.kind.id, h.second.opcode, h.missing) for h in found.hazards if h.severity == "error"
    ]
    key = "sm100" if arch == "sm_100a" else name.partition("-")[0]
    assert {h.kind.id for h in found.hazards} <= LEFT_OUT[key]
    assert all(h.ruling is not None for h in found.hazards)
    assert outcomes[0].exit_status == 0
    assert time.process_time() - started < SECONDS
    if arch == "sm_100a":
        assert "Relative error: 0.000000e+00" in outcomes[0].stdout
        done = [r.outcome for r in outcomes[0].launches if r.outcome and "gemm_device" in r.kernel]
        size = " x ".join(map(str, TUTORIALS[name].sizes))
        record("NVIDIA, CUTLASS tutorials", name, size, done[0].stats.warp_instructions, found.hazards)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "hazards"])
def test_the_second_run_starts_at_once(command: str, tmp_path: Path) -> None:
    """The compilers are asked for their versions only, and nothing is imported that makes ports. The bound is wide,
    as machines differ; `make bench` measures against one second."""
    folders, source = hopper_tutorial()
    first, second = (start(command, source, folders, ("64", "64", "64", "N", "T"), tmp_path) for _ in range(2))
    for done in (first, second):
        *before, program = done.programs
        assert Path(program).stem == "wgmma_tma_sm90"
        assert set(before) <= {"nvcc", "g++", "clang++", "c++"}
        assert not done.with_engine
    # The first may have compiled and linked the program.
    assert len(second.programs) - 1 <= 3
    assert second.seconds < 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wgmma_sm90", "wgmma_tma_sm90"])
@pytest.mark.parametrize("style", ["auto", "idiomatic"])
def test_hopper_tutorials_come_out_in_words_of_sm100(name: str, style: str, tmp_path: Path) -> None:
    """Their main() launches their kernels, whose types and parameters the port changes; nothing stands beside it."""
    folders, tutorial = hopper_tutorial()
    source = tutorial.with_stem(name)
    words = [word for folder in folders for word in ("-I", str(folder))]
    done = CliRunner().invoke(
        main, ["port", "--trust", "--style", style, *words, str(source), "-o", str(tmp_path / "port")]
    )
    assert done.exit_code == 0, done.output
    assert "PT2543" in done.output
    (written,) = (tmp_path / "port").rglob("*.cu*")
    text = written.read_text()
    assert "SM100_MMA_F16BF16_SS" in text
    assert "porter" not in text.lower()
