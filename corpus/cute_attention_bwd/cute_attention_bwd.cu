// SPDX-License-Identifier: Apache-2.0
// dQ, dK and dV of attention with bf16 operands. A block has 64 keys and goes over the queries; five products a tile.
// S and dP are computed with the keys as rows, so that P and dS are in registers what the products for dV and dK take;
// for dQ, dS goes through shared memory, and all blocks add to dQ.
#include <cmath>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>

using namespace cute;

template <int BM, int BN, int D, int STAGES>
struct BackwardTraits {
    using Element = cutlass::bfloat16_t;
    using Rows = GMMA::Layout_K_SW128_Atom<Element>;
    using Columns = GMMA::Layout_MN_SW128_Atom<Element>;
    using LayoutK = decltype(tile_to_shape(Rows{}, Shape<Int<BN>, Int<D>>{}));
    using LayoutKt = decltype(tile_to_shape(Columns{}, Shape<Int<D>, Int<BN>>{}));
    using LayoutQ = decltype(tile_to_shape(Rows{}, Shape<Int<BM>, Int<D>, Int<STAGES>>{}));
    using LayoutQt = decltype(tile_to_shape(Columns{}, Shape<Int<D>, Int<BM>, Int<STAGES>>{}));
    using LayoutdS = decltype(tile_to_shape(Columns{}, Shape<Int<BM>, Int<BN>>{}));
    using MmaS = decltype(make_tiled_mma(SM90_64x64x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>{}));
    using MmadK = decltype(make_tiled_mma(SM90_64x64x16_F32BF16BF16_RS<GMMA::Major::K, GMMA::Major::MN>{}));
    using MmadQ = decltype(make_tiled_mma(SM90_64x64x16_F32BF16BF16_SS<GMMA::Major::MN, GMMA::Major::MN>{}));
    static_assert(BM == 64 && BN == 64 && D == 64, "one MMA in M and N");

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutK>> k, v;
        alignas(1024) array_aligned<Element, cosize_v<LayoutQ>> q, d_o;
        alignas(1024) array_aligned<Element, cosize_v<LayoutdS>> ds;
        uint64_t keys, full[STAGES], empty[STAGES];
    };
};

constexpr uint32_t kScoresBarrier = 1;

