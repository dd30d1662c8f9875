# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator runs the corpus: `make bench`. As an ordinary test each kernel only has to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from corpus_kernels import CASES, compiled

from porter.verify.backends import SimBackend, SimOptions
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import bind


@pytest.mark.spread(14)
@pytest.mark.parametrize("path", compiled(CASES))
def test_original(path: Path, benchmark: Any) -> None:
    case = load_case(path)
    problem = bind(case)
    kernel = ToolkitBuilder().build(problem, case.kernel, "sm_90a")
    inputs = generate(problem, choose(None, problem)[0], seed=0)
    backend = SimBackend(SimOptions())

    def run() -> Any:
        tensors = problem.tensors.items()
        images = {key: make_image(tensor, inputs.get(key), backend.guard) for key, tensor in tensors}
        return backend.run(kernel, problem, kernel.launch(problem), images)

    result = benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    assert result.status == "ok"
    if benchmark.stats is not None:
        rate = result.warp_instructions / benchmark.stats.stats.min
        benchmark.extra_info["warp-instructions"] = result.warp_instructions
        benchmark.extra_info["warp-instructions per second"] = round(rate)
