// SPDX-License-Identifier: Apache-2.0
// Attention forward whose mainloop is a member function of a collective: softmax(scale * Q K^T) V. Scores of the next
// block are multiplied together with the probabilities of the last one, by a function that opens the batch. P goes from
// registers into the second product. GROUP heads of queries share the keys of a sequence, of which `lengths` count.
#include <cmath>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>

using namespace cute;

template <int BM, int BN, int D, int STAGES>
struct AttentionTraits {
    using Element = cutlass::half_t;
    using Atom = GMMA::Layout_K_SW128_Atom<Element>;
    using LayoutQ = decltype(tile_to_shape(Atom{}, Shape<Int<BM>, Int<D>>{}));
    using LayoutK = decltype(tile_to_shape(Atom{}, Shape<Int<BN>, Int<D>, Int<STAGES>>{}));
    // The same bytes as (D, BN): V is stored by keys, and the second product has the keys as K.
    using LayoutV = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<Element>{}, Shape<Int<D>, Int<BN>, Int<STAGES>>{}));
    static constexpr int kWarpgroups = BM / 64;
    using Warpgroups = Layout<Shape<Int<kWarpgroups>, _1, _1>>;
    using MmaQK = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}, Warpgroups{}));
    using MmaPV = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::MN>{}, Warpgroups{}));
    static_assert(BN == 64 && D == 64, "one MMA in N");

    struct Storage {
        alignas(1024) array_aligned<Element, cosize_v<LayoutQ>> q;
        alignas(1024) array_aligned<Element, cosize_v<LayoutK>> k;
        alignas(1024) array_aligned<Element, cosize_v<LayoutV>> v;
        uint64_t query, full[STAGES], empty[STAGES];
    };
};

// The layout of an accumulator ((2, 2, N / 8), MMA_M, MMA_N) by rows and columns of this thread.
template <class Layout>
CUTE_DEVICE auto by_rows(Layout const& l) {
    return make_layout(make_layout(get<0, 1>(l), get<1>(l)), make_layout(get<0, 0>(l), get<0, 2>(l), get<2>(l)));
}

// What the softmax knows of each row of this thread.
template <int kRows>
struct Softmax {
    float most[kRows], sum[kRows];
    float scale_log2;

    CUTE_DEVICE explicit Softmax(float scale) : scale_log2(scale * float(M_LOG2E)) {
        CUTE_UNROLL
        for (int i = 0; i < kRows; ++i) most[i] = -INFINITY, sum[i] = 0;
    }

    // Scores (rows, columns) become probabilities; the output so far is scaled to the new maximum.
    template <class Scores, class Output>
    CUTE_DEVICE void step(Scores& scores, Output& output) {
        CUTE_UNROLL
        for (int i = 0; i < kRows; ++i) {
            float now = most[i];
            CUTE_UNROLL
            for (int j = 0; j < size<1>(scores); ++j) now = max(now, scores(i, j));
            now = max(now, __shfl_xor_sync(~0u, now, 1));
            now = max(now, __shfl_xor_sync(~0u, now, 2));
            const float base = now == -INFINITY ? 0 : now * scale_log2;
            const float factor = exp2f(most[i] * scale_log2 - base);
            most[i] = now;
            sum[i] *= factor;
            CUTE_UNROLL
            for (int j = 0; j < size<1>(scores); ++j) {
                scores(i, j) = exp2f(scores(i, j) * scale_log2 - base);
                sum[i] += scores(i, j);
            }
            CUTE_UNROLL
            for (int j = 0; j < size<1>(output); ++j) output(i, j) *= factor;
        }
    }

    template <class Output>
    CUTE_DEVICE void finish(Output& output) {
        CUTE_UNROLL
        for (int i = 0; i < kRows; ++i) {
            float total = sum[i];
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            CUTE_UNROLL
            for (int j = 0; j < size<1>(output); ++j) output(i, j) /= total;
        }
    }
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

// Multiplies the blocks of keys of a tile of queries.
template <class Traits, int BM, int BN, int D, int STAGES>
struct Mainloop {
    using Element = typename Traits::Element;
    using Full = cutlass::arch::ClusterTransactionBarrier;
    using Empty = cutlass::arch::ClusterBarrier;

