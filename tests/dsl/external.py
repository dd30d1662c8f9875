# SPDX-License-Identifier: Apache-2.0
"""Hopper kernels that nobody here wrote, each as a driver that imports it and a case: quack's GEMM, FlashAttention's
forward and backward, and NVIDIA's examples.

`EXTERNAL` lists them by name; `write_case` puts driver and case into a directory, or says what is missing. Run this
file with a directory to write all that are here into it:

    python tests/dsl/external.py DIRECTORY && porter verify --original-only DIRECTORY
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

EXAMPLES = "data/cutlass/examples/python/CuTeDSL"
"""Where NVIDIA's examples are in flashinfer-python."""


class Missing(Exception):
    """What a case needs and this machine does not have."""


@dataclass(frozen=True)
class ExternalCase:
    """`driver` and `case` are texts; `{root}` in the case is where the kernel is imported from. `needs` says what has
    to be there: a package, `examples` (NVIDIA's, of flashinfer-python or in PORTER_CUTLASS), or `flash_attn`."""

    needs: str
    driver: str
    case: str
    files: Mapping[str, str] = field(default_factory=dict)
    fails: str = ""
    """What the DSL says to the original, where it refuses that."""


def root_of(needs: str) -> Path:
    """Where the kernels are imported from.

    Raises:
        Missing: it is not here.
    """
    if needs == "flash_attn":
        path = os.environ.get("PORTER_FLASH_ATTENTION")
        if not path:
            raise Missing("PORTER_FLASH_ATTENTION names no directory with flash_attn/cute in it")
        if not (Path(path) / "flash_attn" / "cute").is_dir() or find_spec("quack") is None:
            raise Missing(f"{path} has no flash_attn/cute, or the package quack is not installed")
        return Path(path)
    if needs == "cutlass":
        path = os.environ.get("PORTER_CUTLASS")
        if not path:
            raise Missing("PORTER_CUTLASS names no checkout of NVIDIA's cutlass")
        return Path(path) / "examples" / "python" / "CuTeDSL"
    package = "flashinfer" if needs == "examples" else needs
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Missing(f"the package {package} is not installed")
    place = Path(spec.submodule_search_locations[0])
    return place / EXAMPLES if needs == "examples" else place.parent


def write_case(name: str, folder: Path) -> Path:
    """Write a driver with its case; the case's path.

    Raises:
        Missing: what it needs is not here.
    """
    one = EXTERNAL[name]
    root = root_of(one.needs)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "driver.py").write_text(one.driver, "utf-8")
    for file, text in one.files.items():
        (folder / file).write_text(text, "utf-8")
    (folder / "case.yaml").write_text(one.case.replace("{root}", str(root)), "utf-8")
    return folder / "case.yaml"


# --- GEMMs

GEMM_CASE = """
version: 1
kernel: driver.py
entry: gemm
include_dirs: ["{{root}}"{more}]
sizes: {{M: {M}, N: {N}, K: {K}, L: 1}}
dsl:
  call: [A, B, C, stream]
tensors:
  A: {{dtype: {dtype}, shape: {A}, strides: {a}, role: input}}
  B: {{dtype: {dtype}, shape: {B}, strides: {b}, role: input}}
  C: {{dtype: {out}, shape: {C}, strides: {c}, role: output}}
reduction: K
reference: "np.einsum('{sum}', A, B)"
"""
BATCH_FIRST = {
    "A": "[L, M, K]", "B": "[L, N, K]", "C": "[L, M, N]", "sum": "lmk,lnk->lmn",
    "a": "[M * K, K, 1]", "b": "[N * K, K, 1]", "c": "[M * N, N, 1]",
}  # fmt: skip
BATCH_LAST = {
    "A": "[M, K, L]", "B": "[N, K, L]", "C": "[M, N, L]", "sum": "mkl,nkl->mnl",
    "a": "[K, 1, M * K]", "b": "[K, 1, N * K]", "c": "[N, 1, M * N]",
}  # fmt: skip
SIZES = {"M": 256, "N": 256, "K": 192, "dtype": "bf16", "out": "bf16", "more": ""}

