# SPDX-License-Identifier: Apache-2.0
"""What may be asked of a first operand in registers while its batch is open: its layout, and that the compiler keeps
its registers where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from ported_text import ported, refused

KERNEL = """
using Atom = cute::SM90_64x64x16_F32F16F16_RS<cute::GMMA::Major::K, cute::GMMA::Major::K>;
using Mma = decltype(cute::make_tiled_mma(Atom{}));
template <class A, class B>
__global__ void __launch_bounds__(128) k(A tA, B tB, float* out) {
  Mma mma;
  auto acc = cute::partition_fragment_C(mma, cute::Shape<cute::_64, cute::_64>{});
  SPACE::multiply(mma, tA, tB, acc);
  cute::warpgroup_wait<0>();
  for (int i = 0; i < cute::size(acc); ++i) out[i] = acc(i);
}
"""
MULTIPLY = """template <class M, class A, class B, class C>
__device__ void multiply(M& mma, A const& tA, B const& tB, C& acc) {
  HEAD
  cute::warpgroup_arrive();
  BODY
  for (int i = 0; i < ASKED; ++i) cute::gemm(mma, tA(cute::_, cute::_, i), tB(cute::_, cute::_, i), acc);
  BEHIND
  cute::warpgroup_commit_batch();
}
"""


def source(asked: str, head: str = "", body: str = "", behind: str = "", space: str = "", before: str = "") -> str:
    multiply = MULTIPLY.replace("ASKED", asked).replace("HEAD", head).replace("BODY", body).replace("BEHIND", behind)
    named = f"namespace house {{\n{space}{multiply}}}\n"
    return f"#include <cute/tensor.hpp>\n{before}{named}{KERNEL.replace('SPACE', 'house')}"


@pytest.mark.parametrize(
    "text",
    [
        source("cute::size<2>(tA)"),
        source("size<2>(tA)", before="using namespace cute;\n"),
        source("size<2>(tA)", space="using namespace cute;\n"),
        source("size<2>(tA)", head="using namespace cute;"),
        source("size<2>(tA)", head="using cute::size;"),
        source("size<2>(tA)", space="using cute::size;\n"),
        source("c::size<2>(tA)", before="namespace c = cute;\n"),
        source("c::size<2>(tA)", head="namespace c = cute;"),
        source("4", behind="cute::warpgroup_fence_operand(const_cast<A&>(tA));"),
        source("4", behind="warpgroup_fence_operand(const_cast<A &>(tA));", head="using namespace cute;"),
        source("4", body="if constexpr (true) { cute::warpgroup_fence_operand(const_cast<A&>(tA)); }"),
        source("cute::size<2>(const_cast<A&>(tA))"),
    ],
)
def test_what_is_asked_of_an_operand_in_a_batch(tmp_path: Path, text: str) -> None:
    assert "  porter::arrive(acc, tA);\n" in ported(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        # another function of the name
        source(
            "size<2>(tA)", space="template <int kMode, class T> __device__ int size(T& t) { return t(0) = 1, 4; }\n"
        ),
        source("other::size<2>(tA)", before="namespace other { template <int, class T> int size(T&); }\n"),
        source("4", behind="change(const_cast<A&>(tA));", space="template <class A> __device__ void change(A&);\n"),
        source("4", behind="const_cast<A&>(tA)(0) = 1;"),
        source(
            "4",
            behind="change(const_cast<A&>(tA), cute::size(acc));",
            space="template <class A> void change(A&, int);\n",
        ),
    ],
)
def test_what_may_change_an_operand_is_refused(tmp_path: Path, text: str) -> None:
    assert "operand `tA` is used between" in refused(tmp_path, text)
