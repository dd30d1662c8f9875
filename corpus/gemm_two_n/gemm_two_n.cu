// SPDX-License-Identifier: Apache-2.0
//
// Query and key/value projections of grouped-query attention in one pass over the activations:
//
//   Q[M,Nq] = X[M,K] * Wq[Nq,K]^T        P[M,Nq/4] = X[M,K] * Wkv[Nq/4,K]^T
//
// Every CTA computes 128 columns of Q and 32 of P from the same tile of X, so X travels once. The two
// products are instructions of different width; which one is meant follows from the accumulator's size.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int WIDE = 128;
constexpr int NARROW = 32;
constexpr int ROWS = 128;
constexpr int STEP = 64;
constexpr int NSTAGE = 3;

struct Stage {
    half x[ROWS * STEP];
    half wq[WIDE * STEP];
    half wkv[NARROW * STEP];
};
static_assert(sizeof(Stage) % 1024 == 0, "stages keep the alignment of the swizzle");

__device__ __forceinline__ void mma(float (&d)[64], uint64_t desc_a, uint64_t desc_b, int accumulate) {
    asm volatile(
        "{\n"
        "  .reg .pred p;\n"
        "  setp.ne.b32 p, %66, 0;\n"
        "  wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16\n"
        "    {%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, "
        " %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, "
        " %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, "
        " %56, %57, %58, %59, %60, %61, %62, %63},\n"
        "    %64, %65, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(desc_a), "l"(desc_b), "r"(accumulate));
}

__device__ __forceinline__ void mma(float (&d)[16], uint64_t desc_a, uint64_t desc_b, int accumulate) {
    asm volatile(
        "{\n"
        "  .reg .pred p;\n"
        "  setp.ne.b32 p, %18, 0;\n"
        "  wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16\n"
        "    {%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15},\n"
        "    %16, %17, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(desc_a), "l"(desc_b), "r"(accumulate));
}

__device__ __forceinline__ uint32_t shared_u32(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ uint64_t sw128_desc(const half* p) {
    uint64_t d = (uint64_t)(shared_u32(p) >> 4 & 0x3FFF);
    d |= (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
    return d;
}

__device__ __forceinline__ void box(half* dst, const CUtensorMap* map, uint32_t bar, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n"
        :
        : "r"(shared_u32(dst)), "l"(map), "r"(k), "r"(row), "r"(bar)
        : "memory");
}

template <int REGISTERS>
__device__ __forceinline__ void store_rows(half* out, int ld, const float (&d)[REGISTERS]) {
#pragma unroll
    for (int i = 0; i < REGISTERS; i += 4) {
        *(half2*)(out + i * 2) = __floats2half2_rn(d[i], d[i + 1]);
        *(half2*)(out + i * 2 + (size_t)ld * 8) = __floats2half2_rn(d[i + 2], d[i + 3]);
    }
}

}  // namespace

__global__ void __launch_bounds__(256, 1)
project_qkv(const __grid_constant__ CUtensorMap map_x, const __grid_constant__ CUtensorMap map_wq,
            const __grid_constant__ CUtensorMap map_wkv, half* __restrict__ Q, half* __restrict__ P, int nq, int steps)
{
    extern __shared__ __align__(1024) char dynamic[];
    Stage* stage = reinterpret_cast<Stage*>(dynamic);
    __shared__ __align__(8) uint64_t bars[NSTAGE];

    const uint32_t bar0 = shared_u32(bars);
    const bool boss = threadIdx.x == 0;
    const int m0 = blockIdx.y * ROWS;

    auto fetch = [&](int step) {
        Stage& s = stage[step % NSTAGE];
        const uint32_t bar = bar0 + 8 * (step % NSTAGE);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(bar),
                     "r"((uint32_t)sizeof(Stage))
                     : "memory");
        box(s.x, &map_x, bar, step * STEP, m0);
        box(s.wq, &map_wq, bar, step * STEP, blockIdx.x * WIDE);
        box(s.wkv, &map_wkv, bar, step * STEP, blockIdx.x * NARROW);
    };

    if (boss) {
        for (int i = 0; i < NSTAGE; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n" ::"r"(bar0 + 8 * i));
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
        for (int i = 0; i < NSTAGE - 1 && i < steps; i++) fetch(i);
    }
    __syncthreads();

    const int group = threadIdx.x / 128;
    float q[64], p[16];
    for (int step = 0; step < steps; step++) {
        const uint32_t bar = bar0 + 8 * (step % NSTAGE);
        const uint32_t parity = step / NSTAGE & 1;
        asm volatile(
            "{\n"
            "  .reg .pred ok;\n"
            "poll_%=:\n"
            "  mbarrier.try_wait.parity.shared::cta.b64 ok, [%0], %1;\n"
            "  @!ok bra.uni poll_%=;\n"
            "}\n" ::"r"(bar),
            "r"(parity)
            : "memory");

        const Stage& s = stage[step % NSTAGE];
        const uint64_t dx = sw128_desc(s.x + group * 64 * STEP);
        const uint64_t dq = sw128_desc(s.wq);
        const uint64_t dp = sw128_desc(s.wkv);
        asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
        for (int k = 0; k < STEP / 16; k++) {
            mma(q, dx + 2 * k, dq + 2 * k, step + k);
            mma(p, dx + 2 * k, dp + 2 * k, step + k);
        }
        asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
        __syncthreads();
        if (boss && step + NSTAGE - 1 < steps) fetch(step + NSTAGE - 1);
    }

    const int lane = threadIdx.x % 32;
    const size_t row = m0 + group * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const int pair = lane % 4 * 2;
    store_rows(Q + row * nq + blockIdx.x * WIDE + pair, nq, q);
    store_rows(P + row * (nq / 4) + blockIdx.x * NARROW + pair, nq / 4, p);
}

#define CUDA_CHECK(call)                                                                          \
    do {                                                                                          \
        const cudaError_t status_ = (call);                                                       \
        if (status_ != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(EXIT_FAILURE);                                                              \
        }                                                                                         \
    } while (0)

static CUtensorMap make_map(const half* data, int rows, int cols, int box_rows, int box_cols) {
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
    const cuuint64_t strides[1] = {cuuint64_t(cols) * sizeof(half)};
    const cuuint32_t box[2] = {cuuint32_t(box_cols), cuuint32_t(box_rows)};
    const cuuint32_t ones[2] = {1, 1};
    const CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<half*>(data), dims, strides, box, ones,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(result));
        std::exit(EXIT_FAILURE);
    }
    return map;
}

// nkv is nq / 4.
void launch_project_qkv(const half* X, const half* Wq, const half* Wkv, half* Q, half* P, int M, int nq, int K,
                        cudaStream_t stream)
{
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "project_qkv needs compute capability 9.0, not %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    if (M % ROWS || nq % WIDE || K % STEP) {
        std::fprintf(stderr, "project_qkv: not a whole number of tiles\n");
        std::exit(EXIT_FAILURE);
    }
    const CUtensorMap map_x = make_map(X, M, K, ROWS, STEP);
    const CUtensorMap map_wq = make_map(Wq, nq, K, WIDE, STEP);
    const CUtensorMap map_wkv = make_map(Wkv, nq / 4, K, NARROW, STEP);
    CUDA_CHECK(cudaFuncSetAttribute(project_qkv, cudaFuncAttributeMaxDynamicSharedMemorySize, NSTAGE * sizeof(Stage)));
    project_qkv<<<dim3(nq / WIDE, M / ROWS), 256, NSTAGE * sizeof(Stage), stream>>>(map_x, map_wq, map_wkv, Q, P, nq,
                                                                                   K / STEP);
    CUDA_CHECK(cudaGetLastError());
}