QUACK_GEMM = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from quack.gemm_default_epi import GemmDefaultSm90
from quack.tile_scheduler import TileSchedulerOptions


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
    kernel = GemmDefaultSm90(cutlass.Float32, a.element_type, {tile}, {cluster}, {options})
    schedule = TileSchedulerOptions(cutlass.Int32({clusters}))
    kernel(a, b, c, None, kernel.EpilogueArguments(), schedule, None, stream)
"""


def quack_gemm(
    tile: tuple[int, int], cluster: tuple[int, int, int] = (1, 1, 1), options: str = "", clusters: int = 2,
    **fields: object,
) -> ExternalCase:
    driver = QUACK_GEMM.format(tile=tile, cluster=cluster, options=options, clusters=clusters)
    return ExternalCase("quack", driver, GEMM_CASE.format(**{**SIZES, **BATCH_FIRST, **fields}))


NVIDIA_GEMM = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from {module} import {kernel}


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
    {kernel}({init})(a, b, c, {arguments}stream)
"""


def nvidia_gemm(
    module: str, kernel: str, init: str, arguments: str = "", needs: str = "examples", **fields: object
) -> ExternalCase:
    folder = "hopper" if needs == "examples" else "cute/hopper/kernel/dense_gemm"
    driver = NVIDIA_GEMM.format(module=module, kernel=kernel, init=init, arguments=arguments)
    values = {**SIZES, **BATCH_LAST, **fields, "more": f', "{{root}}/{folder}"'}
    return ExternalCase(needs, driver, GEMM_CASE.format(**values))


FP8_GEMM = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from {module} import {kernel}


@cute.jit
def gemm(
    a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, x: cute.Tensor, y: cute.Tensor, scale: cutlass.Float32,
    stream: cuda.CUstream,
):
    {kernel}({init})(a, b, c, {arguments}, stream)
"""
FP8_CASE = """
version: 1
kernel: driver.py
entry: gemm
include_dirs: ["{{root}}/cute/hopper/kernel/dense_gemm"]
sizes: {{M: 256, N: 256, K: 512, L: 1}}
dsl:
  call: [A, B, C, X, Y, {{runtime: 0.25, type: f32}}, stream]
tensors:
  A: {{dtype: f8e4m3, shape: [M, K, L], strides: [K, 1, M * K], role: input}}
  B: {{dtype: f8e4m3, shape: [N, K, L], strides: [K, 1, N * K], role: input}}
  X: {{dtype: f32, shape: [1], role: input}}
  Y: {{dtype: f32, shape: [1], role: input}}
  C: {{dtype: f16, shape: [M, N, L], strides: [N, 1, M * N], role: output}}
reduction: K
reference: {{python: "reference.py:gemm"}}
magnitude: "{{'C': np.einsum('mkl,nkl->mnl', A, B) * {scale}}}"
exact: false
families: [normal, uniform]
"""


def fp8_gemm(module: str, kernel: str, init: str, arguments: str, scale: str, result: str) -> ExternalCase:
    reference = f"""import math

import numpy as np


def gemm(inputs, sizes):
    total = np.einsum("mkl,nkl->mnl", inputs["A"], inputs["B"])
    return {{"C": {result}}}
"""
    driver = FP8_GEMM.format(module=module, kernel=kernel, init=init, arguments=arguments)
    return ExternalCase("cutlass", driver, FP8_CASE.format(scale=scale), {"reference.py": reference})


GROUPED = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from grouped_gemm import HopperGroupedGemmPersistentKernel


@cute.jit
def grouped(
    a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, shapes: cute.Tensor, strides: cute.Tensor, places: cute.Tensor,
    maps: cute.Tensor, stream: cuda.CUstream,
):
    kernel = HopperGroupedGemmPersistentKernel(cutlass.Float32, (128, 128), (1, 1), 1, True)
    kernel(a, b, c, 2, shapes, strides, places, 2, maps, 2, stream)
"""
GROUPED_CASE = """
version: 1
kernel: driver.py
entry: grouped
include_dirs: ["{{root}}", "{{root}}/{folder}"]
sizes: {{M: 128, N: 128, K: 128, L: 2}}
dsl:
  call: [A, B, C, shapes, strides, places, maps, stream]
tensors:
  A: {{dtype: f16, shape: [M, K, L], strides: [K, 1, M * K], role: input}}
  B: {{dtype: f16, shape: [N, K, L], strides: [K, 1, N * K], role: input}}
  C: {{dtype: f16, shape: [M, N, L], strides: [N, 1, M * N], role: output}}
  shapes: {{dtype: s32, shape: [2, 4], role: scratch, fill: [M, N, K, 1, M, N, K, 1]}}
  strides: {{dtype: s32, shape: [2, 3, 2], role: scratch, fill: [K, 1, K, 1, N, 1, K, 1, K, 1, N, 1]}}
  places: {{dtype: s64, shape: [2, 3], role: scratch, fill: 0, contains: [{places}]}}
  maps: {{dtype: s64, shape: [2, 3, 16], role: scratch, fill: 0}}
reduction: K
reference: "np.einsum('mkl,nkl->mnl', A, B)"
"""


