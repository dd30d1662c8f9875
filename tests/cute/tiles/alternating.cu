// SPDX-License-Identifier: Apache-2.0
// C = the sum over tiles of k of A B^T, of which each turns the sign of what was summed before, in registers. Each of two
// warpgroups has two tiles of 64 rows.
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>

using namespace cute;
using Full = cutlass::arch::ClusterTransactionBarrier;

constexpr int BM = 256, BN = 96, BK = 64;
using Rows = GMMA::Layout_K_SW128_Atom<half_t>;
using LayoutA = decltype(tile_to_shape(Rows{}, Shape<Int<BM>, Int<BK>>{}));
using LayoutB = decltype(tile_to_shape(Rows{}, Shape<Int<BN>, Int<BK>>{}));
using Mma = decltype(make_tiled_mma(SM90_64x96x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{},
                                    Layout<Shape<_2, _1, _1>>{}));

struct Storage {
    alignas(1024) array_aligned<half_t, cosize_v<LayoutA>> a;
    alignas(1024) array_aligned<half_t, cosize_v<LayoutB>> b;
    uint64_t full;
};

__global__ void __launch_bounds__(256)
    alternating(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* C, int N,
                int tiles) {
    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<Storage*>(shared_memory);
    Tensor sA = make_tensor(make_smem_ptr(storage.a.data()), LayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), LayoutB{});
    const bool loads = cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync();
    if (loads) {
        Full::init(&storage.full, 1);
        cutlass::arch::fence_barrier_init();
    }
    __syncthreads();

    Mma mma;
    auto thread_mma = mma.get_slice(threadIdx.x);
    Tensor tCrA = thread_mma.partition_fragment_A(sA);
    Tensor tCrB = thread_mma.partition_fragment_B(sB);
    Tensor tCrC = partition_fragment_C(mma, Shape<Int<BM>, Int<BN>>{});
    clear(tCrC);
    constexpr auto kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
    for (int tile = 0; tile < tiles; ++tile) {
        if (loads) {
            Full::arrive_and_expect_tx(&storage.full, (BM + BN) * BK * sizeof(half_t));
            SM90_TMA_LOAD::copy(&map_a, &storage.full, kHint, storage.a.data(), tile * BK, int(blockIdx.y) * BM);
            SM90_TMA_LOAD::copy(&map_b, &storage.full, kHint, storage.b.data(), tile * BK, int(blockIdx.x) * BN);
        }
        Full::wait(&storage.full, tile % 2);
        for (int i = 0; i < size(tCrC); ++i) tCrC(i) = -tCrC(i);
        warpgroup_fence_operand(tCrC);
        warpgroup_arrive();
        gemm(mma, tCrA, tCrB, tCrC);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(tCrC);
        __syncthreads();
    }
    Tensor mC = make_tensor(make_gmem_ptr(C), make_shape(int(gridDim.y) * BM, N), make_stride(N, _1{}));
    Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(blockIdx.y, blockIdx.x));
    copy(tCrC, thread_mma.partition_C(gC));
}
