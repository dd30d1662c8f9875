// SPDX-License-Identifier: Apache-2.0
// D = A * B^T with f16 operands and results, all K-major. Blocks stay, and take one tile after another. A producer warp
// loads through a TMA pipeline that goes on from tile to tile, ahead of two consumer warpgroups of 64 rows each.
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>
#include <cutlass/pipeline/pipeline.hpp>

using namespace cute;

namespace config {
using Element = cutlass::half_t;
constexpr int kM = 128, kN = 128, kK = 64;
constexpr int kStages = 3;
constexpr int kThreads = 384;

using Atom = GMMA::Layout_K_SW128_Atom<Element>;
using LayoutA = decltype(tile_to_shape(Atom{}, make_shape(Int<kM>{}, Int<kK>{}, Int<kStages>{})));
using LayoutB = decltype(tile_to_shape(Atom{}, make_shape(Int<kN>{}, Int<kK>{}, Int<kStages>{})));
using Mma = decltype(make_tiled_mma(SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{},
                                    Layout<Shape<_2, _1, _1>>{}));
using Pipeline = cutlass::PipelineTmaAsync<kStages>;
}  // namespace config

template <class Element, class LayoutA, class LayoutB, class Pipeline>
struct SharedStorage {
    alignas(1024) array_aligned<Element, cosize_v<LayoutA>> a;
    alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
    typename Pipeline::SharedStorage pipeline;
};

using Storage = SharedStorage<config::Element, config::LayoutA, config::LayoutB, config::Pipeline>;

// The tiles of a block, rows first.
struct Tiles {
    int rows, count, next;

    __device__ Tiles(int M, int N) : rows(M / config::kM), count(rows * (N / config::kN)), next(blockIdx.x) {}
    __device__ bool is_valid() const { return next < count; }
    __device__ int row() const { return next % rows; }
    __device__ int column() const { return next / rows; }
    __device__ void advance() { next += gridDim.x; }
};

CUTE_DEVICE void produce(config::Pipeline& pipeline, Storage& storage, CUtensorMap const& map_a,
                         CUtensorMap const& map_b, int M, int N, int steps) {
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), config::LayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), config::LayoutB{});
    auto write = cutlass::make_producer_start_state<config::Pipeline>();
    for (Tiles tiles(M, N); tiles.is_valid(); tiles.advance()) {
        for (int k = 0; k < steps; ++k, ++write) {
            pipeline.producer_acquire(write);
            uint64_t* barrier = pipeline.producer_get_barrier(write);
            SM90_TMA_LOAD::copy(&map_a, barrier, static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL),
                                &sA(0, 0, write.index()), k * config::kK, tiles.row() * config::kM);
            SM90_TMA_LOAD::copy(&map_b, barrier, static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST),
                                &sB(0, 0, write.index()), k * config::kK, tiles.column() * config::kN);
        }
    }
    pipeline.producer_tail(write);
}

__global__ void __launch_bounds__(config::kThreads, 1)
    cute_gemm_persistent(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                         config::Element* D, int M, int N, int K) {
    using namespace config;
    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<Storage*>(shared_memory);

    const int warpgroup = cutlass::canonical_warp_group_idx();
    Pipeline::Params params;
    params.role = warpgroup == 0 ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
    params.is_leader = threadIdx.x == 0;
    params.num_consumers = kThreads - 128;
    params.transaction_bytes = (kM + kN) * kK * sizeof(Element);
    Pipeline pipeline(storage.pipeline, params, Shape<_1, _1, _1>{});
    __syncthreads();

    const int steps = K / kK;
    if (warpgroup == 0) {
        cutlass::arch::warpgroup_reg_dealloc<40>();
        if (threadIdx.x == 0) produce(pipeline, storage, map_a, map_b, M, N, steps);
        return;
    }
    cutlass::arch::warpgroup_reg_alloc<232>();
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), LayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), LayoutB{});
    Tensor mD = make_tensor(make_gmem_ptr(D), make_shape(M, N), make_stride(N, _1{}));

    Mma mma;
    auto thread_mma = mma.get_slice(threadIdx.x - 128);
    Tensor tCrA = thread_mma.make_fragment_A(thread_mma.partition_A(sA));
    Tensor tCrB = thread_mma.make_fragment_B(thread_mma.partition_B(sB));
    Tensor sums = partition_fragment_C(mma, Shape<Int<kM>, Int<kN>>{});
    cutlass::PipelineState<kStages> read, release;
    for (Tiles tiles(M, N); tiles.is_valid(); tiles.advance()) {
        mma.accumulate_ = GMMA::ScaleOut::Zero;
        for (int k = 0; k < steps; ++k, ++read) {
            pipeline.consumer_wait(read);
            warpgroup_fence_operand(sums);
            warpgroup_arrive();
            CUTE_UNROLL
            for (int i = 0; i < size<2>(tCrA); ++i) {
                gemm(mma, tCrA(_, _, i, read.index()), tCrB(_, _, i, read.index()), sums);
                mma.accumulate_ = GMMA::ScaleOut::One;
            }
            warpgroup_commit_batch();
            if (k > 0) {
                warpgroup_wait<1>();
                pipeline.consumer_release(release);
                ++release;
            }
            warpgroup_fence_operand(sums);
        }
        warpgroup_wait<0>();
        warpgroup_fence_operand(sums);
        pipeline.consumer_release(release);
        ++release;

        Tensor gD = local_tile(mD, Shape<Int<kM>, Int<kN>>{}, make_coord(tiles.row(), tiles.column()));
        Tensor results = make_tensor_like<Element>(sums);
        CUTE_UNROLL
        for (int i = 0; i < size(sums); ++i) results(i) = Element(sums(i));
        copy(results, thread_mma.partition_C(gD));
    }
}

static CUresult encode(CUtensorMap* map, config::Element* matrix, int rows, int columns, int box_rows,
                       int box_columns) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    if (found != cudaDriverEntryPointSuccess) return CUDA_ERROR_NOT_FOUND;
    cuuint64_t dims[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    cuuint64_t strides[1] = {(cuuint64_t)columns * sizeof(config::Element)};
    cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows};
    cuuint32_t steps[2] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, matrix, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// M, N and K are multiples of 128, 128 and 64.
cudaError_t run_cute_gemm_persistent(config::Element* A, config::Element* B, config::Element* D, int M, int N, int K,
                                     cudaStream_t stream) {
    using namespace config;
    CUtensorMap map_a, map_b;
    if (encode(&map_a, A, M, K, kM, kK) != CUDA_SUCCESS) return cudaErrorInvalidValue;
    if (encode(&map_b, B, N, K, kN, kK) != CUDA_SUCCESS) return cudaErrorInvalidValue;
    int processors = 0;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    const int tiles = (M / kM) * (N / kN);
    const int blocks = tiles < processors ? tiles : processors;
    constexpr int bytes = sizeof(Storage);
    cudaFuncSetAttribute(cute_gemm_persistent, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cute_gemm_persistent<<<blocks, kThreads, bytes, stream>>>(map_a, map_b, D, M, N, K);
    return cudaGetLastError();
}
