# SPDX-License-Identifier: Apache-2.0
"""Conditions that single threads answer differently, however they are written: what some do is not done for all."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import LOOP, STORE, kernel, ported

CLEAR = "for (int i = 0; i < 8; ++i) acc[i] = 0.f;"

APART = [
    ("threadIdx.x % 32 == 0", ""),
    ("threadIdx.y == 0", ""),
    ("static_cast<int>(threadIdx.x) == 0", ""),
    ("warp % 2", "__device__ int warp;\n#define warp (threadIdx.x / 32)\n"),
    ("LANE == 0", "#define LANE (threadIdx.x % 32)\n"),
    ("LANE() == 0", "#define LANE() (threadIdx.x % 32)\n"),
    ("AT(0)", "#define LANE (threadIdx.x % 32)\n#define AT(i) (LANE == i)\n"),
    ("lane() == 0", "__device__ int lane() { return threadIdx.x % 32; }\n"),
    ("lane() == 0", "__device__ int tid() { return threadIdx.x; }\n__device__ int lane() { return tid() % 32; }\n"),
    ("lane() == 0", "#define TID threadIdx.x\n__device__ int lane() { return TID % 32; }\n"),
    ("lane() == 0", '__device__ int lane() { int x; asm("mov.u32 %0, %%laneid;" : "=r"(x)); return x; }\n'),
    ("chosen()", '__device__ int chosen() { int x; asm volatile("{ .reg .pred p; elect.sync _|p, -1; '
     'selp.b32 %0, 1, 0, p; }" : "=r"(x)); return x; }\n'),
    ("cutlass::canonical_lane_idx() == 0", ""),
    ("canonical_lane_idx() == 0", "using namespace cutlass;\n"),
    ("cutlass::canonical_warp_idx_sync() == 0", ""),
    ("cute::elect_one_sync()", ""),
    ("__nvvm_read_ptx_sreg_laneid() == 0", ""),
    ("who::first()", ""),
    ("lane() == 0", "__device__ int lane();\n"),
    ("lane() == 0", "__device__ int lane() { return who::mine(); }\n"),
    ("scheduler.mine()", "extern __device__ Scheduler scheduler;\n"),
]  # fmt: skip

WRITTEN = [
    ('asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));', ""),
    ('asm volatile("mov.u32 %0, %%tid.x;" : "=r"(lane));', ""),
    ('asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(lane));', ""),
    ("read(lane);", "__device__ void read(int& x) { x = threadIdx.x; }\n"),
    ("read(lane);", '__device__ void read(int& x) { asm volatile("mov.u32 %0, %%laneid;" : "=r"(x)); }\n'),
    ("read(&lane);", "__device__ void read(int* x) { *x = threadIdx.x; }\n"),
    ("read(&lane);", "__device__ void read(int* x);\n"),
    ("hidden::read(&lane);", ""),
    ("lane += threadIdx.x;", ""),
    ("lane = cutlass::canonical_lane_idx();", ""),
    ("int other = threadIdx.x; lane = other + 1;", ""),
]


@pytest.mark.parametrize(("statement", "before"), WRITTEN)
def test_a_variable_that_is_written_apart(tmp_path: Path, statement: str, before: str) -> None:
    text = _clearing("lane == 0", before).replace(
        "    float acc[8]", f"    int lane = 0;\n    {statement}\n    float acc[8]"
    )
    assert CLEAR in ported(tmp_path, text)


def test_a_variable_that_all_write_alike(tmp_path: Path) -> None:
    before = "__device__ void read(int& x, int k) { x = k; }\n"
    text = _clearing("turn == 0", before).replace(
        "    float acc[8]", "    int turn = 0;\n    read(turn, 3);\n    float acc[8]"
    )
    assert CLEAR not in ported(tmp_path, text)


def _clearing(condition: str, before: str) -> str:
    loop = LOOP.replace("arrive();", f"if ({condition}) {{ {CLEAR} }}\n        arrive();")
    return kernel("    float acc[8] = {0};\n" + loop + STORE, before=before)


@pytest.mark.parametrize(("condition", "before"), APART)
def test_what_some_threads_clear_is_not_cleared_for_all(tmp_path: Path, condition: str, before: str) -> None:
    text = ported(tmp_path, _clearing(condition, before))
    assert CLEAR in text[text.index("__global__") :]


@pytest.mark.parametrize(
    ("condition", "before"),
    [
        ("steps > 3", ""),
        ("min(steps, 3) == k", ""),
        ("last(k)", "__device__ bool last(int k) { return k % 4 == 3; }\n"),
        ("last(k)", "__device__ int fourth(int k) { return k % 4; }\n"
         "__device__ bool last(int k) { return fourth(k) == 3; }\n"),
        ("LAST(k)", "#define LAST(k) (k % 4 == 3)\n"),
        ("elected > 3", "__constant__ int elected;\n"),
        ("next_lane_id(k)", "__device__ int next_lane_id(int k) { return k % 2; }\n"),
        ("k == warpSize", ""),
        ("static_cast<unsigned>(steps) > 3", ""),
        ("const_cast<const int&>(steps) > 3", ""),
    ],
)  # fmt: skip
def test_what_all_threads_clear_is_an_mma_that_overwrites(tmp_path: Path, condition: str, before: str) -> None:
    text = ported(tmp_path, _clearing(condition, before))
    assert CLEAR not in text[text.index("__global__") :]


def test_a_launch_hands_all_threads_the_same(tmp_path: Path) -> None:
    launch = "void run(float* out, const Plan& plan) { kernel<<<1, 128>>>(out, plan.a(), plan.b(), plan.steps()); }\n"
    text = ported(tmp_path, _clearing("steps > 3", "struct Plan;\n") + launch)
    assert CLEAR not in text[text.index("__global__") :]


@pytest.mark.parametrize(("condition", "before"), APART)
def test_tensor_memory_is_there_before_some_threads_leave(tmp_path: Path, condition: str, before: str) -> None:
    body = f"    if ({condition}) return;\n    float acc[8] = {{0}};\n" + LOOP + STORE
    text = ported(tmp_path, kernel(body, before=before))
    main = text[text.index("__global__") :]
    assert main.index("tmem(tmem_shared)") < main.index(f"if ({condition}) return;")
