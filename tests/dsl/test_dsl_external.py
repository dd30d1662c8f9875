# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL GEMMs that nobody here wrote, for both chips, beside our own: right against float64, and no error in
checking mode.

The inputs are small integers, so every sum is exact and the reference must be met bit for bit. Kernels come from
quack-kernels and from NVIDIA's examples in flashinfer-python, where those are installed; neither needs PyTorch for
what is run here (`pip install --no-deps quack-kernels einops apache-tvm-ffi flashinfer-python`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from known_kernels import record

from porter.build.dsl_absent import AbsentModule
from porter.verify.backends import SimBackend
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.images import make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import bind
from porter.verify.settings import SimOptions

CORPUS = Path(__file__).parents[2] / "corpus"
EXAMPLES = "data/cutlass/examples/python/CuTeDSL"

CASE = """
version: 1
kernel: {kernel}
entry: {entry}
sizes: {{M: {M}, N: {N}, K: {K}, L: 1}}
dsl:
  init: {{{init}}}
  call: [A, B, C, {extra}stream]
tensors:
  A: {{dtype: {dtype}, shape: {A}, strides: {a}, role: input}}
  B: {{dtype: {dtype}, shape: {B}, strides: {b}, role: input}}
  C: {{dtype: {out}, shape: {C}, strides: {c}, role: output}}
reduction: K
reference: "np.einsum('{sum}', A, B)"
"""
DEFAULTS: dict[str, object] = {
    "M": 256, "N": 256, "K": 192, "init": "", "extra": "", "dtype": "f16", "out": "f32",
    "A": "[M, K, L]", "B": "[N, K, L]", "C": "[M, N, L]", "sum": "mkl,nkl->mnl",
    "a": "[K, 1, M * K]", "b": "[K, 1, N * K]", "c": "[N, 1, M * N]",
}  # fmt: skip
COLUMNS = {"a": "[1, M, M * K]", "b": "[1, N, N * K]"}
# quack has the batch first.
BATCH_FIRST = {
    "A": "[L, M, K]", "B": "[L, N, K]", "C": "[L, M, N]", "sum": "lmk,lnk->lmn",
    "a": "[M * K, K, 1]", "b": "[N * K, K, 1]", "c": "[M * N, N, 1]",
}  # fmt: skip
BATCH_FIRST_COLUMNS = {"a": "[M * K, 1, M]", "b": "[N * K, 1, N]"}

# quack's kernels take more arguments than tensors.
QUACK = """
import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from quack.gemm_default_epi import {kernel} as Kernel
from quack.tile_scheduler import TileSchedulerOptions

@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
    kernel = Kernel(cutlass.Float32, a.element_type, {tile}, {cluster}, {more})
    schedule = TileSchedulerOptions(cutlass.Int32({clusters}))
    kernel(a, b, c, None, kernel.EpilogueArguments(), schedule, None, stream)
"""


Kernel = tuple[str, str | Path, dict[str, object]]
"""Architecture, source, and fields of the case."""


def quack(
    arch: str, tile: tuple[int, ...], cluster: tuple[int, ...], more: str = "", clusters: int = 2, **fields: object
) -> Kernel:
    kernel = "GemmDefaultSm90" if arch == "sm_90a" else "GemmDefaultSm100"
    text = QUACK.format(kernel=kernel, tile=tile, cluster=cluster, more=more, clusters=clusters)
    return arch, text, {"entry": "gemm", **BATCH_FIRST, **fields}


def example(arch: str, path: str, entry: str, init: str, extra: str = "", **fields: object) -> Kernel:
    return arch, Path(path), {"entry": entry, "init": f"acc_dtype: cutlass.Float32, {init}", "extra": extra, **fields}


HOPPER = "tile_shape_mn: [{}], cluster_shape_mn: [{}]"
BLACKWELL = "use_2cta_instrs: {}, mma_tiler_mn: [{}], cluster_shape_mn: [{}], use_tma_store: {}"
KERNELS: dict[str, Kernel] = {
    "quack-sm90": quack("sm_90a", (128, 128), (1, 1, 1)),
    "quack-sm90-pingpong": quack("sm_90a", (64, 128), (1, 1, 1), "pingpong=True", dtype="bf16", out="bf16"),
    "quack-sm90-cluster": quack("sm_90a", (128, 192), (2, 1, 1), M=256, N=384, out="f16", **BATCH_FIRST_COLUMNS),
    "quack-sm90-fp8": quack("sm_90a", (128, 128), (1, 2, 1), dtype="f8e4m3", K=256),
    "quack-sm90-registers": quack("sm_90a", (128, 128), (1, 1, 1), "mma_is_rs=True", out="f16"),
    "quack-sm100": quack("sm_100a", (128, 128), (1, 1, 1), "use_clc_persistence=False"),
    "quack-sm100-pair": quack("sm_100a", (256, 128), (2, 1, 1), "use_clc_persistence=False", M=512, out="f16"),
    "quack-sm100-multicast": quack(
        "sm_100a", (128, 64), (2, 2, 1), "use_clc_persistence=False", dtype="bf16", out="bf16", **BATCH_FIRST_COLUMNS
    ),
    "quack-sm100-fp8": quack("sm_100a", (128, 256), (1, 1, 1), "use_clc_persistence=False", dtype="f8e4m3", K=256),
    # The scheduler asks for work of clusters that have not started.
    "quack-sm100-dynamic": quack("sm_100a", (128, 128), (1, 1, 1), M=512, N=512, K=128),
    "hopper-dense": example(
        "sm_90a", "hopper/dense_gemm.py", "HopperWgmmaGemmKernel", HOPPER.format("128, 128", "1, 1"), out="f16"
    ),
    "hopper-persistent": example(
        "sm_90a", "hopper/dense_gemm_persistent.py", "HopperWgmmaGemmPersistentKernel",
        HOPPER.format("128, 256", "2, 1") + ", swizzle_size: 1, raster_along_m: true", "4, ", dtype="bf16", out="f16",
        M=512,
    ),
    "blackwell-dense": example(
        "sm_100a", "blackwell/dense_gemm.py", "DenseGemmKernel", BLACKWELL.format("false", "128, 128", "1, 1", "true")
    ),
    "blackwell-dense-pair": example(
        "sm_100a", "blackwell/dense_gemm.py", "DenseGemmKernel", BLACKWELL.format("true", "256, 128", "2, 1", "false"),
        out="f16", **COLUMNS,
    ),
    "blackwell-persistent": example(
        "sm_100a", "blackwell/dense_gemm_persistent.py", "PersistentDenseGemmKernel",
        BLACKWELL.format("true", "256, 128", "2, 2", "true"), "4, ", M=512, N=512, out="f16",
    ),
    "blackwell-prefetch": example(
        "sm_100a", "blackwell/dense_gemm_persistent_prefetch.py", "PersistentDenseGemmKernel",
        BLACKWELL.format("false", "128, 128", "1, 2", "true"), "4, ", N=512, out="f16",
    ),
    "blackwell-software-pipeline": example(
        "sm_100a", "blackwell/dense_gemm_software_pipeline.py", "DenseGemmKernel",
        BLACKWELL.format("false", "64, 128", "1, 1", "true"), dtype="bf16",
    ),
    **{f"own-{name}": ("sm_90a", CORPUS / name / "case.yaml", {})
       for name in ("dsl_gemm", "dsl_gemm_cluster", "dsl_gemm_persistent", "dsl_gemm_fp8")},
}  # fmt: skip

ORIGINS = {"quack": "quack", "blackwell": "NVIDIA, CuTe DSL"}

pytestmark = pytest.mark.external


def case_of(name: str, folder: Path) -> tuple[str, Path]:
    """Architecture and case file; skips where the kernel's package is not installed."""
    arch, source, fields = KERNELS[name]
    if isinstance(source, Path) and source.suffix == ".yaml":
        return arch, source
    if isinstance(source, str):
        package, text = "quack", source
    else:
        package, text = "flashinfer", ""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {package} is not installed")
    if isinstance(source, Path):
        text = (Path(spec.submodule_search_locations[0]) / EXAMPLES / source).read_text("utf-8")
    kernel = folder / "kernel.py"
    kernel.write_text(text, "utf-8")
    (folder / "case.yaml").write_text(CASE.format(kernel=kernel.name, **{**DEFAULTS, **fields}))
    return arch, folder / "case.yaml"


def arrays(images: Mapping[str, object], names: str) -> list[np.ndarray]:
    return [images[n].elements().astype(np.float64) for n in names]  # type: ignore[attr-defined]


# A pair of blocks, clusters that steal work and a persistent schedule: some 10 s each.
QUICK = ("blackwell-dense-pair", "quack-sm100-dynamic", "blackwell-persistent")
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KERNELS]


