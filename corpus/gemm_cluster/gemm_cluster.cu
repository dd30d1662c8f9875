// SPDX-License-Identifier: Apache-2.0
//
// Clustered GEMM: C[M,N] = A[M,K] * B[N,K]^T, bf16 inputs, float output, all row-major.
//
// Two CTAs form a cluster along M. They compute different rows of C from the same 128 rows of B, so each
// CTA loads one half of the B tile and TMA multicasts it to both. A stage may be overwritten only when
// the consumers of *both* CTAs are done with it: every consumer warp therefore arrives on the empty
// barrier of both CTAs.

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace gemm {

using Element = __nv_bfloat16;

struct Config {
    static constexpr int kTileM = 128;
    static constexpr int kTileN = 128;
    static constexpr int kTileK = 64;
    static constexpr int kStages = 3;
    static constexpr int kCluster = 2;
    static constexpr int kConsumerWarps = 8;
    static constexpr int kThreads = 128 + kConsumerWarps * 32;
    static constexpr uint32_t kStageBytes = (kTileM + kTileN) * kTileK * sizeof(Element);
    static constexpr uint16_t kMulticastMask = (1 << kCluster) - 1;
};

struct Stage {
    Element a[Config::kTileM * Config::kTileK];
    Element b[Config::kTileN * Config::kTileK];
};

struct alignas(1024) SharedMemory {
    Stage stages[Config::kStages];
    uint64_t full[Config::kStages];
    uint64_t empty[Config::kStages];
};

// ---------------------------------------------------------------- PTX helpers

namespace ptx {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    uint32_t address;
    asm("{ .reg .u64 tmp; cvta.to.shared.u64 tmp, %1; cvt.u32.u64 %0, tmp; }" : "=r"(address) : "l"(p));
    return address;
}

__device__ __forceinline__ uint32_t cluster_cta_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void mbar_init(uint64_t& bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&bar)), "r"(count));
}

__device__ __forceinline__ void mbar_expect_tx(uint64_t& bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&bar)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void mbar_wait(uint64_t& bar, uint32_t parity) {
    uint32_t ready = 0;
    do {
        asm volatile(
            "{\n"
            "  .reg .pred p;\n"
            "  mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, 0x989680;\n"
            "  selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(ready)
            : "r"(shared_address(&bar)), "r"(parity)
            : "memory");
    } while (!ready);
}

// Arrives on the barrier at the same place in the shared memory of another CTA of the cluster.
__device__ __forceinline__ void mbar_arrive_cluster(uint64_t& bar, uint32_t cta) {
    asm volatile(
        "{\n"
        "  .reg .b32 remote;\n"
        "  mapa.shared::cluster.u32 remote, %0, %1;\n"
        "  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(shared_address(&bar)),
        "r"(cta)
        : "memory");
}

// The wait of the consumers' releases from the other CTA needs cluster scope.
__device__ __forceinline__ void mbar_wait_cluster(uint64_t& bar, uint32_t parity) {
    uint32_t ready = 0;
    do {
        asm volatile(
            "{\n"
            "  .reg .pred p;\n"
            "  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
            "  selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(ready)
            : "r"(shared_address(&bar)), "r"(parity)
            : "memory");
    } while (!ready);
}

__device__ __forceinline__ void tma_load(Element* dst, const CUtensorMap* map, uint64_t& bar, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            shared_address(dst)),
        "l"(map), "r"(shared_address(&bar)), "r"(x), "r"(y)
        : "memory");
}

// The box and its completion arrive at the same offsets in every CTA whose bit is set.
__device__ __forceinline__ void tma_load_multicast(Element* dst, const CUtensorMap* map, uint64_t& bar, int x, int y,
                                                   uint16_t ctas) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(dst)),
        "l"(map), "r"(shared_address(&bar)), "r"(x), "r"(y), "h"(ctas)
        : "memory");
}

}  // namespace ptx

// ------------------------------------------------------------- wgmma m64n128k16

// Start address, row-group stride of 1024 bytes, 128-byte swizzle.
__device__ __forceinline__ uint64_t smem_descriptor(const Element* tile) {
    uint64_t desc = (uint64_t)((ptx::shared_address(tile) & 0x3FFFFu) >> 4);
    desc |= (uint64_t)1 << 16;
    desc |= (uint64_t)64 << 32;
    desc |= (uint64_t)1 << 62;
    return desc;
}

