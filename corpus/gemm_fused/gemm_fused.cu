// SPDX-License-Identifier: Apache-2.0
//
// The second half of a feed-forward block's first layer:
//
//   pre[M,N] = A[M,K] * B[N,K]^T + bias[N]         kept for the backward pass
//   out[M,N] = residual[M,N] + gelu(pre)           tanh form
//
// bf16 matrices, float bias and sums. A producer warpgroup and two consumers; what happens to the sums is a
// class that the kernel is a template over.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace fused {

using Element = __nv_bfloat16;

struct Shape {
    static constexpr int kM = 128;
    static constexpr int kN = 128;
    static constexpr int kK = 64;
    static constexpr int kStages = 4;
};

struct Shared {
    alignas(1024) Element a[Shape::kStages][Shape::kM][Shape::kK];
    alignas(1024) Element b[Shape::kStages][Shape::kN][Shape::kK];
    alignas(8) uint64_t full_barrier[Shape::kStages];
    alignas(8) uint64_t empty_barrier[Shape::kStages];
};

// ---- instructions -------------------------------------------------------------------------------

struct PipelineState {
    int index = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ PipelineState& operator++() {
        if (++index == Shape::kStages) {
            index = 0;
            phase ^= 1;
        }
        return *this;
    }
};

__device__ __forceinline__ uint32_t smem_ptr(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void mbar_wait(uint64_t& bar, uint32_t phase) {
    asm volatile(
        "{\n\t"
        ".reg .pred complete;\n\t"
        "LOOP_%=:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1, 0x989680;\n\t"
        "@complete bra.uni END_%=;\n\t"
        "bra.uni LOOP_%=;\n\t"
        "END_%=:\n\t"
        "}"
        :
        : "r"(smem_ptr(&bar)), "r"(phase)
        : "memory");
}

__device__ __forceinline__ void mbar_arrive(uint64_t& bar) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(smem_ptr(&bar)) : "memory");
}

__device__ __forceinline__ void tma_load(void* dst, const CUtensorMap& map, uint64_t& bar, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];"
        :
        : "r"(smem_ptr(dst)), "l"(reinterpret_cast<uint64_t>(&map)), "r"(smem_ptr(&bar)), "r"(k), "r"(row)
        : "memory");
}

union SmemDescriptor {
    uint64_t desc;
    uint32_t words[2];

    __device__ __forceinline__ explicit SmemDescriptor(const void* tile) {
        words[0] = (smem_ptr(tile) >> 4) | (1u << 16);
        words[1] = (1024u >> 4) | (1u << 30);  // 1024 bytes from eight rows to the next eight, 128-byte swizzle
    }

    __device__ __forceinline__ SmemDescriptor& operator+=(uint32_t bytes) {
        words[0] += bytes >> 4;
        return *this;
    }
};

class WarpgroupMma {
  public:
    float value[Shape::kN / 2];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (float& v : value) v = 0.f;
    }

    __device__ __forceinline__ static void arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
    __device__ __forceinline__ static void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
    template <int kPending>
    __device__ __forceinline__ static void wait() {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
    }

    __device__ __forceinline__ void operator()(SmemDescriptor a, SmemDescriptor b) {
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
            : "+f"(value[0]), "+f"(value[1]), "+f"(value[2]), "+f"(value[3]),
              "+f"(value[4]), "+f"(value[5]), "+f"(value[6]), "+f"(value[7]),
              "+f"(value[8]), "+f"(value[9]), "+f"(value[10]), "+f"(value[11]),
              "+f"(value[12]), "+f"(value[13]), "+f"(value[14]), "+f"(value[15]),
              "+f"(value[16]), "+f"(value[17]), "+f"(value[18]), "+f"(value[19]),
              "+f"(value[20]), "+f"(value[21]), "+f"(value[22]), "+f"(value[23]),
              "+f"(value[24]), "+f"(value[25]), "+f"(value[26]), "+f"(value[27]),
              "+f"(value[28]), "+f"(value[29]), "+f"(value[30]), "+f"(value[31]),
              "+f"(value[32]), "+f"(value[33]), "+f"(value[34]), "+f"(value[35]),
              "+f"(value[36]), "+f"(value[37]), "+f"(value[38]), "+f"(value[39]),
              "+f"(value[40]), "+f"(value[41]), "+f"(value[42]), "+f"(value[43]),
              "+f"(value[44]), "+f"(value[45]), "+f"(value[46]), "+f"(value[47]),
              "+f"(value[48]), "+f"(value[49]), "+f"(value[50]), "+f"(value[51]),
              "+f"(value[52]), "+f"(value[53]), "+f"(value[54]), "+f"(value[55]),
              "+f"(value[56]), "+f"(value[57]), "+f"(value[58]), "+f"(value[59]),
              "+f"(value[60]), "+f"(value[61]), "+f"(value[62]), "+f"(value[63])
            : "l"(a.desc), "l"(b.desc));
    }
};

