# SPDX-License-Identifier: Apache-2.0
"""Ports with M=128 MMAs of kernels whose MMAs a library issues: which are taken, what stands for a thread's index, and
what is not understood. What M=128 MMAs are wrong for, the judge refuses (`test_full_rate_judged.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from full_rate_cute import DEFAULTS, KERNEL

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.passes.tiled.port import header_text

ROOT = Path(__file__).parents[2]
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


LEFT = {
    "three": ({"THREADS": "384"}, "3 warpgroups run its MMAs, not two"),
    "asm": ({"ROLE": 'int t; asm("mov.u32 %0, %%tid.x;" : "=r"(t));'}, "asm reads which warp of the CTA"),
    "groups": ({"HEAD": "#include <cooperative_groups.h>"}, "numbers threads itself"),
    "address": ({"ROLE": "auto& t = threadIdx;"}, "`threadIdx` is used as a whole"),
    "no index": ({"SLICE": "0"}, "nothing in it reads a thread's index"),
}


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
