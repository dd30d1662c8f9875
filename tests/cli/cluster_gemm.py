# SPDX-License-Identifier: Apache-2.0
"""A GEMM in the style of kernels that people hand around: a template, a class that deals out tiles, roles that are
counted down, stages that consumers call empty in both CTAs of a cluster before they multiply, results by macros."""

from __future__ import annotations

from pathlib import Path

CASE = """\
version: 1
kernel: cluster_gemm.cu
entry: cluster_gemm
template: [BM, BN, BK, THREADS, STAGES, CTAS, 2]
constants: {BM: 128, BN: 64, BK: 64, THREADS: 384, STAGES: 3, CTAS: 2}
sizes: {M: 512, N: 64, K: 256}
other_sizes:
  - {M: 256, N: 128, K: 64}
multiples: {M: 256, N: BN}
tensors:
  A: {dtype: bf16, shape: [M, K], role: input}
  B: {dtype: bf16, shape: [N, K], role: input}
  C: {dtype: f32, shape: [M, N], role: output}
tensor_maps:
  map_a: {tensor: A, box: [BM, BK], swizzle: 128B}
  map_b: {tensor: B, box: [BN, BK], swizzle: 128B}
launch:
  grid: [CTAS, 1, 1]
  block: [THREADS, 1, 1]
  cluster: [2, 1, 1]
  dynamic_smem: STAGES * (BM + BN) * BK * 2
params: [M, N, K, C, map_a, map_b]
reduction: K
reference: "A @ B.T"
accumulate: f32
"""

