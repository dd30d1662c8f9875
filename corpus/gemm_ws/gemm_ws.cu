// SPDX-License-Identifier: Apache-2.0
//
// Warp-specialized bf16 GEMM for Hopper: C[M,N] = A[M,K] * B[N,K]^T with float output, all row-major.
//
// Three warpgroups per CTA. Warpgroup 0 produces: one thread keeps a ring of shared-memory stages full
// with TMA loads. Warpgroups 1 and 2 consume: each owns 64 of the tile's 128 rows. A stage goes round
// through two barriers: full[s] (the bytes have landed) and empty[s] (both consumers are done with it).

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda.h>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;
using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

constexpr int WARPGROUP_SIZE = 128;

__device__ static inline uint64_t matrix_descriptor_encode(uint64_t x) { return (x & 0x3FFFF) >> 4; }

// K-major tile, rows of 128 bytes, 128-byte swizzle: 1024 bytes from one group of eight rows to the next.
__device__ static inline uint64_t make_smem_desc(bf16* ptr) {
    uint32_t addr = static_cast<uint32_t>(__cvta_generic_to_shared(ptr));
    uint64_t desc = 0x0000000000000000;
    desc |= matrix_descriptor_encode(addr);
    desc |= matrix_descriptor_encode((uint64_t)16) << 16;
    desc |= matrix_descriptor_encode((uint64_t)1024) << 32;
    desc |= 1llu << 62;  // 128B swizzle
    return desc;
}

__device__ __forceinline__ void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

__device__ __forceinline__ void warpgroup_commit_batch() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int N>
__device__ __forceinline__ void warpgroup_wait() {
    static_assert(N >= 0 && N <= 7, "wgmma wait: N must be in [0, 7]");
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

template <uint32_t Registers>
__device__ __forceinline__ void warpgroup_reg_alloc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" : : "n"(Registers));
}

template <uint32_t Registers>
__device__ __forceinline__ void warpgroup_reg_dealloc() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" : : "n"(Registers));
}

template <int ScaleD, int ScaleA, int ScaleB, int TransA, int TransB>
__device__ __forceinline__ void wgmma64(float d[4][8], bf16* sA, bf16* sB) {
    uint64_t desc_a = make_smem_desc(&sA[0]);
    uint64_t desc_b = make_smem_desc(&sB[0]);
    asm volatile(
        "{\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, "
            " %8, %9, %10, %11, %12, %13, %14, %15, "
            " %16, %17, %18, %19, %20, %21, %22, %23, "
            " %24, %25, %26, %27, %28, %29, %30, %31}, "
            "%32, %33, %34, %35, %36, %37, %38;\n"
        "}\n"
            : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[0][4]), "+f"(d[0][5]), "+f"(d[0][6]), "+f"(d[0][7]),
              "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[1][4]), "+f"(d[1][5]), "+f"(d[1][6]), "+f"(d[1][7]),
              "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[2][4]), "+f"(d[2][5]), "+f"(d[2][6]), "+f"(d[2][7]),
              "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[3][4]), "+f"(d[3][5]), "+f"(d[3][6]), "+f"(d[3][7])
            : "l"(desc_a), "l"(desc_b), "n"(int32_t(ScaleD)), "n"(int32_t(ScaleA)), "n"(int32_t(ScaleB)),
              "n"(int32_t(TransA)), "n"(int32_t(TransB)));
}

template <int ScaleD, int ScaleA, int ScaleB, int TransA, int TransB>
__device__ __forceinline__ void wgmma128(float d[8][8], bf16* sA, bf16* sB) {
    uint64_t desc_a = make_smem_desc(&sA[0]);
    uint64_t desc_b = make_smem_desc(&sB[0]);
    asm volatile(
        "{\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, "
            " %8, %9, %10, %11, %12, %13, %14, %15, "
            " %16, %17, %18, %19, %20, %21, %22, %23, "
            " %24, %25, %26, %27, %28, %29, %30, %31, "
            " %32, %33, %34, %35, %36, %37, %38, %39, "
            " %40, %41, %42, %43, %44, %45, %46, %47, "
            " %48, %49, %50, %51, %52, %53, %54, %55, "
            " %56, %57, %58, %59, %60, %61, %62, %63}, "
            "%64, %65, %66, %67, %68, %69, %70;\n"
        "}\n"
            : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[0][4]), "+f"(d[0][5]), "+f"(d[0][6]), "+f"(d[0][7]),
              "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[1][4]), "+f"(d[1][5]), "+f"(d[1][6]), "+f"(d[1][7]),
              "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[2][4]), "+f"(d[2][5]), "+f"(d[2][6]), "+f"(d[2][7]),
              "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[3][4]), "+f"(d[3][5]), "+f"(d[3][6]), "+f"(d[3][7]),
              "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[4][4]), "+f"(d[4][5]), "+f"(d[4][6]), "+f"(d[4][7]),
              "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[5][4]), "+f"(d[5][5]), "+f"(d[5][6]), "+f"(d[5][7]),
              "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[6][4]), "+f"(d[6][5]), "+f"(d[6][6]), "+f"(d[6][7]),
              "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[7][4]), "+f"(d[7][5]), "+f"(d[7][6]), "+f"(d[7][7])
            : "l"(desc_a), "l"(desc_b), "n"(int32_t(ScaleD)), "n"(int32_t(ScaleA)), "n"(int32_t(ScaleB)),
              "n"(int32_t(TransA)), "n"(int32_t(TransB)));
}

