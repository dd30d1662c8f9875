// ---- Accumulators -------------------------------------------------------------------------------------------------

// What an accumulator fragment is: kElements of type T a thread, of which kTile are an m64nN tile, kM tiles along M.
template <class T, int kElements_, int kN_, int kM_, bool kHalf_>
struct Fragment {
    static constexpr int kElements = kElements_, kN = kN_, kM = kM_;
    static constexpr bool kHalf = kHalf_;
    static constexpr int kTile = kN * 64 / 128 * (kHalf ? 2 : 4) / int(sizeof(T));
    static constexpr int kTiles = kElements / kTile;
    static_assert(kElements % kTile == 0 && kTiles % kM == 0 && kTiles <= 64, "not a fragment of this MMA");
    using Mask = conditional_t<(kTiles > 32), uint64_t, uint32_t>;  // a bit for each tile
    static constexpr Mask kAll = Mask(~uint64_t(0) >> (64 - kTiles));
};

// The tiles in Tensor Memory that a fragment mirrors.
template <class F>
struct Home {
    Warpgroup* warpgroup;
    uint32_t address;
    typename F::Mask in_tmem = 0;  // tiles that are newer there than in registers

    CUTE_DEVICE uint32_t tile(int i) const {
        const int m = i % F::kM, n = i / F::kM;
        return warpgroup->halves ? address + m % 2 * kUpperHalf + (m / 2 + (F::kM + 1) / 2 * n) * F::kN
                                 : address + i * F::kN;
    }
};

// Registers of an accumulator. The handle is in the iterator, so that slices, divisions, make_tensor(acc.data(), ...)
// keep it; a plain pointer to the registers is raw_pointer_cast(acc.data()).
template <class T, class F>
struct MirrorPtr {
    using value_type = remove_cv_t<T>;
    using element_type = T;
    using reference = T&;
    using pointer = T*;
    using difference_type = ptrdiff_t;
    using iterator_category = std::random_access_iterator_tag;

    T* base;
    int offset;
    Home<F>* home;

    CUTE_HOST_DEVICE operator T*() const { return base + offset; }
    CUTE_HOST_DEVICE T& operator*() const { return base[offset]; }
    template <class I>
    CUTE_HOST_DEVICE T& operator[](I const& i) const {
        return base[offset + int(i)];
    }
    template <class I>
    CUTE_HOST_DEVICE MirrorPtr operator+(I const& i) const {
        return {base, offset + int(i), home};
    }
};
using cute::raw_pointer_cast;
using cute::recast_ptr;
template <class NewT, class T, class F>
CUTE_HOST_DEVICE auto recast_ptr(MirrorPtr<T, F> const& p) {
    return cute::recast_ptr<NewT>(p.base + p.offset);
}
template <class T, class F>
CUTE_HOST_DEVICE T* raw_pointer_cast(MirrorPtr<T, F> const& p) {
    return p.base + p.offset;
}
template <class T, class F>
CUTE_HOST_DEVICE constexpr cute::Int<0> max_alignment(MirrorPtr<T, F> const&) {
    return {};
}

template <class T, class F>
struct MirrorEngine {
    using iterator = MirrorPtr<T, F>;
    using reference = T&;
    using element_type = T;
    using value_type = T;

    array_aligned<T, F::kElements> storage_;
    mutable Home<F> home;  // a constant accumulator can be loaded too

    CUTE_HOST_DEVICE MirrorPtr<T, F> begin() { return {storage_.data(), 0, &home}; }
    CUTE_HOST_DEVICE MirrorPtr<T const, F> begin() const { return {storage_.data(), 0, &home}; }
};

template <class Iterator>
struct IsMirror : false_type {};
template <class T, class F>
struct IsMirror<MirrorPtr<T, F>> : true_type {
    using Fragment = F;
};
template <class Engine>
constexpr bool is_mirror = IsMirror<typename Engine::iterator>::value;

// Extent of a mode, 1 where there is none.
template <int i, class Layout>
constexpr int extent() {
    if constexpr (decltype(rank(Layout{}))::value > i) {
        return decltype(size<i>(Layout{}))::value;
    } else {
        return 1;
    }
}

// The layout of an A fragment, or of some steps of one, as (V, M, K).
template <class Layout>
using OperandLayout = remove_cvref_t<decltype(append<3>(Layout{}))>;

// Of an A fragment's layout: registers of a group, which is an m64 tile's k-step.
template <class Layout>
constexpr int group_size() {
    constexpr int kGroup = decltype(size<0>(Layout{}))::value;
    static_assert(decltype(cosize(get<0>(Layout{})))::value == kGroup, "registers of a k-step of A lie apart: "
                  "copy A into a fragment whose first mode is compact, as `partition_fragment_A` makes it");
    return kGroup;
}

// Groups of an m64 tile that follow each other, where two tiles can share columns; else 0. Of a slice, as of the k-steps
// of one batch, tiles lie as far apart as in the whole.
template <class Layout>
constexpr int run_of_halves() {
    constexpr int kM = extent<1, Layout>(), kSteps = extent<2, Layout>(), kGroup = group_size<Layout>();
    if constexpr (kM % 2 == 0 && Layout{}(0, kM > 1 ? 1 : 0, 0) >= kGroup) {
        constexpr int kStride = Layout{}(0, 1, 0) / kGroup;
        for (int i = 0; i < kM * kSteps; ++i) {
            if (Layout{}(0, i % kM, i / kM) / kGroup / kStride % 2 != i % kM % 2) return 0;
        }
        return kStride;
    } else {
        return 0;
    }
}

