// ---- Moves between registers and Tensor Memory --------------------------------------------------------------------

// The D fragment of wgmma is what .16x256b hands out of an m64 tile, that of 16-bit elements what .16x128b does with
// packing. An instruction moves 8 * n columns.
template <bool store, bool half, int n>
constexpr auto tmem_op() {
    if constexpr (store && half) {
        if constexpr (n == 16) return SM100_TMEM_STORE_16dp128b16x_16b{};
        if constexpr (n == 8) return SM100_TMEM_STORE_16dp128b8x_16b{};
        if constexpr (n == 4) return SM100_TMEM_STORE_16dp128b4x_16b{};
        if constexpr (n == 2) return SM100_TMEM_STORE_16dp128b2x_16b{};
        if constexpr (n == 1) return SM100_TMEM_STORE_16dp128b1x_16b{};
    } else if constexpr (store) {
        if constexpr (n == 8) return SM100_TMEM_STORE_16dp256b8x{};
        if constexpr (n == 4) return SM100_TMEM_STORE_16dp256b4x{};
        if constexpr (n == 2) return SM100_TMEM_STORE_16dp256b2x{};
        if constexpr (n == 1) return SM100_TMEM_STORE_16dp256b1x{};
    } else if constexpr (half) {
        if constexpr (n == 16) return SM100_TMEM_LOAD_16dp128b16x_16b{};
        if constexpr (n == 8) return SM100_TMEM_LOAD_16dp128b8x_16b{};
        if constexpr (n == 4) return SM100_TMEM_LOAD_16dp128b4x_16b{};
        if constexpr (n == 2) return SM100_TMEM_LOAD_16dp128b2x_16b{};
        if constexpr (n == 1) return SM100_TMEM_LOAD_16dp128b1x_16b{};
    } else {
        if constexpr (n == 8) return SM100_TMEM_LOAD_16dp256b8x{};
        if constexpr (n == 4) return SM100_TMEM_LOAD_16dp256b4x{};
        if constexpr (n == 2) return SM100_TMEM_LOAD_16dp256b2x{};
        if constexpr (n == 1) return SM100_TMEM_LOAD_16dp256b1x{};
    }
}

// Moves `left` groups of 8 columns, in pieces of at most 32 registers: larger ones cost spills.
template <bool store, bool half, int left>
CUTE_DEVICE void move(uint32_t address, uint32_t* registers) {
    if constexpr (left > 0) {
        constexpr int kMost = half ? 16 : 8;
        constexpr int n = left >= kMost ? kMost : left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        constexpr int kRegisters = n * (half ? 2 : 4);
        using Op = decltype(tmem_op<store, half, n>());
        if constexpr (store) {
            detail::explode(Op::copy, registers, make_int_sequence<kRegisters>{}, &address, seq<0>{});
        } else {
            detail::explode(Op::copy, &address, seq<0>{}, registers, make_int_sequence<kRegisters>{});
        }
        move<store, half, left - n>(address + 8 * n, registers + kRegisters);
    }
}

// The rest of a load, behind its wait: what has come, from registers of its own. A fragment may lie in local memory, to
// which the compiler would write registers as soon as they are loaded.
template <int kCount>
CUTE_DEVICE void take(uint32_t* registers, uint32_t* loaded) {
    CUTE_UNROLL
    for (int i = 0; i < kCount; ++i) {
        asm volatile("" : "+r"(loaded[i]));  // no use of it in front of the wait
        registers[i] = loaded[i];
    }
}

template <class T>
CUTE_DEVICE uint32_t* words(T* registers) {
    return reinterpret_cast<uint32_t*>(const_cast<remove_cv_t<T>*>(registers));
}

// Registers -> Tensor Memory: those tiles that are newer in registers.
template <class T, class F>
CUTE_DEVICE void store(MirrorPtr<T, F> const& p, typename F::Mask tiles = F::kAll) {
    auto& home = *p.home;
    tiles &= ~home.in_tmem;
    if (tiles == 0) return;
    CUTE_UNROLL
    for (int i = 0; i < F::kTiles; ++i) {
        if (tiles >> i & 1) {
            move<true, F::kHalf, F::kN / 8>(home.tile(i) + home.warpgroup->quarter(), words(p.base + i * F::kTile));
        }
    }
    cutlass::arch::fence_view_async_tmem_store();
    home.in_tmem |= tiles;
    home.warpgroup->arrive();
}

// Tensor Memory -> registers, behind a wait that covers the MMAs: those tiles that are newer there.
template <class T, class F>
CUTE_DEVICE void load(MirrorPtr<T, F> const& p) {
    auto& home = *p.home;
    if (home.in_tmem == 0) return;
    constexpr int kWords = F::kTile * int(sizeof(T)) / 4;
    uint32_t loaded[F::kTiles][kWords];
    CUTE_UNROLL
    for (int i = 0; i < F::kTiles; ++i) {
        if (home.in_tmem >> i & 1) {
            move<false, F::kHalf, F::kN / 8>(home.tile(i) + home.warpgroup->quarter(), loaded[i]);
        }
    }
    cutlass::arch::fence_view_async_tmem_load();
    CUTE_UNROLL
    for (int i = 0; i < F::kTiles; ++i) {
        if (home.in_tmem >> i & 1) take<kWords>(words(p.base + i * F::kTile), loaded[i]);
    }
    home.in_tmem = 0;
}

template <class Engine, class Layout, __CUTE_REQUIRES(is_mirror<Engine>)>
CUTE_DEVICE void load(cute::Tensor<Engine, Layout> const& acc) {
    load(acc.data());
}
template <class Engine, class Layout, __CUTE_REQUIRES(is_mirror<Engine>)>
CUTE_DEVICE void store(cute::Tensor<Engine, Layout> const& acc) {
    store(acc.data());
}
// All elements of an accumulator or of a view of one.
template <class Engine, class Layout, class T>
CUTE_DEVICE void fill(cute::Tensor<Engine, Layout>& acc, T const& value) {
    auto const p = acc.data();
    using F = typename IsMirror<typename Engine::iterator>::Fragment;
    if constexpr (decltype(size(Layout{}))::value == F::kElements) {
        p.home->in_tmem = 0;
    } else {
        load(p);
    }
    CUTE_UNROLL
    for (int i = 0; i < size(acc); ++i) p[acc.layout()(i)] = typename Engine::value_type(value);
}
