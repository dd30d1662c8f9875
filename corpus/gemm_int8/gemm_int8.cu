// SPDX-License-Identifier: Apache-2.0
//
// Quantized linear layer: C[M,N] = row_scale[M] * col_scale[N] * (A[M,K] * B[N,K]^T), int8 operands, int32 sums.
//
// Activations carry one scale per row (token), weights one per column (channel); both are applied to the
// 32-bit sums in the epilogue. One warpgroup per 64x128 tile, two tiles in shared memory in turn: while
// the tensor cores work on one, the TMA fills the other. The instruction stands where it is used.

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#define TM 64
#define TN 128
#define TK 128          // int8: one swizzled row of 128 bytes
#define MMA_K 32

static __device__ __forceinline__ uint32_t smem_u32(const void* p) {
    uint32_t a;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
    return a;
}

static __device__ __forceinline__ void tma_tile(uint32_t dst, const CUtensorMap* map, uint32_t bar, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        :: "r"(dst), "l"(map), "r"(k), "r"(row), "r"(bar) : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
gemm_int8_dequant(const __grid_constant__ CUtensorMap tmap_a, const __grid_constant__ CUtensorMap tmap_b,
                  const float* __restrict__ row_scale, const float* __restrict__ col_scale,
                  float* __restrict__ out, int M, int N, int K)
{
    __shared__ __align__(1024) int8_t tile_a[2][TM * TK];
    __shared__ __align__(1024) int8_t tile_b[2][TN * TK];
    __shared__ __align__(8) uint64_t ready[2];

    const int tid = threadIdx.x;
    const int bm = blockIdx.y * TM;
    const int bn = blockIdx.x * TN;
    const int nk = (K + TK - 1) / TK;

    if (tid == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(smem_u32(&ready[0])));
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(smem_u32(&ready[1])));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();

#define ISSUE_LOADS(kt)                                                                               \
    do {                                                                                              \
        const int slot_ = (kt) & 1;                                                                   \
        const uint32_t bar_ = smem_u32(&ready[slot_]);                                                \
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"                              \
                     :: "r"(bar_), "r"((TM + TN) * TK) : "memory");                                   \
        tma_tile(smem_u32(tile_a[slot_]), &tmap_a, bar_, (kt) * TK, bm);                              \
        tma_tile(smem_u32(tile_b[slot_]), &tmap_b, bar_, (kt) * TK, bn);                              \
    } while (0)

    if (tid == 0) ISSUE_LOADS(0);

    int sum[64];
#pragma unroll
    for (int i = 0; i < 64; i++) sum[i] = 0;

    for (int kt = 0; kt < nk; kt++) {
        const int slot = kt & 1;
        // the other slot was multiplied in the step before, and all warps have left that step
        if (tid == 0 && kt + 1 < nk) ISSUE_LOADS(kt + 1);

        const uint32_t parity = (kt >> 1) & 1;
        uint32_t there = 0;
        while (!there) {
            asm volatile(
                "{\n\t"
                ".reg .pred q;\n\t"
                "mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2;\n\t"
                "selp.u32 %0, 1, 0, q;\n\t"
                "}"
                : "=r"(there) : "r"(smem_u32(&ready[slot])), "r"(parity) : "memory");
        }

        const uint64_t layout = (1ull << 62) | (64ull << 32) | (1ull << 16);   // 128B swizzle, 8 rows = 1024 bytes
        uint64_t da = layout | ((smem_u32(tile_a[slot]) >> 4) & 0x3FFF);
        uint64_t db = layout | ((smem_u32(tile_b[slot]) >> 4) & 0x3FFF);

        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int ks = 0; ks < TK / MMA_K; ks++) {
            asm volatile(
                "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
                "{%0, %1, %2, %3, %4, %5, %6, %7, "
                " %8, %9, %10, %11, %12, %13, %14, %15, "
                " %16, %17, %18, %19, %20, %21, %22, %23, "
                " %24, %25, %26, %27, %28, %29, %30, %31, "
                " %32, %33, %34, %35, %36, %37, %38, %39, "
                " %40, %41, %42, %43, %44, %45, %46, %47, "
                " %48, %49, %50, %51, %52, %53, %54, %55, "
                " %56, %57, %58, %59, %60, %61, %62, %63}, "
                "%64, %65, 1;"
                : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]),
                  "+r"(sum[4]), "+r"(sum[5]), "+r"(sum[6]), "+r"(sum[7]),
                  "+r"(sum[8]), "+r"(sum[9]), "+r"(sum[10]), "+r"(sum[11]),
                  "+r"(sum[12]), "+r"(sum[13]), "+r"(sum[14]), "+r"(sum[15]),
                  "+r"(sum[16]), "+r"(sum[17]), "+r"(sum[18]), "+r"(sum[19]),
                  "+r"(sum[20]), "+r"(sum[21]), "+r"(sum[22]), "+r"(sum[23]),
                  "+r"(sum[24]), "+r"(sum[25]), "+r"(sum[26]), "+r"(sum[27]),
                  "+r"(sum[28]), "+r"(sum[29]), "+r"(sum[30]), "+r"(sum[31]),
                  "+r"(sum[32]), "+r"(sum[33]), "+r"(sum[34]), "+r"(sum[35]),
                  "+r"(sum[36]), "+r"(sum[37]), "+r"(sum[38]), "+r"(sum[39]),
                  "+r"(sum[40]), "+r"(sum[41]), "+r"(sum[42]), "+r"(sum[43]),
                  "+r"(sum[44]), "+r"(sum[45]), "+r"(sum[46]), "+r"(sum[47]),
                  "+r"(sum[48]), "+r"(sum[49]), "+r"(sum[50]), "+r"(sum[51]),
                  "+r"(sum[52]), "+r"(sum[53]), "+r"(sum[54]), "+r"(sum[55]),
                  "+r"(sum[56]), "+r"(sum[57]), "+r"(sum[58]), "+r"(sum[59]),
                  "+r"(sum[60]), "+r"(sum[61]), "+r"(sum[62]), "+r"(sum[63])
                : "l"(da), "l"(db));
            da += MMA_K >> 4;
            db += MMA_K >> 4;
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
#undef ISSUE_LOADS

    const int row_a = bm + (tid / 32) * 16 + (tid % 32) / 4;
    const int row_b = row_a + 8;
    const float scale_a = row_a < M ? row_scale[row_a] : 0.f;
    const float scale_b = row_b < M ? row_scale[row_b] : 0.f;
#pragma unroll
    for (int j = 0; j < TN / 8; j++) {
        const int col = bn + j * 8 + (tid % 4) * 2;
        if (col >= N) break;                            // N is even
        const float2 s = *reinterpret_cast<const float2*>(col_scale + col);
        if (row_a < M) {
            float2 v;
            v.x = __int2float_rn(sum[4 * j + 0]) * scale_a * s.x;
            v.y = __int2float_rn(sum[4 * j + 1]) * scale_a * s.y;
            *reinterpret_cast<float2*>(out + (size_t)row_a * N + col) = v;
        }
        if (row_b < M) {
            float2 v;
            v.x = __int2float_rn(sum[4 * j + 2]) * scale_b * s.x;
            v.y = __int2float_rn(sum[4 * j + 3]) * scale_b * s.y;
            *reinterpret_cast<float2*>(out + (size_t)row_b * N + col) = v;
        }
    }
}

