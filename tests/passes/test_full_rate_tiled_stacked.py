# SPDX-License-Identifier: Apache-2.0
"""Ports with M=128 MMAs of kernels in which one warpgroup has two m64 tiles of a tiled MMA: which are taken, where the
tiled MMA is asked for other rows, and what is not understood. What M=128 MMAs are wrong for, the judge refuses
(`test_full_rate_judged.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_full_rate_tiled import INDEX, missing, ported, texts

from porter.lang.sources import load_sources
from porter.passes.full_rate.step import ALONE
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.passes.tiled.port import header_text

ROOT = Path(__file__).parents[2]
PART = "porter::rows_of(thr).partition_C(mC)"
OF_MMA = "__launch_bounds__(decltype(size(Mma{}))::value) kernel"
LOADER = f"const int wg = {INDEX}; if (wg == 0) {{ if (threadIdx.x == 0) out[0] = 1; return; }}"


def alone(folder: Path, **parts: str) -> PortResult:
    """The port of a kernel whose one warpgroup has both tiles."""
    return ported(folder, **{"HEAD": "using Tiles = Layout<Shape<_1, _1, _1>>;", "THREADS": "128"} | parts)


TAKEN = {
    "plain": {},
    "named": {"ROLE": "const int thread = threadIdx.x; const bool first = thread / 32 == 0 && thread % 32 < 4;",
              "SLICE": "thread", "BEFORE": "if (first) out[0] = 1;"},
    "producer": {"ROLE": LOADER, "THREADS": "256", "SLICE": "threadIdx.x - 128"},
    "elected": {"ROLE": "int warp = cutlass::canonical_warp_idx_sync(); int lane = elect_one_sync();",
                "BEFORE": "if ((warp == 0) && lane) out[0] = 1;"},
    "role of a pipeline": {"ROLE": "params.role = threadIdx.x == 0 ? Role::Both : Role::Consumer;"},
    "whole tiles": {"A": "tA(_, _, _, tile % 3)", "B": "tB(_, _, _, tile % 3)"},
    "handed on": {"HEAD": "using Tiles = Layout<Shape<_1, _1, _1>>; "
                          "template <class T> __device__ auto part(T& t, int i) { return t.get_slice(i); }",
                  "AFTER": "auto other = part(mma, threadIdx.x);"},
    "memory": {"ROLE": "__shared__ float bias[128]; for (int i = threadIdx.x; i < n; i += 128) bias[i] = out[i]; "
                       "if (threadIdx.x < 64) bias[threadIdx.x] = 1;"},
    "words of a tensor": {"BEFORE": "for (int i = threadIdx.x; i < rows; i += 128) sA(i, 0, 0) = a[i];"},
    "values": {"AFTER": "for (int i = 0; i < size(acc); ++i) acc(i) = acc(i) * n;"},
    "made like a part": {"AFTER": "Tensor twice = thr.make_fragment_C(thr.partition_C(mC)); "
                                  "gemm(mma, tA(_, _, 0, 0), tB(_, _, 0, 0), twice);"},
    "barriers in asm": {"BEFORE": 'asm volatile("bar.sync 1, 128;"); asm volatile("bar.sync 0;"); '
                                  'asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(n)); '
                                  'asm volatile("barrier.cluster.arrive.aligned;");'},
    "barrier": {"AFTER": "cutlass::arch::NamedBarrier::sync(128, 1);"},
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_two_tiles_of_a_warpgroup_are_taken(tmp_path: Path, name: str) -> None:
    result = alone(tmp_path, **TAKEN[name])
    assert missing(result) == []
    kernel, header = texts(result)
    assert f"copy(acc, {PART});" in kernel
    assert "thread_index" not in kernel + header
    assert "porter::rows_of" not in kernel.replace(PART, "")
    assert "make_instr_desc<TA, TB, TC, 128, kN" in header
    (plan,) = result.plans
    assert plan.mma_rows == 128
    assert any("second A tile" in what for what in plan.gate)


def test_every_part_of_an_accumulator_is_asked_of_the_mma(tmp_path: Path) -> None:
    parts = (
        "auto copy_c = make_tiled_copy_C(Copy_Atom<SM90_U32x4_STSM_N, half_t>{}, mma);",
        "auto atom_c = cute::make_tiled_copy_C_atom(Copy_Atom<SM90_U32x4_STSM_N, half_t>{}, mma);",
        "auto rows = mma.get_slice(threadIdx.x).partition_C(make_identity_tensor(Shape<_128, _64>{}));",
        "auto threads = mma.get_layoutC_TV();",
        "auto a = thr.partition_A(sA); auto c = thr.partition_fragment_C(mC);",
    )
    kernel, _ = texts(alone(tmp_path, AFTER="\n  ".join(parts)))
    assert "make_tiled_copy_C(Copy_Atom<SM90_U32x4_STSM_N, half_t>{}, porter::rows_of(mma));" in kernel
    assert "make_tiled_copy_C_atom(Copy_Atom<SM90_U32x4_STSM_N, half_t>{}, porter::rows_of(mma));" in kernel
    assert "porter::rows_of(mma.get_slice(threadIdx.x)).partition_C(make_identity_tensor" in kernel
    assert "porter::rows_of(mma).get_layoutC_TV()" in kernel
    assert "auto a = thr.partition_A(sA); auto c = thr.partition_fragment_C(mC);" in kernel


@pytest.mark.parametrize(
    ("tiles", "taken"),
    [("Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}))", True),
     ("Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}, Tiles{}))", False)],
)  # fmt: skip
def test_as_many_threads_as_the_mma_has(tmp_path: Path, tiles: str, taken: bool) -> None:
    """A block of `size(Mma{})` threads is one warpgroup where the tiled MMA is made of one atom alone."""
    path = tmp_path / "own.cu"
    ported(tmp_path, HEAD="using Tiles = Layout<Shape<_1, _1, _1>>;")
    text = (tmp_path / "kernel.cu").read_text().replace("__launch_bounds__(256) kernel", OF_MMA)
    path.write_text(text.replace(text[text.index("Mma = ") : text.index(", Tiles{}))") + len(", Tiles{}))")], tiles))
    result = port_sources(load_sources(path), PortOptions(full_rate=True))
    kernel = next(t for p, t in result.files.items() if p.endswith("own.cu")).decode()
    assert ("porter::rows_of(thr)" in kernel) == taken
    assert ("porter::thread_index()" in kernel) == (not taken)


LEFT = {
    "one tile": ({"CLEAR": "Tensor other = partition_fragment_C(mma, Shape<_64, _64>{}); "
                           "gemm(mma, tA(_, 0, 0, 0), tB(_, _, 0, 0), other);"}, ALONE),
    "pointer": ({"AFTER": "auto p = &thr; copy(acc, p->partition_C(mC));"}, "which tiled MMA tells the rows"),
    "macro": ({"HEAD": "#define PART(x) thr.partition_C(x)", "AFTER": "copy(acc, PART(mC));"},
              "asked in a form that is not followed"),
    "registers": ({"HEAD": "using Other = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_RS<>{}));",
                   "ROLE": "Other mma2;", "MMA": "mma2"}, "A comes from registers"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_a_fact_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    parts, what = LEFT[name]
    result = alone(tmp_path, **parts)
    assert any(what in m for m in missing(result)), missing(result)
    kernel, header = texts(result)
    assert "rows_of" not in kernel + header
    assert header == header_text()
    assert [p.mma_rows for p in result.plans] == [64]


def test_headers_stay_at_half_rate(tmp_path: Path) -> None:
    own = "template <class T, class C> __device__ auto own(T& t, C& c) { return t.partition_C(c); }\n"
    (tmp_path / "own.hpp").write_text(own)
    result = alone(tmp_path, HEAD='#include "own.hpp"', AFTER="copy(acc, own(thr, mC));")
    assert any("a part of it stands in a header" in m for m in missing(result))


def test_the_header_says_which_rows_a_thread_has() -> None:
    stacked = header_text(stacked=True)
    assert not {"//@", "$"} & {word for line in stacked.splitlines() for word in line.split()}
    assert "rows_of" not in header_text() + header_text(4)
    assert "initialize_barrier(slots.met[i], 4);" in stacked


@pytest.mark.parametrize("name", ["tma", "multicast"])
def test_kernels_of_the_corpus(name: str) -> None:
    path = ROOT / f"corpus/cute_gemm_{name}/cute_gemm_{name}.cu"
    result = port_sources(load_sources(path), PortOptions(full_rate=True))
    assert missing(result) == []
    assert [p.mma_rows for p in result.plans] == [128]
    assert "porter::rows_of(thread_mma).partition_C(gC)" in texts(result)[0]
