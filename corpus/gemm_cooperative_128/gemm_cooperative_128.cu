// SPDX-License-Identifier: Apache-2.0
//
// Cooperative bf16 GEMM with a tall tile: C[M,N] = A[M,K] * B[N,K]^T, 256x128 per CTA, float output.
//
// Two consumer warpgroups own 128 rows each, as two instruction rows of 64 that share every read of B. A
// stage is released one batch late, so that a batch of eight instructions is always in flight. The consumers
// write their sums through shared memory, 32 columns at a time, and TMA stores them (clipped at the edges).

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GEMM_COOPERATIVE_ENABLED 1
#endif

namespace cooperative {

using T = __nv_bfloat16;

constexpr int TILE_M = 256, TILE_N = 128, TILE_K = 64;
constexpr int STAGES = 3;
constexpr int CONSUMERS = 2;
constexpr int ROWS = TILE_M / CONSUMERS / 64;  // instruction rows of a consumer
constexpr int STORE_COLS = 32;

struct Storage {
    alignas(1024) T a[STAGES][TILE_M * TILE_K];
    alignas(1024) T b[STAGES][TILE_N * TILE_K];
    alignas(1024) float c[CONSUMERS][128 * STORE_COLS];
    uint64_t full[STAGES];
    uint64_t empty[STAGES];
};

struct Sums {
    float d[ROWS][TILE_N / 8][4];
};

__device__ __forceinline__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ bool elect_one() {
    uint32_t chosen;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.b32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(chosen));
    return chosen;
}

__device__ __forceinline__ void wait(uint64_t& bar, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred P1;\n"
        "L%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
        "@!P1 bra L%=;\n"
        "}\n" ::"r"(smem(&bar)),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void arrive(uint64_t& bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(smem(&bar)) : "memory");
}

__device__ __forceinline__ void load(void* dst, const CUtensorMap& map, uint64_t& bar, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n"
        :
        : "r"(smem(dst)), "l"(&map), "r"(x), "r"(y), "r"(smem(&bar))
        : "memory");
}

__device__ __forceinline__ void store(const CUtensorMap& map, const void* src, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];\n" ::"l"(&map),
                 "r"(x), "r"(y), "r"(smem(src))
                 : "memory");
}

// A descriptor's lower word moves along, its upper word is the same for all tiles of this kernel.
__device__ __forceinline__ uint64_t desc(const T* tile) {
    return 0x4000004000010000ull | ((smem(tile) & 0x3FFFF) >> 4);
}

__device__ __forceinline__ void mma(float (&d)[TILE_N / 8][4], const T* a, const T* b, bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, "
        " %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, "
        " %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, "
        " %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
          "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
          "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
          "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
          "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
          "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
          "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]),
          "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
          "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
          "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
          "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "l"(desc(a)), "l"(desc(b)), "r"(int(accumulate)));
}

// All products of one stage, as one batch: both instruction rows at each step of K. The first stage's first
// step drops what the registers held.
__device__ __forceinline__ void multiply(Sums& sums, const T* a, const T* b, bool first) {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
    for (int k = 0; k < TILE_K; k += 16) {
#pragma unroll
        for (int m = 0; m < ROWS; ++m) mma(sums.d[m], a + m * 64 * TILE_K + k, b + k, !first || k > 0);
    }
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int Pending>
__device__ __forceinline__ void drain() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Pending) : "memory");
}

