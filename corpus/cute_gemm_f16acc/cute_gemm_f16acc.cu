// SPDX-License-Identifier: Apache-2.0
// C = A * B^T in f16, accumulators too. Two warpgroups share 4 x 2 tiles of 64 x 64; the atom is half as wide as the
// tile, and its accumulator is scaled by halves before it is stored.
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>
#include <cutlass/pipeline/sm90_pipeline.hpp>

using namespace cute;

template <int BM, int BN, int BK, int STAGES>
struct GemmTraits {
    using Element = cutlass::half_t;
    using Atom = GMMA::Layout_K_SW64_Atom<Element>;
    using LayoutA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
    using LayoutB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));
    using Mma = decltype(make_tiled_mma(SM90_64x64x16_F16F16F16_SS<GMMA::Major::K, GMMA::Major::K>{},
                                        Layout<Shape<_2, _1, _1>>{}));

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutA>> a;
        alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
        uint64_t full[STAGES];
    };
};

template <int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(256)
    cute_gemm_f16acc(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                     cutlass::half_t* C, float factor, int M, int N, int K) {
    using Traits = GemmTraits<BM, BN, BK, STAGES>;
    using Element = typename Traits::Element;
    using Full = cutlass::arch::ClusterTransactionBarrier;

    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared_memory);
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), typename Traits::LayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), typename Traits::LayoutB{});
    const bool fetches = cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync();
    if (fetches) {
        for (int stage = 0; stage < STAGES; ++stage) Full::init(&storage.full[stage], 1);
        cutlass::arch::fence_barrier_init();
    }
    __syncthreads();

    const int tiles = K / BK;
    constexpr auto kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
    const auto fetch = [&](int tile) {
        const int stage = tile % STAGES;
        Full::arrive_and_expect_tx(&storage.full[stage], (BM + BN) * BK * sizeof(Element));
        SM90_TMA_LOAD::copy(&map_a, &storage.full[stage], kHint, &sA(0, 0, stage), tile * BK, int(blockIdx.y) * BM);
        SM90_TMA_LOAD::copy(&map_b, &storage.full[stage], kHint, &sB(0, 0, stage), tile * BK, int(blockIdx.x) * BN);
    };
    if (fetches) {
        for (int tile = 0; tile < min(tiles, STAGES); ++tile) fetch(tile);
    }

    Tensor mC = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride(N, _1{}));
    Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(blockIdx.y, blockIdx.x));
    typename Traits::Mma tiled_mma;
    auto thread_mma = tiled_mma.get_slice(threadIdx.x);
    Tensor tCgC = thread_mma.partition_C(gC);
    Tensor tCrA = thread_mma.partition_fragment_A(sA);
    Tensor tCrB = thread_mma.partition_fragment_B(sB);
    auto tCrC = thread_mma.make_fragment_C(tCgC);

    tiled_mma.accumulate_ = GMMA::ScaleOut::Zero;
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % STAGES;
        Full::wait(&storage.full[stage], tile / STAGES % 2);
        warpgroup_fence_operand(tCrC);
        warpgroup_arrive();
        for_each(make_int_sequence<BK / 16>{}, [&](auto k) {
            gemm(tiled_mma, tCrA(_, _, k, stage), tCrB(_, _, k, stage), tCrC);
            tiled_mma.accumulate_ = GMMA::ScaleOut::One;
        });
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(tCrC);
        __syncthreads();
        if (fetches && tile + STAGES < tiles) fetch(tile + STAGES);
    }

    CUTE_UNROLL
    for (int n = 0; n < size<2>(tCrC); ++n) {
        Tensor half = tCrC(_, _, n);
        transform(half, [&](Element x) { return Element(float(x) * factor); });
        copy(half, tCgC(_, _, n));
    }
}