template <int ScaleD, int ScaleA, int ScaleB, int TransA, int TransB>
__device__ __forceinline__ void wgmma256(float d[16][8], bf16* sA, bf16* sB) {
    uint64_t desc_a = make_smem_desc(&sA[0]);
    uint64_t desc_b = make_smem_desc(&sB[0]);
    asm volatile(
        "{\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, "
            " %8, %9, %10, %11, %12, %13, %14, %15, "
            " %16, %17, %18, %19, %20, %21, %22, %23, "
            " %24, %25, %26, %27, %28, %29, %30, %31, "
            " %32, %33, %34, %35, %36, %37, %38, %39, "
            " %40, %41, %42, %43, %44, %45, %46, %47, "
            " %48, %49, %50, %51, %52, %53, %54, %55, "
            " %56, %57, %58, %59, %60, %61, %62, %63, "
            " %64, %65, %66, %67, %68, %69, %70, %71, "
            " %72, %73, %74, %75, %76, %77, %78, %79, "
            " %80, %81, %82, %83, %84, %85, %86, %87, "
            " %88, %89, %90, %91, %92, %93, %94, %95, "
            " %96, %97, %98, %99, %100, %101, %102, %103, "
            " %104, %105, %106, %107, %108, %109, %110, %111, "
            " %112, %113, %114, %115, %116, %117, %118, %119, "
            " %120, %121, %122, %123, %124, %125, %126, %127}, "
            "%128, %129, %130, %131, %132, %133, %134;\n"
        "}\n"
            : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[0][4]), "+f"(d[0][5]), "+f"(d[0][6]), "+f"(d[0][7]),
              "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[1][4]), "+f"(d[1][5]), "+f"(d[1][6]), "+f"(d[1][7]),
              "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[2][4]), "+f"(d[2][5]), "+f"(d[2][6]), "+f"(d[2][7]),
              "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[3][4]), "+f"(d[3][5]), "+f"(d[3][6]), "+f"(d[3][7]),
              "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[4][4]), "+f"(d[4][5]), "+f"(d[4][6]), "+f"(d[4][7]),
              "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[5][4]), "+f"(d[5][5]), "+f"(d[5][6]), "+f"(d[5][7]),
              "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[6][4]), "+f"(d[6][5]), "+f"(d[6][6]), "+f"(d[6][7]),
              "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[7][4]), "+f"(d[7][5]), "+f"(d[7][6]), "+f"(d[7][7]),
              "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]), "+f"(d[8][4]), "+f"(d[8][5]), "+f"(d[8][6]), "+f"(d[8][7]),
              "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[9][4]), "+f"(d[9][5]), "+f"(d[9][6]), "+f"(d[9][7]),
              "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[10][4]), "+f"(d[10][5]), "+f"(d[10][6]), "+f"(d[10][7]),
              "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]), "+f"(d[11][4]), "+f"(d[11][5]), "+f"(d[11][6]), "+f"(d[11][7]),
              "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[12][4]), "+f"(d[12][5]), "+f"(d[12][6]), "+f"(d[12][7]),
              "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[13][4]), "+f"(d[13][5]), "+f"(d[13][6]), "+f"(d[13][7]),
              "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[14][4]), "+f"(d[14][5]), "+f"(d[14][6]), "+f"(d[14][7]),
              "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3]), "+f"(d[15][4]), "+f"(d[15][5]), "+f"(d[15][6]), "+f"(d[15][7])
            : "l"(desc_a), "l"(desc_b), "n"(int32_t(ScaleD)), "n"(int32_t(ScaleA)), "n"(int32_t(ScaleB)),
              "n"(int32_t(TransA)), "n"(int32_t(TransB)));
}

