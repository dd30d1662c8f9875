# SPDX-License-Identifier: Apache-2.0
"""What a draft reads of an epilogue from the kernel's text: functions told by their values, and what goes into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.scan.draft.new import draft_case
from porter.scan.draft.scalars import KNOWN
from porter.verify.activations import ACTIVATIONS
from porter.verify.references import evaluate_reference

import numpy as np  # isort: skip

HEAD = """#include <cuda.h>
#include <cuda_bf16.h>
constexpr float kRoot = 0.7978845608f;
#define CUBIC 0.044715f
__device__ inline float squash(float x) { return 0.5f * x * (1.0f + tanhf(kRoot * (x + CUBIC * x * x * x))); }
__device__ float fast_tanh(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ float smooth(float v) { const float cube = v * v * v; const float u = kRoot * (v + CUBIC * cube);
                                   return 0.5f * v * (1.f + fast_tanh(u)); }
__device__ void swish(float& x) { x = x / (1.f + __expf(-x)); }
__device__ float leaky_or_not(float x) { if (x > 0.f) { return x; } else { return 0.f; } }
template <class T> __device__ T gate(T x) { return T(1) / (T(1) + exp2f(-1.4426950408889634f * x)); }
namespace ops { struct Gelu { static __device__ float apply(float x) {
    return x * 0.5f * (1.0f + erff(x * 0.70710678f)); } }; }
__device__ float gelu(float x) { return fmaxf(x, 0.0f); }
"""
KERNEL = """
__global__ void __launch_bounds__(128) gemm(const __nv_bfloat16* A, const __nv_bfloat16* B, const float* bias,
                                            const float* residual, float* C, int M, int N, int K) {
    float d[64] = {};
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0}, %1, %2, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]) : "l"(0), "l"(0));
    for (int k = 0; k < K; ++k) d[0] += float(A[threadIdx.x * K + k]) * float(B[threadIdx.x * K + k]);
    const int row = threadIdx.x, col = blockIdx.x;
    for (int i = 0; i < 64; ++i) {
        BODY
    }
}
void run(const __nv_bfloat16* A, const __nv_bfloat16* B, const float* bias, const float* residual,
         float* C, int M, int N, int K) {
    gemm<<<N / 128, 128>>>(A, B, bias, residual, C, M, N, K);
}
"""
SUM = "A @ B.T + bias"


def reference(body: str, folder: Path) -> str:
    (folder / "gemm.cu").write_text(HEAD + KERNEL.replace("BODY", body))
    found = draft_case(folder / "gemm.cu").fields["reference"]
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        # functions are told by what they compute, and neither by name nor by spelling
        ("C[row * N + col] = squash(d[i] + bias[col]);", f"gelu_tanh({SUM})"),
        ("C[row * N + col] = smooth(d[i] + bias[col]);", f"gelu_tanh({SUM})"),
        ("C[row * N + col] = ops::Gelu::apply(d[i] + bias[col]);", f"gelu({SUM})"),
        ("C[row * N + col] = gelu(d[i] + bias[col]);", f"relu({SUM})"),
        ("C[row * N + col] = leaky_or_not(d[i] + bias[col]);", f"relu({SUM})"),
        ("C[row * N + col] = gate(d[i] + bias[col]);", f"sigmoid({SUM})"),
        ("float v = d[i] + bias[col]; swish(v); C[row * N + col] = v;", f"silu({SUM})"),
        ("C[row * N + col] = tanhf(d[i] + bias[col]);", f"tanh({SUM})"),
        # in the kernel's own text
        ("const float v = d[i] + bias[col]; C[row * N + col] = v / (1.0f + expf(-v));", f"silu({SUM})"),
        ("const float v = d[i] + bias[col]; C[row * N + col] = v > 0.f ? v : 0.f;", f"relu({SUM})"),
        ("float v = d[i]; v += bias[col]; v = fmaxf(v, 0.f); C[row * N + col] = v;", f"relu({SUM})"),
        ("const float v = d[i] + bias[col]; const float u = kRoot * (v + CUBIC * v * v * v); "
         "C[row * N + col] = 0.5f * v * (1.f + tanhf(u));", f"gelu_tanh({SUM})"),
        ("C[row * N + col] = fminf(fmaxf(d[i] + bias[col], -1.5f), 6.f);", f"np.clip({SUM}, -1.5, 6)"),
        ("C[row * N + col] = __saturatef(d[i] + bias[col]);", f"np.clip({SUM}, 0, 1)"),
        # what goes into it, and what is added to what comes out
        ("C[row * N + col] = squash(d[i] + bias[col]) + residual[row * N + col];", f"gelu_tanh({SUM}) + residual"),
        ("C[row * N + col] = residual[row * N + col] + squash(d[i] + bias[col]);", f"gelu_tanh({SUM}) + residual"),
        ("C[row * N + col] = squash(d[i] + bias[col] + residual[row * N + col]);", f"gelu_tanh({SUM} + residual)"),
        ("C[row * N + col] = squash(d[i]) + bias[col];", "gelu_tanh(A @ B.T) + bias"),
        ("const float r = residual[row * N + col]; const float v = d[i] + bias[col]; const float g = squash(v); "
         "C[row * N + col] = g + r;", f"gelu_tanh({SUM}) + residual"),
        ("float v = squash(d[i] + bias[col]); v += residual[row * N + col]; C[row * N + col] = v;",
         f"gelu_tanh({SUM}) + residual"),
        # none
        ("C[row * N + col] = d[i] + bias[col];", SUM),
        ("C[row * N + col] = d[i] * d[i] + bias[col];", SUM),
        ("C[row * N + col] = mystery(d[i] + bias[col]);", SUM),
    ],
)  # fmt: skip
def test_what_becomes_of_a_sum(body: str, wanted: str, tmp_path: Path) -> None:
    found = reference(body, tmp_path)
    if "residual" not in body:
        # it is an input that nothing is done with
        found = found.replace(" + residual", "")
    assert found == wanted


def test_what_is_stored_ahead_of_the_function_does_not_go_through_it(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "corpus" / "gemm_fused" / "gemm_fused.cu").read_text("utf-8")
    (tmp_path / "fused.cu").write_text(text)
    found = draft_case(tmp_path / "fused.cu").fields["reference"]
    assert found == "{'out': gelu_tanh(A @ B.T + bias) + residual, 'pre': A @ B.T + bias}"


@pytest.mark.parametrize("name", KNOWN)
def test_the_functions_are_those_of_references(name: str) -> None:
    x = np.linspace(-4, 4, 33)
    assert name in ACTIVATIONS
    np.testing.assert_allclose(evaluate_reference(f"{name}(x)", {"x": x}), [KNOWN[name](v) for v in x], atol=1e-12)


def test_an_approximation_has_a_bound_of_its_own(tmp_path: Path) -> None:
    for body, wanted in (
        ("C[row * N + col] = smooth(d[i] + bias[col]);", f"8192 * (({SUM}) + residual)"),
        ("C[row * N + col] = d[i] + bias[col];", None),
    ):
        (tmp_path / "gemm.cu").write_text(HEAD + KERNEL.replace("BODY", body))
        assert draft_case(tmp_path / "gemm.cu").fields.get("magnitude") == wanted
