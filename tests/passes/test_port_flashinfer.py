# SPDX-License-Identifier: Apache-2.0
"""flashinfer's raw Hopper kernels, where it is installed: what is ported compiles, and agrees with its original."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from porter.cli.main import main
from porter.diagnostics import ExitCode

_SPEC = importlib.util.find_spec("flashinfer")
if _SPEC is None or _SPEC.origin is None:
    # not imported: that needs torch
    pytest.skip("flashinfer is not installed", allow_module_level=True)
PACKAGE = Path(_SPEC.origin).parent
CSRC = PACKAGE / "data" / "csrc"
LLM = CSRC / "nv_internal" / "tensorrt_llm"
CUTLASS = PACKAGE / "data" / "cutlass" / "include"
MEGAMOE = PACKAGE / "moe_ep" / "kernel_src" / "sm90"

WHOLE = [
    *sorted(CSRC.glob("cake_vsa_sm90/*_kernel.cu")),
    *sorted(MEGAMOE.glob("cake_bf16_megamoe/src/*_kernel.cu")),
]
"""Kernels that are no templates."""
ROOTS = [
    LLM / "deep_gemm" / "fp8_gemm_impl.cuh",
    LLM / "kernels" / "cutlass_kernels" / "fp8_blockscale_gemm" / "fp8_blockscale_gemm.cu",
    LLM / "kernels" / "cutlass_kernels" / "fp8_blockscale_gemm" / "fp8_blockscale_gemm_kernel.cuh",
    MEGAMOE / "push_style_megamoe" / "src" / "fp8_gemm" / "fp8_moe_fc1_fused.cuh",
    CSRC / "xqa" / "mha_sm90.cu",
    CSRC / "fused_moe" / "monomoe" / "src" / "moe.cuh",
    CSRC / "fused_moe" / "monomoe" / "src" / "moe_tma.cu",
    CSRC / "fmha_v2" / "fmha" / "hopper" / "utils_hgmma.h",
    PACKAGE / "data" / "include" / "flashinfer" / "attention" / "mla_hopper.cuh",
]
INCLUDE = ["-I", str(LLM.parent), "-I", str(LLM.parent / "include"), "-I", str(LLM)]

REFUSED = {
    # CuTe C++, seen in the header itself or behind one that is found without -I
    ("fp8_moe_fc1_fused.cuh", False): "PT2003",
    ("mla_hopper.cuh", False): "PT2003",
    ("mla_hopper.cuh", True): "PT2003",
    # an accumulator that is the cast of an element of an object
    ("mha_sm90.cu", False): "PT2002",
    ("mha_sm90.cu", True): "PT2002",
}
"""What refuses a root, by its name and whether `-I` is given; the others are ported."""

pytestmark = pytest.mark.external


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


@pytest.mark.parametrize("included", [False, True], ids=["alone", "with -I"])
@pytest.mark.parametrize("root", [r for r in ROOTS if r.exists()], ids=lambda p: p.name)
def test_every_root_is_ported_or_refused_for_a_cause(root: Path, included: bool) -> None:
    result = run("port", root, "--no-compile", "--check", *(INCLUDE if included else []))
    refused = set(re.findall(r"error\[(PT\d+)\]", result.output))
    wanted = REFUSED.get((root.name, included))
    assert refused == ({wanted} if wanted else set()), result.output
    assert result.exit_code == (ExitCode.UNPORTED if wanted else ExitCode.FINDINGS)


@pytest.mark.slow
@pytest.mark.parametrize("root", WHOLE, ids=lambda p: p.name)
def test_kernels_that_are_no_templates_compile(root: Path) -> None:
    result = run("port", root, "--check")
    assert result.exit_code == 1, result.output
    assert "compiled for sm_90a → sm_100a" in result.output
    assert "PT3014" not in result.output, "spills"


TYPES = [
    ("fp8_gemm_kernel", "SchedulerSelector", "Normal", "NormalSchedulerInput"),
    ("fp8_gemm_kernel", "SchedulerSelector", "GroupedWithOffset", "GroupedWithOffsetSchedulerInput"),
    ("fp8_gemm_kernel", "SchedulerSelector", "StridedBatched", "StridedBatchedSchedulerInput"),
    ("fp8_gemm_kernel_swapAB", "SchedulerSelectorSwapAB", "Normal", "NormalSchedulerInputSwapAB"),
    ("fp8_gemm_kernel_swapAB", "SchedulerSelectorSwapAB", "GroupedWithOffset", "GroupedWithOffsetSchedulerInputSwapAB"),
]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [64, 128])
def test_deep_gemm_compiles_in_every_instantiation_of_its_launcher(rows: int, tmp_path: Path) -> None:
    lines = [
        "#include <string>", "#include <cuda.h>", "#include <cuda_bf16.h>", "#include <cuda_fp8.h>",
        "#include <deep_gemm/nvrtc_cutlass.cuh>", "#include <deep_gemm/fp8_gemm_impl.cuh>", "namespace deep_gemm {",
    ]  # fmt: skip
    for columns in range(16, 129, 8):
        for kernel, selector, kind, given in TYPES:
            tile = f"4096, 7168, {rows}, {columns}, 128, 1"
            maps = ", ".join(["const __grid_constant__ CUtensorMap"] * 4)
            chosen = f"typename {selector}<GemmType::{kind}, {tile}, 1>::type"
            arguments = f"{tile}, 4, 128, 128, 1, {chosen}, {given}"
            lines.append(f"template __global__ void {kernel}<{arguments}>(__nv_bfloat16*, float*, {given}, {maps});")
    source = tmp_path / "all.cu"
    source.write_text("\n".join([*lines, "}", ""]))
    result = run("port", source, "--check", "-I", LLM, "--nvcc-flag", f"-isystem={CUTLASS}")
    assert result.exit_code == 1, result.output
    # registers and spills of each
    assert len(re.findall(r" \d+ → \d+ +\d+ → \d+", result.output)) == 15 * len(TYPES)


@pytest.mark.slow
def test_push_style_compiles_in_every_instantiation_of_its_launcher(tmp_path: Path) -> None:
    folder = MEGAMOE / "push_style_megamoe" / "src" / "fp8_gemm"
    lines = [
        "#include <string>", "#include <cuda.h>", "#include <cuda_bf16.h>", "#include <cuda_fp8.h>",
        "#include <deep_gemm/nvrtc_cutlass.cuh>", "#include <fp8_moe_fc1_fused.cuh>",
        "using namespace flashinfer::sm90_push_fp8;", "__global__ void all(void** out) {",
    ]  # fmt: skip
    for rows in (64, 128):
        for stages in range(4, 9):
            tile = f"4096, 7168, {rows}, 128, 128, 8, {stages}, 128, 128, 1"
            scheduler = f"Fp8MoeFc1Scheduler<4096, {rows}, 128, 8, 1>"
            given = "deep_gemm::GroupedWithOffsetSchedulerInput"
            lines.append(f"*out++ = (void*)&fp8_gemm_kernel_sm90_push_fc1_fused<{tile}, {scheduler}, {given}>;")
    source = tmp_path / "all.cu"
    source.write_text("\n".join([*lines, "}", ""]))
    result = run("port", source, "--check", "-I", folder, "-I", LLM, "--nvcc-flag", f"-isystem={CUTLASS}")
    assert result.exit_code == 1, result.output
    assert result.output.count(" → ") == 1 + 2 * (1 + 2 * 5), result.output


@pytest.mark.slow
def test_fp8_blockscale_compiles_in_every_instantiation_of_its_launcher() -> None:
    root = LLM / "kernels" / "cutlass_kernels" / "fp8_blockscale_gemm" / "fp8_blockscale_gemm.cu"
    defines = ["ENABLE_FP8_BLOCK_SCALE", "COMPILE_HOPPER_TMA_GEMMS", "ENABLE_BF16", "ENABLE_FP8"]
    named = [option for name in defines for option in ("-D", name)]
    result = run("port", root, "--check", *INCLUDE[:4], *named, "--nvcc-flag", f"-isystem={CUTLASS}")
    assert result.exit_code == 1, result.output
    assert result.output.count("cooperative_1x128_by_128x128_fp8_gemm_kernel<") >= 10, result.output


@pytest.mark.slow
def test_monomoe_compiles_in_every_instantiation_of_its_launcher() -> None:
    folder = CSRC / "fused_moe" / "monomoe"
    include = ["-I", CSRC, "-I", PACKAGE / "data" / "include", "-I", folder]
    result = run("port", folder / "monomoe_binding.cu", "--check", *include, "--nvcc-flag", f"-isystem={CUTLASS}")
    assert result.exit_code == 1, result.output
    assert result.output.count("moe_kernel_topk<monomoe::") == 1, result.output
    assert "PT3014" not in result.output, "spills"


HEAD = """\
version: 1
kernel: kernel.cu
defines: {CASE_M: M, CASE_N: N, CASE_BM: BM, CASE_BN: BN}
constants: {BM: 64, BN: 64, BK: 128, STAGES: 4}
multiples: {M: BM, N: BN, K: BK}
reduction: K
accumulate: f32
families: [integers, index, normal]
"""
PLAIN = """\
entry: deep_gemm::fp8_gemm_kernel
template: [N, K, BM, BN, BK, 1, STAGES, 128, 128, 1, Scheduler, "deep_gemm::NormalSchedulerInput"]
sizes: {M: 192, N: 128, K: 640}
tensors:
  A: {dtype: f8e4m3, shape: [M, K], role: input}
  B: {dtype: f8e4m3, shape: [N, K], role: input}
  sa: {dtype: f32, shape: ["K / BK", M], role: input}
  sb: {dtype: f32, shape: ["ceil_div(N, BK)", "K / BK"], role: input}
  D: {dtype: bf16, shape: [M, N], role: output}
