// SPDX-License-Identifier: Apache-2.0
// C = A * B^T in f16 with tiles of 256 x 192. A producer warp feeds a TMA pipeline; two consumer warpgroups have two m64
// tiles each. The result goes through shared memory by stmatrix and is stored by TMA.
#include <cute/arch/copy_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
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
    using LayoutC = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BN>>{}));
    using Mma = decltype(make_tiled_mma(SM90_64x192x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{},
                                        Layout<Shape<_2, _1, _1>>{}));
    using Pipeline = cutlass::PipelineTmaAsync<STAGES>;

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutA>> a;
        alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
        alignas(1024) array_aligned<Element, cosize_v<LayoutC>> c;
        typename Pipeline::SharedStorage pipeline;
    };
};

constexpr int kConsumers = 256;
constexpr uint32_t kStoreBarrier = 1;

// The accumulator in f16 through shared memory to C, in parts of 64 columns.
template <class Traits, int BM, int BN, class Mma, class Accumulator>
CUTE_DEVICE void store(typename Traits::Storage& storage, CUtensorMap const& map_c, Mma const& mma,
                       Accumulator const& accumulator, int thread) {
    using Element = typename Traits::Element;
    Tensor sC = make_tensor(make_smem_ptr(storage.c.data()), typename Traits::LayoutC{});
    auto r2s = make_tiled_copy_C(Copy_Atom<SM90_U32x4_STSM_N, Element>{}, mma);
    auto thread_r2s = r2s.get_slice(thread);
    Tensor values = make_fragment_like<Element>(accumulator);
    CUTE_UNROLL
    for (int i = 0; i < size(values); ++i) values(i) = Element(accumulator(i));
    copy(r2s, thread_r2s.retile_S(values), thread_r2s.partition_D(sC));
    tma_store_fence();
    cutlass::arch::NamedBarrier::sync(kConsumers, kStoreBarrier);
    if (thread == 0) {
        for (int column = 0; column < BN; column += 64) {
            SM90_TMA_STORE::copy(&map_c, &sC(0, column), int(blockIdx.x) * BN + column, int(blockIdx.y) * BM);
        }
        tma_store_arrive();
        tma_store_wait<0>();
    }
}

template <int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(kConsumers + 128, 1)
    cute_gemm_stsm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                   const __grid_constant__ CUtensorMap map_c, int K) {
    using Traits = GemmTraits<BM, BN, BK, STAGES>;
    using Pipeline = typename Traits::Pipeline;
    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared_memory);
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), typename Traits::LayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), typename Traits::LayoutB{});

    const int warpgroup = cutlass::canonical_warp_group_idx();
    typename Pipeline::Params params;
    params.role = warpgroup == 0 ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
    params.is_leader = threadIdx.x == 0;
    params.num_consumers = kConsumers;
    params.transaction_bytes = (BM + BN) * BK * sizeof(typename Traits::Element);
    Pipeline pipeline(storage.pipeline, params, Shape<_1, _1, _1>{});
    __syncthreads();

    const int tiles = K / BK;
    if (warpgroup == 0) {
        cutlass::arch::warpgroup_reg_dealloc<40>();
        if (threadIdx.x == 0) {
            constexpr auto kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
            auto state = cutlass::make_producer_start_state<Pipeline>();
            for (int tile = 0; tile < tiles; ++tile, ++state) {
                pipeline.producer_acquire(state);
                uint64_t* full = pipeline.producer_get_barrier(state);
                SM90_TMA_LOAD::copy(&map_a, full, kHint, &sA(0, 0, state.index()), tile * BK, int(blockIdx.y) * BM);
                SM90_TMA_LOAD::copy(&map_b, full, kHint, &sB(0, 0, state.index()), tile * BK, int(blockIdx.x) * BN);
            }
            pipeline.producer_tail(state);
        }
    } else {
        cutlass::arch::warpgroup_reg_alloc<232>();
        const int thread = int(threadIdx.x) - 128;
        typename Traits::Mma tiled_mma;
        auto thread_mma = tiled_mma.get_slice(thread);
        Tensor tCrA = thread_mma.partition_fragment_A(sA);
        Tensor tCrB = thread_mma.partition_fragment_B(sB);
        Tensor tCrC = partition_fragment_C(tiled_mma, Shape<Int<BM>, Int<BN>>{});
        cutlass::PipelineState<STAGES> state;
        tiled_mma.accumulate_ = GMMA::ScaleOut::Zero;
        for (int tile = 0; tile < tiles; ++tile, ++state) {
            pipeline.consumer_wait(state);
            warpgroup_fence_operand(tCrC);
            warpgroup_arrive();
            CUTE_UNROLL
            for (int k = 0; k < size<2>(tCrA); ++k) {
                gemm(tiled_mma, tCrA(_, _, k, state.index()), tCrB(_, _, k, state.index()), tCrC);
                tiled_mma.accumulate_ = GMMA::ScaleOut::One;
            }
            warpgroup_commit_batch();
            warpgroup_wait<0>();
            warpgroup_fence_operand(tCrC);
            pipeline.consumer_release(state);
        }
        store<Traits, BM, BN>(storage, map_c, tiled_mma, tCrC, thread);
    }
}
