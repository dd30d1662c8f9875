# SPDX-License-Identifier: Apache-2.0
"""Ports with M=128 MMAs of kernels whose MMAs a library issues: which are taken, what stands for a thread's index, and
what is refused with which missing fact. Values and order are shown by the slow tests of `tests/cli`."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.passes.tiled.port import header_text

ROOT = Path(__file__).parents[2]
KERNEL = """#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
using namespace cute;
using Layout = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_128, _64, _3>{}));
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}, Tiles{}));
@HEAD@
__global__ void __launch_bounds__(@THREADS@) kernel(half_t* a, half_t* b, float* out, int n, int rows) {
  extern __shared__ half_t shared[];
  @ROLE@
  Tensor sA = make_tensor(make_smem_ptr(shared), Layout{});
  Tensor sB = make_tensor(make_smem_ptr(@SHARED_B@), Layout{});
  Tensor mC = make_tensor(make_gmem_ptr(out), make_shape(rows, n), make_stride(n, _1{}));
  Mma mma;
  auto thr = mma.get_slice(@SLICE@);
  Tensor tA = thr.partition_fragment_A(sA);
  Tensor tB = thr.make_fragment_B(thr.partition_B(sB));
  Tensor acc = partition_fragment_C(mma, Shape<_128, _64>{});
  mma.accumulate_ = @SCALE@;
  @CLEAR@
  for (int tile = 0; tile < @TILES@; ++tile) {
    @BEFORE@
    warpgroup_arrive();
    for (int k = 0; k < size<2>(tA); ++k) {
      gemm(@MMA@, @A@, @B@, acc);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
    warpgroup_wait<0>();
  }
  @AFTER@
  copy(acc, thr.partition_C(mC));
}
"""
DEFAULTS = {
    "HEAD": "",
    "THREADS": "256",
    "ROLE": "",
    "SHARED_B": "shared + 128 * 64 * 3",
    "SLICE": "threadIdx.x",
    "SCALE": "GMMA::ScaleOut::Zero",
    "CLEAR": "",
    "TILES": "n / 64",
    "BEFORE": "",
    "MMA": "mma",
    "A": "tA(_, _, k, tile % 3)",
    "B": "tB(_, _, k, tile % 3)",
    "AFTER": "",
}
INDEX = "cutlass::canonical_warp_group_idx()"
PRODUCER = f"const int wg = {INDEX}; if (wg == 0) {{ if (threadIdx.x == 0) out[0] = 1; return; }}"


def ported(folder: Path, **parts: str) -> PortResult:
    text = KERNEL
    for name, value in {**DEFAULTS, **parts}.items():
        text = text.replace(f"@{name}@", value)
    path = folder / "kernel.cu"
    path.write_text(text)
    result = port_sources(load_sources(path), PortOptions(full_rate=True))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return result


def missing(result: PortResult) -> list[str]:
    return [str(d.values["what"]) for d in result.diagnostics if d.code is Code.FULL_RATE_LEFT]


def texts(result: PortResult) -> tuple[str, str]:
    """The kernel's file, and the header."""
    kernel, header = (next(t for p, t in result.files.items() if p.endswith(n)) for n in (".cu", ".hpp"))
    return kernel.decode(), header.decode()


HELPER = """template <class M, class A, class B, class C>
__device__ void step(M& m, A const& x, B const& y, C& z, int stage) {
  m.accumulate_ = stage == 0 ? GMMA::ScaleOut::Zero : GMMA::ScaleOut::One;
  gemm(m, x(_, _, 0, stage), y(_, _, 0, stage), z);
}
"""
TAKEN = {
    "plain": {},
    "producer": {"ROLE": PRODUCER, "THREADS": "384", "SLICE": "threadIdx.x - 128"},
    "named": {"ROLE": "const int thread = threadIdx.x;", "SLICE": "thread"},
    "whole tiles": {"A": "tA(_, _, _, tile % 3)", "B": "tB(_, _, _, tile % 3)"},
    "helper": {"HEAD": HELPER, "BEFORE": "warpgroup_arrive(); step(mma, tA, tB, acc, tile % 3);"},
    "state": {"ROLE": "cutlass::PipelineState<3> read;", "B": "tB(_, _, k, read.index())", "BEFORE": "++read;"},
    "barrier": {"BEFORE": "cutlass::arch::NamedBarrier::sync(256, 1);"},
    "cleared": {"CLEAR": "clear(acc);"},
    "rows of the epilogue": {"AFTER": "if (threadIdx.x < rows) out[threadIdx.x] = n;"},
    "registers": {"THREADS": "384", "SLICE": "threadIdx.x - 128",
                  "ROLE": PRODUCER + " cutlass::arch::warpgroup_reg_alloc<232>();"},
    "elements": {"AFTER": "for (int i = 0; i < size(acc); ++i) acc(i) = acc(i) * threadIdx.x;"},
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_two_warpgroups_below_each_other_are_taken(tmp_path: Path, name: str) -> None:
    result = ported(tmp_path, **TAKEN[name])
    assert missing(result) == []
    kernel, header = texts(result)
    assert "threadIdx.x" not in kernel.split("Tmem<")[1].split("\n", 2)[2].replace("threadIdx.x / 128", "")
    assert "make_instr_desc<TA, TB, TC, 128, kN" in header
    (plan,) = result.plans
    assert plan.mma_rows == 128
    assert any("second A tile" in what for what in plan.gate)


def test_indices_of_the_library_are_those_of_the_rows(tmp_path: Path) -> None:
    kernel, header = texts(ported(tmp_path, **TAKEN["producer"]))
    assert "const int wg = int(porter::first_thread_index() / 128);" in kernel
    assert "if (porter::thread_index() == 0) out[0] = 1;" in kernel
    assert "auto thr = mma.get_slice(porter::thread_index() - 128);" in kernel
    assert "auto tc = tmem.warpgroup(threadIdx.x / 128 - 1);" in kernel
    assert "constexpr unsigned int kIssuer = 4;" in header


OWN = "threadIdx.x / 128"
LEFT = {
    "tiles": ({"TILES": f"n / 64 + {OWN}"}, "the consumers may part at `tile < n / 64 + threadIdx.x / 128`"),
    "rows": ({"BEFORE": "if (threadIdx.x / 128 * 64 >= rows) break;"}, "the consumers may part at"),
    "more": ({"BEFORE": f"if ({OWN} == 0) {{ warpgroup_arrive(); warpgroup_commit_batch(); }}"}, "may part at"),
    "by the library": ({"BEFORE": f"if ({INDEX} * 64 >= rows) break;"}, "the consumers may part at"),
    "part of B": ({"B": f"tB(_, _, k, {OWN})"}, "may be another one in the other consumer"),
    "B": ({"SHARED_B": f"shared + {OWN} * 4096"}, "may be another one in the other consumer"),
    "part of A": ({"A": f"tA(_, _, k, {OWN})"}, "may be another part in the other consumer"),
    "scale": ({"SCALE": f"{OWN} ? GMMA::ScaleOut::One : GMMA::ScaleOut::Zero"}, "another answer in the other consumer"),
    "scale sometimes": ({"BEFORE": f"if ({OWN}) mma.accumulate_ = GMMA::ScaleOut::Zero;"}, "the consumers may part at"),
    "scale in a helper": (
        {
            "HEAD": "template <class M> __device__ void begin(M& m) { m.accumulate_ = GMMA::ScaleOut::Zero; }",
            "BEFORE": f"if ({OWN}) begin(mma);",
        },
        "the consumers may part at",
    ),
    "MMA": ({"ROLE": "Mma mma2;", "MMA": f"{OWN} ? mma : mma2"}, "it is not known which tiled MMA this is"),
    "cleared": ({"BEFORE": f"if ({OWN}) clear(acc);"}, "the consumers may part at"),
    "content": (
        {"ROLE": "Tensor t = make_tensor<int>(Shape<_1>{}); t(0) = threadIdx.x;", "BEFORE": "if (t(0) > 128) break;"},
        "the consumers may part at",
    ),
    "copied content": (
        {"ROLE": "Tensor t = make_fragment_like(own(threadIdx.x)); copy(own(threadIdx.x), t);",
         "BEFORE": "if (t(0) > 128) break;"},
        "the consumers may part at",
    ),
    "content by a pointer": (
        {"ROLE": f"Tensor t = make_tensor<int>(Shape<_2>{{}}); t.data()[0] = {OWN};", "B": "tB(_, _, k, t(0))"},
        "may be another one in the other consumer",
    ),
    "content by a view": (
        {"ROLE": f"Tensor t = make_tensor<int>(Shape<_2>{{}}); Tensor v = recast<int>(t); v(0) = {OWN};",
         "B": "tB(_, _, k, t[0])"},
        "may be another one in the other consumer",
    ),
    "content of a pointer": (
        {"ROLE": f"Tensor t = make_tensor<int>(Shape<_2>{{}}); auto p = t.data(), q = t.data(); q[0] = {OWN};",
         "BEFORE": "if (*p > 0) break;"},
        "the consumers may part at",
    ),
    "shape": (
        {"ROLE": f"Tensor t = make_tensor(make_gmem_ptr(a), make_shape({OWN}, n));", "TILES": "size<0>(t)"},
        "the consumers may part at",
    ),
    "unknown function": ({"ROLE": "int tiles = n; adjust(tiles, threadIdx.x);", "TILES": "tiles"}, "may part at"),
    "index written": (
        {"ROLE": "int stage = 0; adjust(stage, threadIdx.x);", "B": "tB(_, _, k, stage)"},
        "may be another one in the other consumer",
    ),
    "registers": (
        {"ROLE": f"if ({OWN}) cutlass::arch::warpgroup_reg_alloc<232>();"},
        "the consumers may part at",
    ),
    "three": ({"THREADS": "384"}, "3 warpgroups run its MMAs, not two"),
    "asm": ({"ROLE": 'int t; asm("mov.u32 %0, %%tid.x;" : "=r"(t));'}, "asm reads which warp of the CTA"),
    "groups": ({"HEAD": "#include <cooperative_groups.h>"}, "numbers threads itself"),
    "address": ({"ROLE": "auto& t = threadIdx;"}, "`threadIdx` is used as a whole"),
    "polling": (
        {"ROLE": "__shared__ volatile int flag;", "BEFORE": f"while (flag != {OWN}) {{}}"},
        "consumers may wait for each other",
    ),
    "turns": (
        {"BEFORE": f'asm volatile("bar.sync %0, 256;" ::"r"(1 + {OWN}) : "memory");'},
        "the consumers take turns on this named barrier",
    ),
    "no index": ({"SLICE": "0"}, "nothing in it reads a thread's index"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_a_fact_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    parts, what = LEFT[name]
    result = ported(tmp_path, **parts)
    assert any(what in m for m in missing(result)), missing(result)
    kernel, header = texts(result)
    assert "thread_index" not in kernel + header
    assert header == header_text()
    assert [p.mma_rows for p in result.plans] == [64]


def test_headers_stay_at_half_rate(tmp_path: Path) -> None:
    (tmp_path / "own.hpp").write_text("__device__ inline int own() { return threadIdx.x; }\n")
    result = ported(tmp_path, HEAD='#include "own.hpp"', SLICE="own()")
    assert missing(result) == ["a part of it stands in a header, which other files may share"]


def test_the_header_of_compat_ports_has_no_mark_of_it() -> None:
    compat, joined = header_text(), header_text(4)
    assert not {"//@", "$"} & {word for line in compat.splitlines() for word in line.split()}
    assert "thread_index" not in compat
    assert "initialize_barrier(slots.met[i], 4);" in compat
    assert "initialize_barrier(slots.met[i], 8);" in joined
    assert "4);" not in next(line for line in joined.splitlines() if "slots.met[i]," in line)


@pytest.mark.parametrize("name", ["ws", "stsm", "rs", "f16acc", "multistage"])
def test_kernels_of_the_corpus(name: str) -> None:
    path = ROOT / f"corpus/cute_gemm_{name}/cute_gemm_{name}.cu"
    result = port_sources(load_sources(path), PortOptions(full_rate=True))
    assert missing(result) == []
    assert [p.mma_rows for p in result.plans] == [128]