// Keeps the compiler from moving accesses of the accumulator across the asynchronous region.
__device__ __forceinline__ void fence_registers(float (&d)[64]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

__device__ __forceinline__ void wgmma_m64n128k16(float (&d)[64], uint64_t desc_a, uint64_t desc_b, int scale_d) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {\n"
        "%0, %1, %2, %3, %4, %5, %6, %7,\n"
        "%8, %9, %10, %11, %12, %13, %14, %15,\n"
        "%16, %17, %18, %19, %20, %21, %22, %23,\n"
        "%24, %25, %26, %27, %28, %29, %30, %31,\n"
        "%32, %33, %34, %35, %36, %37, %38, %39,\n"
        "%40, %41, %42, %43, %44, %45, %46, %47,\n"
        "%48, %49, %50, %51, %52, %53, %54, %55,\n"
        "%56, %57, %58, %59, %60, %61, %62, %63\n"
        "}, %64, %65, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(desc_a), "l"(desc_b), "r"(scale_d));
}

// ---------------------------------------------------------------------- kernel

__global__ void __launch_bounds__(Config::kThreads, 1)
gemm_cluster_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                    float* __restrict__ C, int N, int K) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ char smem[];
    // The launcher leaves room for this alignment; it comes out the same in both CTAs of a cluster.
    SharedMemory& sm = *reinterpret_cast<SharedMemory*>((reinterpret_cast<uintptr_t>(smem) + 1023) & ~uintptr_t(1023));

    const uint32_t rank = ptx::cluster_cta_rank();
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    const int steps = K / Config::kTileK;
    const int row0 = blockIdx.x * Config::kTileM;
    const int col0 = blockIdx.y * Config::kTileN;

    if (threadIdx.x == 0) {
        for (int i = 0; i < Config::kStages; ++i) {
            ptx::mbar_init(sm.full[i], 1);
            ptx::mbar_init(sm.empty[i], Config::kCluster * Config::kConsumerWarps);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    // No CTA may touch the other's barriers before they exist.
    ptx::cluster_arrive();
    ptx::cluster_wait();

    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            constexpr int kHalfB = Config::kTileN / Config::kCluster;
            for (int i = 0; i < steps; ++i) {
                const int s = i % Config::kStages;
                const uint32_t round = i / Config::kStages;
                ptx::mbar_wait_cluster(sm.empty[s], (round & 1) ^ 1);
                ptx::mbar_expect_tx(sm.full[s], Config::kStageBytes);
                ptx::tma_load(sm.stages[s].a, &map_a, sm.full[s], i * Config::kTileK, row0);
                ptx::tma_load_multicast(sm.stages[s].b + rank * kHalfB * Config::kTileK, &map_b, sm.full[s],
                                        i * Config::kTileK, col0 + rank * kHalfB, Config::kMulticastMask);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int lane = threadIdx.x % 32;
        const int half = (warp - 4) / 4;  // which 64 rows of the tile
        float d[64];

        for (int i = 0; i < steps; ++i) {
            const int s = i % Config::kStages;
            const uint32_t round = i / Config::kStages;
            ptx::mbar_wait(sm.full[s], round & 1);

            uint64_t desc_a = smem_descriptor(sm.stages[s].a + half * 64 * Config::kTileK);
            uint64_t desc_b = smem_descriptor(sm.stages[s].b);
            fence_registers(d);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < Config::kTileK / 16; ++k) {
                wgmma_m64n128k16(d, desc_a, desc_b, i != 0 || k != 0);
                desc_a += 2;  // 32 bytes further inside the swizzle span
                desc_b += 2;
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            fence_registers(d);

            if (lane < Config::kCluster) ptx::mbar_arrive_cluster(sm.empty[s], lane);
        }

        const int row = row0 + half * 64 + (warp % 4) * 16 + lane / 4;
        const int col = col0 + (lane % 4) * 2;
        float2* upper = reinterpret_cast<float2*>(C + (size_t)row * N + col);
        float2* lower = reinterpret_cast<float2*>(C + (size_t)(row + 8) * N + col);
#pragma unroll
        for (int j = 0; j < Config::kTileN / 8; ++j) {
            upper[j * 4] = make_float2(d[4 * j], d[4 * j + 1]);
            lower[j * 4] = make_float2(d[4 * j + 2], d[4 * j + 3]);
        }
    }

    // A CTA must stay until the other one has stopped arriving on its barriers and writing its stages.
    ptx::cluster_arrive();
    ptx::cluster_wait();
#else
    if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) printf("gemm_cluster was not compiled for sm_90a\n");
    __trap();
#endif
}

// ------------------------------------------------------------------------ host

static void fail(const char* what, const char* why) {
    std::fprintf(stderr, "gemm_cluster: %s: %s\n", what, why);
    std::abort();
}

static void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) fail(what, cudaGetErrorString(status));
}

static void encode(CUtensorMap* map, const Element* data, uint64_t rows, uint64_t cols, uint32_t box_rows) {
    void* symbol = nullptr;
    cudaDriverEntryPointQueryResult found;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol, 12000, cudaEnableDefault, &found),
          "looking up cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess) fail("looking up cuTensorMapEncodeTiled", "not in this driver");
    auto function = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(symbol);

    uint64_t dims[2] = {cols, rows};
    uint64_t pitch[1] = {cols * sizeof(Element)};
    uint32_t box[2] = {Config::kTileK, box_rows};
    uint32_t steps[2] = {1, 1};
    CUresult result = function(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<Element*>(data),
                               reinterpret_cast<cuuint64_t*>(dims), reinterpret_cast<cuuint64_t*>(pitch), box, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) fail("cuTensorMapEncodeTiled", "invalid tensor map");
}

void launch(const Element* A, const Element* B, float* C, int M, int N, int K, cudaStream_t stream) {
    assert(M % (Config::kCluster * Config::kTileM) == 0 && N % Config::kTileN == 0 && K % Config::kTileK == 0);

    cudaDeviceProp props;
    int device;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaGetDeviceProperties(&props, device), "cudaGetDeviceProperties");
    if (props.major != 9) fail("device", "compute capability 9.0 is required");

    CUtensorMap map_a, map_b;
    encode(&map_a, A, M, K, Config::kTileM);
    encode(&map_b, B, N, K, Config::kTileN / Config::kCluster);

    const int smem_bytes = sizeof(SharedMemory) + 1024;
    check(cudaFuncSetAttribute(gemm_cluster_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
          "shared memory size");

    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = Config::kCluster;
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(M / Config::kTileM, N / Config::kTileN);
    config.blockDim = dim3(Config::kThreads);
    config.dynamicSmemBytes = smem_bytes;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, gemm_cluster_kernel, map_a, map_b, C, N, K), "launch");
}

}  // namespace gemm
