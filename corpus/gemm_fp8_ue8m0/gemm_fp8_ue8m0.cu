// SPDX-License-Identifier: Apache-2.0
//
// FP8 GEMM with block scales that are powers of two (ue8m0), bf16 output:
//
//   C[m][n] = sum over kb of sa[m][kb] * sb[n / 128][kb] * dot(A[m][kb], B[n][kb])       kb: 128 values of K
//
// Activations have a scale per row and 128 values, weights one per 128x128 block; each is a byte, an exponent. The
// tensor cores sum one block of K from zero; the result is multiplied by its two scales and added to the total in
// registers. That also bounds how long a sum stays in the tensor cores' shorter accumulator.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

namespace fp8 {

using e4m3 = __nv_fp8_e4m3;

constexpr uint32_t kBlockM = 128;
constexpr uint32_t kBlockN = 128;
constexpr uint32_t kBlockK = 128;     // the scales' granularity along K
constexpr uint32_t kMathThreads = 256;
constexpr uint32_t kThreads = kMathThreads + 128;

// One instruction shape: 64 rows, 128 columns, 32 bytes of K.
struct SM90_64x128x32 {
    static constexpr int M = 64, N = 128, K = 32;
    static constexpr int kNumAccum = M * N / 128;

    __device__ static void wgmma(uint64_t const& desc_a, uint64_t const& desc_b, float (&d)[kNumAccum], bool scale_d) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %66, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3\n"
            "{%0, %1, %2, %3, %4, %5, %6, %7, "
            " %8, %9, %10, %11, %12, %13, %14, %15, "
            " %16, %17, %18, %19, %20, %21, %22, %23, "
            " %24, %25, %26, %27, %28, %29, %30, %31, "
            " %32, %33, %34, %35, %36, %37, %38, %39, "
            " %40, %41, %42, %43, %44, %45, %46, %47, "
            " %48, %49, %50, %51, %52, %53, %54, %55, "
            " %56, %57, %58, %59, %60, %61, %62, %63}, "
            "%64, %65, p, 1, 1;\n"
            "}\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
              "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
              "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
              "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
              "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
            : "l"(desc_a), "l"(desc_b), "r"(int32_t(scale_d)));
    }
};

__device__ __forceinline__ void warpgroup_fence_operand(float& reg) { asm volatile("" : "+f"(reg)::"memory"); }

// 2^(e - 127); 255 is NaN, and 2^-127 is no normal number.
__device__ __forceinline__ float from_ue8m0(uint8_t e) {
    return __uint_as_float(e == 0 ? 0x00400000u : e == 255 ? 0x7fffffffu : uint32_t(e) << 23);
}

__device__ __forceinline__ uint32_t smem_addr(void const* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// Bit fields of the 64-bit matrix descriptor.
union GmmaDescriptor {
    uint64_t desc_;
    struct {
        uint32_t lo;
        uint32_t hi;
    } words;
    struct {
        uint16_t start_address_ : 14, : 2;
        uint16_t leading_byte_offset_ : 14, : 2;
        uint16_t stride_byte_offset_ : 14, : 2;
        uint8_t : 1, base_offset_ : 3, : 4;
        uint8_t : 6, layout_type_ : 2;
    } bitfield;

    __device__ operator uint64_t() const { return desc_; }
};

__device__ __forceinline__ GmmaDescriptor make_descriptor(void const* tile) {
    GmmaDescriptor d;
    d.desc_ = 0;
    d.bitfield.start_address_ = smem_addr(tile) >> 4;
    d.bitfield.stride_byte_offset_ = (8 * kBlockK) >> 4;
    d.bitfield.layout_type_ = 1;
    return d;
}

class Barrier {
    uint64_t value_;

  public:
    __device__ void init(uint32_t count) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_addr(&value_)), "r"(count));
    }
    __device__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_addr(&value_)) : "memory");
    }
    __device__ void arrive_and_expect_tx(uint32_t bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(&value_)), "r"(bytes)
                     : "memory");
    }
    __device__ void wait(uint32_t phase) {
        asm volatile(
            "{\n"
            ".reg .pred P1;\n"
            "LAB_WAIT_%=:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
            "@P1 bra DONE_%=;\n"
            "bra LAB_WAIT_%=;\n"
            "DONE_%=:\n"
            "}" ::"r"(smem_addr(&value_)),
            "r"(phase)
            : "memory");
    }
};

__device__ __forceinline__ void tma_copy(CUtensorMap const* desc, Barrier* bar, void* dst, uint32_t c0, uint32_t c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            smem_addr(dst)),
        "l"(desc), "r"(smem_addr(bar)), "r"(c0), "r"(c1)
        : "memory");
}

