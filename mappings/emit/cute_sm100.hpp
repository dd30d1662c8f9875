// SPDX-License-Identifier: Apache-2.0
// CuTe C++ of Hopper on Blackwell (sm_100a). The SM90 TiledMMA types stay: they partition as before. Their MMAs are
// issued as tcgen05.mma with M = 64, whose accumulators are in Tensor Memory; the register fragment mirrors them.
//
//   __shared__ porter::Shared<kWarpgroups, kRing> slots;              // or a member porter::Slots<...> of the storage
//   porter::Tmem<kColumns, kWarpgroups, kRing> tmem(slots);           // at the kernel's start, by all threads
//   auto tc = tmem.warpgroup(i);                                      // warpgroup i of those that issue MMAs
//   Tensor acc = porter::accumulator(tc, tiled_mma, partition_fragment_C(tiled_mma, tile), column);
//   porter::arrive(acc);  cute::gemm(tiled_mma, tA, tB, acc);  porter::commit(acc);
//   porter::wait<0>(acc);  porter::load(acc);                         // registers hold what the MMAs computed
//
// Each m64 tile of an accumulator is newer either in registers or in Tensor Memory, and its handle knows where: `load`
// does nothing if registers are, and an MMA that adds to the accumulator stores them first. What writes registers of an
// accumulator stands behind a `load` of it. A handle must not be copied.
#pragma once

#include <cute/tensor.hpp>

#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm100.hpp>
#include <cute/arch/mma_sm100_desc.hpp>
#include <cute/arch/tmem_allocator_sm100.hpp>
#include <cutlass/arch/barrier.h>

namespace porter {
using namespace cute;

// ---- What the type of an SM90 MMA says ---------------------------------------------------------------------------

template <class Fragment>
struct OperandOf {  // registers
    static constexpr bool kShared = false;
    static constexpr UMMA::Major kMajor = UMMA::Major::K;
};
template <GMMA::Major major>
struct OperandOf<GMMA::smem_desc<major>> {
    static constexpr bool kShared = true;
    static constexpr UMMA::Major kMajor = major == GMMA::Major::K ? UMMA::Major::K : UMMA::Major::MN;
};

constexpr UMMA::ScaleIn scale_in(GMMA::ScaleIn scale) {
    return scale == GMMA::ScaleIn::Neg ? UMMA::ScaleIn::Neg : UMMA::ScaleIn::One;
}
template <class Op>
struct ScaleOf {
    static constexpr UMMA::ScaleIn kA = UMMA::ScaleIn::One, kB = UMMA::ScaleIn::One;
};
template <template <GMMA::Major, GMMA::Major, GMMA::ScaleIn, GMMA::ScaleIn> class Op, GMMA::Major major_a,
          GMMA::Major major_b, GMMA::ScaleIn a, GMMA::ScaleIn b>
struct ScaleOf<Op<major_a, major_b, a, b>> {
    static constexpr UMMA::ScaleIn kA = scale_in(a), kB = scale_in(b);
};
template <template <GMMA::ScaleIn, GMMA::ScaleIn> class Op, GMMA::ScaleIn a, GMMA::ScaleIn b>
struct ScaleOf<Op<a, b>> {
    static constexpr UMMA::ScaleIn kA = scale_in(a), kB = scale_in(b);
};

// Whether an integer MMA clamps: only the name of its type says so.
template <class Op>
constexpr bool saturates() {
    constexpr char kWanted[] = "_SATURATE";
    const char* name = __PRETTY_FUNCTION__;
    for (; *name != '\0'; ++name) {
        int i = 0;
        while (kWanted[i] != '\0' && name[i] == kWanted[i]) ++i;
        if (kWanted[i] == '\0') return true;
    }
    return false;
}

enum class Kind { f16, tf32, f8f6f4, i8 };

// Of a TiledMMA or an MMA_Atom.
template <class Mma>
struct Facts {
    using TA = typename Mma::ValTypeA;
    using TB = typename Mma::ValTypeB;
    using TC = typename Mma::ValTypeC;
    static constexpr bool kWarpgroupMma = OperandOf<typename Mma::FrgTypeB>::kShared;
    static constexpr bool kSharedA = OperandOf<typename Mma::FrgTypeA>::kShared;
    static constexpr int kN = decltype(size<1>(typename Mma::Shape_MNK{}))::value;
    static constexpr bool kHalf = sizeof_bits_v<TC> == 16;  // two elements in a register
    static constexpr Kind kKind = is_same_v<TC, int32_t>          ? Kind::i8
                                  : is_same_v<TA, tfloat32_t>     ? Kind::tf32
                                  : sizeof_bits_v<TA> == 16       ? Kind::f16
                                                                  : Kind::f8f6f4;