// ---- what happens to the sums -------------------------------------------------------------------

struct GeluResidual {
    struct Params {
        const float* bias;
        const Element* residual;
        Element* out;
        Element* pre;
        int ld;
    };

    __device__ __forceinline__ static float gelu(float x) {
        const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
        return 0.5f * x * (1.f + tanhf(inner));
    }

    // Two neighbouring columns of one row.
    __device__ __forceinline__ static void apply(const Params& p, int row, int col, float x0, float x1) {
        const float2 bias = __ldg(reinterpret_cast<const float2*>(p.bias + col));
        const size_t at = static_cast<size_t>(row) * p.ld + col;
        const __nv_bfloat162 pre = __floats2bfloat162_rn(x0 + bias.x, x1 + bias.y);
        const float2 res = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(p.residual + at));
        *reinterpret_cast<__nv_bfloat162*>(p.pre + at) = pre;
        *reinterpret_cast<__nv_bfloat162*>(p.out + at) =
            __floats2bfloat162_rn(res.x + gelu(x0 + bias.x), res.y + gelu(x1 + bias.y));
    }
};

template <class Epilogue>
__global__ void __launch_bounds__(384, 1)
fused_gemm(const __grid_constant__ CUtensorMap tma_a, const __grid_constant__ CUtensorMap tma_b,
           const typename Epilogue::Params params, const int k_blocks) {
    extern __shared__ __align__(1024) unsigned char smem_bytes[];
    Shared& smem = *reinterpret_cast<Shared*>(smem_bytes);

    // every thread of a warp agrees on its role
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
    const int m_block = blockIdx.x * Shape::kM;
    const int n_block = blockIdx.y * Shape::kN;

    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < Shape::kStages; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_ptr(&smem.full_barrier[i])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 256;" ::"r"(smem_ptr(&smem.empty_barrier[i])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (warpgroup == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) {
            PipelineState write;
            for (int k = 0; k < k_blocks; ++k, ++write) {
                mbar_wait(smem.empty_barrier[write.index], write.phase ^ 1);
                uint64_t& full = smem.full_barrier[write.index];
                constexpr uint32_t kBytes = sizeof(smem.a[0]) + sizeof(smem.b[0]);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_ptr(&full)),
                             "r"(kBytes)
                             : "memory");
                tma_load(smem.a[write.index], tma_a, full, k * Shape::kK, m_block);
                tma_load(smem.b[write.index], tma_b, full, k * Shape::kK, n_block);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        WarpgroupMma mma;
        mma.clear();
        PipelineState read;
        for (int k = 0; k < k_blocks; ++k, ++read) {
            mbar_wait(smem.full_barrier[read.index], read.phase);
            SmemDescriptor a(smem.a[read.index][warpgroup * 64]);
            SmemDescriptor b(smem.b[read.index]);
            WarpgroupMma::arrive();
#pragma unroll
            for (int i = 0; i < Shape::kK / 16; ++i) {
                mma(a, b);
                a += 32;
                b += 32;
            }
            WarpgroupMma::commit();
            WarpgroupMma::wait<0>();
            mbar_arrive(smem.empty_barrier[read.index]);
        }

        const int lane = threadIdx.x % 32;
        const int row = m_block + warpgroup * 64 + (threadIdx.x / 32 % 4) * 16 + lane / 4;
        const int col = n_block + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < Shape::kN / 8; ++i) {
            Epilogue::apply(params, row, col + i * 8, mma.value[i * 4], mma.value[i * 4 + 1]);
            Epilogue::apply(params, row + 8, col + i * 8, mma.value[i * 4 + 2], mma.value[i * 4 + 3]);
        }
    }
}

}  // namespace fused

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

void gemm_bias_gelu_residual(const __nv_bfloat16* A, const __nv_bfloat16* B, const float* bias,
                             const __nv_bfloat16* residual, __nv_bfloat16* out, __nv_bfloat16* pre, int M, int N,
                             int K, cudaStream_t stream) {
    using namespace fused;
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "gemm_fused needs compute capability 9.0, not %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    if (M % Shape::kM || N % Shape::kN || K % Shape::kK) {
        std::fprintf(stderr, "gemm_fused: %d x %d x %d is not a whole number of tiles\n", M, N, K);
        std::exit(EXIT_FAILURE);
    }
    const CUtensorMap tma_a = make_map(A, M, K, Shape::kM, Shape::kK);
    const CUtensorMap tma_b = make_map(B, N, K, Shape::kN, Shape::kK);
    const auto kernel = &fused_gemm<GeluResidual>;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
    const GeluResidual::Params params{bias, residual, out, pre, N};
    kernel<<<dim3(M / Shape::kM, N / Shape::kN), 384, sizeof(Shared), stream>>>(tma_a, tma_b, params, K / Shape::kK);
    CUDA_CHECK(cudaGetLastError());
}
