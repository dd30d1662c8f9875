# SPDX-License-Identifier: Apache-2.0
"""A warp-specialized kernel of CuTe C++ in many ways of writing, for the steps of `--style native`."""

from __future__ import annotations

from pathlib import Path

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.native.step import STEPS
from porter.passes.port import PortOptions, PortResult, port_sources

KERNEL = """\
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/cutlass.h>
#include <cutlass/pipeline/pipeline.hpp>
using namespace cute;
using Full = cutlass::arch::ClusterTransactionBarrier;
using Empty = cutlass::arch::ClusterBarrier;
@STAGES@
using Element = cutlass::half_t;
using Atom = GMMA::Layout_K_SW128_Atom<Element>;
using LayoutA = decltype(tile_to_shape(Atom{}, Shape<_128, _64, Int<@N@>>{}));
using LayoutB = decltype(tile_to_shape(Atom{}, Shape<_64, _64, Int<@N@>>{}));
using Mma = decltype(make_tiled_mma(@ATOM@<GMMA::Major::K, GMMA::Major::K>{},
                                    Layout<Shape<@WARPGROUPS@, _1, _1>>{}));
struct Storage {
    alignas(1024) array_aligned<Element, cosize_v<LayoutA>> a;
    alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
    @BARRIERS@
};
@HEAD@
@TEMPLATE@
__global__ void __launch_bounds__(@THREADS@) kernel(const __grid_constant__ CUtensorMap map_a,
                                              const __grid_constant__ CUtensorMap map_b, float* out, int n, int k) {
    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<Storage*>(shared_memory);
    const int warpgroup = cutlass::canonical_warp_group_idx();
    @BEGIN@
    __syncthreads();
    const int tiles = k / 64;
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), LayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), LayoutB{});
    if (warpgroup == 0) {
        if (@LOADS@) {
            @PRODUCER@
            for (int tile = 0; tile < tiles; ++tile) {
                const int stage = tile % @N@;
                @ACQUIRE@
                SM90_TMA_LOAD::copy(&map_a, @FULL@, 0, &sA(0, 0, stage), tile * 64, int(blockIdx.y) * 128);
                SM90_TMA_LOAD::copy(&map_b, @FULL@, 0, &sB(0, 0, stage), tile * 64, int(blockIdx.x) * 64);
            }
        }
        return;
    }
    Tensor mC = make_tensor(make_gmem_ptr(out), make_shape(128, n), make_stride(n, _1{}));
    Tensor gC = local_tile(mC, Shape<_128, _64>{}, make_coord(blockIdx.y, blockIdx.x));
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x - 128);
    Tensor tA = thr.make_fragment_A(thr.partition_A(sA));
    Tensor tB = thr.make_fragment_B(thr.partition_B(sB));
    Tensor acc = partition_fragment_C(mma, Shape<_128, _64>{});
    @AHEAD@
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    for (int tile = 0; tile < tiles; ++tile@NEXT@) {
        const int stage = tile % @N@;
        @WAIT@
        @BATCH@
        @DONE@
    }
    @AFTER@
    copy(acc, thr.partition_C(gC));
}
"""
MMAS = """\
for (int i = 0; i < size<2>(tA); ++i) {
            gemm(mma, tA(_, _, i, stage), tB(_, _, i, stage), acc);
            mma.accumulate_ = GMMA::ScaleOut::One;
        }"""
BATCH = f"warpgroup_arrive();\n        {MMAS}\n        warpgroup_commit_batch();"
DEFAULTS = {
    "STAGES": "constexpr int kStages = 3;",
    "N": "kStages",
    "ATOM": "SM90_64x64x16_F32F16F16_SS",
    "WARPGROUPS": "_2",
    "BARRIERS": "uint64_t full[kStages], empty[kStages];",
    "HEAD": "",
    "TEMPLATE": "",
    "THREADS": "384",
    "BEGIN": "if (threadIdx.x == 0) { for (int i = 0; i < kStages; ++i) { Full::init(&storage.full[i], 1);"
    " @INIT@ } cutlass::arch::fence_barrier_init(); }",
    "INIT": "Empty::init(&storage.empty[i], 256);",
    "LOADS": "threadIdx.x == 0",
    "PRODUCER": "",
    "ACQUIRE": "Empty::wait(&storage.empty[stage], tile / kStages % 2 ^ 1);"
    " Full::arrive_and_expect_tx(&storage.full[stage], 24576);",
    "FULL": "&storage.full[stage]",
    "AHEAD": "",
    "NEXT": "",
    "WAIT": "Full::wait(&storage.full[stage], tile / kStages % 2);",
    "BATCH": BATCH,
    "DONE": "warpgroup_wait<0>();\n        @RELEASE@",
    "RELEASE": "Empty::arrive(&storage.empty[stage]);",
    "AFTER": "",
}
PIPELINE = {
    "BARRIERS": "typename cutlass::PipelineTmaAsync<kStages>::SharedStorage pipeline;",
    "HEAD": "",
    "BEGIN": "using Pipeline = @CLASS@;\n    Pipeline::Params params;\n"
    "    params.role = warpgroup == 0 ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;\n"
    "    params.is_leader = threadIdx.x == 0;\n    params.num_consumers = 256;\n    params.transaction_bytes = 24576;\n"
    "    Pipeline pipeline(storage.pipeline, params, @CLUSTER@);",
    "CLASS": "cutlass::PipelineTmaAsync<kStages>",
    "CLUSTER": "Shape<_1, _1, _1>{}",
    "PRODUCER": "auto state = cutlass::make_producer_start_state<Pipeline>();",
    "ACQUIRE": "pipeline.producer_acquire(state); uint64_t* full = pipeline.producer_get_barrier(state); ++state;",
    "FULL": "full",
    "AHEAD": "cutlass::PipelineState<kStages> read;",
    "NEXT": ", ++read",
    "WAIT": "pipeline.consumer_wait(read);",
    "RELEASE": "pipeline.consumer_release(read);",
}
"""The same with a pipeline of CUTLASS."""