KERNEL = r"""#include <cuda.h>
#include <cuda_bf16.h>
#include <cstdint>

__device__ inline uint32_t at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline uint64_t descriptor(const __nv_bfloat16* p) {
    return (uint64_t(at(p) & 0x3FFFF) >> 4) | (uint64_t(1) << 16) | (uint64_t(64) << 32) | (uint64_t(1) << 62);
}

template <int ScaleD>
__device__ inline void multiply(float (&d)[4][8], const __nv_bfloat16* a, const __nv_bfloat16* b) {
    const uint64_t desc_a = descriptor(a), desc_b = descriptor(b);
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
        "%23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, %34, 1, 1, 0, 0;\n"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[0][4]), "+f"(d[0][5]), "+f"(d[0][6]),
          "+f"(d[0][7]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[1][4]), "+f"(d[1][5]),
          "+f"(d[1][6]), "+f"(d[1][7]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[2][4]),
          "+f"(d[2][5]), "+f"(d[2][6]), "+f"(d[2][7]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[3][4]), "+f"(d[3][5]), "+f"(d[3][6]), "+f"(d[3][7])
        : "l"(desc_a), "l"(desc_b), "n"(ScaleD));
}
__device__ inline void fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
__device__ inline void drain() { asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory"); }

__device__ inline void begin(uint64_t* bar, int threads, int loads) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(bar)), "r"(threads + loads));
}
__device__ inline void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes) : "memory");
}
__device__ inline void wait(uint64_t* bar, int parity) {
    asm volatile(
        "{\n.reg .pred over;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@!over bra AGAIN;\n}\n"
        ::"r"(at(bar)), "r"(parity) : "memory");
}
__device__ inline void wait_cluster(uint64_t* bar, int parity) {
    asm volatile(
        "{\n.reg .pred over;\nAGAIN:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n@!over bra AGAIN;\n}\n"
        ::"r"(at(bar)), "r"(parity) : "memory");
}
__device__ inline void arrive_in(uint64_t* bar, uint32_t cta) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}\n" ::"r"(at(bar)), "r"(cta) : "memory");
}
__device__ inline void load(void* to, const CUtensorMap* map, uint64_t* bar, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
        ::"r"(at(to)), "l"(map), "r"(at(bar)), "r"(k), "r"(row) : "memory");
}
__device__ inline void load_to(void* to, const CUtensorMap* map, uint64_t* bar, int k, int row, uint16_t ctas) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;"
        ::"r"(at(to)), "l"(map), "r"(at(bar)), "r"(k), "r"(row), "h"(ctas) : "memory");
}

template <int BM, int BN, int CLUSTERS>
struct Tiles {
    int at_tile, columns, all;
    __device__ Tiles(int m, int n, int cluster) {
        at_tile = cluster;
        columns = n / BN;
        all = m / BM * columns;
    }
    __device__ bool next(int& m, int& n) {
        if (at_tile >= all) return false;
        m = at_tile / columns;
        n = at_tile % columns;
        at_tile += CLUSTERS;
        return true;
    }
};

template <int BM, int BN, int BK, int STAGES>
struct Storage {
    alignas(1024) __nv_bfloat16 a[STAGES][BM * BK];
    alignas(1024) __nv_bfloat16 b[STAGES][BN * BK];
};

template <int BM, int BN, int BK, int THREADS, int STAGES, int CTAS, int CLUSTER>
__global__ void __launch_bounds__(THREADS) __cluster_dims__(CLUSTER, 1, 1)
cluster_gemm(int M, int N, int K, float* C, const __grid_constant__ CUtensorMap map_a,
             const __grid_constant__ CUtensorMap map_b) {
    constexpr int kConsumers = THREADS / 128 - 1;
    constexpr int kRows = BM / kConsumers;
    extern __shared__ __align__(1024) uint8_t raw[];
    Storage<BM, BN, BK, STAGES>& s = *reinterpret_cast<Storage<BM, BN, BK, STAGES>*>(raw);
    __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
    uint32_t rank;
    asm volatile("mov.u32 %0, %clusterid.x;\n" : "=r"(rank));
    Tiles<BM * CLUSTER, BN, CTAS / CLUSTER> tiles(M, N, rank);
    asm volatile("mov.u32 %0, %cluster_ctarank;\n" : "=r"(rank));

    const int steps = K / BK;
    int group = threadIdx.x / 128;
    const int tid = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            begin(&full[i], 0, 1);
            begin(&empty[i], kConsumers * CLUSTER, 0);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n" ::: "memory");

    int stage = 0, parity = 0, m, n;
    if (group == 0) {
        if (tid == 0) {
            while (tiles.next(m, n)) {
                for (int k = 0; k < steps; ++k, ++stage) {
                    if (stage == STAGES) { stage = 0; parity ^= 1; }
                    wait_cluster(&empty[stage], parity);
                    expect(&full[stage], (BM + BN) * BK * 2);
                    load(s.a[stage], &map_a, &full[stage], k * BK, (m * CLUSTER + rank) * BM);
                    if (rank == 0) load_to(s.b[stage], &map_b, &full[stage], k * BK, n * BN, (1 << CLUSTER) - 1);
                }
            }
        }
    } else {
        float d[BN / 16][8];
        --group;
        for (int i = 0; i < STAGES; ++i) {
            if (tid < CLUSTER) arrive_in(&empty[i], tid);
        }
        while (tiles.next(m, n)) {
            {
                if (stage == STAGES) { stage = 0; parity ^= 1; }
                wait(&full[stage], parity);
                fence();
                multiply<0>(d, s.a[stage] + group * kRows * BK, s.b[stage]);
                for (int k = 16; k < BK; k += 16) multiply<1>(d, s.a[stage] + group * kRows * BK + k, s.b[stage] + k);
                commit();
                drain();
                if (tid < CLUSTER) arrive_in(&empty[stage], tid);
                ++stage;
            }
            for (int step = 1; step < steps; ++step, ++stage) {
                if (stage == STAGES) { stage = 0; parity ^= 1; }
                wait(&full[stage], parity);
                fence();
                for (int k = 0; k < BK; k += 16) multiply<1>(d, s.a[stage] + group * kRows * BK + k, s.b[stage] + k);
                commit();
                drain();
                if (tid < CLUSTER) arrive_in(&empty[stage], tid);
            }
            const int row = (m * CLUSTER + rank) * BM + group * kRows + tid / 32 * 16 + tid % 32 / 4;
            for (int j = 0; j < BN; j += 16) {
                if (n * BN + j >= N) continue;
                const int column = n * BN + j + 2 * (tid % 4);
#define PUT(r, c, v) C[(r) * N + (c)] = v;
                PUT(row, column, d[j / 16][0]);
                PUT(row, column + 1, d[j / 16][1]);
                PUT(row + 8, column, d[j / 16][2]);
                PUT(row + 8, column + 1, d[j / 16][3]);
                PUT(row, column + 8, d[j / 16][4]);
                PUT(row, column + 9, d[j / 16][5]);
                PUT(row + 8, column + 8, d[j / 16][6]);
                PUT(row + 8, column + 9, d[j / 16][7]);
#undef PUT
            }
        }
    }
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;\n" ::: "memory");
}

void launch(int m, int n, int k, float* c, CUtensorMap map_a, CUtensorMap map_b) {
    constexpr int kStages = 3, kCtas = 2;
    auto* kernel = cluster_gemm<128, 64, 64, 384, kStages, kCtas, 2>;
    kernel<<<kCtas, 384, sizeof(Storage<128, 64, 64, kStages>)>>>(m, n, k, c, map_a, map_b);
}
"""


def write(folder: Path) -> Path:
    """The kernel, with its case beside it."""
    (folder / "case.yaml").write_text(CASE)
    path = folder / "cluster_gemm.cu"
    path.write_text(KERNEL)
    return path