// How far the groups of a fragment reach: those of a slice may lie apart.
template <int kRun, class Layout>
constexpr int columns_in_eights() {
    constexpr int kM = extent<1, Layout>(), kSteps = extent<2, Layout>(), kGroup = group_size<Layout>();
    int reached = 0;
    for (int i = 0; i < kM * kSteps; ++i) {
        const int behind = column_of_group(Layout{}(0, i % kM, i / kM) / kGroup, kRun) + 1;
        reached = behind > reached ? behind : reached;
    }
    return reached;
}

// A bit for each group that a fragment has.
template <class Layout>
constexpr uint64_t groups_of() {
    constexpr int kM = extent<1, Layout>(), kSteps = extent<2, Layout>(), kGroup = group_size<Layout>();
    static_assert(cosize_v<Layout> <= 64 * kGroup, "A from registers has more than 64 k-steps of its m64 tiles");
    uint64_t found = 0;
    for (int i = 0; i < kM * kSteps; ++i) found |= uint64_t(1) << Layout{}(0, i % kM, i / kM) / kGroup;
    return found;
}

// Columns that an accumulator of this tile needs in each warpgroup.
template <int kWarpgroups, class Mma, class Tile>
constexpr int columns(Mma const& mma, Tile const& tile) {
    using Shape = decltype(partition_shape_C(mma, tile));
    constexpr int kM = extent<1, Shape>(), kN = extent<2, Shape>();
    return (kWarpgroups == 1 ? (kM + 1) / 2 : kM) * kN * Facts<Mma>::kN;
}

// Columns that A fragments from registers need for this tile, in each warpgroup; 0 if A is in shared memory.
template <class Mma, class TileMNK>
constexpr int operand_columns(Mma const&, TileMNK const&) {
    if (Facts<Mma>::kSharedA) return 0;
    constexpr int kWarpgroups = decltype(size(Mma{}))::value / 128;
    constexpr int kRows = decltype(size<0>(TileMNK{}))::value;
    constexpr int kM = (kRows + 64 * kWarpgroups - 1) / (64 * kWarpgroups);
    constexpr int kSteps = decltype(size<2>(TileMNK{}))::value / decltype(size<2>(typename Mma::Shape_MNK{}))::value;
    return 8 * kSteps * (kWarpgroups == 1 && kM % 2 == 0 ? kM / 2 : kM);
}

// The same of a fragment (V, MMA_M, MMA_N), or of several in one tensor (V, MMA_M, MMA_N, ...).
template <int kWarpgroups, class Mma, class Registers>
CUTE_HOST_DEVICE constexpr int columns_of() {
    using Layout = typename remove_cvref_t<Registers>::layout_type;
    constexpr int kM = extent<1, Layout>(), kTiles = decltype(size(Layout{}))::value / decltype(size<0>(Layout{}))::value;
    return (kWarpgroups == 1 ? (kM + 1) / 2 : kM) * (kTiles / kM) * Facts<remove_cvref_t<Mma>>::kN;
}

// Columns of an A fragment (V, MMA_M, MMA_K, ...) if it is in registers.
template <int kWarpgroups, class Operand>
CUTE_HOST_DEVICE constexpr int operand_columns_of() {
    using A = remove_cvref_t<Operand>;
    if constexpr (is_base_of<GMMA::DescriptorIterator, typename A::engine_type::iterator>::value) {
        return 0;
    } else {
        using Layout = OperandLayout<typename A::layout_type>;
        constexpr int kColumns = columns_in_eights<kWarpgroups == 1 ? run_of_halves<Layout>() : 0, Layout>();
        return 8 * kColumns;
    }
}

// The same where only the MMA is known. (kWarpgroups is there so that a branch not taken does not ask.)
template <int kWarpgroups, class Mma>
CUTE_HOST_DEVICE constexpr int no_operand_columns() {
    static_assert(Facts<remove_cvref_t<Mma>>::kSharedA, "A from registers whose fragment has no name where the columns "
                                                        "of Tensor Memory are counted: declare it in this function");
    return 0;
}

// A fragment that has its tiles at a column of the warpgroup's; + kUpperHalf: in the other half of the lanes.
template <class Mma, class T, size_t kElements, class Layout>
CUTE_DEVICE auto accumulator(Warpgroup& warpgroup, Mma const&,
                             cute::Tensor<cute::ArrayEngine<T, kElements>, Layout> const& registers,
                             uint32_t column = 0) {
    using F = Fragment<T, int(kElements), Facts<Mma>::kN, extent<1, Layout>(), Facts<Mma>::kHalf>;
    static_assert(sizeof(T) == sizeof(typename Mma::ValTypeC), "the fragment is not of the MMA's accumulator type");
    static_assert(decltype(size<0>(Layout{}))::value == F::kTile, "the fragment is not (V, MMA_M, MMA_N) of the MMA");
    static_assert(is_same_v<decltype(coalesce(Layout{})), decltype(coalesce(make_layout(size(Layout{}))))>,
                  "the fragment's layout is not compact, V in front of M in front of N");
    using Engine = MirrorEngine<T, F>;
    return cute::Tensor<Engine, Layout>(
        Engine{registers.engine().storage_, Home<F>{&warpgroup, warpgroup.tmem + column}}, registers.layout());
}
