// SPDX-License-Identifier: Apache-2.0
//
// Persistent warp-specialized GEMM: C[M,N] = A[M,K] * B[N,K]^T, bf16 in and out, f32 accumulation.
//
// As many CTAs as the launcher asks for walk over the 128x128 output tiles. Per CTA one producer
// warpgroup loads and two consumer warpgroups multiply. The ring of stages runs on across tiles, so the
// loads of the next tile start while the consumers still store the present one. Each consumer writes
// its 64x128 part through shared memory (stmatrix) and a TMA store.

#include "hopper.cuh"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

namespace config {
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 64;
constexpr int STAGES = 3;
constexpr int CONSUMERS = 2;
constexpr int THREADS = (CONSUMERS + 1) * 128;
constexpr int GROUP_M = 2;  // tiles are visited in bands of this many tile rows, for reuse of B in L2
}  // namespace config

struct alignas(128) SharedStorage {
    bf16 A[config::STAGES][config::BM * config::BK];
    bf16 B[config::STAGES][config::BN * config::BK];
    bf16 C[config::CONSUMERS][config::BN / 64][64 * 64];  // 64 columns are one 128-byte swizzle span
    uint64_t full[config::STAGES];
    uint64_t empty[config::STAGES];
};

struct TileSchedule {
    int next;
    int step;
    int total;
    int tiles_m;
    int tiles_n;

    DEVICE_INLINE TileSchedule(int M, int N)
        : next(blockIdx.x), step(gridDim.x), tiles_m(M / config::BM), tiles_n(N / config::BN) {
        total = tiles_m * tiles_n;
    }

    DEVICE_INLINE bool pop(int &tile_m, int &tile_n) {
        if (next >= total) return false;
        const int band_size = config::GROUP_M * tiles_n;
        const int band = next / band_size;
        const int rows_in_band = min(config::GROUP_M, tiles_m - band * config::GROUP_M);
        const int in_band = next % band_size;
        tile_m = band * config::GROUP_M + in_band % rows_in_band;
        tile_n = in_band / rows_in_band;
        next += step;
        return true;
    }
};

DEVICE_INLINE void advance(int &stage, int &phase) {
    if (++stage == config::STAGES) {
        stage = 0;
        phase ^= 1;
    }
}

// One batch: all of a stage's BK columns. Returns when the batch is done.
template <int Accumulate>
DEVICE_INLINE void multiply_stage(float (&acc)[8][8], const bf16 *a, const bf16 *b) {
    warpgroup_arrive();
    wgmma_64x128x16<Accumulate>(acc, a, b);
#pragma unroll
    for (int kk = 1; kk < config::BK / 16; kk++) {
        wgmma_64x128x16<1>(acc, a + kk * 16, b + kk * 16);
    }
    warpgroup_commit();
    warpgroup_wait<0>();
}

