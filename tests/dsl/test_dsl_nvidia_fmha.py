# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Hopper attention example, where a package that bundles it is installed: ported, compiled, compared."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from porter.build.port_plan import PortPlan
from porter.passes.dsl.port import port_python
from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.runner import VerifyOptions, verify

pytestmark = pytest.mark.external

# The kernel takes its mask as a member of an enumeration of its own.
ENTRY = """

class Masked(HopperFusedMultiHeadAttentionForward):
    def __init__(self, tile, mask):
        super().__init__(cutlass.Float32, cutlass.Float32, tile, False, fmha_utils.MaskEnum[mask])
"""
CASE = """
version: 1
kernel: fmha.py
entry: Masked
constants: {{CAUSAL: {causal}, SCALE: "0.125"}}
sizes: {{S: {s}, D: {d}, H: {h}, R: {r}}}
dsl:
  dynamic: true
  init: {{tile: [64, 64, {d}], mask: {mask}}}
  call: [Q, K, V, O, L, {{runtime: SCALE * 1.4426950408889634, type: f32}}, {{runtime: SCALE, type: f32}},
         {{runtime: 1.0, type: f32}}, null, {right}, stream]
tensors:
  Q: {{dtype: {dtype}, shape: [S, D, R, H, 1], strides: [H * R * D, 1, D, R * D, S * H * R * D], role: input}}
  K: {{dtype: {dtype}, shape: [S, D, 1, H, 1], strides: [H * D, 1, D, D, S * H * D], role: input}}
  V: {{dtype: {dtype}, shape: [S, D, 1, H, 1], strides: {v}, role: input}}
  O: {{dtype: f16, shape: [S, D, R, H, 1], strides: [H * R * D, 1, D, R * D, S * H * R * D], role: output}}
  L: {{dtype: f32, shape: [S, 1, R, H, 1], strides: [H * R, 1, 1, R, S * H * R], role: output}}
reduction: D
reference: {{python: "reference.py:attention"}}
# Probabilities are rounded to the operands' type before they meet V: to three bits for fp8.
magnitude: >-
  {{'O': np.max(V) * ({rounding} + 2 * SCALE * np.max(np.abs(np.einsum('mdrhb,ndrhb->mnrhb', Q, K + 0 * Q)))) + 0 * Q,
  'L': 16 + 2 * SCALE * np.max(np.einsum('mdrhb,ndrhb->mnrhb', Q, K + 0 * Q)) + 0 * Q[:, :1]}}
accumulate: f32
exact: false
"""
REFERENCE = """
import numpy as np

def attention(inputs, sizes):
    q = inputs["Q"]
    k, v = inputs["K"] + 0 * q, inputs["V"] + 0 * q
    scores = np.einsum("mdrhb,ndrhb->mnrhb", q, k) * sizes["SCALE"]
    if sizes["CAUSAL"]:
        m, n = np.indices(scores.shape[:2])
        scores = np.where((n > m)[:, :, None, None, None], -np.inf, scores)
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=1, keepdims=True)
    out = np.einsum("mnrhb,ndrhb->mdrhb", weights / total, v)
    return {"O": out, "L": largest[:, :1] + np.log(total[:, :1])}
"""
ROW, COLUMN = "[H * D, 1, D, D, S * H * D]", "[1, H * S, S, S, S * H * D]"
PLAIN = {"s": 128, "d": 64, "h": 1, "r": 1, "mask": "WINDOW_MASK", "right": "null", "causal": 0, "v": ROW}
VARIANTS = {
    "f16-grouped-heads": {**PLAIN, "dtype": "f16", "rounding": 4096, "h": 2, "r": 2},
    "bf16-partial-tiles": {**PLAIN, "dtype": "bf16", "rounding": 4096, "s": 168, "mask": "RESIDUAL_MASK"},
    "f16-causal-wide": {**PLAIN, "dtype": "f16", "rounding": 4096, "d": 128, "causal": 1,
                        "right": "{runtime: 0, type: s32}"},
    "fp8": {**PLAIN, "dtype": "f8e4m3", "rounding": 1 << 17, "v": COLUMN},
}  # fmt: skip


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example beside its helpers, with an entry that a case can name."""
    spec = find_spec("flashinfer")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("flashinfer-python is not installed")
    examples = Path(spec.submodule_search_locations[0]) / "data/cutlass/examples/python/CuTeDSL"
    folder = tmp_path_factory.mktemp("fmha")
    (folder / "helpers").symlink_to(examples / "helpers")
    (folder / "reference.py").write_text(REFERENCE)
    path = folder / "fmha.py"
    path.write_text((examples / "hopper" / "fmha.py").read_text() + ENTRY)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_original_port_and_reference_agree(name: str, kernel: Path) -> None:
    case_file = kernel.parent / f"{name}.case.yaml"
    case_file.write_text(CASE.format(**VARIANTS[name]))
    case = load_case(case_file)
    plan = PortPlan(files=dict(port_python(kernel).files))
    options = VerifyOptions(families=("normal",))
    for row in verify(case, plan, ToolkitBuilder(), SimBackend(), options).rows:
        assert row.verdict is Verdict.CLEAN, [(d.message, d.detail) for d in row.diagnostics]
        assert all(c.mismatches == 0 for c in row.between)
