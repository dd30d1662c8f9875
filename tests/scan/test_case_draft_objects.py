# SPDX-License-Identifier: Apache-2.0
"""Drafts from host code that makes objects: by constructors, by arguments that read like a function's parameters, by
defaults of templates and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from porter.scan.draft.draft import Draft
from porter.scan.draft.new import draft_case

MMA = (
    'asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"'
    ' : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "l"(0ull), "l"(0ull));'
)
SOURCE = f"""
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;
struct Sizes {{ int n; int m; int k; CONSTRUCTOR }};
int asked();
__global__ void __launch_bounds__(128) gemm(const bf16* A, const bf16* B, bf16* C, Sizes s, int N, int K) {{
    float r[4]; {MMA}
    C[blockIdx.y * N + blockIdx.x] = r[0] + float(A[threadIdx.x * K]) + float(B[threadIdx.x * K]);
}}
HELPER
void run(const bf16* A, const bf16* B, bf16* C, int M, int N, int K) {{ HOST }}
"""
GIVEN = "(A, B, C, s, N, K);"


def drafted(folder: Path, host: str, constructor: str = "", helper: str = "") -> Draft:
    text = SOURCE.replace("CONSTRUCTOR", constructor).replace("HELPER", helper).replace("HOST", host)
    path = folder / "gemm.cu"
    path.write_text(text)
    return draft_case(path)


GRIDS = {
    "names": ("int x = N / 64, y = M / 64; dim3 grid(x, y);", ["N // 64", "M // 64", 1]),
    "a product": ("int x = N / 64, two = 2; dim3 grid(x * two, M);", ["N // 64 * 2", "M", 1]),
    "one name": ("int x = N / 64; const dim3 grid(x);", ["N // 64", 1, 1]),
    "an integer": ("int x = N / 64; int wide(x); dim3 grid(wide, M / 64);", ["N // 64", "M // 64", 1]),
    "not known": ("int x = asked(), y = M / 64; dim3 grid(x, y);", None),
    "not known product": ("int x = asked(), y = 2; dim3 grid(x * y, M);", None),
}


@pytest.mark.parametrize("how", GRIDS)
def test_an_object_made_of_names_is_no_function(how: str, tmp_path: Path) -> None:
    made, grid = GRIDS[how]
    draft = drafted(tmp_path, f"Sizes s{{N, M, K}}; {made} gemm<<<grid, 128>>>{GIVEN}")
    assert ("launch.grid" in draft.guesses) == (grid is None)
    assert grid is None or draft.fields["launch"]["grid"] == grid


LISTED = "Sizes(int m_, int n_, int k_) : n(n_), m{m_}, k(k_) {}"
CONSTRUCTORS: dict[str, tuple[str, str, list[Any] | None]] = {
    "a list": (LISTED, "Sizes s(M, N, K);", ["N", "M", "K"]),
    "braces": (LISTED, "Sizes s{M, N, K};", ["N", "M", "K"]),
    "a call": (LISTED, "Sizes s = Sizes(M, N, K);", ["N", "M", "K"]),
    "its body": ("Sizes(int m, int n, int k) { this->m = m; this->n = n; this->k = k; }", "Sizes s(M, N, K);",
                 ["N", "M", "K"]),
    "a default": ("Sizes(int m_, int n_, int k_ = 64) : n(n_), m(m_), k(k_) {}", "Sizes s(M, N);", ["N", "M", 64]),
    "one of two": (LISTED + " Sizes(int a, int b, float c) : n(a), m(b), k(0) {}", "Sizes s(M, N, K);", None),
    "no body": ("Sizes(int m_, int n_, int k_);", "Sizes s(M, N, K);", None),
}  # fmt: skip


@pytest.mark.parametrize("how", CONSTRUCTORS)
def test_members_are_what_the_constructor_makes_them(how: str, tmp_path: Path) -> None:
    constructor, made, members = CONSTRUCTORS[how]
    draft = drafted(tmp_path, f"{made} gemm<<<dim3(N / 64, M / 64), 128>>>{GIVEN}", constructor)
    assert ("params[3]" in draft.guesses) == (members is None)
    assert members is None or [i["value"] for i in draft.fields["params"][3]["struct"]] == members


HELPERS = {
    "of a template": ("template <int W, int T = 2 * W> dim3 tiles(int n) { return dim3(n / T); }", "tiles<32>(N)"),
    "of a parameter": ("dim3 tiles(int n, int t = 64) { return dim3(n / t); }", "tiles(N)"),
}


@pytest.mark.parametrize("how", HELPERS)
def test_defaults_are_taken_where_nothing_is_given(how: str, tmp_path: Path) -> None:
    helper, call = HELPERS[how]
    draft = drafted(tmp_path, f"Sizes s{{N, M, K}}; gemm<<<{call}, 128>>>{GIVEN}", helper=helper)
    assert draft.fields["launch"]["grid"] == ["N // 64", 1, 1]
    assert "launch.grid" not in draft.guesses


OF_TYPES = """
#include <cuda_bf16.h>
template <typename T> struct Traits { using Element = T; };
template <typename T, int TILE, typename U>
__global__ void __launch_bounds__(128) gemm(const T* A, const T* B, T* C, int M, int N, int K) {
    float r[4]; @MMA@
    C[blockIdx.y * N + blockIdx.x] = r[0] + float(A[threadIdx.x * K]) + float(B[threadIdx.x * K]);
}
template <typename T, int TILE>
void run(const T* A, const T* B, T* C, int M, int N, int K) {
    gemm<T, TILE, @LAST@><<<dim3(N / TILE, M / 64), 128>>>(A, B, C, M, N, K);
}
@USE@
""".replace("@MMA@", MMA)
ENDS = "const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*, int, int, int);"
ARGUMENTS: dict[str, tuple[str, str, list[Any] | None]] = {
    "an instantiation": (f"template void run<__nv_bfloat16, 64>({ENDS}", "Traits<T>",
                         ["__nv_bfloat16", 64, "Traits<__nv_bfloat16>"]),
    "a call": ("void all(const __nv_bfloat16* a, __nv_bfloat16* c, int n) {"
               " run<__nv_bfloat16, 64>(a, a, c, n, n, n); }", "Traits<T>",
               ["__nv_bfloat16", 64, "Traits<__nv_bfloat16>"]),
    "nobody": ("", "Traits<T>", None),
    "a variable": (f"template void run<__nv_bfloat16, 64>({ENDS}", "decltype(A)", None),
}  # fmt: skip


@pytest.mark.parametrize("how", ARGUMENTS)
def test_arguments_of_templates_are_those_of_an_instantiation(how: str, tmp_path: Path) -> None:
    use, last, wanted = ARGUMENTS[how]
    path = tmp_path / "gemm.cu"
    path.write_text(OF_TYPES.replace("@USE@", use).replace("@LAST@", last))
    draft = draft_case(path)
    assert ("template" in draft.guesses) == (wanted is None)
    assert wanted is None or draft.fields["template"] == wanted