    CUTE_DEVICE static uint32_t descriptor() {
        using Scale = ScaleOf<typename Mma::MMA_Op>;
        constexpr auto kClamp = saturates<typename Mma::MMA_Op>() ? UMMA::Saturate::True : UMMA::Saturate::False;
        return static_cast<uint32_t>(
            UMMA::make_instr_desc<TA, TB, TC, 64, kN, OperandOf<typename Mma::FrgTypeA>::kMajor,
                                  OperandOf<typename Mma::FrgTypeB>::kMajor, Scale::kA, Scale::kB, kClamp>());
    }
};

constexpr uint64_t kDescriptorVersion = uint64_t(1) << 46;  // of a shared memory descriptor of tcgen05
constexpr uint32_t kUpperHalf = 1u << 20;  // of an address: lanes 16 to 31 of each warp, beside another m64 tile

// ---- tcgen05 ------------------------------------------------------------------------------------------------------

CUTE_DEVICE void fence_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
CUTE_DEVICE void fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

#define PORTER_MMA(kind, operand)                                                                       \
    asm volatile(                                                                                       \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"                                                     \
        "tcgen05.mma.cta_group::1.kind::" kind " [%0], " operand ", %2, %3, p;\n}\n" ::"r"(d), TERM(a), \
        "l"(b), "r"(descriptor), "r"(accumulate)                                                        \
        : "memory")

// A from shared memory (its descriptor).
template <Kind kind>
CUTE_DEVICE void mma(uint32_t d, uint64_t a, uint64_t b, uint32_t descriptor, uint32_t accumulate) {
#define TERM(a) "l"(a)
    if constexpr (kind == Kind::f16) PORTER_MMA("f16", "%1");
    if constexpr (kind == Kind::tf32) PORTER_MMA("tf32", "%1");
    if constexpr (kind == Kind::f8f6f4) PORTER_MMA("f8f6f4", "%1");
    if constexpr (kind == Kind::i8) PORTER_MMA("i8", "%1");
#undef TERM
}
// A from Tensor Memory (its address).
template <Kind kind>
CUTE_DEVICE void mma(uint32_t d, uint32_t a, uint64_t b, uint32_t descriptor, uint32_t accumulate) {
#define TERM(a) "r"(a)
    if constexpr (kind == Kind::f16) PORTER_MMA("f16", "[%1]");
    if constexpr (kind == Kind::tf32) PORTER_MMA("tf32", "[%1]");
    if constexpr (kind == Kind::f8f6f4) PORTER_MMA("f8f6f4", "[%1]");
    if constexpr (kind == Kind::i8) PORTER_MMA("i8", "[%1]");
#undef TERM
}
#undef PORTER_MMA

// What this thread has written to shared memory is there for MMAs.
CUTE_DEVICE void written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

CUTE_DEVICE uint32_t thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

// ---- Warpgroups ---------------------------------------------------------------------------------------------------

// mbarriers and the address of Tensor Memory: a member of the kernel's own shared storage.
template <int kWarpgroups, int kRing = 1>
struct Slots {
    uint64_t done[kWarpgroups][kRing];  // a batch of MMAs has completed
    uint64_t met[kWarpgroups];          // the four warps have come to the next MMAs
    uint64_t left;                      // all warpgroups that issue MMAs have left the kernel
    uint32_t tmem;
};
// The same as a __shared__ variable: what lies behind it keeps its alignment.
template <int kWarpgroups, int kRing = 1>
struct alignas(1024) Shared : Slots<kWarpgroups, kRing> {};

// Columns for an A fragment from registers: 8 a k-step and m64 tile. One that two fragments share is waited for.
struct Operand {
    uint32_t address = 0;
    uint32_t batch = 0;  // one behind the last that reads it

