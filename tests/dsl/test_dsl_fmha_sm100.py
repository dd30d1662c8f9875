# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's attention example for Blackwell in CuTe DSL: right against float64, and no error in checking mode."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from known_kernels import record

from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import bind
from porter.verify.settings import SimOptions

pytestmark = [pytest.mark.external, pytest.mark.slow]

# The kernel takes pointers and the mask as a member of an enumeration of its own.
ENTRY = """

class Attention(BlackwellFusedMultiHeadAttentionForward):
    def __init__(self, sizes):
        mask = fmha_utils.MaskEnum.RESIDUAL_MASK
        super().__init__(cutlass.Float32, cutlass.Float32, (128, 128, sizes[2]), False, mask)
        self.sizes = sizes

    @cute.jit
    def __call__(self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, stream: cuda.CUstream):
        s, h, d = self.sizes
        size = (Int32(1), Int32(s), Int32(s), Int32(s), Int32(h), Int32(h), Int32(d))
        super().__call__(
            q.iterator, k.iterator, v.iterator, o.iterator, size, None, None, None,
            Float32(0.125 * 1.4426950408889634), Float32(0.125), Float32(1.0), None, None, stream,
        )
"""
CASE = """
version: 1
kernel: fmha.py
entry: Attention
sizes: {{S: {s}, D: {d}, H: {h}}}
dsl:
  init: {{sizes: [{s}, {h}, {d}]}}
  call: [Q, K, V, O, stream]
tensors:
  Q: {{dtype: f16, shape: [S, H, D], strides: [H * D, D, 1], role: input}}
  K: {{dtype: f16, shape: [S, H, D], strides: [H * D, D, 1], role: input}}
  V: {{dtype: f16, shape: [S, H, D], strides: [H * D, D, 1], role: input}}
  O: {{dtype: f16, shape: [S, H, D], strides: [H * D, D, 1], role: output}}
reduction: D
reference: "Q"
"""


@pytest.mark.parametrize(("s", "d", "h"), [(256, 128, 1), (512, 64, 2)])
def test_attention(s: int, d: int, h: int, tmp_path: Path) -> None:
    spec = find_spec("flashinfer")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("flashinfer-python is not installed")
    examples = Path(spec.submodule_search_locations[0]) / "data/cutlass/examples/python/CuTeDSL"
    (tmp_path / "helpers").symlink_to(examples / "helpers")
    (tmp_path / "fmha.py").write_text((examples / "blackwell/fmha.py").read_text("utf-8") + ENTRY)
    (tmp_path / "case.yaml").write_text(CASE.format(s=s, d=d, h=h))
    case = load_case(tmp_path / "case.yaml")
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