def grouped_gemm(needs: str, folder: str, fails: str = "") -> ExternalCase:
    places = [
        f"{{at: {24 * group + 8 * i}, address_of: {name}, byte_offset: {group * 128 * 128 * 2}}}"
        for group in range(2)
        for i, name in enumerate("ABC")
    ]
    return ExternalCase(needs, GROUPED, GROUPED_CASE.format(folder=folder, places=", ".join(places)), fails=fails)


# --- attention

FLASH_FORWARD = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90


@cute.jit
def forward(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    o: cute.Tensor,
    lse: cute.Tensor,
    scale: cutlass.Float32,
    stream: cuda.CUstream,
):
    kernel = FlashAttentionForwardSm90(
        q.element_type,
        {d},
        {d},
        qhead_per_kvhead=1,
        is_causal={causal},
        is_local=False,
        pack_gqa=False,
        tile_m={tile_m},
        tile_n={tile_n},
        num_stages=2,
        num_threads=384,
        Q_in_regs=False,
        intra_wg_overlap={overlap},
        mma_pv_is_rs={rs},
    )
    kernel(q, k, v, o, lse, scale, stream=stream)
"""
FLASH_FORWARD_CASE = """
version: 1
kernel: driver.py
entry: forward
include_dirs: ["{{root}}"]
constants: {{SCALE: "{scale}", CAUSAL: {causal}}}
sizes: {{S: {s}, T: {t}, H: 1, D: {d}}}
dsl:
  call: [Q, K, V, O, L, {{runtime: SCALE, type: f32}}, stream]
tensors:
  Q: {{dtype: {dtype}, shape: [1, S, H, D], role: input}}
  K: {{dtype: {dtype}, shape: [1, T, H, D], role: input}}
  V: {{dtype: {dtype}, shape: [1, T, H, D], role: input}}
  O: {{dtype: {dtype}, shape: [1, S, H, D], role: output}}
  L: {{dtype: f32, shape: [1, H, S], role: output}}
reduction: D
reference: {{python: "reference.py:attention"}}
# Probabilities are rounded to the operands' type before they meet V.
magnitude: >-
  {{'O': np.max(V) * (65536 + 2 * SCALE * np.max(np.abs(np.einsum('bmhd,bnhd->bhmn', Q, K)))) + 0 * Q,
  'L': 16 + 2 * SCALE * np.max(np.einsum('bmhd,bnhd->bhmn', Q, K), axis=-1)}}
accumulate: f32
exact: false
families: {families}
"""
FORWARD_REFERENCE = """import numpy as np


def attention(inputs, sizes):
    q, k, v = inputs["Q"], inputs["K"], inputs["V"]
    scores = np.einsum("bmhd,bnhd->bhmn", q, k) * sizes["SCALE"]
    if sizes["CAUSAL"]:
        m, n = np.indices(scores.shape[2:])
        scores = np.where(n - scores.shape[3] > m - scores.shape[2], -np.inf, scores)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    return {
        "O": np.einsum("bhmn,bnhd->bmhd", weights / total, v),
        "L": (largest + np.log(total))[..., 0],
    }