template <uint32_t kNumStages>
__global__ void __launch_bounds__(kThreads, 1)
fp8_gemm_kernel(__nv_bfloat16* gmem_d, uint8_t const* scales_a, uint8_t const* scales_b, uint32_t shape_n,
                uint32_t shape_k, const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b) {
    constexpr uint32_t kBytesA = kBlockM * kBlockK;
    constexpr uint32_t kBytesB = kBlockN * kBlockK;
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ alignas(8) Barrier full[kNumStages];
    __shared__ alignas(8) Barrier empty[kNumStages];

    uint32_t const num_k_blocks = shape_k / kBlockK;
    uint32_t const block_m = blockIdx.y, block_n = blockIdx.x;

    if (threadIdx.x == kMathThreads) {
        for (uint32_t s = 0; s < kNumStages; ++s) {
            full[s].init(1);
            empty[s].init(kMathThreads / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    if (threadIdx.x >= kMathThreads) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n");
        if (threadIdx.x == kMathThreads) {
            for (uint32_t kb = 0; kb < num_k_blocks; ++kb) {
                uint32_t const s = kb % kNumStages;
                empty[s].wait((kb / kNumStages + 1) & 1);
                tma_copy(&map_a, &full[s], smem + s * (kBytesA + kBytesB), kb * kBlockK, block_m * kBlockM);
                tma_copy(&map_b, &full[s], smem + s * (kBytesA + kBytesB) + kBytesA, kb * kBlockK, block_n * kBlockN);
                full[s].arrive_and_expect_tx(kBytesA + kBytesB);
            }
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
    using WGMMA = SM90_64x128x32;
    uint32_t const math_wg = threadIdx.x / 128;
    uint32_t const lane = threadIdx.x % 32;
    uint32_t const r_0 = block_m * kBlockM + math_wg * WGMMA::M + threadIdx.x / 32 % 4 * 16 + lane / 4;
    uint32_t const r_1 = r_0 + 8;

    float accum[WGMMA::kNumAccum];
    float total[WGMMA::kNumAccum] = {0};

    for (uint32_t kb = 0; kb < num_k_blocks; ++kb) {
        uint32_t const s = kb % kNumStages;
        // the scales travel while the tiles do
        float const scale_b = from_ue8m0(__ldg(scales_b + block_n * num_k_blocks + kb));
        float const scale_0 = from_ue8m0(__ldg(scales_a + r_0 * num_k_blocks + kb)) * scale_b;
        float const scale_1 = from_ue8m0(__ldg(scales_a + r_1 * num_k_blocks + kb)) * scale_b;
        full[s].wait(kb / kNumStages & 1);

#pragma unroll
        for (int i = 0; i < WGMMA::kNumAccum; ++i) warpgroup_fence_operand(accum[i]);
        asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
        uint8_t const* tile_a = smem + s * (kBytesA + kBytesB) + math_wg * WGMMA::M * kBlockK;
        uint8_t const* tile_b = smem + s * (kBytesA + kBytesB) + kBytesA;
#pragma unroll
        for (uint32_t k = 0; k < kBlockK / WGMMA::K; ++k) {
            auto desc_a = make_descriptor(tile_a + k * WGMMA::K);
            auto desc_b = make_descriptor(tile_b + k * WGMMA::K);
            WGMMA::wgmma(desc_a, desc_b, accum, k);
        }
        asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#pragma unroll
        for (int i = 0; i < WGMMA::kNumAccum; ++i) warpgroup_fence_operand(accum[i]);
        asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(0) : "memory");

        if (lane == 0) empty[s].arrive();

#pragma unroll
        for (int i = 0; i < WGMMA::kNumAccum / 4; ++i) {
            total[i * 4 + 0] += scale_0 * accum[i * 4 + 0];
            total[i * 4 + 1] += scale_0 * accum[i * 4 + 1];
            total[i * 4 + 2] += scale_1 * accum[i * 4 + 2];
            total[i * 4 + 3] += scale_1 * accum[i * 4 + 3];
        }
    }

    uint32_t const col = block_n * kBlockN + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < WGMMA::kNumAccum / 4; ++i) {
        auto* out_0 = reinterpret_cast<__nv_bfloat162*>(gmem_d + size_t(r_0) * shape_n + col + i * 8);
        auto* out_1 = reinterpret_cast<__nv_bfloat162*>(gmem_d + size_t(r_1) * shape_n + col + i * 8);
        *out_0 = __float22bfloat162_rn({total[i * 4 + 0], total[i * 4 + 1]});
        *out_1 = __float22bfloat162_rn({total[i * 4 + 2], total[i * 4 + 3]});
    }
}

}  // namespace fp8

#define CUDA_CHECK(call)                                                                          \
    do {                                                                                          \
        const cudaError_t status_ = (call);                                                       \
        if (status_ != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(EXIT_FAILURE);                                                              \
        }                                                                                         \
    } while (0)

static CUtensorMap make_map(const __nv_fp8_e4m3* data, int rows, int cols, int box_rows, int box_cols) {
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
    const cuuint64_t strides[1] = {cuuint64_t(cols) * sizeof(__nv_fp8_e4m3)};
    const cuuint32_t box[2] = {cuuint32_t(box_cols), cuuint32_t(box_rows)};
    const cuuint32_t ones[2] = {1, 1};
    const CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<__nv_fp8_e4m3*>(data), dims, strides, box, ones,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(result));
        std::exit(EXIT_FAILURE);
    }
    return map;
}

void gemm_fp8_ue8m0(const __nv_fp8_e4m3* A, const uint8_t* scales_a, const __nv_fp8_e4m3* B, const uint8_t* scales_b,
                     __nv_bfloat16* D, int M, int N, int K, cudaStream_t stream) {
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "gemm_fp8_ue8m0 needs compute capability 9.0, not %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    if (M % fp8::kBlockM || N % fp8::kBlockN || K % fp8::kBlockK) {
        std::fprintf(stderr, "gemm_fp8_ue8m0: M, N, K must be multiples of 128\n");
        std::exit(EXIT_FAILURE);
    }
    constexpr uint32_t kStages = 4;
    constexpr int kSmem = kStages * (fp8::kBlockM + fp8::kBlockN) * fp8::kBlockK;
    const CUtensorMap map_a = make_map(A, M, K, fp8::kBlockM, fp8::kBlockK);
    const CUtensorMap map_b = make_map(B, N, K, fp8::kBlockN, fp8::kBlockK);
    auto kernel = fp8::fp8_gemm_kernel<kStages>;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
    kernel<<<dim3(N / fp8::kBlockN, M / fp8::kBlockM), fp8::kThreads, kSmem, stream>>>(D, scales_a, scales_b, N, K,
                                                                                      map_a, map_b);
    CUDA_CHECK(cudaGetLastError());
}