template <int BM, int BN, int D, int STAGES, bool CAUSAL>
__global__ void __launch_bounds__(128)
    cute_attention_bwd(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                       const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_do,
                       float const* lse, float const* delta, float* dQ, cutlass::bfloat16_t* dK,
                       cutlass::bfloat16_t* dV, float scale, int S) {
    using Traits = BackwardTraits<BM, BN, D, STAGES>;
    using Element = typename Traits::Element;
    using Full = cutlass::arch::ClusterTransactionBarrier;
    using Empty = cutlass::arch::ClusterBarrier;
    const int head = blockIdx.y, first = int(blockIdx.x) * BN;

    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared_memory);
    Tensor sK = make_tensor(make_smem_ptr(storage.k.data()), typename Traits::LayoutK{});
    Tensor sKt = make_tensor(make_smem_ptr(storage.k.data()), typename Traits::LayoutKt{});
    Tensor sV = make_tensor(make_smem_ptr(storage.v.data()), typename Traits::LayoutK{});
    Tensor sQ = make_tensor(make_smem_ptr(storage.q.data()), typename Traits::LayoutQ{});
    Tensor sQt = make_tensor(make_smem_ptr(storage.q.data()), typename Traits::LayoutQt{});
    Tensor sdO = make_tensor(make_smem_ptr(storage.d_o.data()), typename Traits::LayoutQ{});
    Tensor sdOt = make_tensor(make_smem_ptr(storage.d_o.data()), typename Traits::LayoutQt{});
    Tensor sdS = make_tensor(make_smem_ptr(storage.ds.data()), typename Traits::LayoutdS{});

    const bool fetches = cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync();
    if (fetches) {
        Full::init(&storage.keys, 1);
        for (int stage = 0; stage < STAGES; ++stage) {
            Full::init(&storage.full[stage], 1);
            Empty::init(&storage.empty[stage], 128);
        }
        cutlass::arch::fence_barrier_init();
    }
    __syncthreads();

    const int start = CAUSAL ? first / BM : 0, blocks = S / BM - start;
    constexpr auto kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
    const auto fetch = [&](int block) {
        const int stage = block % STAGES, row = (start + block) * BM;
        Full::arrive_and_expect_tx(&storage.full[stage], 2 * BM * D * sizeof(Element));
        SM90_TMA_LOAD::copy(&map_q, &storage.full[stage], kHint, &sQ(0, 0, stage), 0, row, head);
        SM90_TMA_LOAD::copy(&map_do, &storage.full[stage], kHint, &sdO(0, 0, stage), 0, row, head);
    };
    if (fetches) {
        Full::arrive_and_expect_tx(&storage.keys, 2 * BN * D * sizeof(Element));
        SM90_TMA_LOAD::copy(&map_k, &storage.keys, kHint, &sK(0, 0), 0, first, head);
        SM90_TMA_LOAD::copy(&map_v, &storage.keys, kHint, &sV(0, 0), 0, first, head);
        for (int block = 0; block < min(blocks, STAGES); ++block) fetch(block);
    }

    typename Traits::MmaS mma_s;
    typename Traits::MmadK mma_dk;
    typename Traits::MmadQ mma_dq;
    auto thread_s = mma_s.get_slice(threadIdx.x);
    auto thread_dk = mma_dk.get_slice(threadIdx.x);
    auto thread_dq = mma_dq.get_slice(threadIdx.x);
    Tensor tSrK = thread_s.partition_fragment_A(sK);
    Tensor tSrV = thread_s.partition_fragment_A(sV);
    Tensor tSrQ = thread_s.partition_fragment_B(sQ);
    Tensor tSrdO = thread_s.partition_fragment_B(sdO);
    Tensor tKrQt = thread_dk.partition_fragment_B(sQt);
    Tensor tKrdOt = thread_dk.partition_fragment_B(sdOt);
    Tensor tQrdS = thread_dq.partition_fragment_A(sdS);
    Tensor tQrKt = thread_dq.partition_fragment_B(sKt);
    Tensor tKrdK = partition_fragment_C(mma_dk, Shape<Int<BN>, Int<D>>{});
    Tensor tKrdV = partition_fragment_C(mma_dk, Shape<Int<BN>, Int<D>>{});
    auto like_p = make_tensor(static_cast<Element*>(nullptr), Shape<Int<BN>, Int<BM>>{});
    Tensor tKrP = thread_dk.partition_fragment_A(like_p);
    Tensor tKrdS = thread_dk.partition_fragment_A(like_p);
    Tensor tScS = thread_s.partition_C(make_identity_tensor(Shape<Int<BN>, Int<BM>>{}));
    Tensor tQcQ = thread_dq.partition_C(make_identity_tensor(Shape<Int<BM>, Int<D>>{}));
    clear(tKrdK);
    clear(tKrdV);

    Full::wait(&storage.keys, 0);
    for (int block = 0; block < blocks; ++block) {
        const int stage = block % STAGES, row = (start + block) * BM;
        Full::wait(&storage.full[stage], block / STAGES % 2);
        Tensor tSrS = partition_fragment_C(mma_s, Shape<Int<BN>, Int<BM>>{});
        Tensor tSrdP = partition_fragment_C(mma_s, Shape<Int<BN>, Int<BM>>{});
        clear(tSrS);
        clear(tSrdP);
        warpgroup_arrive();
        gemm(mma_s, tSrK, tSrQ(_, _, _, stage), tSrS);
        gemm(mma_s, tSrV, tSrdO(_, _, _, stage), tSrdP);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(tSrS);
        warpgroup_fence_operand(tSrdP);

        CUTE_UNROLL
        for (int i = 0; i < size(tSrS); ++i) {
            const int key = get<0>(tScS(i)), query = get<1>(tScS(i));
            const float weight = exp2f((tSrS(i) * scale - lse[head * S + row + query]) * float(M_LOG2E));
            const float p = CAUSAL && first + key > row + query ? 0 : weight;
            tKrP(i) = Element(p);
            tKrdS(i) = Element(p * (tSrdP(i) - delta[head * S + row + query]));
            sdS(query, key) = tKrdS(i);
        }
        cutlass::arch::fence_view_async_shared();
        cutlass::arch::NamedBarrier::sync(128, kScoresBarrier);

        Tensor tQrdQ = partition_fragment_C(mma_dq, Shape<Int<BM>, Int<D>>{});
        clear(tQrdQ);
        warpgroup_fence_operand(tKrdV);
        warpgroup_fence_operand(tKrdK);
        warpgroup_arrive();
        gemm(mma_dk, tKrP, tKrdOt(_, _, _, stage), tKrdV);
        warpgroup_commit_batch();
        warpgroup_arrive();
        gemm(mma_dk, tKrdS, tKrQt(_, _, _, stage), tKrdK);
        gemm(mma_dq, tQrdS, tQrKt, tQrdQ);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(tKrdV);
        warpgroup_fence_operand(tKrdK);
        warpgroup_fence_operand(tQrdQ);
        Empty::arrive(&storage.empty[stage]);
        if (fetches && block + STAGES < blocks) {
            Empty::wait(&storage.empty[stage], block / STAGES % 2);
            fetch(block + STAGES);
        }
        // No warp writes the next dS before all MMAs have read this one.
        cutlass::arch::NamedBarrier::sync(128, kScoresBarrier);
        CUTE_UNROLL
        for (int i = 0; i < size(tQrdQ); ++i) {
            atomicAdd(dQ + (size_t(head) * S + row + get<0>(tQcQ(i))) * D + get<1>(tQcQ(i)), tQrdQ(i) * scale);
        }
    }

    CUTE_UNROLL
    for (int i = 0; i < size(tKrdK); ++i) tKrdK(i) *= scale;
    const auto shape = make_shape(S, Int<D>{});
    const auto stride = make_stride(Int<D>{}, _1{});
    Tensor mdK = make_tensor(make_gmem_ptr(dK + size_t(head) * S * D), shape, stride);
    Tensor mdV = make_tensor(make_gmem_ptr(dV + size_t(head) * S * D), shape, stride);
    Tensor tKgdK = thread_dk.partition_C(local_tile(mdK, Shape<Int<BN>, Int<D>>{}, make_coord(blockIdx.x, 0)));
    Tensor tKgdV = thread_dk.partition_C(local_tile(mdV, Shape<Int<BN>, Int<D>>{}, make_coord(blockIdx.x, 0)));
    CUTE_UNROLL
    for (int i = 0; i < size(tKrdK); ++i) {
        tKgdK(i) = Element(tKrdK(i));
        tKgdV(i) = Element(tKrdV(i));
    }
}