// d[WGMMA_N/16][8] (+)= sA(64x16) * sB(WGMMA_N x 16)^T
template <int WGMMA_N, int ScaleD, int ScaleA, int ScaleB, int TransA, int TransB>
__device__ __forceinline__ void wgmma(float d[WGMMA_N / 16][8], bf16* sA, bf16* sB) {
    static_assert(WGMMA_N == 64 || WGMMA_N == 128 || WGMMA_N == 256, "no wgmma wrapper for this N");
    if constexpr (WGMMA_N == 256) {
        wgmma256<ScaleD, ScaleA, ScaleB, TransA, TransB>(d, sA, sB);
    } else if constexpr (WGMMA_N == 128) {
        wgmma128<ScaleD, ScaleA, ScaleB, TransA, TransB>(d, sA, sB);
    } else {
        wgmma64<ScaleD, ScaleA, ScaleB, TransA, TransB>(d, sA, sB);
    }
}

template <int BM, int BN, int BK, int STAGES>
struct SMem {
    alignas(1024) bf16 A[BM * BK * STAGES];
    alignas(1024) bf16 B[BK * BN * STAGES];
};

template <int BM, int BN, int BK, int NUM_THREADS, int STAGES>
__global__ void __launch_bounds__(NUM_THREADS)
gemm_ws_kernel(int M, int N, int K, float* C, const __grid_constant__ CUtensorMap tensorMapA,
               const __grid_constant__ CUtensorMap tensorMapB) {
    constexpr int WGMMA_M = 64, WGMMA_K = 16, WGMMA_N = BN;
    constexpr int num_consumers = (NUM_THREADS / WARPGROUP_SIZE) - 1;
    constexpr int B_WG_M = BM / num_consumers;
    static_assert(B_WG_M % WGMMA_M == 0, "every consumer needs whole 64-row blocks");

    extern __shared__ __align__(1024) uint8_t smem[];
    SMem<BM, BN, BK, STAGES>& s = *reinterpret_cast<SMem<BM, BN, BK, STAGES>*>(smem);
    bf16* sA = s.A;
    bf16* sB = s.B;
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier full[STAGES], empty[STAGES];

    const int num_blocks_k = K / BK;
    const int num_block_n = blockIdx.x;
    const int num_block_m = blockIdx.y;
    const int wg_idx = threadIdx.x / WARPGROUP_SIZE;
    const int tid = threadIdx.x % WARPGROUP_SIZE;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init(&full[i], num_consumers * WARPGROUP_SIZE + 1);
            init(&empty[i], num_consumers * WARPGROUP_SIZE + 1);
        }
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();

    if (wg_idx == 0) {
        constexpr int num_regs = 24;
        warpgroup_reg_dealloc<num_regs>();
        if (tid == 0) {
            int qidx = 0;
            for (int block_k_iter = 0; block_k_iter < num_blocks_k; ++block_k_iter, ++qidx) {
                if (qidx == STAGES) qidx = 0;
                empty[qidx].wait(empty[qidx].arrive());
                cde::cp_async_bulk_tensor_2d_global_to_shared(&sA[qidx * BK * BM], &tensorMapA, block_k_iter * BK,
                                                              num_block_m * BM, full[qidx]);
                cde::cp_async_bulk_tensor_2d_global_to_shared(&sB[qidx * BK * BN], &tensorMapB, block_k_iter * BK,
                                                              num_block_n * BN, full[qidx]);
                barrier::arrival_token _ =
                    cuda::device::barrier_arrive_tx(full[qidx], 1, (BK * BN + BK * BM) * sizeof(bf16));
            }
        }
    } else {
        constexpr int num_regs = 240;
        warpgroup_reg_alloc<num_regs>();
        const int consumer = wg_idx - 1;
        // all stages start out empty
        for (int i = 0; i < STAGES; ++i) {
            barrier::arrival_token _ = empty[i].arrive();
        }

        float d[B_WG_M / WGMMA_M][WGMMA_N / 16][8];
        memset(d, 0, sizeof(d));

        int qidx = 0;
        for (int block_k_iter = 0; block_k_iter < num_blocks_k; ++block_k_iter, ++qidx) {
            if (qidx == STAGES) qidx = 0;
            full[qidx].wait(full[qidx].arrive());
            warpgroup_arrive();
#pragma unroll
            for (int m_it = 0; m_it < B_WG_M / WGMMA_M; ++m_it) {
                bf16* wgmma_sA = sA + qidx * BK * BM + BK * (m_it + consumer * B_WG_M / WGMMA_M) * WGMMA_M;
#pragma unroll
                for (int k_it = 0; k_it < BK / WGMMA_K; ++k_it) {
                    wgmma<WGMMA_N, 1, 1, 1, 0, 0>(d[m_it], &wgmma_sA[k_it * WGMMA_K],
                                                  &sB[qidx * BK * BN + k_it * WGMMA_K]);
                }
            }
            warpgroup_commit_batch();
            warpgroup_wait<0>();
            barrier::arrival_token _ = empty[qidx].arrive();
        }

        const int lane = tid % 32;
        const int warp = tid / 32;
        const int row = warp * 16 + lane / 4;
        float* block_C = C + (size_t)num_block_m * BM * N + num_block_n * BN;

#pragma unroll
        for (int m_it = 0; m_it < B_WG_M / WGMMA_M; ++m_it) {
            const int yo = m_it * WGMMA_M + consumer * B_WG_M;
#pragma unroll
            for (int w = 0; w < WGMMA_N / 16; ++w) {
                const int col = 16 * w + 2 * (tid % 4);
#define IDX(i, j) ((size_t)((i) + yo) * N + (j))
                block_C[IDX(row, col)] = d[m_it][w][0];
                block_C[IDX(row, col + 1)] = d[m_it][w][1];
                block_C[IDX(row + 8, col)] = d[m_it][w][2];
                block_C[IDX(row + 8, col + 1)] = d[m_it][w][3];
                block_C[IDX(row, col + 8)] = d[m_it][w][4];
                block_C[IDX(row, col + 9)] = d[m_it][w][5];
                block_C[IDX(row + 8, col + 8)] = d[m_it][w][6];
                block_C[IDX(row + 8, col + 9)] = d[m_it][w][7];
#undef IDX
            }
        }
    }
}

