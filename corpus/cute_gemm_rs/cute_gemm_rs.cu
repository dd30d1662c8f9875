// SPDX-License-Identifier: Apache-2.0
// C = f16(A) * B^T with A in signed bytes: they become f16 in registers, from which the MMAs take them. B comes by TMA;
// the MMAs of one tile run while the next tile of A is converted into other registers.
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>

using namespace cute;

template <int BM, int BN, int BK, int STAGES>
struct GemmTraits {
    using Element = cutlass::half_t;
    using LayoutB = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<Element>{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));
    using Mma = decltype(make_tiled_mma(SM90_64x128x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>{},
                                        Layout<Shape<Int<BM / 64>, _1, _1>>{}));

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
        uint64_t full[STAGES], empty[STAGES];
    };
};

template <int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(BM * 2)
    cute_gemm_rs(int8_t const* A, const __grid_constant__ CUtensorMap map_b, float* C, int M, int N, int K) {
    using Traits = GemmTraits<BM, BN, BK, STAGES>;
    using Element = typename Traits::Element;
    using Full = cutlass::arch::ClusterTransactionBarrier;
    using Empty = cutlass::arch::ClusterBarrier;

    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared_memory);
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), typename Traits::LayoutB{});
    const bool fetches = cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync();
    if (fetches) {
        for (int stage = 0; stage < STAGES; ++stage) {
            Full::init(&storage.full[stage], 1);
            Empty::init(&storage.empty[stage], BM * 2);
        }
        cutlass::arch::fence_barrier_init();
    }
    __syncthreads();

    const int tiles = K / BK;
    const auto fetch = [&](int tile) {
        const int stage = tile % STAGES;
        Full::arrive_and_expect_tx(&storage.full[stage], BN * BK * sizeof(Element));
        SM90_TMA_LOAD::copy(&map_b, &storage.full[stage], static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL),
                            &sB(0, 0, stage), tile * BK, int(blockIdx.x) * BN);
    };
    if (fetches) {
        for (int tile = 0; tile < min(tiles, STAGES); ++tile) fetch(tile);
    }

    Tensor mA = make_tensor(make_gmem_ptr(A), make_shape(M, K), make_stride(K, _1{}));
    Tensor mC = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride(N, _1{}));
    Tensor gA = local_tile(mA, Shape<Int<BM>, Int<BK>>{}, make_coord(blockIdx.y, _));
    Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(blockIdx.y, blockIdx.x));
    typename Traits::Mma tiled_mma;
    auto thread_mma = tiled_mma.get_slice(threadIdx.x);
    Tensor tCgA = thread_mma.partition_A(gA);  // (values, MMA_M, MMA_K, tiles)
    Tensor tCgC = thread_mma.partition_C(gC);
    Tensor tCrB = thread_mma.partition_fragment_B(sB);
    Tensor tCrC = partition_fragment_C(tiled_mma, Shape<Int<BM>, Int<BN>>{});
    Tensor bytes = make_fragment_like(tCgA(_, _, _, 0));
    Tensor tCrA = make_fragment_like<Element>(bytes);

    clear(tCrC);
    copy(tCgA(_, _, _, 0), bytes);
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % STAGES;
        CUTE_UNROLL
        for (int i = 0; i < size(bytes); ++i) tCrA(i) = Element(float(bytes(i)));
        Full::wait(&storage.full[stage], tile / STAGES % 2);
        warpgroup_fence_operand(tCrC);
        warpgroup_arrive();
        gemm(tiled_mma, tCrA, tCrB(_, _, _, stage), tCrC);
        warpgroup_commit_batch();
        if (tile + 1 < tiles) copy(tCgA(_, _, _, tile + 1), bytes);
        warpgroup_wait<0>();
        warpgroup_fence_operand(tCrC);
        Empty::arrive(&storage.empty[stage]);
        if (fetches && tile + STAGES < tiles) {
            Empty::wait(&storage.empty[stage], tile / STAGES % 2);
            fetch(tile + STAGES);
        }
    }
    copy(tCrC, tCgC);
}
