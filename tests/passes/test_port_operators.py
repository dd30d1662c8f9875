# SPDX-License-Identifier: Apache-2.0
"""Registers beside operators that the sources overload: what copies a number only reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import kernel, port_text

BODY = """
    float acc[8], sum[8] = {0};
    for (int k = 0; k < steps; ++k) {
        for (int i = 0; i < 8; ++i) acc[i] = 0.f;
        arrive(); mma(acc, a + k * 2, b + k * 2); commit(); wait<0>();
        for (int i = 0; i < 8; ++i) sum[i] += 2.f * acc[i];
    }
    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = sum[i];
"""
COPYING = [
    "__device__ float2 operator*(float2 a, float2 b) { return make_float2(a.x * b.x, a.y * b.y); }",
    "__device__ float2 operator*(float2 a, float b) { return make_float2(a.x * b, a.y * b); }",
    "__device__ float2 operator*(const float2& a, const float2& b) { return make_float2(a.x * b.x, a.y * b.y); }",
    "__device__ void operator+=(float2& a, const float b) { a.x += b; }",
    "struct V { float x; __device__ V operator*(V o) const { return V{x * o.x}; } };",
    "struct V { float x; __device__ V operator*(float o) const { return V{x * o}; } };",
    "struct V { float x; __device__ V& operator+=(const V& o) { x += o.x; return *this; } };",
    "struct V { float x; __device__ V(float f) : x(f) {} __device__ V operator*(const V& o) const { return *this; } };",
    "struct V { float x; __device__ float operator*() const { return x; } };",
    "template <typename T> struct P { T* p; __device__ T& operator*() const { return *p; } };",
    "struct V { float x; }; template <typename T> __device__ V operator*(V a, T b) { return V{a.x * float(b)}; }",
    "struct V { float x; }; __device__ V operator*(V a, float b);",
]
KEEPING = [
    "struct V { float x; }; __device__ V operator*(V a, float& b) { b += a.x; return a; }",
    "struct V { const float* p; }; __device__ V operator*(V a, const float& b) { return V{&b}; }",
    "struct V { const float* p; __device__ V operator*(const float& b) const { return V{&b}; } };",
    "struct V { const float* p; __device__ V(const float& f) : p(&f) {} };\n"
    "__device__ V operator*(V a, V b) { return b; }",
    "template <typename T> struct R { const T& r; };\n"
    "template <typename T, typename U> __device__ R<T> operator*(const U&, const T& b) { return R<T>{b}; }",
    "template <typename T, typename U> __device__ T& operator*(U a, T&& b) { return b; }",
    "struct W { const float* p; template <typename T> __device__ W(T&& f) : p(&f) {} };\n"
    "__device__ W operator*(W a, W b) { return b; }",
    "struct B { const float* p; __device__ B(const float& f) : p(&f) {} };\n"
    "struct V : B { using B::B; }; __device__ V operator*(V a, V b) { return b; }",
]


def _notes(tmp_path: Path, operator: str) -> list[str]:
    result = port_text(tmp_path, kernel(BODY, before=operator + "\n"))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return [d.code.value.id for d in result.diagnostics]


@pytest.mark.parametrize("operator", COPYING)
def test_an_operator_that_copies_reads(operator: str, tmp_path: Path) -> None:
    assert "PT2505" not in _notes(tmp_path, operator)


@pytest.mark.parametrize("operator", KEEPING)
def test_an_operator_that_may_refer_is_not_followed(operator: str, tmp_path: Path) -> None:
    assert "PT2505" in _notes(tmp_path, operator)


CHAINS = [
    "acc[0] = acc[1] = 0.f;",
    "acc[0] = acc[1] = acc[2] = acc[3] = 0.f;",
    "acc[i] = acc[i + 1] = 1.f;",
    "acc[i] = acc[7 - i] = float(i);",
    "if (i == 3) acc[0] = acc[1] = 2.f;",
    "for (int j = 0; j < 4; ++j) acc[2 * j] = acc[2 * j + 1] = 0.f;",
    "acc[0] = acc[1] = sum[i];",
    "acc[0] = acc[1] = acc[2] + 1.f;",
    "acc[0] = acc[1] = 0.f, acc[2] = acc[3] = 0.f;",
    "acc[(i + 1) % 8] = acc[i] = 0.f;",
]
NO_CHAINS = [
    "(acc[0] = acc[1]) += 1.f;",
    "float& r = acc[0] = 1.f; r += 1.f;",
    "kept = acc[0] = 1.f;",
    "*(&(acc[0] = 1.f)) = 2.f;",
]
SUMS = "for (int i = 0; i < 8; ++i) sum[i] += 2.f * acc[i];"


def _with(statement: str) -> str:
    return BODY.replace(SUMS, f"{SUMS}\n        for (int i = 0; i < 4; ++i) {{ {statement} }}")


@pytest.mark.parametrize("statement", CHAINS)
def test_a_chain_of_assignments_writes(statement: str, tmp_path: Path) -> None:
    result = port_text(tmp_path, kernel(_with(statement)))
    assert int(result.exit_code) == 0
    assert "PT2505" not in [d.code.value.id for d in result.diagnostics]


@pytest.mark.parametrize("statement", NO_CHAINS)
def test_what_keeps_the_reference_is_not_followed(statement: str, tmp_path: Path) -> None:
    before = "struct Keep { float* p; __device__ Keep& operator=(float& f) { p = &f; return *this; } };\n"
    body = "    Keep kept;\n" + _with(statement)
    result = port_text(tmp_path, kernel(body, before=before))
    assert "PT2505" in [d.code.value.id for d in result.diagnostics]