#define CUDA_CHECK(call)                                                                           \
    do {                                                                                           \
        cudaError_t status_ = (call);                                                              \
        if (status_ != cudaSuccess) {                                                              \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_));  \
            std::exit(EXIT_FAILURE);                                                               \
        }                                                                                          \
    } while (0)

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static EncodeTiled get_encode_tiled() {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: the driver does not have it\n");
        std::exit(EXIT_FAILURE);
    }
    return reinterpret_cast<EncodeTiled>(entry);
}

template <int BlockMajorSize, int BlockMinorSize>
static CUtensorMap create_tensor_map(bf16* gmem_ptr, int global_height, int global_width) {
    CUtensorMap tma_map;
    cuuint64_t gmem_shape[2] = {(cuuint64_t)global_width, (cuuint64_t)global_height};
    cuuint64_t gmem_stride[1] = {sizeof(bf16) * (cuuint64_t)global_width};
    cuuint32_t smem_box_shape[2] = {uint32_t(BlockMinorSize), uint32_t(BlockMajorSize)};
    cuuint32_t smem_box_stride[2] = {1, 1};
    CUresult result = get_encode_tiled()(
        &tma_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, gmem_ptr, gmem_shape, gmem_stride, smem_box_shape,
        smem_box_stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled failed with %d\n", (int)result);
        std::exit(EXIT_FAILURE);
    }
    return tma_map;
}

void run_gemm_ws(int M, int N, int K, bf16* A, bf16* B, float* C, cudaStream_t stream) {
    constexpr int BM = 128;
    constexpr int BN = 128;
    constexpr int BK = 64;
    constexpr int NUM_THREADS = WARPGROUP_SIZE * 3;
    constexpr int STAGES = 3;

    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "this kernel needs compute capability 9.0, found %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    if (M % BM || N % BN || K % BK) {
        std::fprintf(stderr, "run_gemm_ws: M, N, K must be multiples of %d, %d, %d\n", BM, BN, BK);
        std::exit(EXIT_FAILURE);
    }

    CUtensorMap map_a = create_tensor_map<BM, BK>(A, M, K);
    CUtensorMap map_b = create_tensor_map<BN, BK>(B, N, K);
    auto* kernel = gemm_ws_kernel<BM, BN, BK, NUM_THREADS, STAGES>;
    constexpr size_t smem_size = sizeof(SMem<BM, BN, BK, STAGES>);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_size));
    kernel<<<dim3(N / BN, M / BM), NUM_THREADS, smem_size, stream>>>(M, N, K, C, map_a, map_b);
    CUDA_CHECK(cudaGetLastError());
}
