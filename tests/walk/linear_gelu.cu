// SPDX-License-Identifier: Apache-2.0
//
// out[M,N] = gelu(x[M,K] * w[N,K]^T + bias[N]) in bf16, all row-major: the first linear layer of an MLP.
//
// 128x128 tiles. Warpgroup 0 loads with TMA into a ring of four stages; warpgroups 1 and 2 multiply 64 rows each.

#include <cstdint>
#include <stdexcept>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace mlp {

constexpr int BM = 128, BN = 128, BK = 64, STAGES = 4, CONSUMERS = 2;

struct Stages {
    alignas(1024) __nv_bfloat16 x[STAGES][BM * BK];
    alignas(1024) __nv_bfloat16 w[STAGES][BN * BK];
    uint64_t full[STAGES];
    uint64_t empty[STAGES];
};

__device__ inline uint32_t shared(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline void init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(bar)), "r"(count));
}

__device__ inline void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(bar)), "r"(bytes) : "memory");
}

__device__ inline void arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(bar)) : "memory");
}

__device__ inline void wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared(bar)), "r"(parity)
        : "memory");
}

__device__ inline void load(void* tile, const CUtensorMap* map, uint64_t* bar, int column, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            shared(tile)),
        "l"(map), "r"(column), "r"(row), "r"(shared(bar))
        : "memory");
}

// A K-major tile with rows of 128 bytes and the 128-byte swizzle.
__device__ inline uint64_t descriptor(const __nv_bfloat16* tile) {
    return (1ull << 62) | (uint64_t(1024 >> 4) << 32) | (uint64_t(1) << 16) | ((shared(tile) & 0x3FFFF) >> 4);
}

__device__ inline void mma_m64n128k16(float (&d)[16][4], uint64_t x, uint64_t w) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
          "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]), "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
          "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
          "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "l"(x), "l"(w));
}

__device__ inline float gelu(float x) {
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

__global__ void __launch_bounds__((CONSUMERS + 1) * 128, 1)
linear_gelu(const __grid_constant__ CUtensorMap map_x, const __grid_constant__ CUtensorMap map_w,
            const float* __restrict__ bias, __nv_bfloat16* __restrict__ out, int n, int k) {
    extern __shared__ __align__(1024) unsigned char raw[];
    Stages& s = *reinterpret_cast<Stages*>(raw);
    const int group = threadIdx.x / 128;
    const int thread = threadIdx.x % 128;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init(&s.full[i], 1);
            init(&s.empty[i], CONSUMERS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (thread == 0) {
            for (int t = 0; t < k / BK; ++t) {
                const int i = t % STAGES;
                wait(&s.empty[i], (t / STAGES & 1) ^ 1);
                expect(&s.full[i], (BM + BN) * BK * sizeof(__nv_bfloat16));
                load(s.x[i], &map_x, &s.full[i], t * BK, row0);
                load(s.w[i], &map_w, &s.full[i], t * BK, col0);
            }
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int rows = (group - 1) * 64;
    float d[16][4] = {};
    for (int t = 0; t < k / BK; ++t) {
        const int i = t % STAGES;
        wait(&s.full[i], t / STAGES & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int kk = 0; kk < BK; kk += 16) {
            mma_m64n128k16(d, descriptor(&s.x[i][rows * BK + kk]), descriptor(&s.w[i][kk]));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (thread == 0) arrive(&s.empty[i]);
    }

    const int row = row0 + rows + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        const int column = col0 + j * 8 + thread % 4 * 2;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float a = gelu(d[j][2 * h] + bias[column]);
            const float b = gelu(d[j][2 * h + 1] + bias[column + 1]);
            const size_t at = size_t(row + 8 * h) * n + column;
            *reinterpret_cast<__nv_bfloat162*>(&out[at]) = __floats2bfloat162_rn(a, b);
        }
    }
}

CUtensorMap map_of(const __nv_bfloat16* data, int rows, int columns, int box_rows) {
    CUtensorMap map;
    cuuint64_t shape[2] = {cuuint64_t(columns), cuuint64_t(rows)};
    cuuint64_t stride[1] = {columns * sizeof(__nv_bfloat16)};
    cuuint32_t box[2] = {BK, cuuint32_t(box_rows)};
    cuuint32_t step[2] = {1, 1};
    if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void*)data, shape, stride, box, step,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
        throw std::runtime_error("no tensor map");
    return map;
}

void run(const __nv_bfloat16* x, const __nv_bfloat16* w, const float* bias, __nv_bfloat16* out, int m, int n, int k,
         cudaStream_t stream) {
    if (m % BM || n % BN || k % BK) throw std::invalid_argument("m, n and k are multiples of 128, 128 and 64");
    cudaFuncSetAttribute(linear_gelu, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Stages));
    linear_gelu<<<dim3(n / BN, m / BM), (CONSUMERS + 1) * 128, sizeof(Stages), stream>>>(
        map_of(x, m, k, BM), map_of(w, n, k, BN), bias, out, n, k);
}

}  // namespace mlp