"""


def flash_forward(
    d: int, tile_m: int, tile_n: int, overlap: bool = True, rs: bool = True, causal: bool = False, s: int = 0,
    t: int = 0, dtype: str = "bf16", fails: str = "",
) -> ExternalCase:
    driver = FLASH_FORWARD.format(d=d, tile_m=tile_m, tile_n=tile_n, overlap=overlap, rs=rs, causal=causal)
    case = FLASH_FORWARD_CASE.format(
        scale=d**-0.5, causal=int(causal), s=s or tile_m, t=t or 2 * tile_n, d=d, dtype=dtype,
        # Long rows of positive numbers give probabilities that are all alike.
        families="[normal, uniform]" if d <= 64 else "[normal]",
    )
    return ExternalCase("flash_attn", driver, case, {"reference.py": FORWARD_REFERENCE}, fails)


FLASH_BACKWARD = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90


@cute.jit
def backward(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    do: cute.Tensor,
    lse: cute.Tensor,
    dpsum: cute.Tensor,
    dq: cute.Tensor,
    dk: cute.Tensor,
    dv: cute.Tensor,
    scale: cutlass.Float32,
    stream: cuda.CUstream,
):
    kernel = FlashAttentionBackwardSm90(
        q.element_type,
        {d},
        {d},
        tile_m={tile_m},
        tile_n={tile_n},
        Q_stage=2,
        dO_stage=2,
        PdS_stage=2,
        SdP_swapAB=True,
        AtomLayoutMSdP=1,
        AtomLayoutNdKV=2,
        AtomLayoutMdQ=1,
        num_threads=384,
    )
    kernel(q, k, v, do, lse, dpsum, dq, dk, dv, scale, stream=stream)
"""
FLASH_BACKWARD_CASE = """
version: 1
kernel: driver.py
entry: backward
include_dirs: ["{{root}}"]
constants: {{SCALE: "{scale}", TILE: {tile_m}}}
sizes: {{S: {s}, T: {t}, H: 1, D: {d}}}
dsl:
  call: [Q, K, V, G, L, P, dQ, dK, dV, {{runtime: SCALE, type: f32}}, stream]
tensors:
  Q: {{dtype: {dtype}, shape: [1, S, H, D], role: input}}
  K: {{dtype: {dtype}, shape: [1, T, H, D], role: input}}
  V: {{dtype: {dtype}, shape: [1, T, H, D], role: input}}
  G: {{dtype: {dtype}, shape: [1, S, H, D], role: input}}
  # What another kernel makes of O before: the sums of exponents as base-2 logarithms, and the rows' sums of O * dO.
  L: {{dtype: f32, shape: [1, H, S], role: input}}
  P: {{dtype: f32, shape: [1, H, S], role: input}}
  # Added up in the order of the accumulators' registers; another kernel scales and sorts them.
  dQ: {{dtype: f32, shape: [1, H, S * D], role: output, fill: 0}}
  dK: {{dtype: {dtype}, shape: [1, T, H, D], role: output}}
  dV: {{dtype: {dtype}, shape: [1, T, H, D], role: output}}
reduction: S
reference: {{python: "reference.py:gradients"}}
# P and dS are rounded to the operands' type before they meet the second factor.
magnitude: "bounds(Q, K, V, G, L, P)"
accumulate: f32
exact: false
# Exponents of wider inputs leave no bound that tells right from wrong.
families: [uniform]
"""
BACKWARD_REFERENCE = """import numpy as np


def places(rows, columns, tile):
    \"\"\"Row and column of each element of dQ as the kernel lays it out: by tile of rows, warpgroup, four registers,
    thread, register.\"\"\"
    width = columns // 2  # of a warpgroup
    block, group, four, thread, part = np.meshgrid(
        np.arange(rows // tile), np.arange(2), np.arange(width // 8), np.arange(128), np.arange(4), indexing="ij"
    )
    row = block * tile + thread // 32 * 16 + thread % 32 // 4 + part // 2 * 8
    return row.ravel(), (group * width + four * 8 + thread % 4 * 2 + part % 2).ravel()


def gradients(inputs, sizes):
    q, k, v, g = inputs["Q"], inputs["K"], inputs["V"], inputs["G"]
    scores = np.einsum("bmhd,bnhd->bhmn", q, k) * sizes["SCALE"]
    p = np.exp2(scores * np.log2(np.e) - inputs["L"][..., None])
    ds = p * (np.einsum("bmhd,bnhd->bhmn", g, v) - inputs["P"][..., None])
    row, column = places(sizes["S"], sizes["D"], sizes["TILE"])
    return {
        "dQ": np.einsum("bhmn,bnhd->bhmd", ds, k)[:, :, row, column],
        "dK": np.einsum("bhmn,bmhd->bnhd", ds, q) * sizes["SCALE"],
        "dV": np.einsum("bhmn,bmhd->bnhd", p, g),
    }
"""
LARGEST_P = "2.0 ** (SCALE * 1.5 * np.max(np.einsum('bmhd,bnhd->bhmn', Q, K)) + np.max(L))"
LARGEST_DS = f"{LARGEST_P} * (np.max(np.einsum('bmhd,bnhd->bhmn', G, V)) + np.max(P))"
BACKWARD_MAGNITUDE = (
    f"{{'dQ': 4096 * {LARGEST_DS} * np.max(K) * T + 0 * np.reshape(Q, (1, H, S * D)),"
    f" 'dK': 4096 * {LARGEST_DS} * np.max(Q) * S * SCALE + 0 * K, 'dV': 4096 * {LARGEST_P} * np.max(G) * S + 0 * K}}"
)


