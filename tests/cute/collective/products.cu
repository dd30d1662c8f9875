// SPDX-License-Identifier: Apache-2.0
// Two products in a chain whose mainloop is a member function of a collective: O = sum over blocks of keys of
// relu(Q K^T) V, of which each block turns the sign of what was summed before. The first product of the next block is
// multiplied together with the second one of the last block, by a function that opens the batch.
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>

using namespace cute;
using Full = cutlass::arch::ClusterTransactionBarrier;
using Empty = cutlass::arch::ClusterBarrier;

constexpr int BM = 128, BN = 64, D = 64, kStages = 2;
using Rows = GMMA::Layout_K_SW128_Atom<half_t>;
using LayoutQ = decltype(tile_to_shape(Rows{}, Shape<Int<BM>, Int<D>>{}));
using LayoutK = decltype(tile_to_shape(Rows{}, Shape<Int<BN>, Int<D>, Int<kStages>>{}));
using LayoutV = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<half_t>{}, Shape<Int<D>, Int<BN>, Int<kStages>>{}));
using Warpgroups = Layout<Shape<_2, _1, _1>>;
using Scoring = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}, Warpgroups{}));
using Adding = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::MN>{}, Warpgroups{}));

struct Storage {
    alignas(1024) array_aligned<half_t, cosize_v<LayoutQ>> q;
    alignas(1024) array_aligned<half_t, cosize_v<LayoutK>> k;
    alignas(1024) array_aligned<half_t, cosize_v<LayoutV>> v;
    uint64_t query, full[kStages], empty[kStages];
};

