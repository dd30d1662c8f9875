# SPDX-License-Identifier: Apache-2.0
"""Loops over the registers of an accumulator are unrolled in ports, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from ported_text import ported

HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
template <class A, class B>
__global__ void __launch_bounds__(128) k(A a, B b, float* out, int n) {
  Mma mma;
  auto thr = mma.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(a);
  Tensor tB = thr.partition_fragment_B(b);
  Tensor acc = partition_fragment_C(mma, Shape<_64, _64>{});
  Tensor view = acc(_, _, 0);
  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  float* raw = acc.data();
"""
MULTIPLY = "{ warpgroup_arrive(); gemm(mma, tA, tB, acc); warpgroup_commit_batch(); warpgroup_wait<0>(); }"
UNROLLED = [
    "for (int i = 0; i < size(acc); ++i) out[i] = acc(i);",
    "for (int i = 0; i < size(acc); ++i) out[i] = raw[i];",
    "for (int i = 0; i < cute::size(acc); i++) { out[i] = acc(i); }",
    "for (int i = 0; i != size(view); ++i) out[i] = view(i);",
    "for (int i = 0; i < size(tA); ++i) out[i] = acc(i);",
    "if (n) for (int i = 0; i < size(acc); ++i) out[i] = acc(i);",
]
LEFT = [
    "CUTE_UNROLL for (int i = 0; i < size(acc); ++i) out[i] = acc(i);",
    "#pragma unroll 4\n  for (int i = 0; i < size(acc); ++i) out[i] = acc(i);",
    "for (int i = 0; i < n; ++i) out[i] = acc(i);",
    "for (int i = 0; i < size(tA); ++i) out[i] = tA(i);",
    "for (int i = 0; i < size(tA); ++i) out[i] = acc(0);",
    f"for (int i = 0; i < size(acc); ++i) {MULTIPLY}",
]


@pytest.mark.parametrize("loop", [*UNROLLED, *LEFT])
def test_loops_over_registers_are_unrolled(tmp_path: Path, loop: str) -> None:
    text = ported(tmp_path, f"{HEAD}  {loop}\n}}\n")
    assert ('_Pragma("unroll") for (int i' in text) == (loop in UNROLLED)
