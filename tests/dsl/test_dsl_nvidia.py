# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Hopper examples, where a package that bundles them is installed: ported, compiled, compared."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from external_case import Missing, root_of

from porter.build.port_plan import PortPlan
from porter.cli.porting import traces_of
from porter.diagnostics import ExitCode
from porter.lang.cute_dsl import parse_dsl
from porter.passes.dsl.port import port_python
from porter.passes.native.step import OF_DSL
from porter.rules.load import own_names
from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.runner import VerifyOptions, verify

EXAMPLES = "data/cutlass/examples/python/CuTeDSL/hopper"
CASE = """
version: 1
kernel: {kernel}
entry: {entry}
sizes: {{M: 256, N: 512, K: 256, L: 1}}
dsl:
  init: {{acc_dtype: cutlass.Float32, tile_shape_mn: {tile}, cluster_shape_mn: {cluster}{more}}}
  call: [A, B, C, {extra}stream]
tensors:
  A: {{dtype: {dtype}, shape: [M, K, L], strides: {a}, role: input}}
  B: {{dtype: {dtype}, shape: [N, K, L], strides: {b}, role: input}}
  C: {{dtype: f16, shape: [M, N, L], strides: [N, 1, M * N], role: output}}
reduction: K
reference: "np.einsum('mkl,nkl->mnl', A, B)"
"""
ROW = {"a": "[K, 1, M * K]", "b": "[K, 1, N * K]"}
COLUMN = {"a": "[1, M, M * K]", "b": "[1, N, N * K]"}
VARIANTS = {
    "f16": {"dtype": "f16", "tile": "[128, 128]", "cluster": "[1, 1]", **ROW},
    "bf16-wide-pair": {"dtype": "bf16", "tile": "[128, 256]", "cluster": "[2, 1]", **ROW},
    "f16-mn-major-pair": {"dtype": "f16", "tile": "[128, 128]", "cluster": "[2, 1]", **COLUMN},
    "fp8-pair": {"dtype": "f8e4m3", "tile": "[128, 128]", "cluster": "[2, 1]", **ROW},
    "f16-64-rows": {"dtype": "f16", "tile": "[64, 64]", "cluster": "[1, 2]", **ROW},
}
DENSE = {
    "dense_gemm.py": {"entry": "HopperWgmmaGemmKernel", "more": "", "extra": ""},
    "dense_gemm_persistent.py": {
        "entry": "HopperWgmmaGemmPersistentKernel",
        "more": ", swizzle_size: 1, raster_along_m: true",
        "extra": "4, ",
    },
}

pytestmark = [pytest.mark.external, pytest.mark.slow]


@pytest.fixture(scope="module")
def examples() -> Path:
    spec = find_spec("flashinfer")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("flashinfer-python is not installed")
    return Path(spec.submodule_search_locations[0]) / EXAMPLES


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", DENSE)
def test_dense_gemms_port_compile_and_agree(name: str, variant: str, examples: Path, tmp_path: Path) -> None:
    kernel = tmp_path / name
    kernel.write_bytes((examples / name).read_bytes())
    (tmp_path / "case.yaml").write_text(CASE.format(kernel=name, **DENSE[name], **VARIANTS[variant]))
    case = load_case(tmp_path / "case.yaml")
    ported = port_python(kernel)
    assert ported.exit_code is ExitCode.OK
    plan = PortPlan(files=dict(ported.files))
    rows = verify(case, plan, ToolkitBuilder(), SimBackend(), VerifyOptions(families=("integers", "normal"))).rows
    assert {row.family for row in rows} == {"integers", "normal"}
    for row in rows:
        assert row.verdict is Verdict.CLEAN, [(d.message, d.detail) for d in row.diagnostics]


@pytest.mark.parametrize("variant", ["bf16-wide-pair", "f16-mn-major-pair", "f16-64-rows"])
@pytest.mark.parametrize("name", DENSE)
def test_dense_gemms_in_own_words(name: str, variant: str, examples: Path, tmp_path: Path) -> None:
    kernel = tmp_path / name
    kernel.write_bytes((examples / name).read_bytes())
    (tmp_path / "case.yaml").write_text(CASE.format(kernel=name, **DENSE[name], **VARIANTS[variant]))
    ported = port_python(kernel, traces=traces_of, steps=OF_DSL)
    assert ported.idiomatic, [d.message for d in ported.diagnostics]
    assert ported.native == (("mma-warp",) if "persistent" in name else ())
    assert list(ported.files) == [str(kernel)]
    assert b"_mlir" not in ported.files[str(kernel)]
    plan = PortPlan(files=dict(ported.files))
    options = VerifyOptions(families=("integers",))
    rows = verify(load_case(tmp_path / "case.yaml"), plan, ToolkitBuilder(), SimBackend(), options).rows
    assert [row.verdict for row in rows] == [Verdict.CLEAN], [(d.message, d.detail) for d in rows[0].diagnostics]


