// SPDX-License-Identifier: Apache-2.0
//
// The second layer of a feed-forward block: C[M,N] = relu(A[M,K]) * B[N,K]^T, half operands, float output.
//
// A holds the first layer's sums before its activation. Each warp reads its rows of A from shared memory with
// ldmatrix, applies the activation to the registers, and hands them to wgmma as they are; B stays in shared
// memory. Three stages of TMA loads, two warpgroups of 64 rows.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

template <int Rows, int Cols>
struct SwizzledTile {
    static_assert(Cols * sizeof(half) == 128, "one row is one swizzle span");
    static constexpr uint32_t kBytes = Rows * Cols * sizeof(half);

    alignas(1024) half data[Rows * Cols];

    __device__ uint32_t address() const { return static_cast<uint32_t>(__cvta_generic_to_shared(data)); }

    // Where TMA put the 16-byte chunk of a row.
    __device__ uint32_t chunk(int row, int index) const { return address() + row * 128 + ((index ^ (row & 7)) << 4); }

    __device__ uint64_t descriptor(int k) const {
        const uint64_t start = (address() + k * 32) >> 4 & 0x3FFF;
        return start | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
    }
};

template <int BM_, int BN_, int BK_, int Stages_>
struct Config {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, Stages = Stages_;
    static constexpr int Threads = BM / 64 * 128;

    struct Shared {
        SwizzledTile<BM, BK> a[Stages];
        SwizzledTile<BN, BK> b[Stages];
        uint64_t arrived[Stages];
    };
};

using AFragment = uint32_t[4];

__device__ __forceinline__ void ldmatrix_x4(AFragment& r, uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

__device__ __forceinline__ void relu(AFragment& r) {
#pragma unroll
    for (uint32_t& pair : r) {
        asm("max.f16x2 %0, %0, %1;\n" : "+r"(pair) : "r"(0));
    }
}

// acc(64x128) += a(64x16, registers) * b(128x16, shared memory)^T
__device__ __forceinline__ void wgmma_rs_m64n128k16(float (&acc)[64], const AFragment& a, uint64_t desc_b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16\n"
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, "
        " %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, "
        " %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, "
        " %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;\n"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]),
          "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
          "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]),
          "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]), "+f"(acc[15]),
          "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]),
          "+f"(acc[20]), "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23]),
          "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]),
          "+f"(acc[28]), "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31]),
          "+f"(acc[32]), "+f"(acc[33]), "+f"(acc[34]), "+f"(acc[35]),
          "+f"(acc[36]), "+f"(acc[37]), "+f"(acc[38]), "+f"(acc[39]),
          "+f"(acc[40]), "+f"(acc[41]), "+f"(acc[42]), "+f"(acc[43]),
          "+f"(acc[44]), "+f"(acc[45]), "+f"(acc[46]), "+f"(acc[47]),
          "+f"(acc[48]), "+f"(acc[49]), "+f"(acc[50]), "+f"(acc[51]),
          "+f"(acc[52]), "+f"(acc[53]), "+f"(acc[54]), "+f"(acc[55]),
          "+f"(acc[56]), "+f"(acc[57]), "+f"(acc[58]), "+f"(acc[59]),
          "+f"(acc[60]), "+f"(acc[61]), "+f"(acc[62]), "+f"(acc[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc_b));
}

template <class Tile>
__device__ __forceinline__ void load(Tile& tile, const CUtensorMap& map, uint64_t* bar, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n"
        :
        : "r"(tile.address()), "l"(&map), "r"(k), "r"(row), "r"((uint32_t)__cvta_generic_to_shared(bar))
        : "memory");
}