    Operand() = default;
    CUTE_DEVICE Operand(uint32_t address) : address(address) {}
};

// The A fragment that is in Tensor Memory.
struct Stored {
    uint32_t address = 0;
    int run = 0;  // 0, or two m64 tiles lie in the halves of the same columns, each this many groups
    const void* registers = nullptr;

    // Of a group of registers: an m64 tile's k-step.
    CUTE_DEVICE uint32_t group(int i) const { return address + 8 * (run ? i % run + i / (2 * run) * run : i); }
};

// A warpgroup that issues MMAs: where its columns are, and the ring of mbarriers on which its batches complete.
struct Warpgroup {
    uint32_t tmem;
    uint64_t* done;
    uint64_t* met;
    uint32_t warp;
    uint32_t ring;
    bool halves;             // it has both halves of the lanes of its columns
    Operand operand{};
    Stored stored{};
    uint32_t committed = 0;
    uint32_t completed = 0;  // batches, as far as known
    uint32_t phase = 0;      // of `met`
    bool apart = true;       // the warps have not met since the last wait or write

    CUTE_DEVICE Warpgroup(uint32_t tmem, uint64_t* done, uint64_t* met, uint32_t ring, bool halves)
        : tmem(tmem), done(done), met(met), warp(__shfl_sync(~0u, thread_rank() / 32 % 4, 0)), ring(ring),
          halves(halves) {}
    Warpgroup(Warpgroup const&) = delete;

    CUTE_DEVICE uint32_t quarter() const { return warp << 21; }  // of the lanes, which this warp can reach
    CUTE_DEVICE bool issues() const { return warp == 0 && elect_one_sync(); }

    // What the four warps have written is there for the MMAs behind this.
    CUTE_DEVICE void arrive() { apart = true; }
    CUTE_DEVICE void meet() {
        if (!apart) return;
        fence_before_sync();
        __syncwarp();
        if (elect_one_sync()) arrive_barrier(*met);
        if (warp == 0) wait_barrier(*met, phase);
        fence_after_sync();
        phase ^= 1;
        apart = false;
    }
    CUTE_DEVICE void commit() {
        if (committed - completed >= ring) complete(committed - ring + 1);  // Room among the mbarriers.
        meet();
        if (issues()) {
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                             cast_smem_ptr_to_uint(done + committed % ring))
                         : "memory");
        }
        ++committed;
    }
    // Until `count` batches of this warpgroup have completed.
    CUTE_DEVICE void complete(uint32_t count) {
        const uint32_t batch = count - 1;
        wait_barrier(done[batch % ring], batch / ring % 2);
        fence_after_sync();
        completed = count;
        apart = true;
    }
    CUTE_DEVICE void wait(uint32_t pending) {
        if (committed > pending) complete(committed - pending);
    }
    // Until nothing reads the columns of an operand.
    CUTE_DEVICE void release(Operand const& columns) {
        if (columns.batch > completed) complete(max(columns.batch, committed - min(committed, ring - 1)));
    }
};

// Tensor Memory of a kernel: kColumns for each pair of warpgroups, kLast for the last one if it is alone.
template <int kColumns, int kWarpgroups, int kRing = 1, int kFirstWarpgroup = 0, int kLast = kColumns>
class Tmem {
    static constexpr int kNeeded = kWarpgroups / 2 * kColumns + kWarpgroups % 2 * kLast;
    static_assert(kNeeded <= 512, "the accumulators need more columns than Tensor Memory has");
    static constexpr int kAllocated = kNeeded <= 32    ? 32
                                      : kNeeded <= 64  ? 64
                                      : kNeeded <= 128 ? 128
                                      : kNeeded <= 256 ? 256
                                                       : 512;
    Slots<kWarpgroups, kRing>& slots;

