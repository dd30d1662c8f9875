// SPDX-License-Identifier: Apache-2.0
//
// C[M,N] = A[M,K] * B[K,N], everything row-major, bf16 with float sums: the "NN" product.
//
// The rows of B run along N, so its tiles are N-major in shared memory and wgmma is told to transpose them.
// A swizzled row of 128 bytes holds 64 columns; a tile of 128 columns is two such slabs side by side, each
// loaded by its own TMA box. Two warpgroups, 64 rows each; the last thread in refills the ring.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;

namespace nn {

constexpr int kRows = 128;
constexpr int kCols = 128;
constexpr int kDepth = 64;
constexpr int kRing = 3;
constexpr int kThreads = 256;

constexpr int kSlab = 64;                             // columns of B in one swizzled row
constexpr int kSlabs = kCols / kSlab;
constexpr int kSlabBytes = kSlab * kDepth * 2;
constexpr int kBytesA = kRows * kDepth * 2;
constexpr int kBytesB = kSlabs * kSlabBytes;
constexpr int kRingBytes = kBytesA + kBytesB;
constexpr int kSharedBytes = kRing * kRingBytes + 1024;

enum Order : int { K_MAJOR = 0, MN_MAJOR = 1 };

__device__ __forceinline__ uint32_t cast_smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// All arguments in bytes. For an MN-major tile the leading offset leads to the next 64 columns and the
// stride offset to the next eight rows of K; a K-major tile ignores the leading offset.
__device__ __forceinline__ uint64_t describe(uint32_t address, uint32_t leading, uint32_t stride) {
    uint64_t bits = 0;
    asm("{\n\t"
        ".reg .b32 lo, hi, t;\n\t"
        "shr.u32 lo, %1, 4;\n\t"
        "and.b32 lo, lo, 0x3FFF;\n\t"
        "shr.u32 t, %2, 4;\n\t"
        "shl.b32 t, t, 16;\n\t"
        "or.b32 lo, lo, t;\n\t"
        "shr.u32 hi, %3, 4;\n\t"
        "or.b32 hi, hi, 0x40000000;\n\t"
        "mov.b64 %0, {lo, hi};\n\t"
        "}"
        : "=l"(bits)
        : "r"(address), "r"(leading), "r"(stride));
    return bits;
}

template <int scaleD, Order tnspA, Order tnspB>
__device__ __forceinline__ void wgmma_m64n128k16(float (&d)[16][4], uint64_t descA, uint64_t descB) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 \n"
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, "
        " %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, "
        " %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, "
        " %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, %66, 1, 1, %67, %68;\n"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
          "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
          "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
          "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
          "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
          "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
          "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]),
          "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
          "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
          "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
          "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "l"(descA), "l"(descB), "n"(scaleD), "n"(int(tnspA)), "n"(int(tnspB)));
}

__device__ __forceinline__ void barrier_wait(uint64_t* bar, int phase) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "WAIT_%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra DONE_%=;\n"
        "bra WAIT_%=;\n"
        "DONE_%=:\n"
        "}\n" ::"r"(cast_smem(bar)),
        "r"(phase)
        : "memory");
}

__device__ __forceinline__ void tma_2d(uint8_t* dst, const CUtensorMap& map, uint64_t* bar, int inner, int outer) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];\n"
        :
        : "r"(cast_smem(dst)), "l"((uint64_t)&map), "r"(cast_smem(bar)), "r"(inner), "r"(outer)
        : "memory");
}

__device__ void refill(uint8_t* slot, uint64_t* bar, const CUtensorMap& map_a, const CUtensorMap& map_b, int k,
                       int row, int col) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(cast_smem(bar)), "r"(kRingBytes)
                 : "memory");
    tma_2d(slot, map_a, bar, k, row);
    for (int i = 0; i < kSlabs; ++i) {
        tma_2d(slot + kBytesA + i * kSlabBytes, map_b, bar, col + i * kSlab, k);
    }
}

