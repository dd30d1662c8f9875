// SPDX-License-Identifier: Apache-2.0
//
// C[M,N] = A[M,K] * B[N,K]^T, half inputs, float output, all row-major.
//
// One warpgroup per CTA computes a 64x128 tile. The 128 threads fetch both operand tiles with
// 16-byte loads and store them into shared memory in the 128-byte swizzled layout that wgmma reads.
// No TMA and no pipeline: a reference for shapes that a tensor map cannot describe (any M, N even,
// K a multiple of 8).

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int BM = 64;
constexpr int BN = 128;
constexpr int BK = 64;           // one row of a tile is 128 bytes: exactly one swizzle span
constexpr int THREADS = 128;
constexpr int CHUNK = 8;         // halves in one 16-byte chunk
constexpr int ROW_CHUNKS = BK / CHUNK;

// Shared-memory matrix descriptor for a K-major tile with 128-byte rows and 128-byte swizzle.
// Eight rows of 128 bytes form one swizzle atom, so the stride between row groups is 1024 bytes.
__device__ __forceinline__ uint64_t make_smem_desc(const half* tile) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
    uint64_t desc = 0;
    desc |= static_cast<uint64_t>((address & 0x3FFFF) >> 4);
    desc |= static_cast<uint64_t>(16 >> 4) << 16;    // ignored by swizzled K-major layouts
    desc |= static_cast<uint64_t>(1024 >> 4) << 32;
    desc |= 1ull << 62;                              // 128-byte swizzle
    return desc;
}

__device__ __forceinline__ void warpgroup_arrive() {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void warpgroup_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void warpgroup_wait_all() {
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}

// d += A(64x16) * B(128x16)^T
__device__ __forceinline__ void mma_m64n128k16(float (&d)[64], uint64_t desc_a, uint64_t desc_b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, "
        " %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, "
        " %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, "
        " %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
          "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]),
          "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
          "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(desc_a), "l"(desc_b));
}

// Copies rows [row0, row0 + ROWS) x columns [k0, k0 + BK) of a row-major matrix into a swizzled tile.
// Anything outside the matrix becomes zero.
template <int ROWS>
__device__ __forceinline__ void load_tile(half* tile, const half* __restrict__ matrix, int rows, int cols,
                                          int row0, int k0) {
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * ROW_CHUNKS; i += THREADS) {
        const int r = i / ROW_CHUNKS;
        const int c = i % ROW_CHUNKS;
        int4 value = make_int4(0, 0, 0, 0);
        if (row0 + r < rows && k0 + c * CHUNK < cols) {
            value = *reinterpret_cast<const int4*>(&matrix[static_cast<size_t>(row0 + r) * cols + k0 + c * CHUNK]);
        }
        // 128-byte swizzle: chunk c of row r lands at chunk c ^ (r mod 8).
        *reinterpret_cast<int4*>(&tile[r * BK + ((c ^ (r & 7)) * CHUNK)]) = value;
    }
}

}  // namespace

__global__ void __launch_bounds__(THREADS)
gemm_coop_kernel(const half* __restrict__ A, const half* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ alignas(1024) half sA[BM * BK];
    __shared__ alignas(1024) half sB[BN * BK];

    const int tid = threadIdx.x;
    const int m0 = blockIdx.y * BM;
    const int n0 = blockIdx.x * BN;

    float acc[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        acc[i] = 0.0f;
    }

    for (int k0 = 0; k0 < K; k0 += BK) {
        load_tile<BM>(sA, A, M, K, m0, k0);
        load_tile<BN>(sB, B, N, K, n0, k0);
        // The tiles were written through the generic proxy, wgmma reads them through the async proxy.
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        __syncthreads();

        warpgroup_arrive();
        const uint64_t desc_a = make_smem_desc(sA);
        const uint64_t desc_b = make_smem_desc(sB);
#pragma unroll
        for (int k = 0; k < BK / 16; ++k) {
            // 16 halves are 32 bytes: two units of the descriptor's 16-byte address field
            mma_m64n128k16(acc, desc_a + k * 2, desc_b + k * 2);
        }
        warpgroup_commit();
        warpgroup_wait_all();
        __syncthreads();  // all warps are done with the tiles before the next ones overwrite them
    }

    // Thread t of warp w holds rows 16w + t/4 and 16w + t/4 + 8, and in each group of eight columns the
    // pair 2 * (t % 4).
    const int lane = tid % 32;
    const int row = m0 + (tid / 32) * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < BN / 8; ++j) {
        const int col = n0 + j * 8 + (lane % 4) * 2;
        if (col < N) {
            if (row < M) {
                float2 upper = make_float2(acc[j * 4 + 0], acc[j * 4 + 1]);
                *reinterpret_cast<float2*>(&C[static_cast<size_t>(row) * N + col]) = upper;
            }
            if (row + 8 < M) {
                float2 lower = make_float2(acc[j * 4 + 2], acc[j * 4 + 3]);
                *reinterpret_cast<float2*>(&C[static_cast<size_t>(row + 8) * N + col]) = lower;
            }
        }
    }
}

#define CUDA_CHECK(call)                                                                           \
    do {                                                                                           \
        cudaError_t status_ = (call);                                                              \
        if (status_ != cudaSuccess) {                                                              \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_));  \
            std::exit(EXIT_FAILURE);                                                               \
        }                                                                                          \
    } while (0)

void gemm_coop(const half* A, const half* B, float* C, int M, int N, int K, cudaStream_t stream) {
    int device = 0;
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaGetDeviceProperties(&prop, device));
    if (prop.major != 9) {
        std::fprintf(stderr, "gemm_coop needs a Hopper GPU (compute capability 9.0), this is %d.%d\n", prop.major,
                     prop.minor);
        std::exit(EXIT_FAILURE);
    }
    if (K % CHUNK != 0 || N % 2 != 0) {
        std::fprintf(stderr, "gemm_coop: K must be a multiple of %d and N even\n", CHUNK);
        std::exit(EXIT_FAILURE);
    }
    const dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
    gemm_coop_kernel<<<grid, THREADS, 0, stream>>>(A, B, C, M, N, K);
    CUDA_CHECK(cudaGetLastError());
}
