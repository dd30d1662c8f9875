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

// A fragment (V, M, K) of A into Tensor Memory as a whole, as fragment i of a batch.
template <int i, class Acc, class Fragment>
CUTE_DEVICE void store_operand(Acc const& acc, Fragment const& A, uint32_t address) {
    using LayoutA = OperandLayout<typename Fragment::layout_type>;
    const LayoutA layout{};
    constexpr int kM = extent<1, LayoutA>(), kSteps = extent<2, LayoutA>(), kGroup = group_size<LayoutA>();
    using F = typename IsMirror<typename Acc::engine_type::iterator>::Fragment;
    static_assert(i < Warpgroup::kFragments, "more than four A fragments of one batch are in registers");
    static_assert(kM == 1 || kM == F::kM, "A from registers has other m64 tiles than its accumulator: hand `gemm` the "
                                          "fragment (V, MMA_M, MMA_K) with its tiles, or one k-step of it");
    Warpgroup& tc = warpgroup(acc);
    constexpr int kRun = run_of_halves<LayoutA>();
    constexpr bool kBoth = kRun == 0 && F::kM > 1;  // which half of the lanes reads a tile is not known
    Stored& stored = tc.stored[i];
    stored = {address & ~kUpperHalf, tc.halves ? kRun : 0, raw_pointer_cast(A.data()), cosize_v<LayoutA> / kGroup,
              groups_of<LayoutA>(), kBoth || !tc.halves};
    tc.fragments = i + 1;
    CUTE_UNROLL
    for (int k = 0; k < kSteps; ++k) {
        CUTE_UNROLL
        for (int m = 0; m < kM; ++m) {
            const int group = layout(0, m, k) / kGroup;
            auto a = recast<uint32_t>(make_tensor(A.data(), layout)(_, m, k));
            CUTE_UNROLL
            for (int h = 0; h < (kBoth ? 2 : 1); ++h) {
                if (h == 1 && !tc.halves) continue;
                const uint32_t half = acc.data().home->tile(kBoth ? h : m) & kUpperHalf;
                SM100_TMEM_STORE_16dp128b2x::copy(a(0), a(1), a(2), a(3), stored.group(group) + half + tc.quarter());
            }
        }
    }
    cutlass::arch::fence_view_async_tmem_store();
}

// Of A fragments of one batch that different functions count.
template <class... Operands>
CUTE_DEVICE constexpr void require_one_operand() {
    static_assert(((operand_columns_of<1, Operands>() > 0) + ... + 0) <= 1,
                  "two A fragments of one batch are in registers, of which a caller declares one: declare both there");
}

// In front of a batch of MMAs whose A is this fragment. Behind fragments of types Before, which the batch has as well:
// in columns of its own.
template <class... Before, class Acc, class Fragment>
CUTE_DEVICE void arrive(Acc const& acc, Fragment const& A, Operand& columns) {
    Warpgroup& tc = warpgroup(acc);
    if constexpr (operand_columns_of<2, Fragment>() > 0) {
        constexpr int kBefore = ((operand_columns_of<2, Before>() > 0) + ... + 0);
        if (columns.address == Operand::kNone) __trap();  // A would be stored over an accumulator
        if constexpr (kBefore == 0) {
            tc.release(columns);
            columns.batch = tc.committed + 1;
        }
        const int behind = tc.halves ? (operand_columns_of<1, Before>() + ... + 0)
                                     : (operand_columns_of<2, Before>() + ... + 0);
        store_operand<kBefore>(acc, A, columns.address + behind);
    }
    tc.arrive();
}
template <class... Before, class Acc, class Fragment>
CUTE_DEVICE void arrive(Acc const& acc, Fragment const& A) {
    arrive<Before...>(acc, A, warpgroup(acc).operand);
}

// Where the registers of a k-step of A are in Tensor Memory, `offset` behind `a`. Of several fragments the one that has
// `a` is found by comparisons for equality, which alone let the compiler keep all of them in registers. A part of a
// fragment (kPart) may be of another half of the lanes than its accumulator's tile.
template <int kGroup, bool kPart, class T>
CUTE_DEVICE uint32_t stored_group(Warpgroup const& tc, T const* a, int offset, uint32_t half) {
    const auto registers = [&](int i) { return static_cast<T const*>(tc.stored[i].registers); };
    const auto column = [&](Stored const& stored, int i) {
        const bool there = stored.run != 0 ? (i / stored.run % 2 != 0) == (half != 0) : stored.both || half == 0;
        if (kPart && !there) __trap();
        return stored.group(i);
    };
    if (tc.fragments == 1) return column(tc.stored[0], (int(a - registers(0)) + offset) / kGroup);
    uint32_t found = Operand::kNone;
    CUTE_UNROLL
    for (int i = 0; i < Warpgroup::kFragments; ++i) {
        CUTE_UNROLL
        for (int j = 0; i < tc.fragments && j < tc.stored[i].groups; ++j) {
            const bool is_there = tc.stored[i].there >> j & 1;
            if (is_there && a == registers(i) + j * kGroup) found = column(tc.stored[i], j + offset / kGroup);
        }
    }
    if (found == Operand::kNone) __trap();  // no `arrive` has stored A
    return found;
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
    static_assert(M::kSharedA || kM == 1 || kM == F::kM, "A from registers for some m64 tiles of an accumulator: hand "
                                                         "`gemm` all of them, or one at a time");
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
    tc.meet();
    tc.open = true;
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
                int at = 0;
                if constexpr (LayoutA::rank == 3) at = A.layout()(0, m, k);
                if constexpr (LayoutA::rank == 2) at = A.layout()(0, m);
                const uint32_t half = d & kUpperHalf;
                const uint32_t a = stored_group<group_size<LayoutA>(), kM != F::kM>(tc, raw_pointer_cast(A.data()), at, half);
                porter::mma<M::kKind>(d, a + half, b, M::descriptor(), accumulate);
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