__global__ void __launch_bounds__(kThreads)
gemm_nn(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* __restrict__ C,
        int N, int K) {
    extern __shared__ uint8_t smem[];
    __shared__ uint64_t landed[kRing];
    uint8_t* ring = smem + (1024 - (cast_smem(smem) & 1023)) % 1024;

    const int row = blockIdx.x * kRows;
    const int col = blockIdx.y * kCols;
    const int depth_tiles = K / kDepth;
    const int wg = threadIdx.x >> 7;

    if (threadIdx.x == 0) {
        for (int i = 0; i < kRing; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n" ::"r"(cast_smem(&landed[i])));
        }
        asm volatile("fence.proxy.async;\n" ::: "memory");
        for (int i = 0; i < kRing && i < depth_tiles; ++i) {
            refill(ring + i * kRingBytes, &landed[i], map_a, map_b, i * kDepth, row, col);
        }
    }
    __syncthreads();

    float d[16][4] = {};
    int slot = 0, phase = 0;
    for (int t = 0; t < depth_tiles; ++t) {
        uint8_t* base = ring + slot * kRingBytes;
        const uint32_t a = cast_smem(base) + wg * 64 * kDepth * 2;
        const uint32_t b = cast_smem(base) + kBytesA;
        barrier_wait(&landed[slot], phase);

        asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
        // 16 rows of B are 2048 bytes
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) {
            wgmma_m64n128k16<1, K_MAJOR, MN_MAJOR>(d, describe(a + k * 32, 0, 1024),
                                                   describe(b + k * 16 * 128, kSlabBytes, 1024));
        }
        asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");

        __syncthreads();
        if (threadIdx.x == 0 && t + kRing < depth_tiles) {
            refill(base, &landed[slot], map_a, map_b, (t + kRing) * kDepth, row, col);
        }
        if (++slot == kRing) {
            slot = 0;
            phase ^= 1;
        }
    }

    const int r = row + wg * 64 + ((threadIdx.x >> 5) & 3) * 16 + ((threadIdx.x & 31) >> 2);
    bf16* upper = C + (size_t)r * N + col + (threadIdx.x & 3) * 2;
    bf16* lower = upper + (size_t)8 * N;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        *reinterpret_cast<__nv_bfloat162*>(upper + n * 8) = __floats2bfloat162_rn(d[n][0], d[n][1]);
        *reinterpret_cast<__nv_bfloat162*>(lower + n * 8) = __floats2bfloat162_rn(d[n][2], d[n][3]);
    }
}

}  // namespace nn

#define CUDA_CHECK(call)                                                                          \
    do {                                                                                          \
        const cudaError_t status_ = (call);                                                       \
        if (status_ != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(EXIT_FAILURE);                                                              \
        }                                                                                         \
    } while (0)

static CUtensorMap make_map(const bf16* data, int rows, int cols, int box_rows, int box_cols) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) {
        std::fprintf(stderr, "no cuTensorMapEncodeTiled in this driver\n");
        std::exit(EXIT_FAILURE);
    }
    const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
    CUtensorMap map;
    const cuuint64_t dims[2] = {cuuint64_t(cols), cuuint64_t(rows)};
    const cuuint64_t strides[1] = {cuuint64_t(cols) * sizeof(bf16)};
    const cuuint32_t box[2] = {cuuint32_t(box_cols), cuuint32_t(box_rows)};
    const cuuint32_t ones[2] = {1, 1};
    const CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(data), dims, strides, box, ones,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(result));
        std::exit(EXIT_FAILURE);
    }
    return map;
}

void gemm_mn_major(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, cudaStream_t stream) {
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "gemm_mn_major needs compute capability 9.0, not %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    if (M % nn::kRows || N % nn::kCols || K % nn::kDepth) {
        std::fprintf(stderr, "gemm_mn_major: not a whole number of tiles\n");
        std::exit(EXIT_FAILURE);
    }
    const CUtensorMap map_a = make_map(A, M, K, nn::kRows, nn::kDepth);
    const CUtensorMap map_b = make_map(B, K, N, nn::kDepth, nn::kSlab);
    CUDA_CHECK(cudaFuncSetAttribute(nn::gemm_nn, cudaFuncAttributeMaxDynamicSharedMemorySize, nn::kSharedBytes));
    nn::gemm_nn<<<dim3(M / nn::kRows, N / nn::kCols), nn::kThreads, nn::kSharedBytes, stream>>>(map_a, map_b, C, N, K);
    CUDA_CHECK(cudaGetLastError());
}
