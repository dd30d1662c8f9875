// SPDX-License-Identifier: Apache-2.0
//
// C[M,N] = A[M,K] * B[N,K]^T in TF32: float operands, of which the tensor cores read the upper 19 bits.
//
// Two warpgroups share a 128x64 tile. A third, one warp wide, feeds a ring of stages: 32 floats of K are one
// 128-byte swizzled row. The instruction is wrapped as a struct with one reference per accumulator register.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <cuda.h>
#include <cuda_runtime.h>

namespace tf32 {

struct Tile {
    static constexpr int M = 128, N = 64, K = 32;
    static constexpr int Stages = 4;
    static constexpr int Consumers = 2;
    static constexpr int Threads = Consumers * 128 + 32;
};

struct __align__(1024) SharedStorage {
    float a[Tile::Stages][Tile::M * Tile::K];
    float b[Tile::Stages][Tile::N * Tile::K];
    uint64_t full[Tile::Stages];
    uint64_t empty[Tile::Stages];
};

// D(64x64) = A(64x8) * B(64x8)^T + D, both operands in shared memory and K-major (tf32 has no other order).
struct MMA_64x64x8_F32TF32TF32_SS_TN {
    static __device__ __forceinline__ void fma(
        uint64_t const& desc_a, uint64_t const& desc_b,
        float& d00, float& d01, float& d02, float& d03, float& d04, float& d05, float& d06, float& d07,
        float& d08, float& d09, float& d10, float& d11, float& d12, float& d13, float& d14, float& d15,
        float& d16, float& d17, float& d18, float& d19, float& d20, float& d21, float& d22, float& d23,
        float& d24, float& d25, float& d26, float& d27, float& d28, float& d29, float& d30, float& d31,
        int32_t const scale_d) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %34, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, "
            " %8, %9, %10, %11, %12, %13, %14, %15, "
            " %16, %17, %18, %19, %20, %21, %22, %23, "
            " %24, %25, %26, %27, %28, %29, %30, %31}, "
            "%32, %33, p, 1, 1;\n"
            "}\n"
            : "+f"(d00), "+f"(d01), "+f"(d02), "+f"(d03), "+f"(d04), "+f"(d05), "+f"(d06), "+f"(d07),
              "+f"(d08), "+f"(d09), "+f"(d10), "+f"(d11), "+f"(d12), "+f"(d13), "+f"(d14), "+f"(d15),
              "+f"(d16), "+f"(d17), "+f"(d18), "+f"(d19), "+f"(d20), "+f"(d21), "+f"(d22), "+f"(d23),
              "+f"(d24), "+f"(d25), "+f"(d26), "+f"(d27), "+f"(d28), "+f"(d29), "+f"(d30), "+f"(d31)
            : "l"(desc_a), "l"(desc_b), "r"(scale_d));
    }
};

template <std::size_t... I>
__device__ __forceinline__ void fma_registers(uint64_t a, uint64_t b, float (&acc)[sizeof...(I)], int32_t scale_d,
                                              std::index_sequence<I...>) {
    MMA_64x64x8_F32TF32TF32_SS_TN::fma(a, b, acc[I]..., scale_d);
}

__device__ __forceinline__ uint32_t shared_address(void const* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint64_t k_major_sw128(float const* tile) {
    constexpr uint64_t kFixed = (uint64_t(1) << 62) | (uint64_t(1024 >> 4) << 32) | (uint64_t(1) << 16);
    return kFixed | ((shared_address(tile) & 0x3FFFF) >> 4);
}

struct Mbarrier {
    static __device__ void init(uint64_t* bar, uint32_t count) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count));
    }
    static __device__ void arrive(uint64_t* bar) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
    }
    static __device__ void expect(uint64_t* bar, uint32_t bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
                     : "memory");
    }
    static __device__ void wait(uint64_t* bar, uint32_t parity) {
        asm volatile(
            "{\n"
            ".reg .pred done;\n"
            "spin_%=:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
            "@!done bra spin_%=;\n"
            "}\n" ::"r"(shared_address(bar)),
            "r"(parity)
            : "memory");
    }
};

__device__ __forceinline__ void load_box(float* dst, CUtensorMap const* map, uint64_t* bar, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
        :
        : "r"(shared_address(dst)), "l"(map), "r"(shared_address(bar)), "r"(k), "r"(row)
        : "memory");
}

