# SPDX-License-Identifier: Apache-2.0
"""Tiled MMAs of single warps, as those of Ampere, stay what they are beside those of warpgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import PortResult, port_sources

WARPS = """
template <class Mma, class A, class B>
__global__ void warps(Mma mma, A a, B b, float* out) {
  auto thr = mma.get_slice(threadIdx.x);
  auto tA = thr.partition_fragment_A(a);
  auto tB = thr.partition_fragment_B(b);
  auto acc = cute::partition_fragment_C(mma, cute::Shape<cute::_16, cute::_8>{});
  cute::clear(acc);
  cute::gemm(mma, tA, tB, acc);
  for (int i = 0; i < cute::size(acc); ++i) out[i] = acc(i);
}
"""
GROUPS = """
template <class Mma, class A, class B>
__global__ void __launch_bounds__(128) groups(Mma mma, A a, B b, float* out) {
  auto thr = mma.get_slice(threadIdx.x);
  auto tA = thr.partition_fragment_A(a);
  auto tB = thr.partition_fragment_B(b);
  auto acc = cute::partition_fragment_C(mma, cute::Shape<cute::_64, cute::_64>{});
  cute::warpgroup_arrive();
  cute::gemm(mma, tA, tB, acc);
  cute::warpgroup_commit_batch();
  cute::warpgroup_wait<0>();
  for (int i = 0; i < cute::size(acc); ++i) out[i] = acc(i);
}
"""
RAW = """
__global__ void __launch_bounds__(128) raw(float* out, unsigned long long a, unsigned long long b) {
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
"""
HOST = """
template <class Mma, class A, class B> void launch(Mma mma, A a, B b, float* out) {
  warps<<<1, 32>>>(mma, a, b, out);
  groups<<<1, 128>>>(mma, a, b, out);
}
"""


def _port(tmp_path: Path, *parts: str) -> tuple[PortResult, str]:
    path = tmp_path / "k.cu"
    path.write_text("#include <cute/tensor.hpp>\n" + "".join(parts))
    result = port_sources(load_sources(path))
    return result, result.files[str(path)].decode()


@pytest.mark.parametrize("parts", [(WARPS, RAW), (RAW, WARPS)])
def test_beside_wgmma_in_asm(tmp_path: Path, parts: tuple[str, ...]) -> None:
    result, text = _port(tmp_path, *parts)
    assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
    assert WARPS in text
    assert "tcgen05::load(d, d_tmem);" in text


@pytest.mark.parametrize("parts", [(WARPS, GROUPS, HOST), (GROUPS, WARPS), (GROUPS, HOST, WARPS)])
def test_beside_those_of_warpgroups(tmp_path: Path, parts: tuple[str, ...]) -> None:
    result, text = _port(tmp_path, *parts)
    assert result.exit_code is ExitCode.OK, [str(d) for d in result.diagnostics]
    assert WARPS in text
    assert "porter::load(acc);" in text.split("groups(Mma mma")[1]


def test_alone_there_is_nothing_to_port(tmp_path: Path) -> None:
    result, text = _port(tmp_path, WARPS)
    assert not result.groups
    assert WARPS in text


def test_a_helper_that_both_call_is_of_warpgroups(tmp_path: Path) -> None:
    head = "template <class M, class A, class B, class C> __device__ void mul(M m, A a, B b, C& c)"
    helper = f"{head} {{ cute::gemm(m, a, b, c); }}\n"
    warps, groups = (t.replace("cute::gemm(mma, tA, tB, acc)", "mul(mma, tA, tB, acc)") for t in (WARPS, GROUPS))
    _, text = _port(tmp_path, helper, groups, warps)
    # what both share cannot be told apart by its text: nothing is changed, or both have handles
    assert ("porter::accumulator" in text) == (text.count("porter::accumulator") == 2)


def test_warpgroup_mmas_without_a_wait_in_sight_are_refused(tmp_path: Path) -> None:
    lost = GROUPS
    for word in ("warpgroup_arrive()", "warpgroup_commit_batch()", "warpgroup_wait<0>()"):
        lost = lost.replace(f"  cute::{word};\n", "")
    atom = "using Atom = cute::SM90_64x64x16_F32F16F16_SS<cute::GMMA::Major::K, cute::GMMA::Major::K>;\n"
    result, _ = _port(tmp_path, atom, lost)
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.groups
