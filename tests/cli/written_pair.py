# SPDX-License-Identifier: Apache-2.0
"""A kernel for Hopper, and one for Blackwell that somebody wrote for the same case: no line, no name and no order of
parameters is the same, and one product takes the rows that two take there."""

from __future__ import annotations

from pathlib import Path

CASE = """\
version: 1
kernel: project.cu
entry: project
sizes: {K: 64}
other_sizes: [{K: 112}]
tensors:
  x: {dtype: bf16, shape: [128, K], role: input}
  w: {dtype: bf16, shape: [16, K], role: input}
  y: {dtype: f32, shape: [128, 16], role: output}
launch:
  grid: [1, 1, 1]
  block: [128, 1, 1]
params: [x, w, y, K]
reduction: K
reference: "x @ w.T"
"""

ORIGINAL = r"""
#include <cstdint>
#include <cuda_bf16.h>
__device__ __forceinline__ uint64_t describe(const void* tile) {
    uint64_t at = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
    return (at & 0x3FFFF) >> 4 | 8ull << 16 | 16ull << 32;
}
__device__ __forceinline__ void multiply(float (&d)[8], uint64_t a, uint64_t b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, "
                 "1, 0, 0;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b));
}
extern "C" __global__ void __launch_bounds__(128)
project(const __nv_bfloat16* x, const __nv_bfloat16* w, float* y, int K) {
    __shared__ alignas(128) __nv_bfloat16 xs[128 * 16], ws[16 * 16];
    float d[2][8] = {};
    for (int k = 0; k < K; k += 16) {
        for (int i = threadIdx.x; i < 128 * 16; i += 128) {
            int r = i / 16, c = i % 16;
            xs[r / 8 * 128 + c / 8 * 64 + r % 8 * 8 + c % 8] = x[r * K + k + c];
            if (r < 16) ws[r / 8 * 128 + c / 8 * 64 + r % 8 * 8 + c % 8] = w[r * K + k + c];
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        multiply(d[0], describe(xs), describe(ws));
        multiply(d[1], describe(xs + 64 * 16), describe(ws));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    for (int m = 0; m < 2; ++m)
        for (int i = 0; i < 8; ++i) {
            int r = m * 64 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
            y[r * 16 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = d[m][i];
        }
}
"""

WRITTEN = r"""
#include <cuda_bf16.h>
#include <stdint.h>
using Half = __nv_bfloat16;
static __device__ uint32_t shared(const void* p) { return __cvta_generic_to_shared(p); }
static __device__ uint64_t matrix(uint32_t where) {
    uint64_t word = where >> 4 & 0x3FFF;
    word |= uint64_t(128 / 16) << 16;
    word |= uint64_t(256 / 16) << 32;
    return word | uint64_t(1) << 46;
}
static __device__ void gather(Half* tile, const Half* from, int rows, int pitch, int first) {
    for (int row = threadIdx.x / 2; row < rows; row += 64) {
        int half = threadIdx.x % 2;
        const uint4* line = reinterpret_cast<const uint4*>(from + size_t(row) * pitch + first + half * 8);
        reinterpret_cast<uint4*>(tile)[row / 8 * 16 + half * 8 + row % 8] = *line;
    }
}
extern "C" __global__ void __launch_bounds__(128) outer(int depth, float* result, const Half* right, const Half* left) {
    __shared__ alignas(1024) Half big[2048];
    __shared__ alignas(1024) Half small[256];
    __shared__ alignas(8) uint64_t finished;
    __shared__ uint32_t tensor;
    const int warp = threadIdx.x >> 5;
    if (warp == 0) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(shared(&tensor))
                     : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }
    if (threadIdx.x == 32) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&finished)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const uint32_t sums = tensor;
    int turn = 0;
    for (int first = 0; first < depth; first += 16, ++turn) {
        gather(big, left, 128, depth, first);
        gather(small, right, 16, depth, first);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            const uint32_t kind = 1u << 4 | 1u << 7 | 1u << 10 | (16u >> 3) << 17 | (128u >> 4) << 24;
            asm volatile("{\n.reg .pred add;\nsetp.ne.u32 add, %4, 0;\n"
                         "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, add;\n}\n" ::"r"(sums),
                         "l"(matrix(shared(big))), "l"(matrix(shared(small))), "r"(kind), "r"(turn)
                         : "memory");
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"l"(
                             uint64_t(shared(&finished)))
                         : "memory");
        }
        asm volatile("{\n.reg .pred there;\nAGAIN:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n@!there bra AGAIN;\n}\n" ::"r"(
                         shared(&finished)),
                     "r"(turn & 1)
                     : "memory");
    }
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    float mine[16];
    uint32_t* bits = reinterpret_cast<uint32_t*>(mine);
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
                 "%14, %15}, [%16];"
                 : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3]), "=r"(bits[4]), "=r"(bits[5]),
                   "=r"(bits[6]), "=r"(bits[7]), "=r"(bits[8]), "=r"(bits[9]), "=r"(bits[10]), "=r"(bits[11]),
                   "=r"(bits[12]), "=r"(bits[13]), "=r"(bits[14]), "=r"(bits[15])
                 : "r"(sums + (uint32_t(warp * 32) << 16)));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    float4* line = reinterpret_cast<float4*>(result + threadIdx.x * 16);
    for (int q = 0; q < 4; ++q) line[q] = make_float4(mine[4 * q], mine[4 * q + 1], mine[4 * q + 2], mine[4 * q + 3]);
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(sums));
}
"""

MAPPED = ("--entry", "outer", "--params", "K,y,w,x")

FAULTS = {
    "halves of a row": ("half * 8 + row % 8] = *line", "(1 - half) * 8 + row % 8] = *line"),
    "sums that begin anew": ('"r"(kind), "r"(turn)', '"r"(kind), "r"(int(turn != 2))'),
    "a step that is left out": ("first < depth; first += 16", "first < depth - 16; first += 16"),
    "elements that change places": ("mine[4 * q + 1], mine[4 * q + 2]", "mine[4 * q + 2], mine[4 * q + 1]"),
    "rows of another group": ("uint64_t(256 / 16) << 32", "uint64_t(128 / 16) << 32"),
}


def write(folder: Path, fault: str | None = None) -> tuple[Path, Path]:
    """The original with its case, and the other kernel."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.yaml").write_text(CASE)
    original, written = folder / "project.cu", folder / "outer.cu"
    original.write_text(ORIGINAL)
    before, after = FAULTS[fault] if fault is not None else ("", "")
    assert before in WRITTEN
    written.write_text(WRITTEN.replace(before, after) if fault is not None else WRITTEN)
    return original, written
