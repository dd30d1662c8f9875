# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Hopper examples, where a package that bundles them is installed: ported, compiled, compared."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from porter.build.port_plan import PortPlan
from porter.cli.porting import traces_of
from porter.diagnostics import ExitCode
from porter.lang.cute_dsl import parse_dsl
from porter.passes.dsl.port import port_python
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
    ported = port_python(kernel, traces=traces_of)
    assert ported.idiomatic, [d.message for d in ported.diagnostics]
    assert list(ported.files) == [str(kernel)]
    assert b"_mlir" not in ported.files[str(kernel)]
    plan = PortPlan(files=dict(ported.files))
    options = VerifyOptions(families=("integers",))
    rows = verify(load_case(tmp_path / "case.yaml"), plan, ToolkitBuilder(), SimBackend(), options).rows
    assert [row.verdict for row in rows] == [Verdict.CLEAN], [(d.message, d.detail) for d in rows[0].diagnostics]


@pytest.mark.parametrize("name", ["dense_gemm.py", "dense_gemm_persistent.py", "fmha.py", "grouped_gemm.py"])
def test_every_example_ports(name: str, examples: Path) -> None:
    result = port_python(examples / name)
    assert result.exit_code is ExitCode.OK
    assert result.kernels
    ported = parse_dsl(name, result.files[str(examples / name)], dialect=own_names().dialect)
    assert not [n for _, n in ported.references() if own_names().hopper_only(n)]
