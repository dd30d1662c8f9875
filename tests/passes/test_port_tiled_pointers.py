# SPDX-License-Identifier: Apache-2.0
"""Registers of accumulators behind a pointer: `reinterpret_cast` of their iterator, in whoever is handed the tensor;
and accumulators that macros hand on."""

from __future__ import annotations

from pathlib import Path

import pytest
from ported_text import ported, refused

HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
"""
KERNEL = """template <class A, class B>
__global__ void __launch_bounds__(128) k(A tA, B tB, float* out) {
  Mma mma;
  auto acc = partition_fragment_C(mma, Shape<_64, _64>{});
  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  USE
}
"""
PAIRS = "reinterpret_cast<float2 const*>(t.data())"
TAKEN = "reinterpret_cast<float2 const*>(porter::raw_pointer_cast(t.data()))"
FIRST = "template <class T> __device__ float2 first(T const& t) { return *" + PAIRS + "; }\n"
SECOND = FIRST.replace("first", "second").replace("*" + PAIRS, "first(t)")


def source(use: str, before: str = FIRST) -> str:
    return HEAD + before + KERNEL.replace("USE", use)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (source("out[0] = first(acc).x;"), TAKEN),
        (source("auto p = reinterpret_cast<float2*>(acc.data()); out[0] = p->x;"), "cast<float2*>(porter::raw_pointer"),
        (source("out[0] = reinterpret_cast<float2*>(acc.data())[3].x;"), "(porter::raw_pointer_cast(acc.data()))[3]"),
        (source("auto view = acc(_, 0, _); out[0] = first(view).x;"), TAKEN),
        (source("out[0] = first(acc(_, 0, _)).x;"), TAKEN),
        (source("out[0] = second(acc).x;", FIRST + SECOND), TAKEN),
        (source("out[0] = first(acc).x;", FIRST.replace("T const& t", "T& t")), TAKEN),
        (
            source("out[0] = first(acc).x;", FIRST.replace("float2 const*>", "const float2 *>")),
            "float2 *>(porter::",
        ),
        (source("out[0] = first(acc).x;", "namespace house {\n" + FIRST + "}\nusing house::first;\n"), TAKEN),
        (source("auto get = [&] { return *reinterpret_cast<float2*>(acc.data()); };"), "raw_pointer_cast(acc.data())"),
        (source("auto* p = acc.data(); out[0] = p[0];"), "auto* p = porter::raw_pointer_cast(acc.data());"),
        (source("auto const* p = acc.data(); out[0] = p[0];"), "* p = porter::raw_pointer_cast(acc.data());"),
        (source("auto p = acc.data(); out[0] = p[0];"), "auto p = acc.data();"),
        (source("Reader{}.first(acc);", "struct Reader {\n" + FIRST + "};\n"), TAKEN),
    ],
)
def test_a_pointer_to_registers_is_taken(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in ported(tmp_path, text)


def test_other_pointers_stay(tmp_path: Path) -> None:
    other = FIRST.replace("first", "other")
    text = ported(tmp_path, source("out[0] = first(acc).x + other(tA).x;", FIRST + other))
    assert other.strip() in text
    assert f"return *{TAKEN};" in text


STEP = """template <class M, class A, class B, class T>
__device__ void step(M m, A const& a, B const& b, T& t) { gemm(m, a, b, t); }
"""


@pytest.mark.parametrize(
    "macro",
    [
        "#define NEXT(n) step(mma, tA, tB, acc)\n",
        "#define NEXT(n) step<Mma>(mma, tA, tB, acc)\n",
        "#define NEXT(n) \\\n  step(mma, tA, \\\n    tB, acc);\n",
        "#define NEXT(n) do { step (mma, tA, tB, acc); } while (0)\n",
        "#define NEXT(n) house::step(mma, tA, tB, acc)\n",
    ],
)
def test_accumulators_that_a_macro_hands_on_are_refused(tmp_path: Path, macro: str) -> None:
    text = source("step(mma, tA, tB, acc);\n  NEXT(1);", STEP + macro)
    assert "macro `NEXT` calls `step`, which is handed accumulators" in refused(tmp_path, text)


@pytest.mark.parametrize(
    "macro", ["#define NEXT(n) nextstep(n)\n", "#define NEXT(n) x.step(n)\n", "#define STEP step\n"]
)
def test_macros_that_call_others_stay(tmp_path: Path, macro: str) -> None:
    assert "porter::accumulator" in ported(tmp_path, source("step(mma, tA, tB, acc);", STEP + macro))
