/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"
#include "wgmma.cuh"

enum { TILE_M = 64, TILE_N = 16, TILE_K = 64 };

static __device__ __forceinline__ void mma_64x16(float (&d)[8], uint64_t a, uint64_t b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(128) values_kernel(const __half *p, const __half *v, __half *o, int n, int depth)
{
    __shared__ __align__(128) __half tile_p[TILE_M * TILE_K];
    __shared__ __align__(128) __half tile_v[TILE_N * TILE_K];
    const int row0 = blockIdx.y * TILE_M, column0 = blockIdx.x * TILE_N;
    float acc[8] = {0.0f};

    for (int at = 0; at < depth; at += TILE_K) {
        load_tile(tile_p, p + (size_t)row0 * depth + at, TILE_M, TILE_K, depth);
        load_tile(tile_v, v + (size_t)column0 * depth + at, TILE_N, TILE_K, depth);
        publish_tiles();
        wgmma_begin();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++)
            mma_64x16(acc, core_matrices(tile_p + step * 128, TILE_K), core_matrices(tile_v + step * 128, TILE_K));
        wgmma_end();
        __syncthreads();
    }

    const int row = row0 + (threadIdx.x / 32) * 16 + (threadIdx.x % 32) / 4;
    for (int i = 0; i < 8; i += 2) {
        const int column = column0 + (i / 4) * 8 + (threadIdx.x % 4) * 2;
        *(__half2 *)&o[(size_t)(row + (i / 2 % 2) * 8) * n + column] = __floats2half2_rn(acc[i], acc[i + 1]);
    }
}

void values(const __half *p, const __half *v, __half *o, int m, int n, int depth)
{
    values_kernel<<<dim3(n / TILE_N, m / TILE_M), 128>>>(p, v, o, n, depth);
}