OBJECTS = {
    "BARRIERS": "Full full[kStages]; Empty empty[kStages];",
    "BEGIN": "if (threadIdx.x == 0) { for (int i = 0; i < kStages; ++i) { storage.full[i].init(1); @INIT@ }"
    " cutlass::arch::fence_barrier_init(); }",
    "INIT": "storage.empty[i].init(256);",
    "ACQUIRE": "storage.empty[stage].wait(tile / kStages % 2 ^ 1); storage.full[stage].arrive_and_expect_tx(24576);",
    "FULL": "reinterpret_cast<uint64_t*>(&storage.full[stage])",
    "WAIT": "storage.full[stage].wait(tile / kStages % 2);",
    "RELEASE": "storage.empty[stage].arrive();",
}
PTX = """\
__device__ uint32_t address(void const* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(bar)), "r"(count));
}
__device__ void arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(bar)) : "memory");
}
__device__ void expect(uint64_t* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(bar)), "r"(bytes) : "memory");
}
__device__ void wait(uint64_t* bar, int parity) {
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }"
                 ::"r"(address(bar)), "r"(parity) : "memory");
}
"""
OWN = {
    "HEAD": PTX,
    "BEGIN": "if (threadIdx.x == 0) { for (int i = 0; i < kStages; ++i) { init(&storage.full[i], 1); @INIT@ }"
    " cutlass::arch::fence_barrier_init(); }",
    "INIT": "init(&storage.empty[i], 256);",
    "ACQUIRE": "wait(&storage.empty[stage], tile / kStages % 2 ^ 1); expect(&storage.full[stage], 24576);",
    "WAIT": "wait(&storage.full[stage], tile / kStages % 2);",
    "RELEASE": "arrive(&storage.empty[stage]);",
}
CUTE = {
    "INIT": "initialize_barrier(storage.empty[i], 256);",
    "RELEASE": "arrive_barrier(storage.empty[stage]);",
}

STATES = {**PIPELINE, "AHEAD": "cutlass::PipelineState<kStages> read, done;", "AFTER": "warpgroup_wait<0>();"}
IN_FLIGHT = "if (tile > 0) { warpgroup_wait<1>(); pipeline.consumer_release(done); ++done; }"


def source(**parts: str) -> str:
    text = KERNEL
    values = {**DEFAULTS, **parts}
    for _ in range(3):
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
    return text


def ported(folder: Path, steps: tuple[str, ...] = STEPS, **parts: str) -> PortResult:
    path = folder / "kernel.cu"
    path.write_text(source(**parts))
    result = port_sources(load_sources(path), PortOptions(full_rate=True, native=steps))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return result


def missing(result: PortResult) -> list[str]:
    """What steps lack, and what M=128 does."""
    codes = (Code.NATIVE_LEFT, Code.FULL_RATE_LEFT)
    return [str(d.values["what"]) for d in result.diagnostics if d.code in codes]


def text_of(result: PortResult) -> str:
    (text,) = (t for p, t in result.files.items() if p.endswith(".cu"))
    return text.decode()


def taken(result: PortResult, *steps: str) -> str:
    """The text of a port that takes these steps and no other, with nothing missing."""
    assert missing(result) == []
    assert result.plans[0].native == steps
    return text_of(result)


def left(result: PortResult, what: str) -> str:
    """The text of a port without any step, which lacks `what`."""
    found = missing(result)
    assert any(what in m for m in found), found
    assert result.plans[0].native == ()
    return text_of(result)
