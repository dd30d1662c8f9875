# SPDX-License-Identifier: Apache-2.0
"""The speeds that the simulator is to reach (docs/benchmarks.md says how each is measured)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.build.toolchain import find_toolkit
from porter.diagnostics import PorterError
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, accumulators, pack_params, simulate
from porter.verify.backends import RunResult, SimBackend, SimOptions
from porter.verify.builder import BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import Problem, bind

HERE = Path(__file__).resolve().parent
CASE = HERE.parents[1] / "corpus" / "gemm_ws" / "case.yaml"
FULL = {"M": 1024, "N": 1024, "K": 512}
SMALL = {"M": 128, "N": 128, "K": 64}
Record = Callable[[str, float, float, str], None]

pytestmark = pytest.mark.target


class Gemm:
    """The warp-specialized GEMM of the corpus: full size to be measured, else small."""

    def __init__(self, full: bool) -> None:
        case = load_case(CASE)
        self.sizes = FULL if full else SMALL
        self.problem: Problem = bind(case, self.sizes)
        try:
            self.kernel: BuiltKernel = ToolkitBuilder().build(self.problem, case.kernel, "sm_90a")
        except PorterError as error:
            pytest.skip(f"no CUDA compiler: {error}")
        inputs = generate(self.problem, choose(None, self.problem)[0], seed=0)
        tensors = self.problem.tensors.items()
        self.images = {key: make_image(tensor, inputs.get(key), SimBackend.guard) for key, tensor in tensors}
        self.want = np.asarray(inputs["A"], np.float64) @ np.asarray(inputs["B"], np.float64).T

    @property
    def macs(self) -> int:
        return self.sizes["M"] * self.sizes["N"] * self.sizes["K"]

    def run(self, options: SimOptions) -> RunResult:
        return SimBackend(options).run(self.kernel, self.problem, self.kernel.launch(self.problem), self.images)

    def check(self, result: RunResult) -> None:
        assert result.status == "ok"
        assert not result.hazards
        got = np.frombuffer(result.after["C"].data.tobytes(), np.float32).reshape(self.want.shape)
        np.testing.assert_allclose(got, self.want, rtol=1e-4, atol=1e-4 * np.abs(self.want).max())


@pytest.fixture(scope="module")
def gemm(request: pytest.FixtureRequest) -> Gemm:
    return Gemm(bool(request.config.getoption("benchmark_only", default=False)))


@pytest.mark.parametrize(
    ("name", "options", "target", "rounds"),
    [
        ("functional mode", SimOptions(), 1_000_000, 7),
        ("checking mode", SimOptions(checking="strict"), 50_000, 3),
    ],
    ids=["functional", "checking"],
)
def test_instructions(
    name: str, options: SimOptions, target: int, rounds: int, gemm: Gemm, benchmark: Any, figure: Record
) -> None:
    """Everything from the parsed module to the tensors after the run."""
    result = benchmark.pedantic(gemm.run, (options,), rounds=rounds, warmup_rounds=1)
    gemm.check(result)
    if benchmark.stats is not None:
        figure(name, result.warp_instructions / benchmark.stats.stats.min, target, "warp-instructions/s")


def test_exact_arithmetic(gemm: Gemm, benchmark: Any, figure: Record) -> None:
    """Everything from the parsed module to the tensors after the run."""
    result = benchmark.pedantic(gemm.run, (SimOptions(arithmetic="exact"),), rounds=3, warmup_rounds=1)
    gemm.check(result)
    if benchmark.stats is not None:
        figure("bit-exact arithmetic, whole run", gemm.macs / benchmark.stats.stats.min / 1e6, 100, "M MAC/s")


def test_float64_arithmetic(gemm: Gemm, benchmark: Any, figure: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensor cores of a run: from descriptors, shared memory and accumulators to rounded accumulators."""
    spent: list[float] = []
    inner = accumulators.compute

    def compute(fragments: list[accumulators.Fragment]) -> None:
        start = time.process_time()
        inner(fragments)
        spent[-1] += time.process_time() - start

    monkeypatch.setattr(accumulators, "compute", compute)

    def run() -> RunResult:
        spent.append(0.0)
        return gemm.run(SimOptions())

    gemm.check(benchmark.pedantic(run, rounds=7, warmup_rounds=1))
    assert all(seconds > 0 for seconds in spent)
    if benchmark.stats is not None:
        figure("float64 arithmetic, tensor cores", gemm.macs / min(spent) / 1e9, 5, "G MAC/s")


def test_beside_numba(benchmark: Any, figure: Record, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A tiled matrix product with shared memory and barriers, the same grid and blocks. Here from PTX text on."""
    if importlib.util.find_spec("numba") is None:
        pytest.skip("numba is not installed")
    try:
        toolkit = find_toolkit()
    except PorterError as error:
        pytest.skip(f"no CUDA compiler: {error}")
    n = 96 if request.config.getoption("benchmark_only", default=False) else 16
    ptx = tmp_path / "tiled_gemm.ptx"
    command = [toolkit.nvcc, "-arch=sm_90a", "-ptx", "-I", toolkit.include_dir, "-o", ptx, HERE / "tiled_gemm.cu"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    text = ptx.read_text()
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    memory = GlobalMemory()
    places = [memory.alloc(4 * n * n) for _ in range(3)]
    for place, matrix in zip(places, (a, b), strict=False):
        memory.write(place, matrix.view(np.uint8).reshape(-1))

    def run() -> str:
        module = parse_module(text)
        params = pack_params(module.function("tiled_gemm"), [*places, n])
        launch = Launch((n // 16, n // 16, 1), (16, 16, 1))
        return simulate(module, "tiled_gemm", launch, params, memory).status

    assert benchmark.pedantic(run, rounds=5, warmup_rounds=1) == "ok"
    np.testing.assert_array_equal(memory.read(places[2], 4 * n * n).view(np.float32).reshape(n, n), a @ b)
    child = subprocess.run(
        [sys.executable, str(HERE / "tiled_gemm_numba.py"), str(n)],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    theirs = json.loads(child.stdout)
    assert theirs["error"] == 0
    if benchmark.stats is not None:
        figure("against numba's CUDA simulator", theirs["seconds"] / benchmark.stats.stats.min, 100, "times")