    template <class Storage, class Output, class Rows, class Fetch>
    CUTE_DEVICE void mma(Storage& storage, Output& tOrO, Rows& softmax, Fetch const& fetch, int blocks, int last_key,
                         int thread) const {
        Tensor sQ = make_tensor(make_smem_ptr(storage.q.data()), typename Traits::LayoutQ{});
        Tensor sK = make_tensor(make_smem_ptr(storage.k.data()), typename Traits::LayoutK{});
        Tensor sV = make_tensor(make_smem_ptr(storage.v.data()), typename Traits::LayoutV{});
        typename Traits::MmaQK mma_qk;
        typename Traits::MmaPV mma_pv;
        auto thread_qk = mma_qk.get_slice(thread);
        auto thread_pv = mma_pv.get_slice(thread);
        Tensor tSrQ = thread_qk.partition_fragment_A(sQ);
        Tensor tSrK = thread_qk.partition_fragment_B(sK);
        Tensor tOrV = thread_pv.partition_fragment_B(sV);
        Tensor tOrP = thread_pv.partition_fragment_A(
            make_tensor(static_cast<Element*>(nullptr), Shape<Int<BM>, Int<BN>>{}));
        Tensor tScS = thread_qk.partition_C(make_identity_tensor(Shape<Int<BM>, Int<BN>>{}));
        Tensor output = make_tensor(tOrO.data(), by_rows(tOrO.layout()));
        Full::wait(&storage.query, 0);
        const auto mask = [&](auto& tSrS, int block) {
            CUTE_UNROLL
            for (int i = 0; i < size(tSrS); ++i) {
                if (block * BN + get<1>(tScS(i)) > last_key) tSrS(i) = -INFINITY;
            }
        };
        Full::wait(&storage.full[0], 0);
        {
            Tensor tSrS = partition_fragment_C(mma_qk, Shape<Int<BM>, Int<BN>>{});
            multiply<true, 0>(mma_qk, tSrQ, tSrK(_, _, _, 0), tSrS);
            mask(tSrS, 0);
            Tensor scores = make_tensor(tSrS.data(), by_rows(tSrS.layout()));
            softmax.step(scores, output);
            CUTE_UNROLL
            for (int i = 0; i < size(tOrP); ++i) tOrP(i) = Element(tSrS(i));
        }
        const auto step = [&](int block) {
            const int stage = block % STAGES, last = (block - 1) % STAGES;
            Full::wait(&storage.full[stage], block / STAGES % 2);
            Tensor tSrS = partition_fragment_C(mma_qk, Shape<Int<BM>, Int<BN>>{});
            multiply<true, -1>(mma_qk, tSrQ, tSrK(_, _, _, stage), tSrS);
            multiply<false, -1>(mma_pv, tOrP, tOrV(_, _, _, last), tOrO);
            warpgroup_wait<1>();
            mask(tSrS, block);
            warpgroup_wait<0>();
            Empty::arrive(&storage.empty[last]);
            fetch(block - 1 + STAGES, last, (block - 1) / STAGES % 2);
            Tensor scores = make_tensor(tSrS.data(), by_rows(tSrS.layout()));
            softmax.step(scores, output);
            CUTE_UNROLL
            for (int i = 0; i < size(tOrP); ++i) tOrP(i) = Element(tSrS(i));
        };
        for (int block = 1; block < blocks; ++block) step(block);
        multiply<false, -1>(mma_pv, tOrP, tOrV(_, _, _, (blocks - 1) % STAGES), tOrO);
        warpgroup_wait<0>();
    }
};

template <int BM, int BN, int D, int STAGES, int GROUP>
__global__ void __launch_bounds__(BM * 2)
    attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
              const __grid_constant__ CUtensorMap map_v, cutlass::half_t* O, int const* lengths, float scale, int S) {
    using Traits = AttentionTraits<BM, BN, D, STAGES>;
    using Element = typename Traits::Element;
    using Full = cutlass::arch::ClusterTransactionBarrier;
    using Empty = cutlass::arch::ClusterBarrier;
    const int head = blockIdx.y, sequence = head / GROUP, first = int(blockIdx.x) * BM;
    const int length = lengths[sequence];

    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<typename Traits::Storage*>(shared_memory);
    Tensor sQ = make_tensor(make_smem_ptr(storage.q.data()), typename Traits::LayoutQ{});
    Tensor sK = make_tensor(make_smem_ptr(storage.k.data()), typename Traits::LayoutK{});
    Tensor sV = make_tensor(make_smem_ptr(storage.v.data()), typename Traits::LayoutV{});

    const bool fetches = cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync();
    if (fetches) {
        Full::init(&storage.query, 1);
        for (int stage = 0; stage < STAGES; ++stage) {
            Full::init(&storage.full[stage], 1);
            Empty::init(&storage.empty[stage], BM * 2);
        }
        cutlass::arch::fence_barrier_init();
    }
    __syncthreads();

    const int blocks = ceil_div(length, BN);
    constexpr auto kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
    const auto fetch = [&](int block, int stage) {
        Full::arrive_and_expect_tx(&storage.full[stage], 2 * BN * D * sizeof(Element));
        SM90_TMA_LOAD::copy(&map_k, &storage.full[stage], kHint, &sK(0, 0, stage), 0, block * BN, sequence);
        SM90_TMA_LOAD::copy(&map_v, &storage.full[stage], kHint, &sV(0, 0, stage), 0, block * BN, sequence);
    };
    if (fetches) {
        Full::arrive_and_expect_tx(&storage.query, BM * D * sizeof(Element));
        SM90_TMA_LOAD::copy(&map_q, &storage.query, kHint, &sQ(0, 0), 0, first, head);
        for (int block = 0; block < min(blocks, STAGES); ++block) fetch(block, block);
    }

    typename Traits::MmaPV mma_pv;
    auto thread_pv = mma_pv.get_slice(threadIdx.x);
    Tensor tOrO = partition_fragment_C(mma_pv, Shape<Int<BM>, Int<D>>{});
    clear(tOrO);
    Tensor output = make_tensor(tOrO.data(), by_rows(tOrO.layout()));
    Softmax<decltype(size<0>(output))::value> softmax(scale);
    const auto refill = [&](int block, int stage, int phase) {
        if (fetches && block < blocks) {
            Empty::wait(&storage.empty[stage], phase);
            fetch(block, stage);
        }
    };
    Mainloop<Traits, BM, BN, D, STAGES> mainloop;
    mainloop.mma(storage, tOrO, softmax, refill, blocks, length - 1, threadIdx.x);
    softmax.finish(output);

    Tensor mO = make_tensor(make_gmem_ptr(O + size_t(head) * S * D), make_shape(S, Int<D>{}), make_stride(Int<D>{}, _1{}));
    Tensor gO = local_tile(mO, Shape<Int<BM>, Int<D>>{}, make_coord(blockIdx.x, 0));
    copy(tOrO, thread_pv.partition_C(gO));
}
