# SPDX-License-Identifier: Apache-2.0
"""A library of another style, by rules alone: a class template whose static function makes its descriptors itself, with
the accumulator behind its operands, the shape and the types in template arguments, and fences as macros."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import codes, port_house, written

RULES = """\
schema: 2
library: mill
rules:
  - id: MILL100
    title: Multiply of the mill
    recognize: 'mill::Gemm<mill::Shape<$N>, $T>::run($A, $B, $D)'
    map: {T: {half: f16.f16, __half: f16.f16, __nv_bfloat16: bf16.bf16}}
    as:
      mma:
        {shape: 'm64n${N}k16', types: 'f32.$T', d: $D,
         a: 'mill::describe($A)', b: 'mill::describe($B)', transpose_b: '1'}
    safety: review
    reason: The mill's multiply is one wgmma with B as it lies in memory.
    examples: [{before: 'x', facts: []}, {near: 'mill::Gemm<mill::Shape<64>, int>::run(a, b, d)'}]
  - {id: MILL101, title: Begin, recognize: MILL_BEGIN(), as: {fence: {}}, safety: review, reason: It is wgmma's.,
     examples: [{before: 'MILL_BEGIN()', facts: [{fence: {}}]}, {absent: 'other::f()'}]}
  - {id: MILL102, title: End, recognize: 'mill::Batch::close()', as: {commit: {}}, safety: review, reason: It closes.,
     examples: [{before: 'mill::Batch::close()', facts: [{commit: {}}]}, {absent: 'other::f()'}]}
  - {id: MILL103, title: Wait, recognize: 'mill::Batch::drain($N)', as: {wait: {pending: $N}}, where: {N: int},
     safety: review, reason: It is wgmma's.,
     examples: [{before: 'mill::Batch::drain(0)', facts: [{wait: {pending: '0'}}]}, {absent: 'other::f()'}]}
"""
HEADER = """\
#pragma once
#include <cstdint>
#include <cuda_fp16.h>
namespace mill {
template <int N> struct Shape {};
__device__ uint64_t describe(const void* tile);
template <class S, class T> struct Gemm;
template <int N, class T> struct Gemm<Shape<N>, T> {
    static __device__ void run(const T* a, const T* b, float (&d)[N / 2]);
};
struct Batch {
    static __device__ void close();
    static __device__ void drain(int pending);
};
}
"""
NOTHING = "#pragma once\n#include <cuda_fp16.h>\n"
RUN = "mill::Gemm<mill::Shape<64>, half>::run(a, b, acc)"


def _kernel(run: str = RUN, inside: str = "", before: str = "", head: str = "__global__ ") -> str:
    return f"""\
#include "house.cuh"
{before}
{head}void __launch_bounds__(128) kernel(float* out, const half* a, const half* b) {{
    {inside}
    float acc[32] = {{}};
    MILL_BEGIN();
    {run};
    mill::Batch::close();
    mill::Batch::drain(0);
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = acc[i];
}}
"""


@pytest.mark.parametrize("header", [HEADER, NOTHING])
@pytest.mark.parametrize(
    ("run", "inside", "before"),
    [
        (RUN, "", ""),
        ("::mill::Gemm< ::mill::Shape<64>, half>::run(a, b, acc)".replace(" ::mill::S", "mill::S"), "", ""),
        ("m::Gemm<mill::Shape<64>, half>::run(a, b, acc)", "", "namespace m = mill;\n"),
        ("Gemm<mill::Shape<64>, half>::run(a, b, acc)", "", "using namespace mill;\n"),
        ("G::run(a, b, acc)", "", "using G = mill::Gemm<mill::Shape<64>, half>;\n"),
        ("G::run(a, b, acc)", "using G = mill::Gemm<mill::Shape<64>, half>;", ""),
        ("Of<half>::run(a, b, acc)", "", "template <class T> using Of = mill::Gemm<mill::Shape<64>, T>;\n"),
        ("mill::Gemm<mill::Shape<kN>, __half>::run(a + 8, b, acc)", "constexpr int kN = 64;", ""),
    ],
)  # fmt: skip
def test_a_class_template_is_ported(tmp_path: Path, run: str, inside: str, before: str, header: str) -> None:
    result = port_house(tmp_path, _kernel(run, inside, before), RULES, header)
    if "using namespace" in before and header == NOTHING:
        # another header may declare the name
        assert codes(result) == ["WGMMA_FORM"]
        return
    text = written(result)
    body = text[text.index("void __launch_bounds__") :]
    order = ["tcgen05::sync_warpgroup();", "tcgen05::mma_f16(", "acc_tmem, mill::describe(a", "tc.commit();"]
    order += ["tc.wait(0);", "tcgen05::load(acc, acc_tmem);"]
    assert [body.index(piece) for piece in order] == sorted(body.index(piece) for piece in order)
    assert "64, false, false, false, true)" in body
    assert "::run(" not in body


@pytest.mark.parametrize(
    ("run", "inside", "before"),
    [
        ("mill::Gemm<mill::Shape<64>, int>::run(a, b, acc)", "", ""),
        ("mill::Gemm<mill::Wide<64>, half>::run(a, b, acc)", "", ""),
        ("mill::Gemm<mill::Shape<32>, half>::run(a, b, acc)", "", ""),
        ("mill::Gemm<mill::Shape<64>, half>::run(a, b)", "", ""),
        ("G::run(a, b, acc)", "", "using G = mill::Gemm<mill::Shape<64>, float>;\n"),
        (RUN + ";\n    mill::Batch::drain(n)", "int n = a == b;", ""),
    ],
)  # fmt: skip
def test_a_form_that_is_not_known_is_refused(tmp_path: Path, run: str, inside: str, before: str) -> None:
    assert set(codes(port_house(tmp_path, _kernel(run, inside, before), RULES, HEADER))) & {
        "RULE_NEAR_MISS",
        "WGMMA_FORM",
    }


def test_a_class_that_a_template_is_handed_is_not_guessed(tmp_path: Path) -> None:
    text = _kernel("G::run(a, b, acc);\n    " + RUN, head="template <class G> __global__ ")
    assert codes(port_house(tmp_path, text, RULES, HEADER))
