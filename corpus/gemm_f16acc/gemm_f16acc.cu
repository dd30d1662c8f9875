// SPDX-License-Identifier: Apache-2.0
//
// Half-precision GEMM with half-precision sums: C[M,N] = relu(A[M,K] * B[N,K]^T + bias[N]), all half.
//
// For short K, where eleven bits are enough: the accumulator takes half the registers, two values in each. Two
// warpgroups share the 64 rows of A and split the 128 columns. Tiles come by cp.async, two steps ahead.

#include <cstdint>
#include <cstdio>
#include <cstring>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CP_ASYNC_16(dst, src) \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(dst), "l"(src) : "memory")
#define CP_ASYNC_COMMIT() asm volatile("cp.async.commit_group;\n" ::: "memory")
#define CP_ASYNC_WAIT(n) asm volatile("cp.async.wait_group %0;\n" ::"n"(n) : "memory")

static constexpr int BM = 64;
static constexpr int BN = 128;
static constexpr int BK = 64;
static constexpr int PIPE = 3;
static constexpr int THREADS = 256;

namespace wg {

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Pending) : "memory");
}

// 64x64 halves in 16 registers: of eight columns, d[j][0] holds a pair of the upper row, d[j][1] of the lower.
__device__ __forceinline__ void m64n64k16_f16(uint32_t (&d)[8][2], uint64_t a, uint64_t b, int scale_d) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+r"(d[0][0]), "+r"(d[0][1]), "+r"(d[1][0]), "+r"(d[1][1]),
          "+r"(d[2][0]), "+r"(d[2][1]), "+r"(d[3][0]), "+r"(d[3][1]),
          "+r"(d[4][0]), "+r"(d[4][1]), "+r"(d[5][0]), "+r"(d[5][1]),
          "+r"(d[6][0]), "+r"(d[6][1]), "+r"(d[7][0]), "+r"(d[7][1])
        : "l"(a), "l"(b), "r"(scale_d));
}

__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
    return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

}  // namespace wg

__device__ __forceinline__ __half2 as_half2(uint32_t bits) {
    __half2 h;
    memcpy(&h, &bits, sizeof(h));
    return h;
}

__global__ __launch_bounds__(THREADS) void gemm_f16acc(const __half* __restrict__ A, const __half* __restrict__ B,
                                                       const __half* __restrict__ bias, __half* __restrict__ C, int N,
                                                       int K) {
    extern __shared__ __align__(1024) __half tiles[];
    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(tiles));
    constexpr int kRowBytes = BK * sizeof(__half);
    constexpr int kStageBytes = (BM + BN) * kRowBytes;

    const int row0 = blockIdx.y * BM;
    const int col0 = blockIdx.x * BN;
    const int steps = K / BK;

    // Rows 0 to 63 of a stage are A's, the other 128 are B's; the 128-byte swizzle repeats every eight rows.
    auto prefetch = [&](int step) {
        if (step < steps) {
            const uint32_t stage = base + step % PIPE * kStageBytes;
#pragma unroll
            for (int i = threadIdx.x; i < (BM + BN) * 8; i += THREADS) {
                const int r = i >> 3, chunk = i & 7;
                const __half* row = r < BM ? A + static_cast<size_t>(row0 + r) * K  //
                                           : B + static_cast<size_t>(col0 + r - BM) * K;
                CP_ASYNC_16(stage + r * kRowBytes + ((chunk ^ (r & 7)) << 4), row + step * BK + chunk * 8);
            }
        }
        CP_ASYNC_COMMIT();
    };

    const int wg_id = threadIdx.x >> 7;
    uint32_t d[8][2];

    prefetch(0);
    prefetch(1);
    for (int step = 0; step < steps; ++step) {
        CP_ASYNC_WAIT(1);
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        __syncthreads();
        prefetch(step + 2);

        const uint32_t stage = base + step % PIPE * kStageBytes;
        const uint64_t a = wg::descriptor(stage);
        const uint64_t b = wg::descriptor(stage + (BM + wg_id * 64) * kRowBytes);
        wg::fence();
#pragma unroll
        for (int k = 0; k < BK / 16; ++k) wg::m64n64k16_f16(d, a + k * 2, b + k * 2, step > 0 || k > 0);
        wg::commit();
        wg::wait<0>();
    }

    const int lane = threadIdx.x & 31;
    const int row = row0 + ((threadIdx.x >> 5) & 3) * 16 + (lane >> 2);
    const int col = col0 + wg_id * 64 + (lane & 3) * 2;
    const __half2 zero = __float2half2_rn(0.f);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        const __half2 shift = *reinterpret_cast<const __half2*>(bias + col + j * 8);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const __half2 sum = __hadd2(as_half2(d[j][h]), shift);
            *reinterpret_cast<__half2*>(C + static_cast<size_t>(row + h * 8) * N + col + j * 8) = __hmax2(sum, zero);
        }
    }
}

cudaError_t gemm_f16acc_launch(const __half* A, const __half* B, const __half* bias, __half* C, int M, int N, int K,
                               cudaStream_t stream) {
    int device = 0, major = 0;
    if (cudaError_t e = cudaGetDevice(&device)) return e;
    if (cudaError_t e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) return e;
    if (major != 9 || M % BM || N % BN || K % BK) {
        std::fprintf(stderr, "gemm_f16acc: needs sm_90 and whole tiles of %dx%dx%d\n", BM, BN, BK);
        return cudaErrorInvalidValue;
    }
    constexpr int smem = PIPE * (BM + BN) * BK * sizeof(__half);
    if (cudaError_t e = cudaFuncSetAttribute(gemm_f16acc, cudaFuncAttributeMaxDynamicSharedMemorySize, smem)) return e;
    gemm_f16acc<<<dim3(N / BN, M / BM), THREADS, smem, stream>>>(A, B, bias, C, N, K);
    return cudaGetLastError();
}
