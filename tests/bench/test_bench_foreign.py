# SPDX-License-Identifier: Apache-2.0
"""How fast kernels that Porter did not write run and are checked, as PTX with a launch (docs/benchmarks.md)."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from foreign import launches

from porter.diagnostics import PorterError
from porter.verify.backends import RunResult, SimBackend, SimOptions
from porter.verify.launch_file import PtxLaunch, load_launch

Record = Callable[[str, float, float, str], None]


@dataclass(frozen=True)
class Foreign:
    """How a kernel's launch file is written; sizes to be measured, and small ones."""

    write: Callable[..., Path]
    full: tuple[int, ...]
    small: tuple[int, ...]


KERNELS = {
    "2-CTA pair GEMM": Foreign(launches.pair, (512, 2048, 512), (512, 1024, 64)),
    "block-scaled GEMM": Foreign(launches.block_scaled, (1024, 1024, 1024), (128, 128, 512)),
    "attention": Foreign(launches.attention, (1024, 4), (256, 1)),
}
# The compiler takes half a minute for the tutorial.
NAMES = [
    pytest.param(name, marks=[pytest.mark.external, pytest.mark.slow] if "pair" in name else []) for name in KERNELS
]
pytestmark = pytest.mark.target


@pytest.fixture(scope="module", params=NAMES)
def foreign(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, PtxLaunch]]:
    """A kernel's name, its launch file, the launch."""
    kernel = KERNELS[request.param]
    full = request.config.getoption("benchmark_only", default=False)
    try:
        path = kernel.write(tmp_path_factory.mktemp("foreign"), *(kernel.full if full else kernel.small))
    except PorterError as error:
        pytest.skip(f"no CUDA compiler: {error}")
    # The collector as the command line sets it.
    before = gc.get_threshold()
    gc.set_threshold(10_000, 10, 10)
    yield request.param, path, load_launch(path)
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("mode", "options", "target"),
    [("functional", SimOptions(), 50_000), ("checking", SimOptions(checking="practice"), 20_000)],
    ids=["functional", "checking"],
)
def test_foreign_kernel(
    mode: str, options: SimOptions, target: int, foreign: tuple[str, Path, PtxLaunch], benchmark: Any, figure: Record
) -> None:
    """Everything from the parsed module to the tensors after the run."""
    name, path, launch = foreign

    def run() -> RunResult:
        return SimBackend(options).run(launch.kernel, launch.problem, launch.launch, launch.images)

    result = benchmark.pedantic(run, rounds=3)
    assert launches.right(path, launch, result), [f.message for f in result.findings]
    assert not [(h.kind.id, h.second.opcode) for h in result.hazards if h.severity == "error" or h.ruling is None]
    if benchmark.stats is not None:
        figure(f"{name}, {mode}", result.warp_instructions / benchmark.stats.stats.min, target, "warp-instructions/s")
