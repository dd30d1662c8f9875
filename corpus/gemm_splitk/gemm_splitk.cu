// SPDX-License-Identifier: Apache-2.0
//
// C[M,N] += A[M,K] * B[N,K]^T for few rows and columns and a long K: half inputs, float output.
//
// K is cut into blockIdx.z parts. Each CTA adds the sum of its part to C with atomics, so C has to be
// cleared before the launch. One warpgroup per 64x64 tile, full/empty barriers with one loading thread.

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <cuda.h>
#include <cuda/barrier>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

__device__ static inline uint64_t matrix_descriptor_encode(uint64_t x) { return (x & 0x3FFFF) >> 4; }

__device__ uint64_t make_smem_desc(half* ptr) {
    uint32_t addr = static_cast<uint32_t>(__cvta_generic_to_shared(ptr));
    uint64_t desc = 0x0000000000000000;
    desc |= matrix_descriptor_encode(addr);
    desc |= matrix_descriptor_encode((uint64_t)16) << 16;
    desc |= matrix_descriptor_encode((uint64_t)1024) << 32;
    desc |= 1llu << 62;
    return desc;
}

__device__ void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ void warpgroup_commit_batch() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N>
__device__ void warpgroup_wait() {
    static_assert(N >= 0 && N <= 7, "at most seven groups can be pending");
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

template <int ScaleD, int ScaleA, int ScaleB, int TransA, int TransB>
__device__ void wgmma64(float d[4][8], half* sA, half* sB) {
    uint64_t desc_a = make_smem_desc(&sA[0]);
    uint64_t desc_b = make_smem_desc(&sB[0]);
    asm volatile(
        "{\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        " %8, %9, %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, "
        " %24, %25, %26, %27, %28, %29, %30, %31},"
        " %32,"
        " %33,"
        " %34, %35, %36, %37, %38;\n"
        "}\n"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
          "+f"(d[0][4]), "+f"(d[0][5]), "+f"(d[0][6]), "+f"(d[0][7]),
          "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[1][4]), "+f"(d[1][5]), "+f"(d[1][6]), "+f"(d[1][7]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[2][4]), "+f"(d[2][5]), "+f"(d[2][6]), "+f"(d[2][7]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[3][4]), "+f"(d[3][5]), "+f"(d[3][6]), "+f"(d[3][7])
        : "l"(desc_a), "l"(desc_b), "n"(int32_t(ScaleD)), "n"(int32_t(ScaleA)), "n"(int32_t(ScaleB)),
          "n"(int32_t(TransA)), "n"(int32_t(TransB)));
}

// What part `index` of `parts` gets of `total` steps: parts differ by at most one step.
struct Share {
    int begin;
    int end;

    __device__ Share(int total, int parts, int index) {
        const int each = total / parts;
        const int more = total % parts;
        begin = index * each + min(index, more);
        end = begin + each + (index < more ? 1 : 0);
    }
};

template <int BM, int BN, int BK, int QSIZE>
__global__ void __launch_bounds__(128)
splitk_kernel(int M, int N, int K, float* C, const __grid_constant__ CUtensorMap tensorMapA,
              const __grid_constant__ CUtensorMap tensorMapB) {
    static_assert(BM == 64 && BN == 64 && BK == 64, "one wgmma64 row of instructions");
    __shared__ alignas(1024) half sA[QSIZE][BM * BK];
    __shared__ alignas(1024) half sB[QSIZE][BN * BK];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier bar[QSIZE];

    const int tid = threadIdx.x;
    const Share share(K / BK, gridDim.z, blockIdx.z);

    if (tid == 0) {
        for (int q = 0; q < QSIZE; ++q) init(&bar[q], blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();

    float d[4][8];
    memset(d, 0, sizeof(d));

    barrier::arrival_token token[QSIZE];
    auto produce = [&](int q, int step) {
        if (tid == 0) {
            cde::cp_async_bulk_tensor_2d_global_to_shared(sA[q], &tensorMapA, step * BK, blockIdx.y * BM, bar[q]);
            cde::cp_async_bulk_tensor_2d_global_to_shared(sB[q], &tensorMapB, step * BK, blockIdx.x * BN, bar[q]);
            token[q] = cuda::device::barrier_arrive_tx(bar[q], 1, sizeof(sA[q]) + sizeof(sB[q]));
        } else {
            token[q] = bar[q].arrive();
        }
    };

    if (share.begin < share.end) produce(0, share.begin);
    for (int step = share.begin; step < share.end; step += QSIZE) {
#pragma unroll
        for (int q = 0; q < QSIZE; ++q) {
            if (step + q < share.end) {
                // the stage after this one is free: every thread passed the __syncthreads below
                if (step + q + 1 < share.end) produce((q + 1) % QSIZE, step + q + 1);
                bar[q].wait(std::move(token[q]));
                warpgroup_arrive();
                wgmma64<1, 1, 1, 0, 0>(d, &sA[q][0], &sB[q][0]);
                wgmma64<1, 1, 1, 0, 0>(d, &sA[q][16], &sB[q][16]);
                wgmma64<1, 1, 1, 0, 0>(d, &sA[q][32], &sB[q][32]);
                wgmma64<1, 1, 1, 0, 0>(d, &sA[q][48], &sB[q][48]);
                warpgroup_commit_batch();
                warpgroup_wait<0>();
                __syncthreads();
            }
        }
    }

    const int lane = tid % 32;
    const int row = blockIdx.y * BM + tid / 32 * 16 + lane / 4;
    const int col = blockIdx.x * BN + lane % 4 * 2;
#pragma unroll
    for (int w = 0; w < BN / 16; ++w) {
#define ADD(i, j, v) atomicAdd(&C[(size_t)(row + (i)) * N + col + 16 * w + (j)], v)
        ADD(0, 0, d[w][0]);
        ADD(0, 1, d[w][1]);
        ADD(8, 0, d[w][2]);
        ADD(8, 1, d[w][3]);
        ADD(0, 8, d[w][4]);
        ADD(0, 9, d[w][5]);
        ADD(8, 8, d[w][6]);
        ADD(8, 9, d[w][7]);
#undef ADD
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

// Enough parts to give every multiprocessor a CTA, but no part shorter than four steps.
static int choose_parts(int tiles, int steps, int processors) {
    int parts = processors / (tiles > 0 ? tiles : 1);
    if (parts > steps / 4) parts = steps / 4;
    return parts < 1 ? 1 : parts;
}

void gemm_splitk(const half* A, const half* B, float* C, int M, int N, int K, cudaStream_t stream) {
    cudaDeviceProp prop;
    CUDA_CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major != 9) {
        std::fprintf(stderr, "gemm_splitk needs compute capability 9.0, not %d.%d\n", prop.major, prop.minor);
        std::exit(EXIT_FAILURE);
    }
    constexpr int BM = 64, BN = 64, BK = 64, QSIZE = 2;
    assert(M % BM == 0 && N % BN == 0 && K % BK == 0);
    const CUtensorMap map_a = make_map(A, M, K, BM, BK);
    const CUtensorMap map_b = make_map(B, N, K, BN, BK);
    const int parts = choose_parts(M / BM * (N / BN), K / BK, prop.multiProcessorCount);
    CUDA_CHECK(cudaMemsetAsync(C, 0, sizeof(float) * M * N, stream));
    splitk_kernel<BM, BN, BK, QSIZE><<<dim3(N / BN, M / BM, parts), 128, 0, stream>>>(M, N, K, C, map_a, map_b);
    CUDA_CHECK(cudaGetLastError());
}