    // Of a warp: the first of those that issue MMAs allocates and frees.
    CUTE_DEVICE static bool owns() { return thread_rank() / 32 == kFirstWarpgroup * 4; }

public:
    CUTE_DEVICE explicit Tmem(Slots<kWarpgroups, kRing>& slots) : slots(slots) {
        if (owns()) {
            TMEM::Allocator1Sm{}.allocate(kAllocated, &slots.tmem);
            TMEM::Allocator1Sm{}.release_allocation_lock();
            if (elect_one_sync()) {
                for (int i = 0; i < kWarpgroups; ++i) {
                    for (int j = 0; j < kRing; ++j) initialize_barrier(slots.done[i][j], 1);
                    initialize_barrier(slots.met[i], 4);
                }
                const int warps = int(blockDim.x * blockDim.y * blockDim.z + 31) / 32 - 4 * kFirstWarpgroup;
                initialize_barrier(slots.left, warps < 4 * kWarpgroups ? warps : 4 * kWarpgroups);
                cutlass::arch::fence_barrier_init();
            }
            __syncwarp();
        }
        fence_before_sync();
        __syncthreads();
        fence_after_sync();
    }
    Tmem(Tmem const&) = delete;

    // A warp that issues no MMA leaves at any time, the others when their own work is done; only the owner waits.
    CUTE_DEVICE ~Tmem() {
        const uint32_t warpgroup = thread_rank() / 128 - kFirstWarpgroup;
        if (warpgroup >= uint32_t(kWarpgroups)) return;
        fence_before_sync();
        __syncwarp();
        if (elect_one_sync()) arrive_barrier(slots.left);
        if (owns()) {
            wait_barrier(slots.left, 0);
            fence_after_sync();
            __syncwarp();
            TMEM::Allocator1Sm{}.free(slots.tmem, kAllocated);
        }
    }

    // Warpgroup i of those that issue MMAs. Two share columns: each has a half of their lanes.
    CUTE_DEVICE Warpgroup warpgroup(uint32_t i) const {
        const bool alone = i == kWarpgroups - 1 && kWarpgroups % 2 == 1;
        return {slots.tmem + (i % 2) * kUpperHalf + i / 2 * kColumns, slots.done[i], &slots.met[i], kRing,
                kWarpgroups == 1 && alone};
    }
};

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

// Of an A fragment's layout: registers of a group, which is an m64 tile's k-step.
template <class Layout>
constexpr int group_size() {
    constexpr int kGroup = decltype(size<0>(Layout{}))::value;
    static_assert(decltype(cosize(get<0>(Layout{})))::value == kGroup, "registers of a k-step of A lie apart");
    return kGroup;
}