/* ------------------------------------------------------------------ host */

typedef CUresult (*encode_tiled_t)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                   const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static int encode_int8(encode_tiled_t encode, CUtensorMap* map, const int8_t* p, int rows, int k, int box_rows)
{
    cuuint64_t dim[2] = {(cuuint64_t)k, (cuuint64_t)rows};
    cuuint64_t stride[1] = {(cuuint64_t)k};
    cuuint32_t box[2] = {TK, (cuuint32_t)box_rows};
    cuuint32_t one[2] = {1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, (void*)p, dim, stride, box, one,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* K must be a multiple of 16, N even. Returns 0 on success. */
extern "C" int gemm_int8_launch(const int8_t* a, const int8_t* b, const float* row_scale, const float* col_scale,
                                float* out, int M, int N, int K, cudaStream_t stream)
{
    cudaDeviceProp prop;
    int dev;
    if (cudaGetDevice(&dev) != cudaSuccess || cudaGetDeviceProperties(&prop, dev) != cudaSuccess) return 1;
    if (prop.major != 9 || K % 16 || N % 2) {
        fprintf(stderr, "gemm_int8: needs sm_90, K a multiple of 16, even N\n");
        return 1;
    }
    encode_tiled_t encode = NULL;
    cudaDriverEntryPointQueryResult r;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void**)&encode, 12000, cudaEnableDefault, &r) !=
            cudaSuccess || r != cudaDriverEntryPointSuccess)
        return 1;
    CUtensorMap ta, tb;
    if (!encode_int8(encode, &ta, a, M, K, TM) || !encode_int8(encode, &tb, b, N, K, TN)) return 1;
    dim3 grid((N + TN - 1) / TN, (M + TM - 1) / TM);
    gemm_int8_dequant<<<grid, 128, 0, stream>>>(ta, tb, row_scale, col_scale, out, M, N, K);
    return cudaGetLastError() != cudaSuccess;
}
