# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL kernels that others wrote, each with a case: GEMMs from quack-kernels and from NVIDIA's examples in
flashinfer-python, and NVIDIA's attention for Blackwell. Inputs are small integers.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[2] / "corpus"
EXAMPLES = "data/cutlass/examples/python/CuTeDSL"

CASE = """
version: 1
kernel: {kernel}
entry: {entry}
sizes: {{M: {M}, N: {N}, K: {K}, L: 1}}
dsl:
  init: {{{init}}}
  call: [A, B, C, {extra}{stream}]
tensors:
{more}  A: {{dtype: {dtype}, shape: {A}, strides: {a}, role: input}}
  B: {{dtype: {dtype}, shape: {B}, strides: {b}, role: input}}
  C: {{dtype: {out}, shape: {C}, strides: {c}, role: output}}
reduction: K
reference: "np.einsum('{sum}', A, B)"
"""
DEFAULTS: dict[str, object] = {
    "M": 256, "N": 256, "K": 192, "init": "", "extra": "", "stream": "stream", "more": "", "dtype": "f16", "out": "f32",
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


def lesson(path: str, extra: str = "", **fields: object) -> Kernel:
    """One of NVIDIA's tutorials in CuTe DSL, whose tiles are constants."""
    return "sm_100a", Path(path), {
        "entry": "host_function", "extra": extra, "stream": "", "M": 512, "N": 512, "out": "f16",
        "A": "[M, K]", "B": "[N, K]", "C": "[M, N]", "a": "[K, 1]", "b": "[K, 1]", "c": "[N, 1]", "sum": "mk,nk->mn",
        **fields,
    }  # fmt: skip


def blockwise(path: str, entry: str, tiles: str, extra: str = "", more: str = "") -> Kernel:
    """FP8 with factors of 128 x 128 elements of B and of 128 of a row of A."""
    return example(
        "sm_100a", f"blackwell/blockwise_gemm/{path}", entry, tiles, f"SFA, SFB, {extra}4, ", dtype="f8e4m3",
        out="bf16", K=256,
        more="""  SFA: {dtype: f32, shape: [M, K // 128, L], strides: [1, M, M * K // 128], role: input}
  SFB: {dtype: f32, shape: [N // 128, K // 128, L], strides: [K // 128, 1, N * K // 16384], role: input}
""" + more,
    )  # fmt: skip


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


FURTHER: dict[str, Kernel] = {
    "blackwell-alpha-beta": example(
        "sm_100a", "blackwell/dense_gemm_alpha_beta_persistent.py", "SM100PersistentDenseGemmAlphaBetaKernel",
        "epi_dtype: cutlass.Float32, use_2cta_instrs: true, mma_tiler_mn: [256, 128], cluster_shape_mn: [2, 1]",
        "D, {runtime: 2, type: f32}, {runtime: 1, type: f32}, 4, ", M=512, out="f16",
        more="  D: {dtype: f16, shape: [M, N, L], strides: [N, 1, M * N], role: scratch, fill: 0}\n",
    ),
    "blackwell-dynamic": example(
        "sm_100a", "blackwell/dense_gemm_persistent_dynamic.py", "PersistentDenseGemmKernel",
        BLACKWELL.format("true", "256, 128", "2, 1", "true"), "4, ", M=512, N=512, out="f16",
    ),
    "blackwell-persistent-fp8": example(
        "sm_100a", "blackwell/dense_gemm_persistent.py", "PersistentDenseGemmKernel",
        BLACKWELL.format("false", "128, 64", "1, 1", "true"), "4, ", dtype="f8e4m3", K=256, M=512,
    ),
    "blackwell-persistent-columns": example(
        "sm_100a", "blackwell/dense_gemm_persistent.py", "PersistentDenseGemmKernel",
        BLACKWELL.format("false", "128, 256", "2, 1", "false"), "4, ", dtype="bf16", out="bf16", M=512, **COLUMNS,
    ),
    **{f"blackwell-lesson-{n}": lesson(f"blackwell/tutorial_gemm/fp16_gemm_{n}.py") for n in "012"},
    **{f"blackwell-lesson-{n}": lesson(f"blackwell/tutorial_gemm/fp16_gemm_{n}.py", "4, ")
       for n in ("3", "3_1", "5")},
    "blackwell-blockwise": blockwise(
        "blockwise_gemm.py", "BlockwiseGemmKernel",
        "use_2cta_instrs: false, mma_tiler_mn: [128, 128], cluster_shape_mn: [1, 1]",
    ),
    "blackwell-blockwise-pair": blockwise(
        "blockwise_gemm.py", "BlockwiseGemmKernel",
        "use_2cta_instrs: true, mma_tiler_mn: [256, 128], cluster_shape_mn: [2, 1]",
    ),
    "blackwell-blockwise-grouped": blockwise(
        "contiguous_grouped_gemm.py", "BlockwiseContiguousGroupedGemmKernel",
        "use_2cta_instrs: false, mma_tiler_mn: [128, 128], cluster_shape_mn: [1, 1]", "groups, ",
        "  groups: {dtype: s32, shape: [M], role: scratch, fill: 0}\n",
    ),
}  # fmt: skip
"""Kernels whose results no test looks at, or which not every CuTe DSL takes."""


def case_of(name: str, folder: Path, **sizes: int) -> tuple[str, Path]:
    """Architecture and case file, with other sizes if wanted; skips where the kernel's package is not installed."""
    arch, source, fields = (KERNELS | FURTHER)[name]
    if isinstance(source, Path) and source.suffix == ".yaml":
        return arch, source
    if isinstance(source, Path):
        text = example_path(str(source)).read_text("utf-8")
    else:
        text = source
        if find_spec("quack") is None:
            pytest.skip("the package quack-kernels is not installed")
    kernel = folder / "kernel.py"
    kernel.write_text(text, "utf-8")
    (folder / "case.yaml").write_text(CASE.format(kernel=kernel.name, **{**DEFAULTS, **fields, **sizes}))
    return arch, folder / "case.yaml"


# The kernel takes pointers and the mask as a member of an enumeration of its own.
ATTENTION_ENTRY = """

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
ATTENTION_CASE = """
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


def attention_case(s: int, d: int, h: int, folder: Path) -> Path:
    """The case file of NVIDIA's attention, `s` queries and keys of `h` heads; skips where it is not installed."""
    examples = example_path("")
    (folder / "helpers").symlink_to(examples / "helpers")
    (folder / "fmha.py").write_text((examples / "blackwell/fmha.py").read_text("utf-8") + ATTENTION_ENTRY)
    (folder / "case.yaml").write_text(ATTENTION_CASE.format(s=s, d=d, h=h))
    return folder / "case.yaml"


# The example takes typed pointers.
BLOCK_SCALED_ENTRY = '''
import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
import cuda.bindings.driver as cuda
from cutlass.cute.nvgpu.tcgen05 import OperandMajorMode
import dense_blockscaled_gemm_persistent as example


class Gemm:
    """Bytes in, f32 out: the example takes typed pointers."""

    def __init__(self, element, scale, vector, tile, cluster, sizes, mn_major):
        self.element, self.scale, self.vector, self.sizes = element, scale, vector, sizes
        self.kernel = example.Sm100BlockScaledPersistentDenseGemmKernel(vector, tile, cluster)
        self.major = OperandMajorMode.MN if mn_major else OperandMajorMode.K

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, sfa: cute.Tensor, sfb: cute.Tensor, c: cute.Tensor,
                 stream: cuda.CUstream):
        operands = [cute.recast_ptr(x.iterator, dtype=self.element) for x in (a, b)]
        factors = [cute.recast_ptr(x.iterator, dtype=self.scale) for x in (sfa, sfb)]
        layouts = (self.major, self.major, utils.LayoutEnum.ROW_MAJOR)
        self.kernel(operands[0], operands[1], factors[0], factors[1], c.iterator, layouts, self.sizes, 2, stream)
'''
BLOCK_SCALED = {
    "nvfp4": ("Float4E2M1FN", "Float8E4M3FN", 16, [128, 128], [1, 1], False),
    "nvfp4-narrow": ("Float4E2M1FN", "Float8E4M3FN", 16, [128, 64], [1, 1], False),
    "nvfp4-pair": ("Float4E2M1FN", "Float8E4M3FN", 16, [256, 256], [2, 1], False),
    "mxfp4": ("Float4E2M1FN", "Float8E8M0FNU", 32, [128, 128], [1, 1], False),
    "mxfp8": ("Float8E4M3FN", "Float8E8M0FNU", 32, [128, 128], [1, 1], False),
    "mxfp8-mn-major-pairs": ("Float8E5M2", "Float8E8M0FNU", 32, [256, 128], [2, 2], True),
}
"""By name the types of elements and of their factors, elements of a factor, tile, cluster, and whether M and N are
contiguous."""
BLOCK_SCALED_CASE = """
version: 1
kernel: wrapper.py
entry: Gemm
sizes: {{M: {m}, N: {n}, K: {k}, BITS: {bits}, V: {vector}}}
dsl:
  init: {{element: cutlass.{element}, scale: cutlass.{scale}, vector: V, tile: {tile}, cluster: {cluster},
         sizes: [M, N, K, 1], mn_major: {mn_major}}}
  call: [A, B, SFA, SFB, C, stream]
tensors:
  A: {{dtype: u8, shape: [M * K * BITS // 8], role: input, align: 128}}
  B: {{dtype: u8, shape: [N * K * BITS // 8], role: input, align: 128}}
  SFA: {{dtype: u8, shape: [M * K // V], role: input, align: 128}}
  SFB: {{dtype: u8, shape: [N * K // V], role: input, align: 128}}
  C: {{dtype: f32, shape: [M * N], role: output, align: 128}}
reduction: K
reference: "C"
"""


def block_scaled_wrapper(folder: Path) -> Path:
    """NVIDIA's block-scaled GEMM with what takes tensors of bytes; skips where it is not installed."""
    source = example_path("blackwell/dense_blockscaled_gemm_persistent.py")
    (folder / source.name).write_bytes(source.read_bytes())
    (folder / "wrapper.py").write_text(BLOCK_SCALED_ENTRY)
    return folder / "wrapper.py"


def block_scaled_case(variant: str, m: int, n: int, k: int, folder: Path) -> Path:
    """The case file of one of `BLOCK_SCALED`, whose operands have no meaning; skips where it is not installed."""
    element, scale, vector, tile, cluster, mn_major = BLOCK_SCALED[variant]
    block_scaled_wrapper(folder)
    bits = 4 if "4" in str(element)[:6] else 8
    (folder / "case.yaml").write_text(BLOCK_SCALED_CASE.format(
        m=m, n=n, k=k, bits=bits, vector=vector, element=element, scale=scale, tile=tile, cluster=cluster,
        mn_major=str(mn_major).lower(),
    ))  # fmt: skip
    return folder / "case.yaml"


def example_path(name: str) -> Path:
    """One of NVIDIA's examples in CuTe DSL; skips where they are not installed."""
    spec = find_spec("flashinfer")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("flashinfer-python is not installed")
    return Path(spec.submodule_search_locations[0]) / EXAMPLES / name