template <class C>
__global__ void __launch_bounds__(C::Threads, 1)
relu_gemm_rs(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* out, int n,
             int k) {
    extern __shared__ __align__(1024) unsigned char bytes[];
    auto& smem = *reinterpret_cast<typename C::Shared*>(bytes);

    const int k_tiles = k / C::BK;
    const int row0 = blockIdx.x * C::BM;
    const int col0 = blockIdx.y * C::BN;

    auto fill = [&](int t) {
        const int s = t % C::Stages;
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n"
                     :
                     : "r"((uint32_t)__cvta_generic_to_shared(&smem.arrived[s])),
                       "r"(smem.a[0].kBytes + smem.b[0].kBytes)
                     : "memory");
        load(smem.a[s], map_a, &smem.arrived[s], t * C::BK, row0);
        load(smem.b[s], map_b, &smem.arrived[s], t * C::BK, col0);
    };

    if (threadIdx.x == 0) {
        for (int s = 0; s < C::Stages; ++s) {
            const uint32_t bar = (uint32_t)__cvta_generic_to_shared(&smem.arrived[s]);
            asm volatile("mbarrier.init.shared.b64 [%0], 1;\n" ::"r"(bar));
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
        for (int t = 0; t < C::Stages && t < k_tiles; ++t) fill(t);
    }
    __syncthreads();

    const int warp = threadIdx.x / 32;  // warp w of the CTA owns rows 16 w to 16 w + 15
    const int lane = threadIdx.x % 32;
    float acc[64] = {};

    for (int t = 0; t < k_tiles; ++t) {
        const int s = t % C::Stages;
        uint32_t done = 0;
        while (!done) {
            asm volatile(
                "{\n"
                ".reg .pred p;\n"
                "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
                "selp.b32 %0, 1, 0, p;\n"
                "}\n"
                : "=r"(done)
                : "r"((uint32_t)__cvta_generic_to_shared(&smem.arrived[s])), "r"(t / C::Stages & 1)
                : "memory");
        }

        AFragment a[C::BK / 16];
#pragma unroll
        for (int i = 0; i < C::BK / 16; ++i) {
            ldmatrix_x4(a[i], smem.a[s].chunk(warp * 16 + lane % 16, i * 2 + lane / 16));
            relu(a[i]);
        }
        // ldmatrix read the stage through the generic proxy, TMA fills it through the async proxy
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");

        asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
        for (int i = 0; i < C::BK / 16; ++i) wgmma_rs_m64n128k16(acc, a[i], smem.b[s].descriptor(i));
        asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");

        // nobody reads the stage any more, neither by ldmatrix nor by wgmma
        __syncthreads();
        if (threadIdx.x == 0 && t + C::Stages < k_tiles) fill(t + C::Stages);
    }

    float* corner = out + static_cast<size_t>(row0 + warp * 16 + lane / 4) * n + col0 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        *reinterpret_cast<float2*>(corner + i * 2) = make_float2(acc[i], acc[i + 1]);
        *reinterpret_cast<float2*>(corner + i * 2 + 8 * static_cast<size_t>(n)) = make_float2(acc[i + 2], acc[i + 3]);
    }
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
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(result));
        std::exit(EXIT_FAILURE);
    }
    return map;
}

void gemm_rs(const half* A, const half* B, float* C, int M, int N, int K, cudaStream_t stream) {
    using Cfg = Config<128, 128, 64, 3>;
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "gemm_rs needs compute capability 9.0, not %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    if (M % Cfg::BM || N % Cfg::BN || K % Cfg::BK) {
        std::fprintf(stderr, "gemm_rs: not a whole number of tiles\n");
        std::exit(EXIT_FAILURE);
    }
    const CUtensorMap map_a = make_map(A, M, K, Cfg::BM, Cfg::BK);
    const CUtensorMap map_b = make_map(B, N, K, Cfg::BN, Cfg::BK);
    const size_t smem = sizeof(Cfg::Shared);
    CUDA_CHECK(cudaFuncSetAttribute(relu_gemm_rs<Cfg>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    relu_gemm_rs<Cfg><<<dim3(M / Cfg::BM, N / Cfg::BN), Cfg::Threads, smem, stream>>>(map_a, map_b, C, N, K);
    CUDA_CHECK(cudaGetLastError());
}
