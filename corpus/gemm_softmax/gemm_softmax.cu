// SPDX-License-Identifier: Apache-2.0
//
// Router of a mixture of experts: probabilities[T,E] = softmax over E of scale * X[T,H] * W[E,H]^T, for E = 128
// experts, and for each token the largest probability and the log-sum-exp that the balancing loss needs.
//
// One warpgroup takes 64 tokens and all experts, so a row of logits lies in the registers of four threads:
// maxima and sums need two shuffles each. The accumulator is an array of float4, one per eight columns: x and
// y are the upper row's pair, z and w the lower row's.

#include <cfloat>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace router {

constexpr int kTokens = 64;
constexpr int kExperts = 128;
constexpr int kDepth = 64;
constexpr int kStages = 4;
constexpr unsigned kAll = 0xffffffffu;

struct Buffers {
    __nv_bfloat16 x[kStages][kTokens * kDepth];
    __nv_bfloat16 w[kStages][kExperts * kDepth];
};

__device__ __forceinline__ uint32_t to_shared(const void* p) { return __cvta_generic_to_shared(p); }

__device__ __forceinline__ uint64_t operand(const __nv_bfloat16* tile, int k) {
    const uint64_t start = (to_shared(tile) + k * 32) >> 4;
    return (start & 0x3FFF) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ __forceinline__ void multiply(float4 (&logits)[kExperts / 8], uint64_t x, uint64_t w) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, "
        " %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, "
        " %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, "
        " %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;"
        : "+f"(logits[0].x), "+f"(logits[0].y), "+f"(logits[0].z), "+f"(logits[0].w),
          "+f"(logits[1].x), "+f"(logits[1].y), "+f"(logits[1].z), "+f"(logits[1].w),
          "+f"(logits[2].x), "+f"(logits[2].y), "+f"(logits[2].z), "+f"(logits[2].w),
          "+f"(logits[3].x), "+f"(logits[3].y), "+f"(logits[3].z), "+f"(logits[3].w),
          "+f"(logits[4].x), "+f"(logits[4].y), "+f"(logits[4].z), "+f"(logits[4].w),
          "+f"(logits[5].x), "+f"(logits[5].y), "+f"(logits[5].z), "+f"(logits[5].w),
          "+f"(logits[6].x), "+f"(logits[6].y), "+f"(logits[6].z), "+f"(logits[6].w),
          "+f"(logits[7].x), "+f"(logits[7].y), "+f"(logits[7].z), "+f"(logits[7].w),
          "+f"(logits[8].x), "+f"(logits[8].y), "+f"(logits[8].z), "+f"(logits[8].w),
          "+f"(logits[9].x), "+f"(logits[9].y), "+f"(logits[9].z), "+f"(logits[9].w),
          "+f"(logits[10].x), "+f"(logits[10].y), "+f"(logits[10].z), "+f"(logits[10].w),
          "+f"(logits[11].x), "+f"(logits[11].y), "+f"(logits[11].z), "+f"(logits[11].w),
          "+f"(logits[12].x), "+f"(logits[12].y), "+f"(logits[12].z), "+f"(logits[12].w),
          "+f"(logits[13].x), "+f"(logits[13].y), "+f"(logits[13].z), "+f"(logits[13].w),
          "+f"(logits[14].x), "+f"(logits[14].y), "+f"(logits[14].z), "+f"(logits[14].w),
          "+f"(logits[15].x), "+f"(logits[15].y), "+f"(logits[15].z), "+f"(logits[15].w)
        : "l"(x), "l"(w));
}

// A value that four neighbouring threads agree on.
template <class Op>
__device__ __forceinline__ float across_quad(float v, Op op) {
#pragma unroll
    for (int mask = 2; mask > 0; mask >>= 1) v = op(v, __shfl_xor_sync(kAll, v, mask));
    return v;
}

struct RowResult {
    float top;
    float log_sum;
};

// Softmax over one row in place; `a` and `b` pick the row's members of each float4.
template <float float4::*a, float float4::*b>
__device__ __forceinline__ RowResult softmax_row(float4 (&logits)[kExperts / 8], float scale) {
    float largest = -FLT_MAX;
#pragma unroll
    for (int i = 0; i < kExperts / 8; ++i) largest = fmaxf(largest, fmaxf(logits[i].*a, logits[i].*b));
    largest = across_quad(largest, [](float p, float q) { return fmaxf(p, q); }) * scale;

    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kExperts / 8; ++i) {
        logits[i].*a = __expf(logits[i].*a * scale - largest);
        logits[i].*b = __expf(logits[i].*b * scale - largest);
        sum += logits[i].*a + logits[i].*b;
    }
    sum = across_quad(sum, [](float p, float q) { return p + q; });

    const float inverse = __frcp_rn(sum);
#pragma unroll
    for (int i = 0; i < kExperts / 8; ++i) {
        logits[i].*a *= inverse;
        logits[i].*b *= inverse;
    }
    return {inverse, largest + logf(sum)};
}