def flash_backward(d: int, tile_m: int, tile_n: int, s: int, t: int, dtype: str = "bf16") -> ExternalCase:
    driver = FLASH_BACKWARD.format(d=d, tile_m=tile_m, tile_n=tile_n)
    case = FLASH_BACKWARD_CASE.format(scale=d**-0.5, tile_m=tile_m, s=s, t=t, d=d, dtype=dtype)
    case = case.replace("bounds(Q, K, V, G, L, P)", BACKWARD_MAGNITUDE)
    return ExternalCase("flash_attn", driver, case, {"reference.py": BACKWARD_REFERENCE})


FMHA = """import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from fmha import HopperFusedMultiHeadAttentionForward, fmha_utils


class Attention:
    def __init__(self, tile, mask):
        self.kernel = HopperFusedMultiHeadAttentionForward(
            cutlass.Float32, cutlass.Float32, tile, False, fmha_utils.MaskEnum[mask]
        )

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        log2_scale: cutlass.Float32,
        scale: cutlass.Float32,
        stream: cuda.CUstream,
    ):
        self.kernel(q, k, v, o, lse, log2_scale, scale, cutlass.Float32(1.0), None, None, stream)
"""
FMHA_CASE = """
version: 1
kernel: driver.py
entry: Attention
include_dirs: ["{{root}}", "{{root}}/{folder}"]
constants: {{SCALE: "0.125"}}
sizes: {{S: {s}, D: {d}, H: 1}}
dsl:
  dynamic: true
  init: {{tile: [64, 64, {d}], mask: WINDOW_MASK}}
  call: [Q, K, V, O, L, {{runtime: SCALE * 1.4426950408889634, type: f32}}, {{runtime: SCALE, type: f32}}, stream]
tensors:
  Q: {{dtype: f16, shape: [S, D, 1, H, 1], strides: [H * D, 1, D, D, S * H * D], role: input}}
  K: {{dtype: f16, shape: [S, D, 1, H, 1], strides: [H * D, 1, D, D, S * H * D], role: input}}
  V: {{dtype: f16, shape: [S, D, 1, H, 1], strides: [H * D, 1, D, D, S * H * D], role: input}}
  O: {{dtype: f16, shape: [S, D, 1, H, 1], strides: [H * D, 1, D, D, S * H * D], role: output}}
  L: {{dtype: f32, shape: [S, 1, 1, H, 1], strides: [H, 1, 1, 1, S * H], role: output}}
reduction: D
reference: {{python: "reference.py:attention"}}
magnitude: >-
  {{'O': np.max(V) * (4096 + 2 * SCALE * np.max(np.abs(np.einsum('mdrhb,ndrhb->mnrhb', Q, K)))) + 0 * Q,
  'L': 16 + 2 * SCALE * np.max(np.einsum('mdrhb,ndrhb->mnrhb', Q, K)) + 0 * Q[:, :1]}}
accumulate: f32
exact: false
families: [normal, uniform]
"""
FMHA_REFERENCE = """import numpy as np


def attention(inputs, sizes):
    q, k, v = inputs["Q"], inputs["K"], inputs["V"]
    scores = np.einsum("mdrhb,ndrhb->mnrhb", q, k) * sizes["SCALE"]
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=1, keepdims=True)
    return {"O": np.einsum("mnrhb,ndrhb->mdrhb", weights / total, v), "L": largest[:, :1] + np.log(total[:, :1])}
"""