__global__ void __launch_bounds__(Tile::Threads)
gemm_kernel(__grid_constant__ const CUtensorMap map_a, __grid_constant__ const CUtensorMap map_b,
            float* __restrict__ c, int ldc, int k_tiles) {
    extern __shared__ uint8_t raw[];
    // dynamic shared memory is only 16-byte aligned by contract
    auto* smem = reinterpret_cast<SharedStorage*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t(1023));

    int const group = threadIdx.x / 128;
    int const row0 = blockIdx.y * Tile::M;
    int const col0 = blockIdx.x * Tile::N;

    if (threadIdx.x == 0) {
        for (int s = 0; s < Tile::Stages; ++s) {
            Mbarrier::init(&smem->full[s], 1);
            Mbarrier::init(&smem->empty[s], Tile::Consumers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (group == Tile::Consumers) {
        if (threadIdx.x % 32 == 0) {
            for (int t = 0; t < k_tiles; ++t) {
                int const s = t % Tile::Stages;
                int const round = t / Tile::Stages;
                if (round > 0) Mbarrier::wait(&smem->empty[s], (round - 1) & 1);
                Mbarrier::expect(&smem->full[s], (Tile::M + Tile::N) * Tile::K * sizeof(float));
                load_box(smem->a[s], &map_a, &smem->full[s], t * Tile::K, row0);
                load_box(smem->b[s], &map_b, &smem->full[s], t * Tile::K, col0);
            }
        }
        return;
    }

    float acc[32];
    using Registers = std::make_index_sequence<32>;
    for (int t = 0; t < k_tiles; ++t) {
        int const s = t % Tile::Stages;
        Mbarrier::wait(&smem->full[s], (t / Tile::Stages) & 1);
        uint64_t const a = k_major_sw128(smem->a[s] + group * 64 * Tile::K);
        uint64_t const b = k_major_sw128(smem->b[s]);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < Tile::K / 8; ++k) {
            // eight floats are 32 bytes, two units of the descriptor
            fma_registers(a + 2 * k, b + 2 * k, acc, t != 0 || k != 0, Registers{});
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (threadIdx.x % 128 == 0) Mbarrier::arrive(&smem->empty[s]);
    }

    int const lane = threadIdx.x & 31;
    int const warp = (threadIdx.x >> 5) & 3;
    float* out = c + size_t(row0 + group * 64 + warp * 16 + (lane >> 2)) * ldc + col0 + 2 * (lane & 3);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        *reinterpret_cast<float2*>(out + 8 * j) = {acc[4 * j], acc[4 * j + 1]};
        *reinterpret_cast<float2*>(out + 8 * j + size_t(8) * ldc) = {acc[4 * j + 2], acc[4 * j + 3]};
    }
}

}  // namespace tf32

// ---- host -------------------------------------------------------------------------------------

static bool describe(CUtensorMap* map, float const* base, int rows, int k, int box_rows) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        return false;
    }
    cuuint64_t const sizes[2] = {cuuint64_t(k), cuuint64_t(rows)};
    cuuint64_t const pitch[1] = {cuuint64_t(k) * sizeof(float)};
    cuuint32_t const box[2] = {tf32::Tile::K, cuuint32_t(box_rows)};
    cuuint32_t const steps[2] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
               map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, const_cast<float*>(base), sizes, pitch, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

cudaError_t gemm_tf32(float const* a, float const* b, float* c, int m, int n, int k, cudaStream_t stream) {
    using tf32::Tile;
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (major != 9) return cudaErrorInvalidDevice;
    if (m % Tile::M || n % Tile::N || k % Tile::K) return cudaErrorInvalidValue;

    CUtensorMap map_a, map_b;
    if (!describe(&map_a, a, m, k, Tile::M) || !describe(&map_b, b, n, k, Tile::N)) return cudaErrorInvalidValue;
    size_t const smem = sizeof(tf32::SharedStorage) + 1024;
    cudaFuncSetAttribute(tf32::gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(smem));
    tf32::gemm_kernel<<<dim3(n / Tile::N, m / Tile::M), Tile::Threads, smem, stream>>>(map_a, map_b, c, n,
                                                                                       k / Tile::K);
    return cudaGetLastError();
}