__global__ void __launch_bounds__(128)
route(const __grid_constant__ CUtensorMap map_x, const __grid_constant__ CUtensorMap map_w, float scale,
      float* __restrict__ probabilities, float* __restrict__ top, float* __restrict__ log_sum, int tokens, int hidden) {
    extern __shared__ __align__(1024) char storage[];
    Buffers& buffers = *reinterpret_cast<Buffers*>(storage);
    __shared__ alignas(8) uint64_t landed[kStages];

    const int first = blockIdx.x * kTokens;
    const int steps = hidden / kDepth;
    const bool loads = threadIdx.x == 0;

    auto load = [&](int step) {
        const int s = step % kStages;
        const uint32_t bar = to_shared(&landed[s]);
        auto box = [&](void* dst, const CUtensorMap& map, int row) {
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                " [%0], [%1, {%2, %3}], [%4];"
                :
                : "r"(to_shared(dst)), "l"(&map), "r"(step * kDepth), "r"(row), "r"(bar)
                : "memory");
        };
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :
                     : "r"(bar), "n"((kTokens + kExperts) * kDepth * 2)
                     : "memory");
        box(buffers.x[s], map_x, first);
        box(buffers.w[s], map_w, 0);
    };

    if (loads) {
        for (int s = 0; s < kStages; ++s) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(to_shared(&landed[s])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int s = 0; s < kStages - 1 && s < steps; ++s) load(s);
    }
    __syncthreads();

    float4 logits[kExperts / 8];
#pragma unroll
    for (auto& four : logits) four = make_float4(0.f, 0.f, 0.f, 0.f);

    for (int step = 0; step < steps; ++step) {
        const int s = step % kStages;
        asm volatile(
            "{\n"
            ".reg .pred landed;\n"
            "again_%=:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 landed, [%0], %1;\n"
            "@!landed bra again_%=;\n"
            "}\n"
            :
            : "r"(to_shared(&landed[s])), "r"(step / kStages & 1)
            : "memory");
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        multiply(logits, operand(buffers.x[s], 0), operand(buffers.w[s], 0));
        multiply(logits, operand(buffers.x[s], 1), operand(buffers.w[s], 1));
        multiply(logits, operand(buffers.x[s], 2), operand(buffers.w[s], 2));
        multiply(logits, operand(buffers.x[s], 3), operand(buffers.w[s], 3));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // the batch before this one is done in every warp after the barrier: its stage can be filled again
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        __syncthreads();
        if (loads && step + kStages - 1 < steps) load(step + kStages - 1);
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

    const RowResult upper = softmax_row<&float4::x, &float4::y>(logits, scale);
    const RowResult lower = softmax_row<&float4::z, &float4::w>(logits, scale);

    const int lane = threadIdx.x % 32;
    const int token = first + threadIdx.x / 32 * 16 + lane / 4;
    float* out = probabilities + size_t(token) * kExperts + lane % 4 * 2;
    if (token < tokens) {
#pragma unroll
        for (int i = 0; i < kExperts / 8; ++i) *(float2*)(out + i * 8) = make_float2(logits[i].x, logits[i].y);
        if (lane % 4 == 0) {
            top[token] = upper.top;
            log_sum[token] = upper.log_sum;
        }
    }
    if (token + 8 < tokens) {
        out += 8 * kExperts;
#pragma unroll
        for (int i = 0; i < kExperts / 8; ++i) *(float2*)(out + i * 8) = make_float2(logits[i].z, logits[i].w);
        if (lane % 4 == 0) {
            top[token + 8] = lower.top;
            log_sum[token + 8] = lower.log_sum;
        }
    }
}

}  // namespace router

// ---- host ---------------------------------------------------------------------------------------

#define CUDA_CHECK(call)                                                                          \
    do {                                                                                          \
        const cudaError_t status_ = (call);                                                       \
        if (status_ != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(EXIT_FAILURE);                                                              \
        }                                                                                         \
    } while (0)

static CUtensorMap make_map(const __nv_bfloat16* data, int rows, int cols, int box_rows, int box_cols) {
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
    const cuuint64_t strides[1] = {cuuint64_t(cols) * sizeof(__nv_bfloat16)};
    const cuuint32_t box[2] = {cuuint32_t(box_cols), cuuint32_t(box_rows)};
    const cuuint32_t ones[2] = {1, 1};
    const CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(data), dims, strides, box, ones,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(result));
        std::exit(EXIT_FAILURE);
    }
    return map;
}

void route_tokens(const __nv_bfloat16* x, const __nv_bfloat16* w, float scale, float* probabilities, float* top,
                  float* log_sum, int tokens, int hidden, cudaStream_t stream) {
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "route_tokens needs compute capability 9.0, not %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    if (hidden % router::kDepth) {
        std::fprintf(stderr, "route_tokens: hidden size must be a multiple of %d\n", router::kDepth);
        std::exit(EXIT_FAILURE);
    }
    const CUtensorMap map_x = make_map(x, tokens, hidden, router::kTokens, router::kDepth);
    const CUtensorMap map_w = make_map(w, router::kExperts, hidden, router::kExperts, router::kDepth);
    constexpr size_t smem = sizeof(router::Buffers);
    CUDA_CHECK(cudaFuncSetAttribute(router::route, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    router::route<<<(tokens + router::kTokens - 1) / router::kTokens, 128, smem, stream>>>(
        map_x, map_w, scale, probabilities, top, log_sum, tokens, hidden);
    CUDA_CHECK(cudaGetLastError());
}
