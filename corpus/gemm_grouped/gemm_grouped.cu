// SPDX-License-Identifier: Apache-2.0
//
// Several products of different sizes in one launch: C[g] = A[g] * B[g]^T for every group g, bf16 operands and
// float results (the experts of a mixture, say).
//
// A table of groups comes with the launch; their tensor maps lie in global memory. A CTA takes the tiles
// blockIdx.x, blockIdx.x + gridDim.x, ... of all groups in a row. Its producer warp runs ahead into the next
// tile, of whichever group, while the consumer warpgroup still works on this one.

#ifndef GROUPED_GEMM_TYPES
#define GROUPED_GEMM_TYPES

#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

static const int GROUPED_MAX = 4;

struct Group {
    const CUtensorMap *map_a; /* boxes of 64 x 64 of A[m][k] */
    const CUtensorMap *map_b; /* boxes of 96 x 64 of B[n][k] */
    float *c;                 /* row-major m x n */
    int m, n, k;
};

struct GroupTable {
    Group group[GROUPED_MAX];
    int count;
};

#endif

#include <cuda_runtime.h>
#include <stdio.h>

enum { BLK_M = 64, BLK_N = 96, BLK_K = 64, DEPTH = 4, CTA_THREADS = 128 + 32 };
enum { BYTES_A = BLK_M * BLK_K * 2, BYTES_B = BLK_N * BLK_K * 2, BYTES = BYTES_A + BYTES_B };
enum { GROUPED_SMEM = 1024 + DEPTH * BYTES };

struct Tile {
    int group, row, col;
};

// Walks the tiles that belong to one CTA, in order, through the groups.
struct TileWalk {
    const GroupTable &table;
    int next;        // tile number over all groups
    int group = 0;
    int passed = 0;  // tiles of the groups before `group`

    __device__ TileWalk(const GroupTable &t) : table(t), next(blockIdx.x) {}

    __device__ bool step(Tile &tile) {
        while (group < table.count) {
            const Group &g = table.group[group];
            const int across = (g.n + BLK_N - 1) / BLK_N;
            const int tiles = across * ((g.m + BLK_M - 1) / BLK_M);
            if (next < passed + tiles) {
                const int local = next - passed;
                tile.group = group;
                tile.row = local / across * BLK_M;
                tile.col = local % across * BLK_N;
                next += gridDim.x;
                return true;
            }
            passed += tiles;
            group++;
        }
        return false;
    }
};

// Position in the ring; `lap` counts how often it came round.
struct Cursor {
    int at = 0;
    uint32_t lap = 0;
    __device__ void operator++(int) {
        if (++at == DEPTH) at = 0, lap ^= 1;
    }
};

__device__ inline uint32_t saddr(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ inline void wait_parity(uint32_t bar, uint32_t parity) {
    uint32_t ok;
    do {
        asm volatile(
            "{ .reg .pred p;\n"
            "  mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "  selp.b32 %0, 1, 0, p; }\n"
            : "=r"(ok)
            : "r"(bar), "r"(parity)
            : "memory");
    } while (!ok);
}

__device__ inline void copy_box(uint32_t dst, const CUtensorMap *map, uint32_t bar, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :
                 : "r"(dst), "l"(map), "r"(x), "r"(y), "r"(bar)
                 : "memory");
}

__device__ inline uint64_t tile_desc(uint32_t address) {
    const uint64_t hi = (1u << 30) | 64u; // 128-byte swizzle, 64 * 16 bytes between groups of eight rows
    return hi << 32 | 1u << 16 | (address & 0x3FFFF) >> 4;
}

