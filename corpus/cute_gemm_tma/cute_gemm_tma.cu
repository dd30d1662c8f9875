// SPDX-License-Identifier: Apache-2.0
// C = A * B^T with bf16 operands, both K-major. One warpgroup has two m64 tiles; one of its threads also fetches tiles
// by TMA, on mbarriers used directly.
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>
#include <cutlass/pipeline/sm90_pipeline.hpp>

using namespace cute;

template <int BM, int BN, int BK, int STAGES>
struct GemmTraits {
    using Element = cutlass::bfloat16_t;
    using Atom = GMMA::Layout_K_SW128_Atom<Element>;
    using LayoutA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
    using LayoutB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));
    using Mma = decltype(make_tiled_mma(SM90_64x128x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>{}));

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutA>> a;
        alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
        uint64_t full[STAGES];
        uint64_t empty[STAGES];
    };
};

template <int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(128)
    cute_gemm_tma(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* C, int M,
                  int N, int K) {
    using Traits = GemmTraits<BM, BN, BK, STAGES>;
    using Full = cutlass::arch::ClusterTransactionBarrier;
    using Empty = cutlass::arch::ClusterBarrier;

    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared_memory);
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), typename Traits::LayoutA{});  // (BM, BK, STAGES)
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), typename Traits::LayoutB{});  // (BN, BK, STAGES)

    const bool fetches = cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync();
    if (fetches) {
        CUTE_UNROLL
        for (int stage = 0; stage < STAGES; ++stage) {
            Full::init(&storage.full[stage], 1);
            Empty::init(&storage.empty[stage], 128);
        }
        cutlass::arch::fence_barrier_init();
    }
    __syncthreads();

    const int tiles = K / BK;
    constexpr uint32_t kBytes = (BM + BN) * BK * sizeof(typename Traits::Element);
    const auto fetch = [&](int tile, int stage) {
        Full::arrive_and_expect_tx(&storage.full[stage], kBytes);
        SM90_TMA_LOAD::copy(&map_a, &storage.full[stage], static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL),
                            &sA(0, 0, stage), tile * BK, int(blockIdx.y) * BM);
        SM90_TMA_LOAD::copy(&map_b, &storage.full[stage], static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL),
                            &sB(0, 0, stage), tile * BK, int(blockIdx.x) * BN);
    };
    if (fetches) {
        for (int tile = 0; tile < min(tiles, STAGES); ++tile) fetch(tile, tile);
    }

    Tensor mC = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride(N, _1{}));
    Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(blockIdx.y, blockIdx.x));
    typename Traits::Mma tiled_mma;
    auto thread_mma = tiled_mma.get_slice(threadIdx.x);
    Tensor tCgC = thread_mma.partition_C(gC);
    Tensor tCrA = thread_mma.partition_fragment_A(sA);  // descriptors (1, MMA_M, MMA_K, STAGES)
    Tensor tCrB = thread_mma.partition_fragment_B(sB);
    Tensor tCrC = partition_fragment_C(tiled_mma, Shape<Int<BM>, Int<BN>>{});

    tiled_mma.accumulate_ = GMMA::ScaleOut::Zero;
    cutlass::PipelineState<STAGES> read, write;
    for (int tile = 0; tile < tiles; ++tile) {
        Full::wait(&storage.full[read.index()], read.phase());
        warpgroup_fence_operand(tCrC);
        warpgroup_arrive();
        CUTE_UNROLL
        for (int k = 0; k < size<2>(tCrA); ++k) {
            gemm(tiled_mma, tCrA(_, _, k, read.index()), tCrB(_, _, k, read.index()), tCrC);
            tiled_mma.accumulate_ = GMMA::ScaleOut::One;
        }
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(tCrC);
        Empty::arrive(&storage.empty[read.index()]);
        ++read;
        if (fetches && tile + STAGES < tiles) {
            Empty::wait(&storage.empty[write.index()], write.phase());
            fetch(tile + STAGES, write.index());
            ++write;
        }
    }
    copy(tCrC, tCgC);
}
