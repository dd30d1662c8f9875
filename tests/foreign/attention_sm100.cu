// SPDX-License-Identifier: Apache-2.0
// Attention for SM100 in the shape of current forward kernels: a warp for TMA, one for tcgen05.mma, four for softmax;
// S, P and O in Tensor Memory, O rescaled there. Q, K and V are [heads * S, 64] f16, O is f32. Grid: S / 128, heads.
#include "sm100.cuh"

constexpr int ROWS = 128, DEPTH = 64, STAGES = 2;
constexpr uint32_t TILE = ROWS * DEPTH * 2;
constexpr uint32_t S_COLUMN = 0, O_COLUMN = 128, P_COLUMN = 192;
constexpr uint32_t QK_IDESC = 1 << 4 | 128 / 8 << 17 | 128 / 16 << 24;
constexpr uint32_t PV_IDESC = 1 << 4 | 1 << 16 | DEPTH / 8 << 17 | 128 / 16 << 24;

__device__ void mma(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, bool add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }"
        ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"((uint32_t)add) : "memory");
}

__device__ void mma_tmem(uint32_t d, uint32_t a, uint64_t b, uint32_t idesc, bool add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p; }"
        ::"r"(d), "r"(a), "l"(b), "r"(idesc), "r"((uint32_t)add) : "memory");
}

#define W8(r, i) "r"(r[i]), "r"(r[i + 1]), "r"(r[i + 2]), "r"(r[i + 3]), \
                 "r"(r[i + 4]), "r"(r[i + 5]), "r"(r[i + 6]), "r"(r[i + 7])

__device__ void tmem_store(uint32_t address, const uint32_t (&r)[32]) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31};"
        ::W8(r, 0), W8(r, 8), W8(r, 16), W8(r, 24), "r"(address) : "memory");
}

__device__ float exp2_(float x) {
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ uint32_t pack(float low, float high) {
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

extern "C" __global__ void __launch_bounds__(192) attention(const __grid_constant__ TensorMap q,
                                                            const __grid_constant__ TensorMap k,
                                                            const __grid_constant__ TensorMap v, float* out, int keys,
                                                            float scale) {
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t bars[2 * STAGES + 4];
    __shared__ uint32_t base;
    const uint32_t data = shared(memory), full = shared(bars), empty = full + 8 * STAGES;
    const uint32_t q_full = empty + 8 * STAGES, s_full = q_full + 8, p_full = s_full + 8, o_full = p_full + 8;
    const int warp = threadIdx.x / 32, blocks = keys / ROWS, head = blockIdx.y * keys;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) init(full + 8 * i, 1), init(empty + 8 * i, 1);
        init(q_full, 1), init(s_full, 1), init(p_full, ROWS), init(o_full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (warp == 5) allocate(&base);
    meet();
    const uint32_t tmem = base;
    auto stage = [&](int j) { return data + TILE * (1 + 2 * (j % STAGES)); };

    if (warp == 4 && threadIdx.x % 32 == 0) {
        expect(q_full, TILE);
        load(data, q, 0, head + blockIdx.x * ROWS, q_full);
        for (int j = 0; j < blocks; ++j) {
            const int s = j % STAGES;
            wait(empty + 8 * s, (j / STAGES & 1) ^ 1);
            expect(full + 8 * s, 2 * TILE);
            load(stage(j), k, 0, head + j * ROWS, full + 8 * s);
            load(stage(j) + TILE, v, 0, head + j * ROWS, full + 8 * s);
        }
    } else if (warp == 5 && threadIdx.x % 32 == 0) {
        auto scores = [&](int j) {
            wait(full + 8 * (j % STAGES), j / STAGES & 1);
            for (int i = 0; i < DEPTH / 16; ++i)
                mma(tmem + S_COLUMN, descriptor(data + 32 * i), descriptor(stage(j) + 32 * i), QK_IDESC, i > 0);
            commit(s_full);
        };
        wait(q_full, 0);
        scores(0);
        for (int j = 0; j < blocks; ++j) {
            wait(p_full, j & 1);
            fence_after();
            for (int i = 0; i < ROWS / 16; ++i)
                mma_tmem(tmem + O_COLUMN, tmem + P_COLUMN + 8 * i, descriptor(stage(j) + TILE + 2048 * i), PV_IDESC,
                         j + i > 0);
            commit(o_full);
            commit(empty + 8 * (j % STAGES));
            if (j + 1 < blocks) scores(j + 1);
        }
    } else if (warp < 4) {
        const uint32_t lane = tmem + (warp * 32 << 16);
        float most = -INFINITY, sum = 0;
        for (int j = 0; j < blocks; ++j) {
            wait(s_full, j & 1);
            fence_after();
            uint32_t s[4][32];
            float before = most;
#pragma unroll
            for (int i = 0; i < 4; ++i) tmem_load(s[i], lane + S_COLUMN + 32 * i);
#pragma unroll
            for (int i = 0; i < 128; ++i) most = fmaxf(most, __uint_as_float(s[i / 32][i % 32]) * scale);
            const float factor = exp2_(before - most);
            sum *= factor;
            if (j > 0) {
                wait(o_full, j - 1 & 1);
                fence_after();
                uint32_t o[32];
                for (int i = 0; i < DEPTH; i += 32) {
                    tmem_load(o, lane + O_COLUMN + i);
#pragma unroll
                    for (int c = 0; c < 32; ++c) o[c] = __float_as_uint(__uint_as_float(o[c]) * factor);
                    tmem_store(lane + O_COLUMN + i, o);
                }
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                uint32_t p[32];
#pragma unroll
                for (int c = 0; c < 32; ++c) {
                    const int at = 64 * i + 2 * c;
                    const float a = exp2_(__uint_as_float(s[at / 32][at % 32]) * scale - most);
                    const float b = exp2_(__uint_as_float(s[(at + 1) / 32][(at + 1) % 32]) * scale - most);
                    sum += a + b;
                    p[c] = pack(a, b);
                }
                tmem_store(lane + P_COLUMN + 32 * i, p);
            }
            asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
            fence_before();
            arrive(p_full);
        }
        wait(o_full, blocks - 1 & 1);
        fence_after();
        float* row = out + (size_t)(head + blockIdx.x * ROWS + threadIdx.x) * DEPTH;
        uint32_t o[32];
        for (int i = 0; i < DEPTH; i += 32) {
            tmem_load(o, lane + O_COLUMN + i);
#pragma unroll
            for (int c = 0; c < 32; ++c) row[i + c] = __uint_as_float(o[c]) / sum;
        }
    }
    meet();
    if (warp == 5) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 256;" ::"r"(tmem));
}
