// SPDX-License-Identifier: Apache-2.0
// C = A * B^T with bf16 operands in clusters of two blocks, which share columns: each fetches half of B for both. The
// blocks are persistent: a cluster goes on to the tile that is as many further as there are clusters.
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>
#include <cutlass/pipeline/pipeline.hpp>

using namespace cute;

constexpr int kCluster = 2;
constexpr int kConsumers = 128;

template <int BM, int BN, int BK, int STAGES>
struct GemmTraits {
    using Element = cutlass::bfloat16_t;
    using Atom = GMMA::Layout_K_SW128_Atom<Element>;
    using LayoutA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
    using LayoutB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));
    using Mma = decltype(make_tiled_mma(SM90_64x128x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>{}));
    using Pipeline = cutlass::PipelineTmaAsync<STAGES>;

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutA>> a;
        alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
        typename Pipeline::SharedStorage pipeline;
    };
};

// The tiles of a cluster: pairs of rows of tiles first.
struct Tiles {
    int pairs, count, cluster, clusters, rank;

    CUTE_DEVICE Tiles(int rows, int columns)
        : pairs(rows / kCluster),
          count(pairs * columns),
          cluster(int(blockIdx.x) / kCluster),
          clusters(int(gridDim.x) / kCluster),
          rank(int(block_rank_in_cluster())) {}

    CUTE_DEVICE int row(int tile) const { return tile % pairs * kCluster + rank; }
    CUTE_DEVICE int column(int tile) const { return tile / pairs; }
};

template <int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(kConsumers + 128, 1)
    cute_gemm_multicast(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* C,
                        int M, int N, int K) {
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
    Pipeline pipeline(storage.pipeline, params, Shape<Int<kCluster>, _1, _1>{});
    cluster_arrive_relaxed();
    cluster_wait();

    const Tiles tiles(M / BM, N / BN);
    const int steps = K / BK;
    if (warpgroup == 0) {
        cutlass::arch::warpgroup_reg_dealloc<40>();
        if (threadIdx.x == 0) {
            constexpr auto kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
            constexpr uint16_t kAll = (1 << kCluster) - 1;
            const int part = tiles.rank * (BN / kCluster);
            auto state = cutlass::make_producer_start_state<Pipeline>();
            for (int tile = tiles.cluster; tile < tiles.count; tile += tiles.clusters) {
                for (int step = 0; step < steps; ++step, ++state) {
                    pipeline.producer_acquire(state);
                    uint64_t* full = pipeline.producer_get_barrier(state);
                    SM90_TMA_LOAD::copy(&map_a, full, kHint, &sA(0, 0, state.index()), step * BK,
                                        tiles.row(tile) * BM);
                    SM90_TMA_LOAD_MULTICAST::copy(&map_b, full, kAll, kHint, &sB(part, 0, state.index()), step * BK,
                                                  tiles.column(tile) * BN + part);
                }
            }
            pipeline.producer_tail(state);
        }
    } else {
        cutlass::arch::warpgroup_reg_alloc<232>();
        typename Traits::Mma tiled_mma;
        auto thread_mma = tiled_mma.get_slice(threadIdx.x - 128);
        Tensor mC = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride(N, _1{}));
        Tensor tCrA = thread_mma.partition_fragment_A(sA);
        Tensor tCrB = thread_mma.partition_fragment_B(sB);
        Tensor tCrC = partition_fragment_C(tiled_mma, Shape<Int<BM>, Int<BN>>{});
        cutlass::PipelineState<STAGES> read, release;
        for (int tile = tiles.cluster; tile < tiles.count; tile += tiles.clusters) {
            tiled_mma.accumulate_ = GMMA::ScaleOut::Zero;
            for (int step = 0; step < steps; ++step, ++read) {
                pipeline.consumer_wait(read);
                warpgroup_fence_operand(tCrC);
                warpgroup_arrive();
                CUTE_UNROLL
                for (int k = 0; k < size<2>(tCrA); ++k) {
                    gemm(tiled_mma, tCrA(_, _, k, read.index()), tCrB(_, _, k, read.index()), tCrC);
                    tiled_mma.accumulate_ = GMMA::ScaleOut::One;
                }
                warpgroup_commit_batch();
                if (step > 0) {
                    warpgroup_wait<1>();
                    pipeline.consumer_release(release);
                    ++release;
                }
                warpgroup_fence_operand(tCrC);
            }
            warpgroup_wait<0>();
            warpgroup_fence_operand(tCrC);
            pipeline.consumer_release(release);
            ++release;
            Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(tiles.row(tile), tiles.column(tile)));
            copy(tCrC, thread_mma.partition_C(gC));
        }
    }
    // The other block may still write to this one's shared memory, or arrive at its barriers.
    cluster_arrive();
    cluster_wait();
}
