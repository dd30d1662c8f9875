// ---- MMAs that a kernel issues by their atoms: Op::fma(a, b, d[0], d[1], ..., scale) --------------------------------

// Where the registers of an array are in Tensor Memory: 8 columns each group, which is an m64n8 tile.
struct ArrayHome {
    Warpgroup* warpgroup;
    uint32_t address;
    uint64_t in_tmem = 0;  // groups that are newer there than in registers
};

template <int kGroups>
constexpr uint64_t kAllGroups = ~uint64_t(0) >> (64 - kGroups);

// Registers of an accumulator, as a pointer into the array names them; kHalf: with two elements each.
template <class T, bool kHalf = false>
struct Registers {
    static constexpr int kGroup = kHalf ? 2 : 4;

    T* base;
    int offset;
    ArrayHome* home;

    template <class I>
    CUTE_DEVICE T& operator[](I i) const {
        return base[offset + int(i)];
    }
    template <class I>
    CUTE_DEVICE Registers operator+(I i) const {
        return {base, offset + int(i), home};
    }
    CUTE_DEVICE T& operator*() const { return base[offset]; }
    CUTE_DEVICE T* data() const { return base + offset; }
    CUTE_DEVICE operator T*() const { return data(); }

    CUTE_DEVICE int first() const { return offset / kGroup; }
    CUTE_DEVICE uint32_t address() const { return home->address + 8 * first(); }
};

// `T name[kCount]`.
template <class T, int kCount, bool kHalf = false>
struct Accumulator {
    static constexpr int kGroups = kCount / Registers<T, kHalf>::kGroup;
    static_assert(sizeof(T) == 4 && kCount % Registers<T, kHalf>::kGroup == 0 && kGroups <= 64,
                  "no array of registers that MMAs add to");

    T registers[kCount] = {};
    ArrayHome home;

    CUTE_DEVICE explicit Accumulator(Warpgroup& warpgroup, uint32_t column = 0)
        : home{&warpgroup, warpgroup.tmem + column} {}
    Accumulator(Accumulator const&) = delete;

    template <class I>
    CUTE_DEVICE T& operator[](I i) {
        return registers[i];
    }
    template <class I>
    CUTE_DEVICE Registers<T, kHalf> operator+(I i) {
        return {registers, int(i), &home};
    }
    CUTE_DEVICE T* data() { return registers; }
    CUTE_DEVICE operator T*() { return registers; }
    CUTE_DEVICE operator Registers<T, kHalf>() { return *this + 0; }
};

// `T name[kRows][kCount]`.
template <class T, int kRows, int kCount, bool kHalf = false>
struct Accumulators {
    static constexpr int kGroups = kRows * kCount / Registers<T, kHalf>::kGroup;
    static_assert(sizeof(T) == 4 && kCount % Registers<T, kHalf>::kGroup == 0 && kGroups <= 64,
                  "no array of registers that MMAs add to");

    T registers[kRows][kCount] = {};
    ArrayHome home;

    CUTE_DEVICE explicit Accumulators(Warpgroup& warpgroup, uint32_t column = 0)
        : home{&warpgroup, warpgroup.tmem + column} {}
    Accumulators(Accumulators const&) = delete;

    template <class I>
    CUTE_DEVICE Registers<T, kHalf> operator[](I i) {
        return {registers[0], int(i) * kCount, &home};
    }
};

// Of kGroups that begin at a register and an address, those that `groups` has.
template <bool store, bool kHalf, int kGroups>
CUTE_DEVICE void move_groups(uint32_t address, uint32_t* registers, uint64_t groups) {
    constexpr int kGroup = kHalf ? 2 : 4;
    if (groups == kAllGroups<kGroups>) {
        move<store, kHalf, kGroups>(address, registers);
    } else if constexpr (kGroups > 8) {
        move_groups<store, kHalf, 8>(address, registers, groups & kAllGroups<8>);
        move_groups<store, kHalf, kGroups - 8>(address + 64, registers + 8 * kGroup, groups >> 8);
    } else {
        CUTE_UNROLL
        for (int i = 0; i < kGroups; ++i) {
            if (groups >> i & 1) move<store, kHalf, 1>(address + 8 * i, registers + i * kGroup);
        }
    }
}

// Registers -> Tensor Memory: those groups of an MMA that are newer in registers.
template <int kGroups, class T, bool kHalf>
CUTE_DEVICE void store(Registers<T, kHalf> const& d) {
    Warpgroup& tc = *d.home->warpgroup;
    const uint64_t groups = kAllGroups<kGroups> & ~(d.home->in_tmem >> d.first());
    if (groups == 0) return;
    move_groups<true, kHalf, kGroups>(d.address() + tc.quarter(), reinterpret_cast<uint32_t*>(d.data()), groups);
    cutlass::arch::fence_view_async_tmem_store();
    tc.arrive();
}

