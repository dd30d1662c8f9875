# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Hopper tutorials in CuTe C++, ported without an edit by hand and run whole: their results are right, and
nothing in them is a hazard that the originals lack.

The inputs are -1 and 1, so every sum is exact in the accumulator and the float64 reference must be met bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from kept_sources import kept

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.sim import GlobalMemory, Options
from porter.verify.backends import simulator_options
from porter.verify.hazards import OneRun, check_runs
from porter.verify.outcome import Verdict
from porter.verify.program import LaunchHook, LaunchRecord, ProgramOptions, ProgramOutcome, run_program
from porter.verify.program.results import as_run
from porter.verify.settings import SimOptions

pytestmark = pytest.mark.external

Matrix = npt.NDArray[np.float64]
Build = Callable[..., Path]
NAMES = [
    pytest.param("wgmma_tma_sm90"),
    pytest.param("wgmma_sm90", marks=pytest.mark.slow),
]
"""Tutorials, in which one warpgroup has two m64 tiles."""
SHAPES = [(256, 128, 256), (512, 128, 192), (256, 256, 320)]
"""M, N, K; a cluster of the second tutorial has 256 rows, and no tutorial looks for edges."""


def cutlass() -> Path:
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "source"


@pytest.fixture(scope="module")
def ported(built: Build) -> Callable[[str], Path]:
    """The executable of a tutorial's port."""
    root = cutlass()

    def build(name: str) -> Path:
        source = root / "examples/cute/tutorial/hopper" / f"{name}.cu"
        result = port_sources(load_sources(source))
        assert result.exit_code is ExitCode.OK, result.diagnostics
        folder = kept({Path(path).name: text for path, text in result.files.items()})
        return built(folder / f"{name}.cu", "sm_100a", (root / "include", root / "tools/util/include"))

    return build


def run(program: Path, args: list[str], simulator: Options, on_launch: LaunchHook | None = None) -> ProgramOutcome:
    return run_program(program, args, ProgramOptions(simulator, on_launch=on_launch))


@pytest.mark.spread(6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["NT", "TN"])
@pytest.mark.parametrize("name", NAMES)
def test_results_of_the_port(
    name: str, layout: str, shape: tuple[int, int, int], ported: Callable[[str], Path]
) -> None:
    m, n, k = shape
    seen: list[dict[str, Matrix]] = []

    def look(when: str, record: LaunchRecord, memory: GlobalMemory) -> None:
        if when == "before" or "gemm_device" not in record.kernel or record.repeated:
            return
        found = {}
        for (letter, extents), (address, size) in zip(
            {"A": (m, k), "B": (n, k), "C": (m, n)}.items(), record.allocations, strict=True
        ):
            flat = memory.read(address, size).view(np.float16).astype(np.float64)
            row_major = layout == "TN" and letter != "C"
            found[letter] = flat.reshape(extents) if row_major else flat.reshape(extents[::-1]).T
        seen.append(found)

    outcome = run(ported(name), [*map(str, shape), *layout], Options(schedule="random"), look)

    assert outcome.status == "ok", [str(f) for r in outcome.launches if r.outcome for f in r.outcome.findings]
    assert outcome.exit_status == 0, outcome.stderr
    assert seen
    for matrices in seen:
        assert np.unique(matrices["A"]).size > 1
        np.testing.assert_array_equal(matrices["C"], matrices["A"] @ matrices["B"].T)


LEFT_OUT = {
    "wgmma_sm90": set[str](),
    "wgmma_tma_sm90": {"H21", "X1"},  # as in the original: its last loads are in flight when the block ends
}


@pytest.mark.parametrize("schedule", ["late", "random"])
@pytest.mark.parametrize("name", NAMES)
def test_no_hazard_that_the_original_lacks(name: str, schedule: str, ported: Callable[[str], Path]) -> None:
    program = ported(name)

    def once(settings: SimOptions) -> OneRun:
        return as_run(run(program, ["256", "128", "256", "N", "T"], simulator_options(settings)))

    found = check_runs(once, name, "program", "", "sm_100a", "strict", SimOptions(schedule=schedule), [3])
    assert {h.kind.id for h in found.hazards} <= LEFT_OUT[name.partition(" ")[0]], [
        (h.kind.id, h.second.opcode, h.missing) for h in found.hazards
    ]
    assert found.verdict is not Verdict.INCOMPLETE
