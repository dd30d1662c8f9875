# SPDX-License-Identifier: Apache-2.0
"""Types of tiled MMAs that are declared behind the statement in front of which a kernel's Tensor Memory is set up: the
port writes them there as the kernel spells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources

HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Global = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
struct Types {
  using Mma = Global;
  using Nested = Types;
  template <int N> using Of = Global;
  static __host__ __device__ constexpr auto make() { return Mma{}; }
  template <class M> static __host__ __device__ constexpr M same(M m) { return m; }
};
template <class T, class A, class B, int N>
__global__ void __launch_bounds__(256) k(A a, B b, float* out) {
  __shared__ int turn;
  if (threadIdx.x < 128) {
    turn = 1;
    return;
  }
"""
REST = """  auto thr = mma.get_slice(threadIdx.x - 128);
  Tensor tA = thr.partition_fragment_A(a());
  Tensor tB = thr.partition_fragment_B(b());
  Tensor acc = partition_fragment_C(mma, Shape<_64, _64>{});
  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  for (int i = 0; i < size(acc); ++i) out[i] = acc(i);
}
struct OperandA {
  __device__ auto operator()() const {
    __shared__ alignas(1024) half_t data[64 * 64];
    return make_tensor(make_smem_ptr(data), tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_64, _64>{}));
  }
};
template __global__ void k<Types, OperandA, OperandA, 64>(OperandA, OperandA, float*);
"""
HERE = "porter::declval<{}&>()"

VARIANTS = [
    ("typename T::Mma mma;", HERE.format("typename T::Mma")),
    ("const typename T::Mma mma;", HERE.format("typename T::Mma")),
    ("typename T::Nested::Mma mma{};", HERE.format("typename T::Nested::Mma")),
    ("using Mma = typename T::Mma;\n  Mma mma;", HERE.format("typename T::Mma")),
    ("typedef typename T::Mma Mma;\n  Mma mma;", HERE.format("typename T::Mma")),
    ("using Mma = typename T::Mma;\n  using Again = Mma;\n  Again mma{};", HERE.format("typename T::Mma")),
    ("using U = typename T::Nested;\n  typename U::Mma mma;", HERE.format("typename T::Nested::Mma")),
    ("typename T::template Of<N> mma;", HERE.format("typename T::template Of<N>")),
    (
        "constexpr int M = N;\n  typename T::template Of<M> mma;",
        HERE.format("typename T::template Of<static_cast<int>(N)>"),
    ),
    ("decltype(T::make()) mma;", HERE.format("decltype(T::make())")),
    ("auto made = T::make();\n  decltype(T::same(made)) mma;", HERE.format("decltype(T::same((T::make())))")),
    ("auto mma = typename T::Mma{};", "(typename T::Mma{})"),
    ("auto mma = T::make();", "(T::make())"),
    ("Global mma;", HERE.format("Global")),
    ("Global mma{};", "(Global{})"),
]


EXPRESSION = "  auto first = tile_shape(typename T::Mma{});\n"
"""`typename` in an expression, which the grammar cannot read."""


def _source(tmp_path: Path, declared: str, other: str = "") -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text(f"{HEAD}  {declared}\n{other}{REST}")
    return path


@pytest.mark.parametrize("other", ["", EXPRESSION])
@pytest.mark.parametrize(("declared", "expected"), VARIANTS)
def test_a_type_stays_as_it_is_spelled(tmp_path: Path, declared: str, expected: str, other: str) -> None:
    path = _source(tmp_path, declared, other)
    result = port_sources(load_sources(path))
    assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
    text = result.files[str(path)].decode()
    wanted = (
        f"porter::columns_of<1, decltype({expected}), decltype(partition_fragment_C({expected}, Shape<_64, _64>{{}}))>"
    )
    assert wanted in text
    assert text.index(wanted) < text.index("if (threadIdx.x < 128)")


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ("auto made = T::make();\n  decltype(made) mma;", "`made` is declared further down"),
        ("auto mma{T::make()};", "the type of `mma` follows from a list"),
    ],
)
def test_a_type_that_cannot_be_written_there_is_refused(tmp_path: Path, declared: str, why: str) -> None:
    result = port_sources(load_sources(_source(tmp_path, declared)))
    assert result.exit_code is ExitCode.UNPORTED
    assert why in "\n".join(d.message for d in result.diagnostics)