__global__ void __launch_bounds__(config::THREADS, 1)
gemm_persistent_kernel(const __grid_constant__ CUtensorMap tma_a, const __grid_constant__ CUtensorMap tma_b,
                       const __grid_constant__ CUtensorMap tma_c, int M, int N, int K) {
    using namespace config;
    extern __shared__ __align__(128) unsigned char shared_memory[];
    SharedStorage &s = *reinterpret_cast<SharedStorage *>(shared_memory);

    const int warpgroup = threadIdx.x / 128;
    const int num_k = K / BK;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            init_barrier(&s.full[i], 1);
            init_barrier(&s.empty[i], CONSUMERS * 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();

    TileSchedule schedule(M, N);
    int tile_m, tile_n;
    int stage = 0, phase = 0;

    if (warpgroup == 0) {
        registers_decrease<40>();
        if (threadIdx.x < 32 && elect_one_sync()) {
            while (schedule.pop(tile_m, tile_n)) {
                for (int k = 0; k < num_k; k++) {
                    wait(&s.empty[stage], phase ^ 1);
                    expect_bytes(&s.full[stage], (BM + BN) * BK * sizeof(bf16));
                    load_async(s.A[stage], &tma_a, &s.full[stage], k * BK, tile_m * BM);
                    load_async(s.B[stage], &tma_b, &s.full[stage], k * BK, tile_n * BN);
                    advance(stage, phase);
                }
            }
        }
    } else {
        registers_increase<232>();
        const int consumer = warpgroup - 1;
        const int tid = threadIdx.x % 128;
        const int warp = tid / 32;
        const int lane = tid % 32;

        while (schedule.pop(tile_m, tile_n)) {
            float acc[BN / 16][8];

            // The first batch of a tile starts a new sum, the others continue it.
            wait(&s.full[stage], phase);
            multiply_stage<0>(acc, &s.A[stage][consumer * 64 * BK], s.B[stage]);
            arrive(&s.empty[stage]);
            advance(stage, phase);
            for (int k = 1; k < num_k; k++) {
                wait(&s.full[stage], phase);
                multiply_stage<1>(acc, &s.A[stage][consumer * 64 * BK], s.B[stage]);
                arrive(&s.empty[stage]);
                advance(stage, phase);
            }

            // The previous tile's store must have read the buffer before it is written again.
            if (tid == 0) store_wait_read<0>();
            named_barrier_sync<128>(1 + consumer);

            const int row = warp * 16 + lane % 16;
#pragma unroll
            for (int w = 0; w < BN / 16; w++) {
                const int col = w * 16 + (lane / 16) * 8;
                const int chunk = (col % 64) / 8;
                bf16 *dst = &s.C[consumer][col / 64][row * 64 + ((chunk ^ (row % 8)) * 8)];
                stmatrix_x4(dst, pack_bf16(acc[w][0], acc[w][1]), pack_bf16(acc[w][2], acc[w][3]),
                            pack_bf16(acc[w][4], acc[w][5]), pack_bf16(acc[w][6], acc[w][7]));
            }
            fence_async_shared();
            named_barrier_sync<128>(1 + consumer);

            if (tid == 0) {
                for (int half = 0; half < BN / 64; half++) {
                    store_async(&tma_c, s.C[consumer][half], tile_n * BN + half * 64, tile_m * BM + consumer * 64);
                }
                store_commit();
            }
        }
        if (tid == 0) store_wait<0>();
    }
}

/* -------------------------------------------------------------------- host */

#define CHECK(x)                                                                          \
    do {                                                                                  \
        cudaError_t e = (x);                                                              \
        if (e != cudaSuccess) {                                                           \
            fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e)); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

typedef CUresult (*PFN_encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                               const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                               CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static void encode_bf16_map(CUtensorMap *map, bf16 *ptr, int rows, int cols, int box_rows, int box_cols) {
    static PFN_encode encode = NULL;
    if (!encode) {
        void *p = NULL;
        cudaDriverEntryPointQueryResult q;
        CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &q));
        if (q != cudaDriverEntryPointSuccess) {
            fprintf(stderr, "driver without cuTensorMapEncodeTiled\n");
            exit(1);
        }
        encode = (PFN_encode)p;
    }
    cuuint64_t dims[5] = {(cuuint64_t)cols, (cuuint64_t)rows, 1, 1, 1};
    cuuint64_t strides[4] = {(cuuint64_t)cols * sizeof(bf16)};
    cuuint32_t box[5] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows, 1, 1, 1};
    cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
    CUresult r = encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, ptr, dims, strides, box, element_strides,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS) {
        fprintf(stderr, "cuTensorMapEncodeTiled: error %d\n", (int)r);
        exit(1);
    }
}

void gemm_persistent(bf16 *A, bf16 *B, bf16 *C, int M, int N, int K, cudaStream_t stream) {
    using namespace config;
    int dev = 0;
    CHECK(cudaGetDevice(&dev));
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, dev));
    if (prop.major != 9) {
        fprintf(stderr, "gemm_persistent: built for sm_90a, the device is sm_%d%d\n", prop.major, prop.minor);
        exit(1);
    }
    if (M % BM || N % BN || K % BK) {
        fprintf(stderr, "gemm_persistent: %d x %d x %d is not a whole number of tiles\n", M, N, K);
        exit(1);
    }

    CUtensorMap tma_a, tma_b, tma_c;
    encode_bf16_map(&tma_a, A, M, K, BM, BK);
    encode_bf16_map(&tma_b, B, N, K, BN, BK);
    encode_bf16_map(&tma_c, C, M, N, 64, 64);

    const int tiles = (M / BM) * (N / BN);
    const int grid = tiles < prop.multiProcessorCount ? tiles : prop.multiProcessorCount;
    CHECK(cudaFuncSetAttribute(gemm_persistent_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               sizeof(SharedStorage)));
    gemm_persistent_kernel<<<grid, THREADS, sizeof(SharedStorage), stream>>>(tma_a, tma_b, tma_c, M, N, K);
    CHECK(cudaGetLastError());
}