__global__ void __launch_bounds__((CONSUMERS + 1) * 128, 1)
gemm_cooperative(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                 const __grid_constant__ CUtensorMap map_c, int k_tiles) {
#ifdef GEMM_COOPERATIVE_ENABLED
    extern __shared__ __align__(1024) unsigned char raw[];
    Storage& s = *reinterpret_cast<Storage*>(raw);

    const int group = threadIdx.x / 128;
    const int warp = threadIdx.x / 32;
    const int row0 = blockIdx.y * TILE_M;
    const int col0 = blockIdx.x * TILE_N;

    if (warp == 0 && elect_one()) {
        asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map_a));
        asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map_b));
        for (int i = 0; i < STAGES; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n" ::"r"(smem(&s.full[i])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(smem(&s.empty[i])), "n"(CONSUMERS));
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();

    if (group == CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n");
        if (warp == CONSUMERS * 4 && elect_one()) {
            for (int t = 0; t < k_tiles; ++t) {
                const int i = t % STAGES;
                wait(s.empty[i], (t / STAGES & 1) ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(smem(&s.full[i])),
                             "n"(sizeof(s.a[0]) + sizeof(s.b[0]))
                             : "memory");
                load(s.a[i], map_a, s.full[i], t * TILE_K, row0);
                load(s.b[i], map_b, s.full[i], t * TILE_K, col0);
            }
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
    Sums sums;
    const bool leader = threadIdx.x % 128 == 0;
    for (int t = 0; t < k_tiles; ++t) {
        const int i = t % STAGES;
        wait(s.full[i], t / STAGES & 1);
        multiply(sums, s.a[i] + group * 128 * TILE_K, s.b[i], t == 0);
        drain<1>();
        if (leader && t > 0) arrive(s.empty[(t - 1) % STAGES]);
    }
    drain<0>();

    // 128 rows x 32 columns: a row is 128 bytes, swizzled like the operands so that the quads of a warp meet
    // different banks.
    const int lane = threadIdx.x % 32;
    const int row = warp % 4 * 16 + lane / 4;
    unsigned char* staging = reinterpret_cast<unsigned char*>(s.c[group]);
#pragma unroll
    for (int part = 0; part < TILE_N / STORE_COLS; ++part) {
        // the store before this one may still read the staging tile
        if (leader) asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
        asm volatile("bar.sync %0, 128;\n" ::"r"(group + 1) : "memory");
#pragma unroll
        for (int m = 0; m < ROWS; ++m) {
#pragma unroll
            for (int n = 0; n < STORE_COLS / 8; ++n) {
                const float(&v)[4] = sums.d[m][part * (STORE_COLS / 8) + n];
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int r = m * 64 + row + h * 8;
                    const int at = r * 128 + ((n * 2 + lane % 4 / 2) ^ (r & 7)) * 16 + lane % 2 * 8;
                    *reinterpret_cast<float2*>(staging + at) = make_float2(v[h * 2], v[h * 2 + 1]);
                }
            }
        }
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        asm volatile("bar.sync %0, 128;\n" ::"r"(group + 1) : "memory");
        if (leader) {
            store(map_c, staging, col0 + part * STORE_COLS, row0 + group * 128);
            asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
        }
    }
    if (leader) asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory");
#else
    if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) printf("gemm_cooperative: not compiled for sm_90a\n");
#endif
}

}  // namespace cooperative

// ---- host ---------------------------------------------------------------------------------------

#define CUDA_CHECK(call)                                                                          \
    do {                                                                                          \
        const cudaError_t status_ = (call);                                                       \
        if (status_ != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(EXIT_FAILURE);                                                              \
        }                                                                                         \
    } while (0)

static CUtensorMap make_map(CUtensorMapDataType type, int bytes, const void* data, int rows, int cols, int box_rows,
                            int box_cols) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) std::exit(EXIT_FAILURE);
    CUtensorMap map;
    const cuuint64_t dims[2] = {cuuint64_t(cols), cuuint64_t(rows)};
    const cuuint64_t strides[1] = {cuuint64_t(cols) * bytes};
    const cuuint32_t box[2] = {cuuint32_t(box_cols), cuuint32_t(box_rows)};
    const cuuint32_t ones[2] = {1, 1};
    const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        &map, type, 2, const_cast<void*>(data), dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(result));
        std::exit(EXIT_FAILURE);
    }
    return map;
}

// N must be a multiple of 4, K of 64.
void gemm_cooperative(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C, int M, int N, int K,
                      cudaStream_t stream) {
    using namespace cooperative;
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "gemm_cooperative needs compute capability 9.0, not %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    const CUtensorMap map_a = make_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, A, M, K, TILE_M, TILE_K);
    const CUtensorMap map_b = make_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, B, N, K, TILE_N, TILE_K);
    const CUtensorMap map_c = make_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, C, M, N, 128, STORE_COLS);
    CUDA_CHECK(cudaFuncSetAttribute(cooperative::gemm_cooperative, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    sizeof(Storage)));
    const dim3 grid((N + TILE_N - 1) / TILE_N, (M + TILE_M - 1) / TILE_M);
    cooperative::gemm_cooperative<<<grid, (CONSUMERS + 1) * 128, sizeof(Storage), stream>>>(map_a, map_b, map_c,
                                                                                            K / TILE_K);
    CUDA_CHECK(cudaGetLastError());
}
