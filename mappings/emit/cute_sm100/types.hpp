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
