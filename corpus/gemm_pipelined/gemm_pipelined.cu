// SPDX-License-Identifier: Apache-2.0
//
// Pipelined f16 GEMM: C[M,N] = alpha * A[M,K] * B[N,K]^T, float output, all row-major.
//
// Eight math warps (two warpgroups, 64 rows each) and one load warp share a ring of shared-memory
// stages. The math warps keep one batch of wgmma in flight: they issue batch k, wait until batch k-1 is
// done, and hand back the stage that batch k-1 has read. Tiles are 128x96; M and N may end anywhere
// (TMA fills with zeros, the epilogue predicates its stores).

#include <cstdint>
#include <cstdio>

#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "sm90.cuh"

namespace {

constexpr int kTileM = 128;
constexpr int kTileN = 96;
constexpr int kTileK = 64;
constexpr int kStages = 4;
constexpr int kMathWarps = 8;
constexpr int kThreads = (kMathWarps + 1) * 32;

constexpr int kBytesA = kTileM * kTileK * sizeof(half);
constexpr int kBytesB = kTileN * kTileK * sizeof(half);
constexpr int kBytesStage = kBytesA + kBytesB;
// stages, barriers, and room to align the stages to the swizzle pattern
constexpr int kSmemBytes = kStages * kBytesStage + kStages * 2 * 8 + 1024;

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_pipelined(const __grid_constant__ CUtensorMap desc_a, const __grid_constant__ CUtensorMap desc_b,
               float* __restrict__ c, float alpha, int m, int n, int k) {
    extern __shared__ uint8_t smem_raw[];
    const uint32_t smem_base = (static_cast<uint32_t>(__cvta_generic_to_shared(smem_raw)) + 1023) & ~1023u;
    const sm90::RingBarriers<kStages> ring{smem_base + kStages * kBytesStage};
    auto stage_a = [&](uint32_t slot) { return smem_base + slot * kBytesStage; };
    auto stage_b = [&](uint32_t slot) { return smem_base + slot * kBytesStage + kBytesA; };

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int tile_m = blockIdx.x * kTileM;
    const int tile_n = blockIdx.y * kTileN;
    const int k_tiles = (k + kTileK - 1) / kTileK;

    if (threadIdx.x == 0) {
        for (int s = 0; s < kStages; ++s) {
            sm90::barrier_init(ring.full(s), 1);
            sm90::barrier_init(ring.empty(s), kMathWarps);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
        asm volatile("fence.proxy.async;\n" ::: "memory");
    }
    __syncthreads();

    if (warp == kMathWarps) {
        if (lane == 0) {
            const uint64_t keep = sm90::make_evict_last_policy();
            // A fresh barrier counts as one phase behind: waiting for parity 1 returns at once.
            sm90::RingIndex<kStages> pos(1);
            for (int kt = 0; kt < k_tiles; ++kt) {
                sm90::barrier_wait(ring.empty(pos.slot), pos.parity);
                sm90::barrier_arrive_expect(ring.full(pos.slot), kBytesStage);
                sm90::tma_load(stage_a(pos.slot), desc_a, ring.full(pos.slot), kt * kTileK, tile_m);
                sm90::tma_load(stage_b(pos.slot), desc_b, ring.full(pos.slot), kt * kTileK, tile_n, keep);
                pos.advance();
            }
        }
        return;
    }

    const int group = warp / 4;
    float acc[48];
    sm90::RingIndex<kStages> pos(0);
    uint32_t previous = 0;

    for (int kt = 0; kt < k_tiles; ++kt) {
        sm90::barrier_wait(ring.full(pos.slot), pos.parity);
        const uint64_t da = sm90::matrix_desc(stage_a(pos.slot) + group * 64 * 128, 0, 1024, sm90::Swizzle::B128);
        const uint64_t db = sm90::matrix_desc(stage_b(pos.slot), 0, 1024, sm90::Swizzle::B128);

        sm90::wgmma_begin();
#pragma unroll
        for (int step = 0; step < kTileK / 16; ++step) {
            // the very first product overwrites the accumulator, so it needs no zeroing
            const bool accumulate = kt > 0 || step > 0;
            sm90::mma_64x96x16(acc, da + step * 2, db + step * 2, accumulate);
        }
        sm90::wgmma_commit();

        sm90::wgmma_wait<1>();
        if (kt > 0 && lane == 0) {
            sm90::barrier_arrive(ring.empty(previous));
        }
        previous = pos.slot;
        pos.advance();
    }
    sm90::wgmma_wait<0>();

    const int row = tile_m + group * 64 + (warp % 4) * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 48; i += 4) {
        const int col = tile_n + (i / 4) * 8 + (lane % 4) * 2;
#pragma unroll
        for (int half_tile = 0; half_tile < 2; ++half_tile) {
            const int r = row + half_tile * 8;
            if (r < m) {
                if (col < n) c[size_t(r) * n + col] = alpha * acc[i + half_tile * 2];
                if (col + 1 < n) c[size_t(r) * n + col + 1] = alpha * acc[i + half_tile * 2 + 1];
            }
        }
    }
}

// ---- host -------------------------------------------------------------------------------------

#define RETURN_IF_ERROR(expr)                                                    \
    if (cudaError_t err = (expr); err != cudaSuccess) {                          \
        fprintf(stderr, "%s failed: %s\n", #expr, cudaGetErrorString(err));      \
        return err;                                                              \
    }

static cudaError_t encode_operand(CUtensorMap* map, const half* data, int rows, int cols, int box_rows) {
    typedef CUresult (*encode_t)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static encode_t encode = nullptr;
    if (encode == nullptr) {
        cudaDriverEntryPointQueryResult status;
        RETURN_IF_ERROR(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void**)&encode, 12000,
                                                         cudaEnableDefault, &status));
        if (status != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    }
    const cuuint64_t extent[2] = {cuuint64_t(cols), cuuint64_t(rows)};
    const cuuint64_t pitch[1] = {cuuint64_t(cols) * sizeof(half)};
    const cuuint32_t box[2] = {kTileK, cuuint32_t(box_rows)};
    const cuuint32_t unit[2] = {1, 1};
    const CUresult r = encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<half*>(data), extent, pitch, box,
                              unit, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// K must be a multiple of 8 (TMA strides are multiples of 16 bytes).
cudaError_t gemm_pipelined_launch(const half* a, const half* b, float* c, float alpha, int m, int n, int k,
                                  cudaStream_t stream) {
    int device = 0, cc_major = 0, cc_minor = 0;
    RETURN_IF_ERROR(cudaGetDevice(&device));
    RETURN_IF_ERROR(cudaDeviceGetAttribute(&cc_major, cudaDevAttrComputeCapabilityMajor, device));
    RETURN_IF_ERROR(cudaDeviceGetAttribute(&cc_minor, cudaDevAttrComputeCapabilityMinor, device));
    if (cc_major != 9 || cc_minor != 0) return cudaErrorNoKernelImageForDevice;

    CUtensorMap desc_a, desc_b;
    RETURN_IF_ERROR(encode_operand(&desc_a, a, m, k, kTileM));
    RETURN_IF_ERROR(encode_operand(&desc_b, b, n, k, kTileN));

    const dim3 grid((m + kTileM - 1) / kTileM, (n + kTileN - 1) / kTileN, 1);
    const dim3 block(kThreads, 1, 1);
    RETURN_IF_ERROR(cudaFuncSetAttribute(gemm_pipelined, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes));
    gemm_pipelined<<<grid, block, kSmemBytes, stream>>>(desc_a, desc_b, c, alpha, m, n, k);
    return cudaGetLastError();
}