FP8_TENSORS = """
  A: {dtype: f8e4m3, shape: [M, K, L], strides: [K, 1, M * K], role: input}
  B: {dtype: f8e4m3, shape: [N, K, L], strides: [K, 1, N * K], role: input}
  C: {dtype: f16, shape: [M, N, L], strides: [N, 1, M * N], role: output}
"""
# A group's rows, columns, depth and count; strides of its A, B and C; where these are.
GROUPS = """
  A: {dtype: f16, shape: [M, K, L], strides: [K, 1, M * K], role: input}
  B: {dtype: f16, shape: [N, K, L], strides: [K, 1, N * K], role: input}
  C: {dtype: f16, shape: [M, N, L], strides: [N, 1, M * N], role: output}
  shapes: {dtype: s32, shape: [2, 4], role: scratch, fill: [M, N, K, 1, M, N, K, 1]}
  strides: {dtype: s32, shape: [2, 3, 2], role: scratch, fill: [K, 1, K, 1, N, 1, K, 1, K, 1, N, 1]}
  places: {dtype: s64, shape: [2, 3], role: scratch, fill: 0, contains: [
    {at: 0, address_of: A}, {at: 8, address_of: B}, {at: 16, address_of: C},
    {at: 24, address_of: A, byte_offset: 32768}, {at: 32, address_of: B, byte_offset: 32768},
    {at: 40, address_of: C, byte_offset: 32768}]}
  maps: {dtype: s64, shape: [2, 3, 16], role: scratch, fill: 0}
"""
FP8_SCALES = FP8_TENSORS + "  x: {dtype: f32, shape: [1], role: input}\n  y: {dtype: f32, shape: [1], role: input}\n"
ALL = "tile_shape_mn: [128, 128], cluster_shape_mn: [1, 1], swizzle_size: 1, raster_along_m: true"
SUMS = "np.einsum('mkl,nkl->mnl', A, B)"
GELU = """import math

import numpy as np


def gelu(inputs, sizes):
    total = np.einsum("mkl,nkl->mnl", inputs["A"], inputs["B"])
    return {"C": 0.5 * total * (1 + np.vectorize(math.erf)(total / math.sqrt(2)))}
"""
NEWEST = {
    "dense_gemm/dense_gemm_fp8_gelu_persistent.py": (
        "HopperFP8GeluPersistentGemmKernel", f"acc_dtype: cutlass.Float32, {ALL}",
        "A, B, C, {runtime: 1.0, type: f32}, true, 4", "{M: 128, N: 256, K: 256, L: 1}", FP8_TENSORS,
        '{python: "reference.py:gelu"}',
    ),
    "dense_gemm/dense_gemm_fp8_2xacc.py": (
        "HopperFP8WarpSpecialized2xAccGemmKernel", ALL, "A, B, C, x, y, 4", "{M: 128, N: 256, K: 640, L: 1}",
        FP8_SCALES, f'"{SUMS} * x[0] * y[0]"',
    ),
    "grouped_gemm/grouped_gemm.py": (
        "HopperGroupedGemmPersistentKernel", f"acc_dtype: cutlass.Float32, {ALL}",
        "A, B, C, 2, shapes, strides, places, 2, maps, 2", "{M: 128, N: 128, K: 128, L: 2}", GROUPS, f'"{SUMS}"',
    ),
}  # fmt: skip
"""By file of a checkout of CUTLASS: kernel, what it is made and called with, sizes, tensors, result."""


@pytest.mark.parametrize("name", NEWEST)
def test_newest_gemms_in_own_words(name: str, tmp_path: Path) -> None:
    try:
        source = root_of("cutlass") / "cute" / "hopper" / "kernel" / name
    except Missing as missing:
        pytest.skip(str(missing))
    entry, init, call, sizes, tensors, result = NEWEST[name]
    kernel = tmp_path / source.name
    kernel.write_bytes(source.read_bytes())
    (tmp_path / "case.yaml").write_text(
        f"version: 1\nkernel: {kernel.name}\nentry: {entry}\nsizes: {sizes}\n"
        f"dsl:\n  init: {{{init}}}\n  call: [{call}, stream]\ntensors:{tensors}reduction: K\nreference: {result}\n"
        f'magnitude: "4 * {SUMS} + 1"\nexact: false\nfamilies: [index]\n'
    )
    (tmp_path / "reference.py").write_text(GELU)
    ported = port_python(kernel, traces=traces_of)
    assert ported.idiomatic, [d.message for d in ported.diagnostics]
    text = ported.files[str(kernel)].decode()
    assert list(ported.files) == [str(kernel)]
    assert text.count("_mlir") == kernel.read_text().count("_mlir")
    case, plan = load_case(tmp_path / "case.yaml"), PortPlan(files=dict(ported.files))
    rows = verify(case, plan, ToolkitBuilder(), SimBackend(), VerifyOptions(families=("index",))).rows
    assert rows
    for row in rows:
        assert row.verdict is Verdict.CLEAN, [(d.message, d.detail) for d in row.diagnostics]
        assert [(c.kind, c.mismatches) for c in row.between] == [("bits", 0)]


@pytest.mark.parametrize("name", ["dense_gemm.py", "dense_gemm_persistent.py", "fmha.py", "grouped_gemm.py"])
def test_every_example_ports(name: str, examples: Path) -> None:
    result = port_python(examples / name)
    assert result.exit_code is ExitCode.OK
    assert result.kernels
    ported = parse_dsl(name, result.files[str(examples / name)], dialect=own_names().dialect)
    assert not [n for _, n in ported.references() if own_names().hopper_only(n)]