template <int ScaleOut>
__device__ inline void mma_m64n96k16(float (&acc)[12][4], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, "
                 " %8, %9, %10, %11, %12, %13, %14, %15, "
                 " %16, %17, %18, %19, %20, %21, %22, %23, "
                 " %24, %25, %26, %27, %28, %29, %30, %31, "
                 " %32, %33, %34, %35, %36, %37, %38, %39, "
                 " %40, %41, %42, %43, %44, %45, %46, %47}, "
                 "%48, %49, %50, 1, 1, 0, 0;"
                 : "+f"(acc[0][0]), "+f"(acc[0][1]), "+f"(acc[0][2]), "+f"(acc[0][3]),
                   "+f"(acc[1][0]), "+f"(acc[1][1]), "+f"(acc[1][2]), "+f"(acc[1][3]),
                   "+f"(acc[2][0]), "+f"(acc[2][1]), "+f"(acc[2][2]), "+f"(acc[2][3]),
                   "+f"(acc[3][0]), "+f"(acc[3][1]), "+f"(acc[3][2]), "+f"(acc[3][3]),
                   "+f"(acc[4][0]), "+f"(acc[4][1]), "+f"(acc[4][2]), "+f"(acc[4][3]),
                   "+f"(acc[5][0]), "+f"(acc[5][1]), "+f"(acc[5][2]), "+f"(acc[5][3]),
                   "+f"(acc[6][0]), "+f"(acc[6][1]), "+f"(acc[6][2]), "+f"(acc[6][3]),
                   "+f"(acc[7][0]), "+f"(acc[7][1]), "+f"(acc[7][2]), "+f"(acc[7][3]),
                   "+f"(acc[8][0]), "+f"(acc[8][1]), "+f"(acc[8][2]), "+f"(acc[8][3]),
                   "+f"(acc[9][0]), "+f"(acc[9][1]), "+f"(acc[9][2]), "+f"(acc[9][3]),
                   "+f"(acc[10][0]), "+f"(acc[10][1]), "+f"(acc[10][2]), "+f"(acc[10][3]),
                   "+f"(acc[11][0]), "+f"(acc[11][1]), "+f"(acc[11][2]), "+f"(acc[11][3])
                 : "l"(a), "l"(b), "n"(ScaleOut));
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS)
gemm_grouped(const __grid_constant__ GroupTable table) {
    extern __shared__ char grouped_smem[];
    __shared__ uint64_t bars[2 * DEPTH];

    const uint32_t ring = (saddr(grouped_smem) + 1023u) & ~1023u;
    const uint32_t full = saddr(bars), empty = full + 8 * DEPTH;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int i = 0; i < DEPTH; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * i));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" ::"r"(empty + 8 * i));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    TileWalk walk(table);
    Tile tile;
    Cursor cur;

    if (warp == 4) {
        if (lane != 0) return;
        while (walk.step(tile)) {
            const Group &g = table.group[tile.group];
            for (int k = 0; k < g.k; k += BLK_K, cur++) {
                const uint32_t stage = ring + cur.at * BYTES;
                const uint32_t bar = full + 8 * cur.at;
                wait_parity(empty + 8 * cur.at, cur.lap ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(BYTES)
                             : "memory");
                copy_box(stage, g.map_a, bar, k, tile.row);
                copy_box(stage + BYTES_A, g.map_b, bar, k, tile.col);
            }
        }
        return;
    }

    while (walk.step(tile)) {
        const Group &g = table.group[tile.group];
        float acc[12][4];
#pragma unroll
        for (int i = 0; i < 12; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) acc[i][j] = 0.0f;

        for (int k = 0; k < g.k; k += BLK_K, cur++) {
            const uint32_t stage = ring + cur.at * BYTES;
            wait_parity(full + 8 * cur.at, cur.lap);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            mma_m64n96k16<1>(acc, tile_desc(stage), tile_desc(stage + BYTES_A));
            mma_m64n96k16<1>(acc, tile_desc(stage + 32), tile_desc(stage + BYTES_A + 32));
            mma_m64n96k16<1>(acc, tile_desc(stage + 64), tile_desc(stage + BYTES_A + 64));
            mma_m64n96k16<1>(acc, tile_desc(stage + 96), tile_desc(stage + BYTES_A + 96));
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (lane == 0)
                asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + 8 * cur.at) : "memory");
        }

        const int row = tile.row + warp * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < 12; i++) {
            const int col = tile.col + i * 8 + lane % 4 * 2;
            for (int j = 0; j < 4; j++) {
                const int r = row + j / 2 * 8, c = col + j % 2;
                if (r < g.m && c < g.n) g.c[(size_t)r * g.n + c] = acc[i][j];
            }
        }
    }
}

/* ---------------------------------------------------------------------------------------------- host */

struct HostGroup {
    const __nv_bfloat16 *a, *b;
    float *c;
    int m, n, k;
};

static int encode_group_map(CUtensorMap *out, const __nv_bfloat16 *p, int rows, int k, int box_rows) {
    void *fn = NULL;
    cudaDriverEntryPointQueryResult q;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault, &q) != cudaSuccess ||
        q != cudaDriverEntryPointSuccess)
        return 0;
    const cuuint64_t size[2] = {(cuuint64_t)k, (cuuint64_t)rows}, pitch[1] = {(cuuint64_t)k * 2};
    const cuuint32_t box[2] = {BLK_K, (cuuint32_t)box_rows}, one[2] = {1, 1};
    return ((decltype(&cuTensorMapEncodeTiled))fn)(
               out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)p, size, pitch, box, one,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* `maps` is device memory for 2 * count tensor maps, aligned to 64 bytes. Every k is a multiple of 8. */
cudaError_t gemm_grouped_launch(const HostGroup *groups, int count, CUtensorMap *maps, cudaStream_t stream) {
    int dev, major, sms;
    cudaGetDevice(&dev);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, dev);
    if (major != 9 || count > GROUPED_MAX) return cudaErrorInvalidValue;

    GroupTable table = {};
    CUtensorMap host[2 * GROUPED_MAX];
    int tiles = 0;
    table.count = count;
    for (int i = 0; i < count; i++) {
        const HostGroup &g = groups[i];
        if (!encode_group_map(&host[2 * i], g.a, g.m, g.k, BLK_M)) return cudaErrorInvalidValue;
        if (!encode_group_map(&host[2 * i + 1], g.b, g.n, g.k, BLK_N)) return cudaErrorInvalidValue;
        table.group[i] = Group{maps + 2 * i, maps + 2 * i + 1, g.c, g.m, g.n, g.k};
        tiles += ((g.m + BLK_M - 1) / BLK_M) * ((g.n + BLK_N - 1) / BLK_N);
    }
    cudaError_t e = cudaMemcpyAsync(maps, host, 2 * count * sizeof(CUtensorMap), cudaMemcpyHostToDevice, stream);
    if (e != cudaSuccess) return e;
    e = cudaFuncSetAttribute(gemm_grouped, cudaFuncAttributeMaxDynamicSharedMemorySize, GROUPED_SMEM);
    if (e != cudaSuccess) return e;
    gemm_grouped<<<tiles < sms ? tiles : sms, CTA_THREADS, GROUPED_SMEM, stream>>>(table);
    return cudaGetLastError();
}
