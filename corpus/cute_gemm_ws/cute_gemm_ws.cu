// SPDX-License-Identifier: Apache-2.0
// C = A * B^T with f16 operands, both K-major. A producer warp feeds a TMA pipeline; two consumer warpgroups take 64
// rows each. An MMA of one stage is in flight while the next stage's is issued.
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>
#include <cutlass/pipeline/pipeline.hpp>

using namespace cute;

template <int BM, int BN, int BK, int STAGES>
struct GemmTraits {
    using Element = cutlass::half_t;
    using Atom = GMMA::Layout_K_SW128_Atom<Element>;
    using LayoutA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
    using LayoutB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));
    using Mma = decltype(make_tiled_mma(SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{},
                                        Layout<Shape<_2, _1, _1>>{}));
    using Pipeline = cutlass::PipelineTmaAsync<STAGES>;

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutA>> a;
        alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
        typename Pipeline::SharedStorage pipeline;
    };
};

// Tiles of K, as the producer writes them.
template <class Traits, int BM, int BN, int BK, int STAGES>
CUTE_DEVICE void produce(typename Traits::Pipeline& pipeline, typename Traits::Storage& storage,
                         CUtensorMap const& map_a, CUtensorMap const& map_b, int tiles) {
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), typename Traits::LayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), typename Traits::LayoutB{});
    auto state = cutlass::make_producer_start_state<typename Traits::Pipeline>();
    for (int tile = 0; tile < tiles; ++tile, ++state) {
        pipeline.producer_acquire(state);
        uint64_t* barrier = pipeline.producer_get_barrier(state);
        SM90_TMA_LOAD::copy(&map_a, barrier, static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL),
                            &sA(0, 0, state.index()), tile * BK, int(blockIdx.y) * BM);
        SM90_TMA_LOAD::copy(&map_b, barrier, static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL),
                            &sB(0, 0, state.index()), tile * BK, int(blockIdx.x) * BN);
    }
    pipeline.producer_tail(state);
}

// Adds up all tiles of K; a stage is released when the MMAs behind its own have been issued.
template <class Pipeline, class Mma, class FragmentA, class FragmentB, class Accumulator>
CUTE_DEVICE void multiply(Pipeline& pipeline, Mma& mma, FragmentA const& tCrA, FragmentB const& tCrB,
                          Accumulator& tCrC, int tiles) {
    cutlass::PipelineState<Pipeline::Stages> read, release;
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    for (int tile = 0; tile < tiles; ++tile, ++read) {
        pipeline.consumer_wait(read);
        warpgroup_fence_operand(tCrC);
        warpgroup_arrive();
        CUTE_UNROLL
        for (int k = 0; k < size<2>(tCrA); ++k) {
            gemm(mma, tCrA(_, _, k, read.index()), tCrB(_, _, k, read.index()), tCrC);
            mma.accumulate_ = GMMA::ScaleOut::One;
        }
        warpgroup_commit_batch();
        if (tile > 0) {
            warpgroup_wait<1>();
            pipeline.consumer_release(release);
            ++release;
        }
        warpgroup_fence_operand(tCrC);
    }
    warpgroup_wait<0>();
    warpgroup_fence_operand(tCrC);
    pipeline.consumer_release(release);
}

template <int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(384, 1)
    cute_gemm_ws(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* C, int M,
                 int N, int K) {
    using Traits = GemmTraits<BM, BN, BK, STAGES>;
    using Pipeline = typename Traits::Pipeline;
    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared_memory);

    const int warpgroup = cutlass::canonical_warp_group_idx();
    typename Pipeline::Params params;
    params.role = warpgroup == 0 ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
    params.is_leader = threadIdx.x == 0;
    params.num_consumers = 256;
    params.transaction_bytes = (BM + BN) * BK * sizeof(typename Traits::Element);
    Pipeline pipeline(storage.pipeline, params, Shape<_1, _1, _1>{});
    __syncthreads();

    const int tiles = K / BK;
    if (warpgroup == 0) {
        cutlass::arch::warpgroup_reg_dealloc<40>();
        if (threadIdx.x == 0) produce<Traits, BM, BN, BK, STAGES>(pipeline, storage, map_a, map_b, tiles);
        return;
    }
    cutlass::arch::warpgroup_reg_alloc<232>();
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), typename Traits::LayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), typename Traits::LayoutB{});
    Tensor mC = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride(N, _1{}));
    Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(blockIdx.y, blockIdx.x));

    typename Traits::Mma tiled_mma;
    auto thread_mma = tiled_mma.get_slice(threadIdx.x - 128);
    Tensor tCrA = thread_mma.make_fragment_A(thread_mma.partition_A(sA));
    Tensor tCrB = thread_mma.make_fragment_B(thread_mma.partition_B(sB));
    Tensor tCrC = partition_fragment_C(tiled_mma, Shape<Int<BM>, Int<BN>>{});
    multiply(pipeline, tiled_mma, tCrA, tCrB, tCrC, tiles);
    copy(tCrC, thread_mma.partition_C(gC));
}

// A tensor map of `rows` x `columns` elements, rows one after the other, for boxes of `box_rows` x `box_columns`.
static CUresult encode(CUtensorMap* map, cutlass::half_t* matrix, int rows, int columns, int box_rows,
                       int box_columns) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    if (found != cudaDriverEntryPointSuccess) return CUDA_ERROR_NOT_FOUND;
    cuuint64_t dims[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    cuuint64_t strides[1] = {(cuuint64_t)columns * sizeof(cutlass::half_t)};
    cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows};
    cuuint32_t steps[2] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, matrix, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// M, N and K are multiples of 128, 128 and 64.
cudaError_t run_cute_gemm_ws(cutlass::half_t* A, cutlass::half_t* B, float* C, int M, int N, int K,
                             cudaStream_t stream) {
    constexpr int BM = 128, BN = 128, BK = 64, STAGES = 3;
    CUtensorMap map_a, map_b;
    if (encode(&map_a, A, M, K, BM, BK) != CUDA_SUCCESS) return cudaErrorInvalidValue;
    if (encode(&map_b, B, N, K, BN, BK) != CUDA_SUCCESS) return cudaErrorInvalidValue;
    auto* kernel = cute_gemm_ws<BM, BN, BK, STAGES>;
    constexpr int bytes = sizeof(GemmTraits<BM, BN, BK, STAGES>::Storage);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<dim3(N / BN, M / BM), 384, bytes, stream>>>(map_a, map_b, C, M, N, K);
    return cudaGetLastError();
}
