# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's attention example for Blackwell in CuTe DSL: right against float64, and no error in checking mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from foreign.dsl_cases import attention_case
from known_kernels import record

from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import bind
from porter.verify.settings import SimOptions

pytestmark = [pytest.mark.external, pytest.mark.slow]


@pytest.mark.parametrize(("s", "d", "h"), [(256, 128, 1), (512, 64, 2)])
def test_attention(s: int, d: int, h: int, tmp_path: Path) -> None:
    case = load_case(attention_case(s, d, h, tmp_path))
    problem = bind(case, case.sizes)
    built = ToolkitBuilder().build(problem, case.kernel, "sm_100a")
    inputs = generate(problem, choose(["integers"], problem)[0], 1)
    images = {n: make_image(t, inputs.get(n), 0) for n, t in problem.tensors.items()}
    q, k, v = (images[n].elements().astype(np.float64) for n in "QKV")
    scores = np.einsum("shd,thd->hst", q, k) * 0.125
    p = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hst,thd->shd", p / p.sum(-1, keepdims=True), v)
    result = SimBackend(SimOptions("late", checking="practice")).run(built, problem, built.launch(problem), images)
    assert result.status == "ok", [f.message for f in result.findings]
    got = result.after["O"].elements().astype(np.float64)
    np.testing.assert_allclose(got, expected, atol=np.abs(expected).max() * 2**-10)
    assert not [(h.kind.id, h.first, h.second) for h in result.hazards if h.severity == "error" or h.ruling is None]
    size = f"{s} x {s}, {h} heads"
    record("NVIDIA, CuTe DSL", f"attention, {d} wide", size, result.warp_instructions, result.hazards)
