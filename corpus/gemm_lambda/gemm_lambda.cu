// SPDX-License-Identifier: Apache-2.0
//
// C[M,N] += A[M,K] * B[N,K]^T for narrow N: bf16 inputs, float output that is updated in place.
//
// One warpgroup computes a 128x32 tile. cp.async fetches two steps ahead into a ring of three buffers with
// the 64-byte swizzle (a row of a 32-wide step is 64 bytes). Everything is local to the kernel: the
// pieces are lambdas over its variables.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#define BLOCK_M 128
#define BLOCK_N 32
#define BLOCK_K 32
#define BUFFERS 3
#define BLOCK_THREADS 128

__global__ __launch_bounds__(BLOCK_THREADS) void gemm_lambda(const __nv_bfloat16* __restrict__ a,
                                                             const __nv_bfloat16* __restrict__ b,
                                                             float* __restrict__ c, int M, int N, int K)
{
    __shared__ __align__(512) __nv_bfloat16 smem_a[BUFFERS][BLOCK_M * BLOCK_K];
    __shared__ __align__(512) __nv_bfloat16 smem_b[BUFFERS][BLOCK_N * BLOCK_K];

    const int thread = threadIdx.x;
    const int m_base = blockIdx.x * BLOCK_M;
    const int n_base = blockIdx.y * BLOCK_N;
    const int steps = K / BLOCK_K;

    auto smem_offset = [](const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); };

    // 16 bytes from global to shared memory in the background; rows beyond the matrix are filled with zeros.
    auto copy_chunk = [&](__nv_bfloat16* tile, const __nv_bfloat16* matrix, int rows, int row0, int i, int step) {
        const int r = i / 4;
        const int chunk = i % 4;
        const bool inside = row0 + r < rows;
        const __nv_bfloat16* src = matrix + (size_t)(inside ? row0 + r : 0) * K + step * BLOCK_K + chunk * 8;
        // 64-byte swizzle: the chunk number is xor-ed with bits 1 and 2 of the row
        const uint32_t dst = smem_offset(tile) + r * 64 + ((chunk ^ ((r >> 1) & 3)) * 16);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(dst), "l"(src), "r"(inside ? 16 : 0)
                     : "memory");
    };

    auto fetch = [&](int step) {
        if (step < steps) {
            const int buffer = step % BUFFERS;
            for (int i = thread; i < BLOCK_M * 4; i += BLOCK_THREADS) copy_chunk(smem_a[buffer], a, M, m_base, i, step);
            for (int i = thread; i < BLOCK_N * 4; i += BLOCK_THREADS) copy_chunk(smem_b[buffer], b, N, n_base, i, step);
        }
        // an empty group keeps the count of groups right at the end
        asm volatile("cp.async.commit_group;\n" ::: "memory");
    };

    auto descriptor = [&](const __nv_bfloat16* tile) -> uint64_t {
        uint64_t d = (smem_offset(tile) & 0x3FFFF) >> 4;
        d |= 1ull << 16;
        d |= (uint64_t)((8 * 64) >> 4) << 32;  // eight rows of 64 bytes
        d |= 2ull << 62;                       // 64-byte swizzle
        return d;
    };

    float acc[BLOCK_M / 64][16];
    for (auto& half : acc)
        for (float& value : half) value = 0.f;

    auto mma = [&](int m, uint64_t desc_a, uint64_t desc_b) {
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
            "%16, %17, 1, 1, 1, 0, 0;\n"
            : "+f"(acc[m][0]), "+f"(acc[m][1]), "+f"(acc[m][2]), "+f"(acc[m][3]),
              "+f"(acc[m][4]), "+f"(acc[m][5]), "+f"(acc[m][6]), "+f"(acc[m][7]),
              "+f"(acc[m][8]), "+f"(acc[m][9]), "+f"(acc[m][10]), "+f"(acc[m][11]),
              "+f"(acc[m][12]), "+f"(acc[m][13]), "+f"(acc[m][14]), "+f"(acc[m][15])
            : "l"(desc_a), "l"(desc_b));
    };

    fetch(0);
    fetch(1);
    for (int step = 0; step < steps; ++step) {
        // all but the newest group have landed: this step's tiles are there
        asm volatile("cp.async.wait_group 1;\n" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        __syncthreads();
        // the buffer of step + 2 was read by step - 1, which every warp has finished
        fetch(step + 2);

        const int buffer = step % BUFFERS;
        asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
        for (int m = 0; m < BLOCK_M / 64; ++m) {
            const uint64_t da = descriptor(&smem_a[buffer][m * 64 * BLOCK_K]);
            const uint64_t db = descriptor(smem_b[buffer]);
            mma(m, da, db);
            mma(m, da + 2, db + 2);
        }
        asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
    }

    const int lane = thread % 32;
    auto update = [&](int row, int col, float value) {
        if (row < M && col < N) c[(size_t)row * N + col] += value;
    };
#pragma unroll
    for (int m = 0; m < BLOCK_M / 64; ++m) {
        const int row = m_base + m * 64 + thread / 32 * 16 + lane / 4;
#pragma unroll
        for (int v = 0; v < 16; ++v) {
            update(row + (v & 2) * 4, n_base + v / 4 * 8 + lane % 4 * 2 + (v & 1), acc[m][v]);
        }
    }
}

// K must be a multiple of 32.
cudaError_t gemm_lambda_accumulate(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int M, int N, int K,
                                   cudaStream_t stream)
{
    int dev, major;
    cudaError_t status;
    if ((status = cudaGetDevice(&dev)) != cudaSuccess) return status;
    if ((status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev)) != cudaSuccess) return status;
    if (major != 9 || K % BLOCK_K != 0) return cudaErrorInvalidValue;
    gemm_lambda<<<dim3((M + BLOCK_M - 1) / BLOCK_M, (N + BLOCK_N - 1) / BLOCK_N), BLOCK_THREADS, 0, stream>>>(a, b, c, M,
                                                                                                      N, K);
    return cudaGetLastError();
}
