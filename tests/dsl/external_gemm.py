# SPDX-License-Identifier: Apache-2.0
"""GEMMs of quack and of NVIDIA's examples."""

from __future__ import annotations

from external_case import ExternalCase

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
    tile: tuple[int, int],
    cluster: tuple[int, int, int] = (1, 1, 1),
    options: str = "",
    clusters: int = 2,
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


DENSE = "cutlass.Float32, ({}), ({})"
NEWEST = "cute/hopper/kernel"
GEMMS: dict[str, ExternalCase] = {
    "quack-gemm": quack_gemm((128, 128)),
    "quack-gemm-pingpong": quack_gemm((64, 128), options="pingpong=True"),
    "quack-gemm-cluster": quack_gemm((128, 192), (2, 1, 1), N=384, dtype="f16", out="f16"),
    "quack-gemm-registers": quack_gemm((128, 128), options="mma_is_rs=True", dtype="f16", out="f16"),
    "quack-gemm-fp8": quack_gemm((128, 128), (1, 2, 1), dtype="f8e4m3", out="f32", K=256),
    "quack-gemm-fp8-fast": quack_gemm((128, 128), options="fp8_fast_accum=True", dtype="f8e4m3", out="f32", K=256),
    "quack-gemm-wide": quack_gemm((192, 256), M=192),
    "quack-gemm-three-warpgroups": quack_gemm((192, 128), M=192),
    "quack-gemm-tall": quack_gemm((256, 192), N=192),
    "quack-gemm-columns": quack_gemm((128, 128), a="[M * K, 1, M]", b="[N * K, 1, N]"),
    "quack-gemm-five-rows": quack_gemm((320, 160), M=320, N=160),
    "nvidia-dense": nvidia_gemm(
        "dense_gemm", "HopperWgmmaGemmKernel", DENSE.format("128, 128", "1, 1"), dtype="f16", out="f16"
    ),
    "nvidia-persistent": nvidia_gemm(
        "dense_gemm_persistent", "HopperWgmmaGemmPersistentKernel", DENSE.format("128, 256", "2, 1") + ", 1, True",
        "4, ", dtype="bf16", out="f16", M=512,
    ),
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
}  # fmt: skip
