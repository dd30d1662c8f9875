// SPDX-License-Identifier: Apache-2.0
// D = sum over blocks of K of (A_k * B_k^T) * sa_k * sb_k with e4m3 operands: the sum of each block of 128 is scaled and
// added in registers, so that the tensor core never adds over more than one block.
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>

using namespace cute;

template <int BM, int BN, int BK, int STAGES>
struct GemmTraits {
    using Element = cutlass::float_e4m3_t;
    using Atom = GMMA::Layout_K_SW128_Atom<Element>;
    using LayoutA = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
    using LayoutB = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));
    using Mma = decltype(make_tiled_mma(SM90_64x128x32_F32E4M3E4M3_SS_TN<>{}, Layout<Shape<Int<BM / 64>, _1, _1>>{}));

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutA>> a;
        alignas(1024) array_aligned<Element, cosize_v<LayoutB>> b;
        uint64_t full[STAGES], empty[STAGES];
    };
};

template <int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(BM * 2 + 128, 1)
    cute_gemm_fp8_scaled(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                         float const* sa, float const* sb, cutlass::bfloat16_t* D, int M, int N, int K) {
    using Traits = GemmTraits<BM, BN, BK, STAGES>;
    using Full = cutlass::arch::ClusterTransactionBarrier;
    using Empty = cutlass::arch::ClusterBarrier;

    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared_memory);
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), typename Traits::LayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), typename Traits::LayoutB{});
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            Full::init(&storage.full[stage], 1);
            Empty::init(&storage.empty[stage], BM / 64);
        }
        cutlass::arch::fence_barrier_init();
    }
    __syncthreads();

    const int blocks = K / BK;
    if (cutlass::canonical_warp_group_idx() == BM / 64) {
        cutlass::arch::warpgroup_reg_dealloc<40>();
        if (threadIdx.x == BM * 2) {
            constexpr auto kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
            for (int block = 0; block < blocks; ++block) {
                const int stage = block % STAGES;
                Empty::wait(&storage.empty[stage], (block / STAGES + 1) % 2);
                Full::arrive_and_expect_tx(&storage.full[stage], (BM + BN) * BK);
                SM90_TMA_LOAD::copy(&map_a, &storage.full[stage], kHint, &sA(0, 0, stage), block * BK,
                                    int(blockIdx.y) * BM);
                SM90_TMA_LOAD::copy(&map_b, &storage.full[stage], kHint, &sB(0, 0, stage), block * BK,
                                    int(blockIdx.x) * BN);
            }
        }
        return;
    }
    cutlass::arch::warpgroup_reg_alloc<232>();

    Tensor mD = make_tensor(make_gmem_ptr(D), make_shape(M, N), make_stride(N, _1{}));
    Tensor gD = local_tile(mD, Shape<Int<BM>, Int<BN>>{}, make_coord(blockIdx.y, blockIdx.x));
    Tensor rows = make_tensor(make_gmem_ptr(sa), make_layout(Shape<Int<BM>, Int<BN>>{}, make_stride(blocks, _0{})));
    typename Traits::Mma tiled_mma;
    auto thread_mma = tiled_mma.get_slice(threadIdx.x);
    Tensor tCgD = thread_mma.partition_C(gD);
    Tensor tCrows = thread_mma.partition_C(rows);  // the scale of each element's row, at block 0 of the first rows
    Tensor tCrA = thread_mma.partition_fragment_A(sA);
    Tensor tCrB = thread_mma.partition_fragment_B(sB);
    Tensor block_sum = partition_fragment_C(tiled_mma, Shape<Int<BM>, Int<BN>>{});
    Tensor total = make_fragment_like(block_sum);
    clear(total);

    for (int block = 0; block < blocks; ++block) {
        const int stage = block % STAGES;
        const float b = sb[blockIdx.x * blocks + block];
        const int first = int(blockIdx.y) * BM * blocks + block;
        Full::wait(&storage.full[stage], block / STAGES % 2);
        tiled_mma.accumulate_ = GMMA::ScaleOut::Zero;
        warpgroup_fence_operand(block_sum);
        warpgroup_arrive();
        CUTE_UNROLL
        for (int k = 0; k < size<2>(tCrA); ++k) {
            gemm(tiled_mma, tCrA(_, _, k, stage), tCrB(_, _, k, stage), block_sum);
            tiled_mma.accumulate_ = GMMA::ScaleOut::One;
        }
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(block_sum);
        if (threadIdx.x % 128 == 0) Empty::arrive(&storage.empty[stage]);
        CUTE_UNROLL
        for (int i = 0; i < size(total); ++i) total(i) += block_sum(i) * (*(&tCrows(i) + first) * b);
    }
    CUTE_UNROLL
    for (int i = 0; i < size(total); ++i) tCgD(i) = cutlass::bfloat16_t(total(i));
}
