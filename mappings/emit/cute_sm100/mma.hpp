// ---- MMAs ---------------------------------------------------------------------------------------------------------

template <class Engine, class Layout, __CUTE_REQUIRES(is_mirror<Engine>)>
CUTE_DEVICE Warpgroup& warpgroup(cute::Tensor<Engine, Layout> const& acc) {
    return *acc.data().home->warpgroup;
}

// In front of a batch of MMAs.
template <class Acc>
CUTE_DEVICE void arrive(Acc const& acc) {
    warpgroup(acc).arrive();
}
template <class Acc>
CUTE_DEVICE void commit(Acc const& acc) {
    warpgroup(acc).commit();
}
// Until all but the newest kPending batches of the warpgroup have completed.
template <int kPending, class Acc>
CUTE_DEVICE void wait(Acc const& acc) {
    warpgroup(acc).wait(kPending);
}

// Of the A fragments of one batch.
template <class... Operands>
CUTE_DEVICE constexpr void require_one_operand() {
    static_assert(((operand_columns_of<1, Operands>() > 0) + ... + 0) <= 1,
                  "two A fragments of one batch are in registers: close the batch between their MMAs");
}

// In front of a batch of MMAs whose A is this fragment (V, M, K), which goes to Tensor Memory as a whole.
template <class Engine, class Layout, class EngineA, class LayoutA>
CUTE_DEVICE void arrive(cute::Tensor<Engine, Layout> const& acc, cute::Tensor<EngineA, LayoutA> const& A,
                        Operand& columns) {
    Warpgroup& tc = warpgroup(acc);
    if constexpr (!is_base_of<GMMA::DescriptorIterator, typename EngineA::iterator>::value) {
        constexpr int kM = extent<1, LayoutA>(), kSteps = extent<2, LayoutA>(), kGroup = group_size<LayoutA>();
        if (columns.address == Operand::kNone) __trap();  // A would be stored over an accumulator
        tc.release(columns);
        columns.batch = tc.committed + 1;
        tc.stored = {columns.address & ~kUpperHalf, tc.halves ? run_of_halves<LayoutA>() : 0,
                     raw_pointer_cast(A.data())};
        CUTE_UNROLL
        for (int k = 0; k < kSteps; ++k) {
            CUTE_UNROLL
            for (int m = 0; m < kM; ++m) {
                const int group = A.layout()(0, m, k) / kGroup;
                const uint32_t half = acc.data().home->tile(m) & kUpperHalf;
                auto a = recast<uint32_t>(A(_, m, k));
                SM100_TMEM_STORE_16dp128b2x::copy(a(0), a(1), a(2), a(3), tc.stored.group(group) + half + tc.quarter());
            }
        }
        cutlass::arch::fence_view_async_tmem_store();
    }
    tc.arrive();
}
template <class Engine, class Layout, class EngineA, class LayoutA>
CUTE_DEVICE void arrive(cute::Tensor<Engine, Layout> const& acc, cute::Tensor<EngineA, LayoutA> const& A) {
    arrive(acc, A, warpgroup(acc).operand);
}

template <class Tensor>
CUTE_DEVICE auto element(Tensor const& t, int i, int k) {
    if constexpr (Tensor::rank == 3) return t(0, i, k);
    if constexpr (Tensor::rank == 2) return t(0, i);
    if constexpr (Tensor::rank == 1) return t(0);
}

template <class Mma, class EngineA, class LayoutA, class TensorB, class Engine, class Layout>
CUTE_DEVICE void issue(Mma const& mma, cute::Tensor<EngineA, LayoutA> const& A, TensorB const& B,
                       cute::Tensor<Engine, Layout> const& acc) {
    using M = Facts<Mma>;
    using F = typename IsMirror<typename Engine::iterator>::Fragment;
    static_assert(F::kN == M::kN && F::kHalf == M::kHalf, "the accumulator was made for another MMA");
    static_assert(Layout::rank == 3 || Layout::rank == 1, "not (V, MMA_M, MMA_N) of an accumulator");
    constexpr int kM = extent<1, Layout>(), kN = extent<2, Layout>(), kSteps = extent<2, LayoutA>();
    using LayoutB = typename TensorB::layout_type;
    static_assert(extent<1, LayoutA>() == kM && extent<1, LayoutB>() == kN && extent<2, LayoutB>() == kSteps,
                  "A (V, MMA_M, MMA_K), B (V, MMA_N, MMA_K) and the accumulator (V, MMA_M, MMA_N) do not fit");
    auto const p = acc.data();
    Warpgroup& tc = *p.home->warpgroup;
    const auto tile = [&](int m, int n) {
        if constexpr (Layout::rank == 3) return (p.offset + int(acc.layout()(0, m, n))) / F::kTile;
        else return p.offset / F::kTile;
    };
    typename F::Mask tiles = 0;
    CUTE_UNROLL
    for (int i = 0; i < kM * kN; ++i) tiles |= typename F::Mask(1) << tile(i % kM, i / kM);
    const bool accumulate = mma.accumulate_ != GMMA::ScaleOut::Zero;
    if (accumulate) store(p, tiles);
    p.home->in_tmem |= tiles;
    int first = 0;  // group of A's registers
    if constexpr (!M::kSharedA) {
        if (tc.stored.registers == nullptr) __trap();  // no `arrive` has stored A
        first = int(raw_pointer_cast(A.data()) - static_cast<typename EngineA::value_type const*>(tc.stored.registers));
    }
    tc.meet();
    if (tc.issues()) {
        CUTE_UNROLL
        for (int i = 0; i < kSteps * kM * kN; ++i) {
            const int n = i % kN, m = i / kN % kM, k = i / kN / kM;
            const uint32_t d = p.home->tile(tile(m, n));
            const uint64_t b = element(B, n, k) | kDescriptorVersion;
            if constexpr (M::kSharedA) {
                const uint64_t a = element(A, m, k) | kDescriptorVersion;
                porter::mma<M::kKind>(d, a, b, M::descriptor(), accumulate);
            } else {
                int at = first;
                if constexpr (LayoutA::rank == 3) at += A.layout()(0, m, k);
                if constexpr (LayoutA::rank == 2) at += A.layout()(0, m);
                const uint32_t a = tc.stored.group(at / group_size<LayoutA>()) + (d & kUpperHalf);
                porter::mma<M::kKind>(d, a, b, M::descriptor(), accumulate);
            }
        }
    }
}

// A TiledMMA's gemm: warpgroup MMAs on accumulators in Tensor Memory, any other MMA as CuTe has it.
template <class Atom, class Mma, class TensorA, class TensorB, class Engine, class Layout>
CUTE_DEVICE void gemm(Mma const& mma, TensorA const& A, TensorB const& B, cute::Tensor<Engine, Layout>& acc) {
    if constexpr (Facts<Mma>::kWarpgroupMma) {
        static_assert(is_mirror<Engine>, "an MMA of sm_90a on plain registers: declare its accumulator by "
                                         "porter::accumulator(warpgroup, tiled_mma, fragment, column)");
        if constexpr (is_mirror<Engine>) issue(mma, A, B, acc);
    } else {
        cute::gemm(static_cast<Atom const&>(mma), A, B, acc);
    }
}
