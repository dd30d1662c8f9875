# SPDX-License-Identifier: Apache-2.0
"""A GEMM with a warp that loads, two consumers, and an epilogue that asks `%tid` which rows it has; with host code and
a case. LOADS and BOX stand for how A is loaded, THREADS for those of a block."""

from __future__ import annotations

from pathlib import Path

KERNEL = """\
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
struct Slot {
    alignas(1024) __half tall[128 * 64];
    alignas(1024) __half flat[16 * 64];
};
struct Shared {
    Slot slots[2];
    uint64_t arrived[2], used[2];
};
__device__ uint32_t in_window(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ uint64_t rows_at(const void* p) {
    return (uint64_t)(in_window(p) >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ void product(float (&d)[8], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b));
}
__device__ void set_up(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(in_window(bar)), "r"(count));
}
__device__ void announce(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(in_window(bar)), "r"(bytes) : "memory");
}
__device__ void give_back(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(in_window(bar)) : "memory");
}
__device__ void until(uint64_t* bar, int parity) {
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }"
                 ::"r"(in_window(bar)), "r"(parity) : "memory");
}
__device__ void bring(void* to, const CUtensorMap* map, uint64_t* bar, int depth, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 ::"r"(in_window(to)), "l"(map), "r"(in_window(bar)), "r"(depth), "r"(row) : "memory");
}
__device__ int place_in_block() {
    int found;
    asm("mov.u32 %0, %%tid.x;" : "=r"(found));
    return found;
}
__global__ void __launch_bounds__(THREADS)
tiles(const __grid_constant__ CUtensorMap tall, const __grid_constant__ CUtensorMap flat, float* out, int M, int N,
      int K) {
    extern __shared__ char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; ++s) {
            set_up(&shared.arrived[s], 1);
            set_up(&shared.used[s], 256);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    int turn = 0;
    if (threadIdx.x >= 256) {
        if (threadIdx.x == 256) {
            for (int tile = blockIdx.x; tile < M / 128 * (N / 16); tile += gridDim.x) {
                const int top = tile / (N / 16) * 128, left = tile % (N / 16) * 16;
                for (int k = 0; k < K; k += 64, ++turn) {
                    const int s = turn % 2;
                    until(&shared.used[s], turn / 2 % 2 ^ 1);
                    announce(&shared.arrived[s], 16384 + 2048);
                    LOADS
                    bring(shared.slots[s].flat, &flat, &shared.arrived[s], k, left);
                }
            }
        }
    } else {
        const int half = threadIdx.x / 128;
        for (int tile = blockIdx.x; tile < M / 128 * (N / 16); tile += gridDim.x) {
            const int top = tile / (N / 16) * 128, left = tile % (N / 16) * 16;
            float sum[8] = {};
            for (int k = 0; k < K; k += 64, ++turn) {
                const int s = turn % 2;
                until(&shared.arrived[s], turn / 2 % 2);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                for (int i = 0; i < 4; ++i)
                    product(sum, rows_at(shared.slots[s].tall + half * 4096 + i * 16),
                            rows_at(shared.slots[s].flat + i * 16));
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                give_back(&shared.used[s]);
            }
            const int mine = place_in_block();
            float* to = out + (top + mine / 32 * 16 + mine % 32 / 4) * N + left + mine % 4 * 2;
            for (int i = 0; i < 8; ++i) to[i / 4 * 8 + i / 2 % 2 * 8 * N + i % 2] = sum[i];
        }
    }
}
CUtensorMap map_of(void* data, int rows, int depth, uint32_t box_rows) {
    CUtensorMap map;
    cuuint64_t sizes[2] = {(cuuint64_t)depth, (cuuint64_t)rows}, pitch[1] = {(cuuint64_t)depth * 2};
    cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, data, sizes, pitch, box, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}
void run(__half* a, __half* b, float* out, int M, int N, int K, int blocks) {
    const CUtensorMap tall = map_of(a, M, K, BOX), flat = map_of(b, N, K, 16);
    cudaFuncSetAttribute(tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
    tiles<<<blocks, THREADS, sizeof(Shared)>>>(tall, flat, out, M, N, K);
}
"""
WHOLE = "bring(shared.slots[s].tall, &tall, &shared.arrived[s], k, top);"
HALVES = (
    "for (int h = 0; h < 2; ++h) bring(shared.slots[s].tall + h * 4096, &tall, &shared.arrived[s], k, top + h * 64);"
)
CASE = """\
version: 1
kernel: tiles.cu
entry: tiles
sizes: {M: 256, N: 32, K: 128, CTAS: 2}
other_sizes:
  - {M: 128, N: 16, K: 64, CTAS: 1}
  - {M: 384, N: 16, K: 192, CTAS: 1}
multiples: {M: 128, N: 16, K: 64}
tensors:
  A: {dtype: f16, shape: [M, K], role: input}
  B: {dtype: f16, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
tensor_maps:
  of_a: {tensor: A, box: [BOX, 64], swizzle: 128B}
  of_b: {tensor: B, box: [16, 64], swizzle: 128B}
launch: {grid: [CTAS, 1, 1], block: [THREADS, 1, 1], dynamic_smem: 2 * (16384 + 2048) + 1024}
tile: [128, 16]
params: [of_a, of_b, C, M, N, K]
reduction: K
reference: "A @ B.T"
accumulate: f32
"""


def write(folder: Path, loads: str = WHOLE, box: int = 128, threads: int = 288) -> Path:
    """The kernel with its case, in a folder; a block has one warp that loads, or more of which one does."""
    path = folder / "tiles.cu"
    for file, text in {path: KERNEL.replace("LOADS", loads), folder / "case.yaml": CASE}.items():
        file.write_text(text.replace("BOX", str(box)).replace("THREADS", str(threads)))
    return path