@pytest.mark.parametrize("name", NAMES)
def test_gemm(name: str, tmp_path: Path) -> None:
    arch, path = case_of(name, tmp_path)
    case = load_case(path)
    problem = bind(case, case.sizes)
    built = ToolkitBuilder().build(problem, case.kernel, arch)
    inputs = generate(problem, choose(["integers"], problem)[0], 1)
    images = {n: make_image(t, inputs.get(n), 0) for n, t in problem.tensors.items()}
    a, b = arrays(images, "AB")
    batch_first = problem.tensors["C"].shape[0] == 1
    expected = np.einsum("lmk,lnk->lmn" if batch_first else "mkl,nkl->mnl", a, b)
    expected = problem.tensors["C"].dtype.decode(problem.tensors["C"].dtype.encode(expected))
    assert np.unique(expected).size > 16
    for options in (SimOptions("late"), SimOptions("random", seed=2), SimOptions("late", checking="practice")):
        result = SimBackend(options).run(built, problem, built.launch(problem), images)
        assert result.status == "ok", [f.message for f in result.findings]
        (got,) = arrays(result.after, "C")
        np.testing.assert_array_equal(got, expected)
        assert not [(h.kind.id, h.first, h.second) for h in result.hazards if h.severity == "error" or h.ruling is None]
    if arch == "sm_100a":
        origin, _, kernel = name.partition("-")
        size = " x ".join(str(case.sizes[axis]) for axis in "MNK")
        record(ORIGINS[origin], kernel.removeprefix("sm100-"), size, result.warp_instructions, result.hazards)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_there_are_three_of_other_people_for_each_chip(arch: str) -> None:
    assert sum(a == arch and not name.startswith("own-") for name, (a, _, _) in KERNELS.items()) >= 3


def test_absent_pytorch_has_no_gpu() -> None:
    assert not AbsentModule("torch").cuda.is_available()
    assert AbsentModule("torch").cuda.device_count() == 0