tensor_maps:
  map_a: {tensor: A, box: [BM, BK], swizzle: 128B, l2_promotion: 256B}
  map_b: {tensor: B, box: [BN, BK], swizzle: 128B, l2_promotion: 256B}
  map_s: {tensor: sa, box: [1, BM], l2_promotion: 256B}
  map_d: {tensor: D, box: [BM, BN], l2_promotion: 256B}
launch:
  grid: [2, 1, 1]
  block: [256, 1, 1]
  dynamic_smem: "BM * BN * 2 + STAGES * (BM * BK + BM * 4 + BN * BK + 16) + align_up(ceil_div(K, BK) * 4, 8)"
params: [D, sb, {struct: [{value: M, type: u32}, {value: 0, type: u64}]}, map_a, map_b, map_s, map_d]
reference: >-
  np.sum(np.matmul(A.reshape(M, K // BK, BK).transpose(1, 0, 2), B.reshape(N, K // BK, BK).transpose(1, 2, 0))
  * sa[:, :, None] * np.repeat(sb, BK, 0)[:N].T[:, None, :], axis=0)
magnitude: "(A * np.repeat(sa.T, BK, 1)) @ (B * np.repeat(np.repeat(sb, BK, 0)[:N], BK, 1)).T + 1e-30"
"""
SWAPPED = """\
entry: deep_gemm::fp8_gemm_kernel_swapAB
template: [M, K, BM, BN, BK, 1, STAGES, 128, 128, 1, SchedulerSwapAB, "deep_gemm::NormalSchedulerInputSwapAB"]
sizes: {M: 128, N: 192, K: 640}
tensors:
  A: {dtype: f8e4m3, shape: [M, K], role: input}
  B: {dtype: f8e4m3, shape: [N, K], role: input}
  sa: {dtype: f32, shape: ["ceil_div(M, BK)", "K / BK"], role: input}
  sb: {dtype: f32, shape: ["K / BK", N], role: input}
  D: {dtype: bf16, shape: [N, M], role: output}
tensor_maps:
  map_a: {tensor: A, box: [BM, BK], swizzle: 128B, l2_promotion: 256B}
  map_b: {tensor: B, box: [BN, BK], swizzle: 128B, l2_promotion: 256B}
  map_s: {tensor: sb, box: [1, BN], l2_promotion: 256B}
  map_d: {tensor: D, box: [BN, BM], l2_promotion: 256B}
launch:
  grid: [2, 1, 1]
  block: [256, 1, 1]
  dynamic_smem: "BM * BN * 2 + STAGES * (BM * BK + align_up(BN * 4, 128) + BN * BK + 16) + align_up(K / BK * 4, 8)"
params: [D, sa, {struct: [{value: N, type: u32}, {value: 0, type: u64}]}, map_a, map_b, map_s, map_d]
reference: >-
  np.sum(np.matmul(B.reshape(N, K // BK, BK).transpose(1, 0, 2), A.reshape(M, K // BK, BK).transpose(1, 2, 0))
  * sb[:, :, None] * np.repeat(sa, BK, 0)[:M].T[:, None, :], axis=0)
magnitude: "(B * np.repeat(sb.T, BK, 1)) @ (A * np.repeat(np.repeat(sa, BK, 0)[:M], BK, 1)).T + 1e-30"
"""
KERNEL = """\
#include <string>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include "deep_gemm/nvrtc_cutlass.cuh"
#include "deep_gemm/fp8_gemm_impl.cuh"
using Scheduler = deep_gemm::NormalScheduler<CASE_N, CASE_BM, CASE_BN, 1, 1>;
using SchedulerSwapAB = deep_gemm::NormalSchedulerSwapAB<CASE_M, CASE_BM, CASE_BN, 1, 1>;
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", [PLAIN, SWAPPED], ids=["fp8_gemm_kernel", "fp8_gemm_kernel_swapAB"])
def test_deep_gemm_agrees_with_its_original(case: str, tmp_path: Path) -> None:
    shutil.copytree(LLM / "deep_gemm", tmp_path / "deep_gemm")
    (tmp_path / "kernel.cu").write_text(KERNEL)
    (tmp_path / "case.yaml").write_text(HEAD + case)
    result = run("verify", tmp_path, "--sizes", "default", "--no-hazards")
    assert result.exit_code == 0, result.output
    assert result.output.count("same bits") == 4  # three families, one of them under a random schedule too
