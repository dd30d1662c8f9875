// SPDX-License-Identifier: Apache-2.0
// A block-scaled GEMM for SM100 in the shape of current ones: a warp for TMA, one that copies scale factors to Tensor
// Memory and multiplies, four for the epilogue. A [M, K] and B [N, K] are e4m3 with a ue8m0 factor for 32 elements of
// a row; factors lie as tcgen05.cp takes them, 512 bytes for 128 rows by 128 columns. D [M, N] is f32.
// Grid: N / 128, M / 128.
#include "sm100.cuh"

constexpr int TILE = 128, STAGES = 3;
constexpr uint32_t BYTES = TILE * TILE, FACTORS = 512, STAGE = 2 * BYTES + 1024;
constexpr uint32_t D_COLUMN = 0, A_FACTORS = 128, B_FACTORS = 132;
constexpr uint32_t IDESC = TILE / 8 << 17 | 1 << 23 | TILE / 16 << 24;

__device__ void load_factors(uint32_t to, const uint8_t* from, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(FACTORS), "r"(bar) : "memory");
}

// 32 rows of 16 bytes without swizzle, to all four groups of 32 lanes.
__device__ void copy_factors(uint32_t to, uint32_t from) {
    const uint64_t descriptor = uint64_t(from >> 4 & 0x3fff) | 1ull << 16 | 8ull << 32 | 1ull << 46;
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(descriptor) : "memory");
}

__device__ void mma(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, uint32_t a_factors, uint32_t b_factors,
                    bool add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %6, 0; tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%0], %1, %2, %3, "
        "[%4], [%5], p; }"
        ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"(a_factors), "r"(b_factors), "r"((uint32_t)add) : "memory");
}

extern "C" __global__ void __launch_bounds__(192) block_scaled(const __grid_constant__ TensorMap a,
                                                               const __grid_constant__ TensorMap b,
                                                               const uint8_t* a_factors, const uint8_t* b_factors,
                                                               float* d, int n, int k) {
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t bars[2 * STAGES + 1];
    __shared__ uint32_t base;
    const uint32_t data = shared(memory), full = shared(bars), empty = full + 8 * STAGES, done = empty + 8 * STAGES;
    const int warp = threadIdx.x / 32, steps = k / TILE;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) init(full + 8 * i, 1), init(empty + 8 * i, 1);
        init(done, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (warp == 5) allocate(&base);
    meet();
    const uint32_t tmem = base;

    if (warp == 4 && threadIdx.x % 32 == 0) {
        for (int j = 0; j < steps; ++j) {
            const uint32_t s = j % STAGES, to = data + s * STAGE, bar = full + 8 * s;
            wait(empty + 8 * s, (j / STAGES & 1) ^ 1);
            expect(bar, 2 * BYTES + 2 * FACTORS);
            load(to, a, j * TILE, blockIdx.y * TILE, bar);
            load(to + BYTES, b, j * TILE, blockIdx.x * TILE, bar);
            load_factors(to + 2 * BYTES, a_factors + (size_t)(blockIdx.y * steps + j) * FACTORS, bar);
            load_factors(to + 2 * BYTES + FACTORS, b_factors + (size_t)(blockIdx.x * steps + j) * FACTORS, bar);
        }
    } else if (warp == 5 && threadIdx.x % 32 == 0) {
        for (int j = 0; j < steps; ++j) {
            const uint32_t s = j % STAGES, from = data + s * STAGE;
            wait(full + 8 * s, j / STAGES & 1);
            copy_factors(tmem + A_FACTORS, from + 2 * BYTES);
            copy_factors(tmem + B_FACTORS, from + 2 * BYTES + FACTORS);
            for (uint32_t i = 0; i < 4; ++i)
                mma(tmem + D_COLUMN, descriptor(from + 32 * i), descriptor(from + BYTES + 32 * i),
                    IDESC | i << 29 | i << 4, tmem + A_FACTORS, tmem + B_FACTORS, j + i > 0);
            commit(empty + 8 * s);
        }
        commit(done);
    } else if (warp < 4) {
        wait(done, 0);
        fence_after();
        float* row = d + (size_t)(blockIdx.y * TILE + threadIdx.x) * n + blockIdx.x * TILE;
        for (int i = 0; i < TILE; i += 32) {
            uint32_t r[32];
            tmem_load(r, tmem + (warp * 32 << 16) + D_COLUMN + i);
#pragma unroll
            for (int c = 0; c < 32; ++c) row[i + c] = __uint_as_float(r[c]);
        }
    }
    meet();
    if (warp == 5) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 256;" ::"r"(tmem));
}
