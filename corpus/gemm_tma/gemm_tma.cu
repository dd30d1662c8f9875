// SPDX-License-Identifier: Apache-2.0
//
// bf16 GEMM with TMA loads: C[M,N] = A[M,K] * B[N,K]^T, float output, all row-major.
//
// One warpgroup per CTA, a 128x64 tile as two 64-row accumulators, one shared-memory stage. Load and
// multiply take turns; this is the smallest complete TMA + wgmma kernel, meant to be read.

#include <cstdio>
#include <stdexcept>
#include <string>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "hopper_ops.cuh"

template <int BM, int BN, int BK>
__global__ __launch_bounds__(128) void gemm_tma(const __grid_constant__ CUtensorMap map_a,
                                                const __grid_constant__ CUtensorMap map_b, float* __restrict__ C,
                                                int M, int N, int K) {
    static_assert(BM == 128 && BN == 64 && BK == 64, "the tile is fixed by the wgmma wrapper and the swizzle");
    constexpr int kTilesM = BM / 64;
    constexpr uint32_t kStageBytes = (BM + BN) * BK * sizeof(__nv_bfloat16);

    __shared__ alignas(1024) __nv_bfloat16 tile_a[BM * BK];
    __shared__ alignas(1024) __nv_bfloat16 tile_b[BN * BK];
    __shared__ alignas(8) uint64_t loaded;

    const int first_row = blockIdx.y * BM;
    const int first_col = blockIdx.x * BN;

    if (threadIdx.x == 0) {
        hopper::prefetch_tensormap(&map_a);
        hopper::prefetch_tensormap(&map_b);
        hopper::mbarrier_init(&loaded, 1);
        hopper::fence_barrier_init();
    }
    __syncthreads();

    float d[kTilesM][BN / 16][8] = {};
    uint32_t parity = 0;

    for (int k = 0; k < K; k += BK) {
        if (threadIdx.x == 0) {
            hopper::mbarrier_expect_tx(&loaded, kStageBytes);
            hopper::tma_load_2d(tile_a, &map_a, &loaded, k, first_row);
            hopper::tma_load_2d(tile_b, &map_b, &loaded, k, first_col);
        }
        hopper::mbarrier_wait(&loaded, parity);
        parity ^= 1;

        hopper::wgmma_fence();
        for (int kk = 0; kk < BK; kk += 16) {
#pragma unroll
            for (int m = 0; m < kTilesM; ++m) {
                hopper::wgmma_m64n64k16(d[m], &tile_a[m * 64 * BK + kk], &tile_b[kk]);
            }
        }
        hopper::wgmma_commit();
        hopper::wgmma_wait<0>();
        // the next load must not overwrite a tile that another warp's wgmma still reads
        __syncthreads();
    }

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    for (int m = 0; m < kTilesM; ++m) {
        const int row = first_row + m * 64 + warp * 16 + lane / 4;
        for (int n = 0; n < BN / 16; ++n) {
            const int col = first_col + n * 16 + (lane % 4) * 2;
            float* out = C + static_cast<size_t>(row) * N + col;
            out[0] = d[m][n][0];
            out[1] = d[m][n][1];
            out[8 * static_cast<size_t>(N)] = d[m][n][2];
            out[8 * static_cast<size_t>(N) + 1] = d[m][n][3];
            out[8] = d[m][n][4];
            out[9] = d[m][n][5];
            out[8 * static_cast<size_t>(N) + 8] = d[m][n][6];
            out[8 * static_cast<size_t>(N) + 9] = d[m][n][7];
        }
    }
}

// ---- host -------------------------------------------------------------------------------------

namespace {

void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

using EncodeFn = decltype(&cuTensorMapEncodeTiled);

EncodeFn encode_function() {
    void* fn = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault, &found),
          "driver entry point");
#else
    check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &fn, cudaEnableDefault, &found), "driver entry point");
#endif
    if (found != cudaDriverEntryPointSuccess) throw std::runtime_error("no cuTensorMapEncodeTiled in this driver");
    return reinterpret_cast<EncodeFn>(fn);
}

// Row-major rows x cols matrix, loaded in boxes of box_rows x box_cols with 128-byte swizzle.
CUtensorMap make_map(const __nv_bfloat16* data, uint64_t rows, uint64_t cols, uint32_t box_rows, uint32_t box_cols) {
    CUtensorMap map;
    const cuuint64_t size[] = {cols, rows};
    const cuuint64_t stride[] = {cols * sizeof(__nv_bfloat16)};
    const cuuint32_t box[] = {box_cols, box_rows};
    const cuuint32_t step[] = {1, 1};
    const CUresult result =
        encode_function()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(data), size, stride,
                          box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) throw std::runtime_error("cuTensorMapEncodeTiled refused the map");
    return map;
}

}  // namespace

void launch_gemm_tma(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C, int M, int N, int K,
                     cudaStream_t stream) {
    constexpr int BM = 128, BN = 64, BK = 64;
    int device;
    check(cudaGetDevice(&device), "cudaGetDevice");
    int major;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
    if (major != 9) throw std::runtime_error("gemm_tma is built for sm_90a only");
    if (M % BM != 0 || N % BN != 0 || K % BK != 0) throw std::invalid_argument("M, N, K must be whole tiles");

    const CUtensorMap map_a = make_map(A, M, K, BM, BK);
    const CUtensorMap map_b = make_map(B, N, K, BN, BK);
    const dim3 grid(N / BN, M / BM);
    gemm_tma<BM, BN, BK><<<grid, 128, 0, stream>>>(map_a, map_b, C, M, N, K);
    check(cudaGetLastError(), "gemm_tma");
}