// Opens a batch, multiplies over all of k, and waits for all but `kPending` batches.
template <bool kClear = false, int kPending = 0, class Mma, class A, class B, class C>
CUTE_DEVICE void multiply(Mma& mma, A const& tCrA, B const& tCrB, C& tCrC) {
    constexpr bool kFromRegisters = !is_base_of<GMMA::DescriptorIterator, typename Mma::FrgTypeA>::value;
    if constexpr (kFromRegisters) { warpgroup_fence_operand(const_cast<A&>(tCrA)); }
    warpgroup_fence_operand(tCrC);
    warpgroup_arrive();
    if constexpr (kClear) { mma.accumulate_ = GMMA::ScaleOut::Zero; }
    CUTE_UNROLL
    for (int k = 0; k < size<2>(tCrA); ++k) {
        cute::gemm(mma, tCrA(_, _, k), tCrB(_, _, k), tCrC);
        mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
    if constexpr (kPending >= 0) { warpgroup_wait<kPending>(); }
    warpgroup_fence_operand(tCrC);
    if constexpr (kFromRegisters) { warpgroup_fence_operand(const_cast<A&>(tCrA)); }
}

struct Mainloop {
    template <class Sums, class Fetch>
    CUTE_DEVICE void mma(Storage& storage, Sums& tOrO, Fetch const& refill, int blocks, int thread) const {
        Tensor sQ = make_tensor(make_smem_ptr(storage.q.data()), LayoutQ{});
        Tensor sK = make_tensor(make_smem_ptr(storage.k.data()), LayoutK{});
        Tensor sV = make_tensor(make_smem_ptr(storage.v.data()), LayoutV{});
        Scoring mma_qk;
        Adding mma_pv;
        auto thread_qk = mma_qk.get_slice(thread);
        auto thread_pv = mma_pv.get_slice(thread);
        Tensor tSrQ = thread_qk.partition_fragment_A(sQ);
        Tensor tSrK = thread_qk.partition_fragment_B(sK);
        Tensor tOrV = thread_pv.partition_fragment_B(sV);
        Tensor tOrP = thread_pv.partition_fragment_A(make_tensor((half_t*)nullptr, Shape<Int<BM>, Int<BN>>{}));
        const auto relu = [&](auto const& tSrS) {
            for (int i = 0; i < size(tOrP); ++i) tOrP(i) = half_t(tSrS(i) > 0 ? tSrS(i) : 0);
        };
        Full::wait(&storage.query, 0);
        Full::wait(&storage.full[0], 0);
        {
            Tensor tSrS = partition_fragment_C(mma_qk, Shape<Int<BM>, Int<BN>>{});
            multiply<true, 0>(mma_qk, tSrQ, tSrK(_, _, _, 0), tSrS);
            relu(tSrS);
        }
        const auto step = [&](int block) {
            const int stage = block % kStages, last = (block - 1) % kStages;
            Full::wait(&storage.full[stage], block / kStages % 2);
            Tensor tSrS = partition_fragment_C(mma_qk, Shape<Int<BM>, Int<BN>>{});
            multiply<true, -1>(mma_qk, tSrQ, tSrK(_, _, _, stage), tSrS);
            multiply<false, -1>(mma_pv, tOrP, tOrV(_, _, _, last), tOrO);
            warpgroup_wait<1>();
            for (int i = 0; i < size(tSrS); ++i) tSrS(i) = tSrS(i) > 0 ? tSrS(i) : 0;
            warpgroup_wait<0>();
            Empty::arrive(&storage.empty[last]);
            refill(block - 1 + kStages, last, (block - 1) / kStages % 2);
            for (int i = 0; i < size(tOrO); ++i) tOrO(i) = -tOrO(i);
            relu(tSrS);
        };
        for (int block = 1; block < blocks; ++block) step(block);
        multiply<false, -1>(mma_pv, tOrP, tOrV(_, _, _, (blocks - 1) % kStages), tOrO);
        warpgroup_wait<0>();
    }
};

__global__ void __launch_bounds__(BM * 2)
    products(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
             const __grid_constant__ CUtensorMap map_v, float* O, int blocks) {
    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<Storage*>(shared_memory);
    Tensor sQ = make_tensor(make_smem_ptr(storage.q.data()), LayoutQ{});
    Tensor sK = make_tensor(make_smem_ptr(storage.k.data()), LayoutK{});
    Tensor sV = make_tensor(make_smem_ptr(storage.v.data()), LayoutV{});
    const bool fetches = cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync();
    if (fetches) {
        Full::init(&storage.query, 1);
        for (int stage = 0; stage < kStages; ++stage) {
            Full::init(&storage.full[stage], 1);
            Empty::init(&storage.empty[stage], BM * 2);
        }
        cutlass::arch::fence_barrier_init();
    }
    __syncthreads();

    constexpr auto kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
    const auto fetch = [&](int block, int stage) {
        Full::arrive_and_expect_tx(&storage.full[stage], 2 * BN * D * sizeof(half_t));
        SM90_TMA_LOAD::copy(&map_k, &storage.full[stage], kHint, &sK(0, 0, stage), 0, block * BN);
        SM90_TMA_LOAD::copy(&map_v, &storage.full[stage], kHint, &sV(0, 0, stage), 0, block * BN);
    };
    if (fetches) {
        Full::arrive_and_expect_tx(&storage.query, BM * D * sizeof(half_t));
        SM90_TMA_LOAD::copy(&map_q, &storage.query, kHint, &sQ(0, 0), 0, int(blockIdx.x) * BM);
        for (int block = 0; block < min(blocks, kStages); ++block) fetch(block, block);
    }
    const auto refill = [&](int block, int stage, int phase) {
        if (fetches && block < blocks) {
            Empty::wait(&storage.empty[stage], phase);
            fetch(block, stage);
        }
    };
    Adding mma_pv;
    Tensor tOrO = partition_fragment_C(mma_pv, Shape<Int<BM>, Int<D>>{});
    clear(tOrO);
    Mainloop mainloop;
    mainloop.mma(storage, tOrO, refill, blocks, threadIdx.x);
    Tensor gO = make_tensor(make_gmem_ptr(O + size_t(blockIdx.x) * BM * D), Shape<Int<BM>, Int<D>>{}, LayoutRight{});
    copy(tOrO, mma_pv.get_slice(threadIdx.x).partition_C(gO));
}