def fmha(needs: str, folder: str, s: int = 128, d: int = 64) -> ExternalCase:
    return ExternalCase(
        needs, FMHA, FMHA_CASE.format(folder=folder, s=s, d=d), {"reference.py": FMHA_REFERENCE}
    )


DENSE = "cutlass.Float32, ({}), ({})"
NEWEST = "cute/hopper/kernel"
EXTERNAL: dict[str, ExternalCase] = {
    "quack-gemm": quack_gemm((128, 128)),
    "quack-gemm-pingpong": quack_gemm((64, 128), options="pingpong=True"),
    "quack-gemm-cluster": quack_gemm((128, 192), (2, 1, 1), N=384, dtype="f16", out="f16"),
    "quack-gemm-registers": quack_gemm((128, 128), options="mma_is_rs=True", dtype="f16", out="f16"),
    "quack-gemm-fp8": quack_gemm((128, 128), (1, 2, 1), dtype="f8e4m3", out="f32", K=256),
    "quack-gemm-wide": quack_gemm((192, 256), M=192),
    "quack-gemm-three-warpgroups": quack_gemm((192, 128), M=192),
    "quack-gemm-tall": quack_gemm((256, 192), N=192),
    "quack-gemm-columns": quack_gemm((128, 128), a="[M * K, 1, M]", b="[N * K, 1, N]"),
    "nvidia-dense": nvidia_gemm(
        "dense_gemm", "HopperWgmmaGemmKernel", DENSE.format("128, 128", "1, 1"), dtype="f16", out="f16"
    ),
    "nvidia-persistent": nvidia_gemm(
        "dense_gemm_persistent", "HopperWgmmaGemmPersistentKernel", DENSE.format("128, 256", "2, 1") + ", 1, True",
        "4, ", dtype="bf16", out="f16", M=512,
    ),
    "nvidia-fmha": fmha("examples", "hopper"),
    "nvidia-newest-dense": nvidia_gemm(
        "dense_gemm", "HopperWgmmaGemmKernel", DENSE.format("128, 128", "1, 1"), needs="cutlass", dtype="f16",
        out="f16",
    ),
    "nvidia-newest-persistent": nvidia_gemm(
        "dense_gemm_persistent", "HopperWgmmaGemmPersistentKernel", DENSE.format("128, 256", "2, 1") + ", 1, True",
        "4, ", needs="cutlass", dtype="bf16", out="f16", M=512,
    ),
    "nvidia-grouped": grouped_gemm("examples", "hopper", "CpAsyncBulkTensorLoadMode"),
    "nvidia-newest-grouped": grouped_gemm("cutlass", f"{NEWEST}/grouped_gemm"),
    "nvidia-newest-fp8-gelu": fp8_gemm(
        "dense_gemm_fp8_gelu_persistent", "HopperFP8GeluPersistentGemmKernel",
        DENSE.format("128, 128", "1, 1") + ", 1, True", "scale, True, 4", "1",
        "0.125 * total * (1 + np.vectorize(math.erf)(0.25 * total / math.sqrt(2)))",
    ),
    "nvidia-newest-fp8-two-accumulators": fp8_gemm(
        "dense_gemm_fp8_2xacc", "HopperFP8WarpSpecialized2xAccGemmKernel", "(128, 128), (1, 1), 1, True", "x, y, 4",
        "X * Y", 'total * inputs["X"] * inputs["Y"]',
    ),
    "nvidia-newest-fmha": fmha("cutlass", f"{NEWEST}/attention"),
    "flash-forward-64": flash_forward(64, 128, 128),
    "flash-forward-64-192": flash_forward(64, 192, 128),
    "flash-forward-64-plain": flash_forward(64, 128, 128, overlap=False),
    "flash-forward-64-shared": flash_forward(64, 128, 128, rs=False),
    "flash-forward-64-causal": flash_forward(64, 128, 128, causal=True, s=256, fails="tile_scheduler"),
    "flash-forward-128": flash_forward(128, 128, 128),
    "flash-forward-128-plain": flash_forward(128, 128, 128, overlap=False),
    "flash-forward-128-192": flash_forward(128, 192, 64),
    "flash-backward-64": flash_backward(64, 64, 128, s=128, t=256),
}  # fmt: skip


def main() -> int:
    target = Path(sys.argv[1])
    for name in EXTERNAL:
        try:
            print(write_case(name, target / name))
        except Missing as missing:
            print(f"{name}: left out: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