// Tensor Memory -> registers, behind a wait that covers the MMAs: those groups that are newer there.
template <int kGroups, bool kHalf, class T>
CUTE_DEVICE void load_groups(T* base, ArrayHome& home) {
    if (home.in_tmem == 0) return;
    constexpr int kGroup = kHalf ? 2 : 4;
    uint32_t loaded[kGroups * kGroup];
    move_groups<false, kHalf, kGroups>(home.address + home.warpgroup->quarter(), loaded, home.in_tmem);
    cutlass::arch::fence_view_async_tmem_load();
    if (home.in_tmem == kAllGroups<kGroups>) {
        take<kGroups * kGroup>(words(base), loaded);
    } else {
        CUTE_UNROLL
        for (int i = 0; i < kGroups; ++i) {
            if (home.in_tmem >> i & 1) take<kGroup>(words(base) + i * kGroup, loaded + i * kGroup);
        }
    }
    home.in_tmem = 0;
}
template <class T, int kCount, bool kHalf>
CUTE_DEVICE void load(Accumulator<T, kCount, kHalf>& acc) {
    load_groups<Accumulator<T, kCount, kHalf>::kGroups, kHalf>(acc.registers, acc.home);
}
template <class T, int kRows, int kCount, bool kHalf>
CUTE_DEVICE void load(Accumulators<T, kRows, kCount, kHalf>& acc) {
    load_groups<Accumulators<T, kRows, kCount, kHalf>::kGroups, kHalf>(acc.registers[0], acc.home);
}

template <class T, bool kHalf>
CUTE_DEVICE Warpgroup& warpgroup(Registers<T, kHalf> const& d) {
    return *d.home->warpgroup;
}
template <class T, int kCount, bool kHalf>
CUTE_DEVICE Warpgroup& warpgroup(Accumulator<T, kCount, kHalf> const& acc) {
    return *acc.home.warpgroup;
}
template <class T, int kRows, int kCount, bool kHalf>
CUTE_DEVICE Warpgroup& warpgroup(Accumulators<T, kRows, kCount, kHalf> const& acc) {
    return *acc.home.warpgroup;
}

template <class Op, class A, class T, bool kHalf>
CUTE_DEVICE void issue_atom(A a, uint64_t b, Registers<T, kHalf> const& d, bool accumulate) {
    using M = Facts<MMA_Atom<Op>>;
    static_assert(M::kWarpgroupMma && M::kHalf == kHalf, "no MMA of sm_90a for these registers");
    Warpgroup& tc = *d.home->warpgroup;
    d.home->in_tmem |= kAllGroups<M::kN / 8> << d.first();
    tc.meet();
    tc.open = true;
    if (tc.issues()) {
        porter::mma<M::kKind>(d.address(), a, b | kDescriptorVersion, M::descriptor(), accumulate);
    }
}

// One m64 tile, A from shared memory.
template <class Op, class T, bool kHalf>
CUTE_DEVICE void fma(uint64_t a, uint64_t b, Registers<T, kHalf> const& d,
                     GMMA::ScaleOut scale = GMMA::ScaleOut::One) {
    using M = Facts<MMA_Atom<Op>>;
    static_assert(M::kSharedA, "A of this MMA is in registers");
    const bool accumulate = scale != GMMA::ScaleOut::Zero;
    if (accumulate) store<M::kN / 8>(d);
    issue_atom<Op>(a | kDescriptorVersion, b, d, accumulate);
}
// The same, A from registers: they go to Tensor Memory in front of each MMA.
template <class Op, class A, class T, bool kHalf>
CUTE_DEVICE void fma(A const& a0, A const& a1, A const& a2, A const& a3, uint64_t b, Registers<T, kHalf> const& d,
                     GMMA::ScaleOut scale = GMMA::ScaleOut::One) {
    using M = Facts<MMA_Atom<Op>>;
    static_assert(!M::kSharedA, "A of this MMA is in shared memory");
    Warpgroup& tc = *d.home->warpgroup;
    const bool accumulate = scale != GMMA::ScaleOut::Zero;
    if (accumulate) store<M::kN / 8>(d);
    const uint32_t a = tc.next_step(tc.operand);
    SM100_TMEM_STORE_16dp128b2x::copy(a0, a1, a2, a3, a + tc.quarter());
    cutlass::arch::fence_view_async_tmem_store();
    tc.arrive();
    issue_atom<Op>(a, b, d, accumulate);
}
template <class Op, class T, int kCount, bool kHalf>
CUTE_DEVICE void fma(uint64_t a, uint64_t b, Accumulator<T, kCount, kHalf>& d,
                     GMMA::ScaleOut scale = GMMA::ScaleOut::One) {
    fma<Op>(a, b, d + 0, scale);
}
template <class Op, class A, class T, int kCount, bool kHalf>
CUTE_DEVICE void fma(A const& a0, A const& a1, A const& a2, A const& a3, uint64_t b, Accumulator<T, kCount, kHalf>& d,
                     GMMA::ScaleOut scale = GMMA::ScaleOut::One) {
    fma<Op>(a0, a1, a2, a3, b, d + 0, scale);
}
