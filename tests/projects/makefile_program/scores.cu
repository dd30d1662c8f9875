/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"
#include "wgmma.cuh"

enum { TILE_M = 64, TILE_N = 32, TILE_K = 32 };

static __device__ __forceinline__ void mma_64x32(float (&d)[16], uint64_t a, uint64_t b, int accumulate)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a), "l"(b), "r"(accumulate));
}

__global__ void __launch_bounds__(128)
scores_kernel(const __half *q, const __half *k, float *s, int n, int depth, float scale)
{
    __shared__ __align__(128) __half tile_q[TILE_M * TILE_K];
    __shared__ __align__(128) __half tile_k[TILE_N * TILE_K];
    const int row0 = blockIdx.y * TILE_M, column0 = blockIdx.x * TILE_N;
    float acc[16];

    for (int at = 0; at < depth; at += TILE_K) {
        load_tile(tile_q, q + (size_t)row0 * depth + at, TILE_M, TILE_K, depth);
        load_tile(tile_k, k + (size_t)column0 * depth + at, TILE_N, TILE_K, depth);
        publish_tiles();
        wgmma_begin();
        for (int step = 0; step < TILE_K / 16; step++) {
            mma_64x32(acc, core_matrices(tile_q + step * 128, TILE_K), core_matrices(tile_k + step * 128, TILE_K),
                      at + step != 0);
        }
        wgmma_end();
        __syncthreads();
    }

    const int row = row0 + (threadIdx.x / 32) * 16 + (threadIdx.x % 32) / 4;
    for (int i = 0; i < 16; i++) {
        const int column = column0 + (i / 4) * 8 + (threadIdx.x % 4) * 2 + i % 2;
        s[(size_t)(row + (i / 2 % 2) * 8) * n + column] = scale * acc[i];
    }
}

void scores(const __half *q, const __half *k, float *s, int m, int n, int depth, float scale)
{
    scores_kernel<<<dim3(n / TILE_N, m / TILE_M), 128>>>(q, k, s, n, depth, scale);
}