// Groups of an m64 tile that follow each other, where two tiles can share columns; else 0.
template <class Layout>
constexpr int run_of_halves() {
    constexpr int kM = extent<1, Layout>();
    constexpr int kStride = Layout{}(0, kM > 1 ? 1 : 0, 0) / group_size<Layout>();
    static_assert(cosize_v<Layout> == decltype(size(Layout{}))::value, "registers of A lie apart");
    static_assert(Layout{}(0, kM - 1, 0) == (kM - 1) * kStride * group_size<Layout>(), "tiles of A lie unevenly");
    return kM % 2 == 0 ? kStride : 0;
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

// The same of a fragment (V, MMA_M, MMA_N).
template <int kWarpgroups, class Mma, class Registers>
constexpr int columns_of() {
    using Layout = typename remove_cvref_t<Registers>::layout_type;
    constexpr int kM = extent<1, Layout>(), kN = extent<2, Layout>();
    return (kWarpgroups == 1 ? (kM + 1) / 2 : kM) * kN * Facts<remove_cvref_t<Mma>>::kN;
}

// Columns of an A fragment (V, MMA_M, MMA_K, ...) if it is in registers.
template <int kWarpgroups, class Operand>
constexpr int operand_columns_of() {
    using A = remove_cvref_t<Operand>;
    if constexpr (is_base_of<GMMA::DescriptorIterator, typename A::engine_type::iterator>::value) {
        return 0;
    } else {
        constexpr int kM = extent<1, typename A::layout_type>(), kSteps = extent<2, typename A::layout_type>();
        return 8 * kSteps * (kWarpgroups == 1 && run_of_halves<typename A::layout_type>() != 0 ? kM / 2 : kM);
    }
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

// One for MMAs called as Op::fma: `T name[kElements]`.
template <class T, int kElements, class Op, int kM = 1>
struct Accumulator {
    using F = Fragment<T, kElements, Facts<MMA_Atom<Op>>::kN, kM, Facts<MMA_Atom<Op>>::kHalf>;
    T registers[kElements];
    Home<F> home;

    CUTE_DEVICE explicit Accumulator(Warpgroup& warpgroup, uint32_t column = 0)
        : home{&warpgroup, warpgroup.tmem + column} {}
    Accumulator(Accumulator const&) = delete;
    CUTE_DEVICE T& operator[](int i) { return registers[i]; }
    CUTE_DEVICE MirrorPtr<T, F> data() { return {registers, 0, &home}; }
    CUTE_DEVICE MirrorPtr<T, F> operator+(int i) { return {registers, i, &home}; }
};

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

template <bool store, class T, class F>
CUTE_DEVICE void move_tiles(T* base, Home<F> const& home, typename F::Mask tiles) {
    CUTE_UNROLL
    for (int i = 0; i < F::kTiles; ++i) {
        if (tiles >> i & 1) {
            auto* registers = reinterpret_cast<uint32_t*>(const_cast<remove_cv_t<T>*>(base) + i * F::kTile);
            move<store, F::kHalf, F::kN / 8>(home.tile(i) + home.warpgroup->quarter(), registers);
        }
    }
}

// Registers -> Tensor Memory: those tiles that are newer in registers.
template <class T, class F>
CUTE_DEVICE void store(MirrorPtr<T, F> const& p, typename F::Mask tiles = F::kAll) {
    auto& home = *p.home;
    tiles &= ~home.in_tmem;
    if (tiles == 0) return;
    move_tiles<true>(p.base, home, tiles);
    cutlass::arch::fence_view_async_tmem_store();
    home.in_tmem |= tiles;
    home.warpgroup->arrive();
}

// Tensor Memory -> registers, behind a wait that covers the MMAs: those tiles that are newer there.
template <class T, class F>
CUTE_DEVICE void load(MirrorPtr<T, F> const& p) {
    auto& home = *p.home;
    if (home.in_tmem == 0) return;
    move_tiles<false>(p.base, home, home.in_tmem);
    cutlass::arch::fence_view_async_tmem_load();
    auto* registers = reinterpret_cast<uint32_t*>(const_cast<remove_cv_t<T>*>(p.base));
    CUTE_UNROLL
    for (int i = 0; i < F::kElements * int(sizeof(T)) / 4; ++i) {
        asm volatile("" : "+r"(registers[i]));  // no use of it in front of the wait
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
template <class T, int kElements, class Op, int kM>
CUTE_DEVICE void load(Accumulator<T, kElements, Op, kM>& acc) {
    load(acc.data());
}
template <class T, int kElements, class Op, int kM>
CUTE_DEVICE void store(Accumulator<T, kElements, Op, kM>& acc) {
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
template <class T, int kElements, class Op, int kM>
CUTE_DEVICE void clear(Accumulator<T, kElements, Op, kM>& acc) {
    acc.home.in_tmem = 0;
    CUTE_UNROLL
    for (int i = 0; i < kElements; ++i) acc[i] = T(0);
}

// ---- MMAs ---------------------------------------------------------------------------------------------------------

template <class Engine, class Layout, __CUTE_REQUIRES(is_mirror<Engine>)>
CUTE_DEVICE Warpgroup& warpgroup(cute::Tensor<Engine, Layout> const& acc) {
    return *acc.data().home->warpgroup;
}
template <class T, int kElements, class Op, int kM>
CUTE_DEVICE Warpgroup& warpgroup(Accumulator<T, kElements, Op, kM> const& acc) {
    return *acc.home.warpgroup;
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

// In front of a batch of MMAs whose A is this fragment (V, M, K), which goes to Tensor Memory as a whole.
template <class Engine, class Layout, class EngineA, class LayoutA>
CUTE_DEVICE void arrive(cute::Tensor<Engine, Layout> const& acc, cute::Tensor<EngineA, LayoutA> const& A,
                        Operand& columns) {
    Warpgroup& tc = warpgroup(acc);
    if constexpr (!is_base_of<GMMA::DescriptorIterator, typename EngineA::iterator>::value) {
        constexpr int kM = extent<1, LayoutA>(), kSteps = extent<2, LayoutA>(), kGroup = group_size<LayoutA>();
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

// One m64 tile by the atom itself.
template <class Op, class T, class F>
CUTE_DEVICE void fma(uint64_t a, uint64_t b, MirrorPtr<T, F> const& d, bool accumulate) {
    using M = Facts<MMA_Atom<Op>>;
    const int tile = d.offset / F::kTile;
    if (accumulate) store(d, typename F::Mask(1) << tile);
    d.home->in_tmem |= typename F::Mask(1) << tile;
    Warpgroup& tc = *d.home->warpgroup;
    tc.meet();
    if (tc.issues()) {
        porter::mma<M::kKind>(d.home->tile(tile), a | kDescriptorVersion, b | kDescriptorVersion, M::descriptor(),
                              accumulate);
    }
}
template <class Op, class T, int kElements, class AccOp, int kM>
CUTE_DEVICE void fma(uint64_t a, uint64_t b, Accumulator<T, kElements, AccOp, kM>& d, bool accumulate) {
    fma<Op>(a, b, d.data(), accumulate);
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
}  // namespace porter

// ---- CuTe's functions on accumulators -----------------------------------------------------------------------------

namespace cute {
template <class Atom, class Threads, class Permutation, class EngineA, class LayoutA, class EngineB, class LayoutB,
          class Engine, class Layout>
CUTE_DEVICE void gemm(TiledMMA<Atom, Threads, Permutation> const& mma, Tensor<EngineA, LayoutA> const& A,
                      Tensor<EngineB, LayoutB> const& B, Tensor<Engine, Layout>& acc) {
    porter::gemm<Atom>(mma, A, B, acc);
}
template <class Atom, class Threads, class Permutation, class EngineA, class LayoutA, class EngineB, class LayoutB,
          class Engine, class Layout>
CUTE_DEVICE void gemm(TiledMMA<Atom, Threads, Permutation> const& mma, Tensor<EngineA, LayoutA> const& A,
                      Tensor<EngineB, LayoutB> const& B, Tensor<Engine, Layout>&& acc) {
    porter::gemm<Atom>(mma, A, B, acc);
}

// clear, fill, warpgroup_fence_operand: for an accumulator and for a view of one.
template <class T, class F, class Layout>
CUTE_DEVICE void clear(Tensor<porter::MirrorEngine<T, F>, Layout>& acc) {
    porter::fill(acc, 0);
}
template <class T, class F, class Layout>
CUTE_DEVICE void clear(Tensor<ViewEngine<porter::MirrorPtr<T, F>>, Layout>& acc) {
    porter::fill(acc, 0);
}
template <class T, class F, class Layout, class Value>
CUTE_DEVICE void fill(Tensor<porter::MirrorEngine<T, F>, Layout>& acc, Value const& value) {
    porter::fill(acc, value);
}
template <class T, class F, class Layout, class Value>
CUTE_DEVICE void fill(Tensor<ViewEngine<porter::MirrorPtr<T, F>>, Layout>& acc, Value const& value) {
    porter::fill(acc, value);
}
template <class T, class F, class Layout>
CUTE_DEVICE void warpgroup_fence_operand(Tensor<porter::MirrorEngine<T, F>, Layout>&) {}
template <class T, class F, class Layout>
CUTE_DEVICE void warpgroup_fence_operand(Tensor<ViewEngine<porter::MirrorPtr<T, F>>, Layout>&) {}
}  // namespace cute
