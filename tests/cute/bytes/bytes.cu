// SPDX-License-Identifier: Apache-2.0
// C = the sum over tiles of k of A B^T, of which each turns the sign of what was summed before, in registers. Elements have
// 8 bits, and A comes from registers.
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>

using namespace cute;
using Full = cutlass::arch::ClusterTransactionBarrier;

constexpr int BM = 128, BN = 96, BK = 128;
using LayoutB = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<float_e4m3_t>{}, Shape<Int<BN>, Int<BK>>{}));
using Mma = decltype(make_tiled_mma(SM90_64x96x32_F32E4M3E4M3_RS_TN<>{}, Layout<Shape<_2, _1, _1>>{}));

struct Storage {
    alignas(1024) array_aligned<float_e4m3_t, cosize_v<LayoutB>> b;
    uint64_t full;
};

__global__ void __launch_bounds__(256)
    bytes(float_e4m3_t const* A, const __grid_constant__ CUtensorMap map_b, float* C, int N, int tiles) {
    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<Storage*>(shared_memory);
    Tensor sB = make_tensor(make_smem_ptr(storage.b.data()), LayoutB{});
    const bool loads = cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync();
    if (loads) {
        Full::init(&storage.full, 1);
        cutlass::arch::fence_barrier_init();
    }
    __syncthreads();

    const int M = int(gridDim.y) * BM, K = tiles * BK;
    Tensor mA = make_tensor(make_gmem_ptr(A), make_shape(M, K), make_stride(K, _1{}));
    Tensor gA = local_tile(mA, Shape<Int<BM>, Int<BK>>{}, make_coord(blockIdx.y, _));
    Mma mma;
    auto thread_mma = mma.get_slice(threadIdx.x);
    Tensor tCgA = thread_mma.partition_A(gA);
    Tensor tCrA = thread_mma.partition_fragment_A(gA(_, _, 0));
    Tensor tCrB = thread_mma.partition_fragment_B(sB);
    Tensor tCrC = partition_fragment_C(mma, Shape<Int<BM>, Int<BN>>{});
    clear(tCrC);
    constexpr auto kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
    for (int tile = 0; tile < tiles; ++tile) {
        if (loads) {
            Full::arrive_and_expect_tx(&storage.full, BN * BK);
            SM90_TMA_LOAD::copy(&map_b, &storage.full, kHint, storage.b.data(), tile * BK, int(blockIdx.x) * BN);
        }
        copy(tCgA(_, _, _, tile), tCrA);
        Full::wait(&storage.full, tile % 2);
        for (int i = 0; i < size(tCrC); ++i) tCrC(i) = -tCrC(i);
        warpgroup_fence_operand(tCrA);
        warpgroup_fence_operand(tCrC);
        warpgroup_arrive();
        gemm(mma, tCrA, tCrB, tCrC);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(tCrC);
        __syncthreads();
    }
    Tensor mC = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride(N, _1{}));
    Tensor gC = local_tile(mC, Shape<Int<BM>, Int<BN>>{}, make_coord(blockIdx.y, blockIdx.x));
    copy(tCrC, thread_mma.partition_C(gC));
}
