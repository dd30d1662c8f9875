// SPDX-License-Identifier: Apache-2.0
// What kernels do with accumulators, in the form that ports have: each computes A * B^T of 128x64 f16 operands, or what
// its comment says, into D of 128x128.
#include <cute/tensor.hpp>

#include "cute_sm100.hpp"
#include <cutlass/arch/reg_reconfig.h>

using namespace cute;
using T = half_t;
using OpSS = SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;
using OpRS = SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>;
using BlockMN = Shape<_128, _128>;
using SmemLayout = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_128, _64>{}));

struct Operands {
    alignas(1024) T a[128 * 64], b[128 * 64];
};

CUTE_DEVICE auto tensor(T* data) { return make_tensor(make_smem_ptr(data), SmemLayout{}); }

// Both operands into shared memory, by all threads or some of them.
CUTE_DEVICE Operands& fetch(T const* a, T const* b, int first = 0, int threads = 0) {
    extern __shared__ char storage[];
    auto& operands = *reinterpret_cast<Operands*>(storage);
    if (threads == 0) threads = blockDim.x;
    const int thread = int(threadIdx.x) - first;
    if (thread >= 0 && thread < threads) {
        for (int i = thread; i < 128 * 64; i += threads) {
            tensor(operands.a)(i / 64, i % 64) = a[i];
            tensor(operands.b)(i / 64, i % 64) = b[i];
        }
    }
    cutlass::arch::fence_view_async_shared();
    return operands;
}

template <class Mma>
CUTE_DEVICE auto destination(Mma const& mma, float* d, int thread) {
    return mma.get_slice(thread).partition_C(make_tensor(make_gmem_ptr(d), BlockMN{}, Stride<_128, _1>{}));
}

// One warpgroup, both halves of the lanes.
#define ONE_WARPGROUP(Op)                                                                      \
    using Mma = decltype(make_tiled_mma(Op{}));                                                \
    constexpr int kColumns = porter::columns<1>(Mma{}, BlockMN{});                                \
    constexpr int kOperand = porter::operand_columns(Mma{}, Shape<_128, _128, _64>{});         \
    __shared__ porter::Shared<1> slots;                                                        \
    const porter::Tmem<kColumns + 2 * kOperand, 1> tmem(slots);                                \
    auto tc = tmem.warpgroup(0);                                                               \
    tc.operand = tc.tmem + kColumns;                                                           \
    Mma mma;                                                                                   \
    auto& operands = fetch(a, b);                                                              \
    __syncthreads();                                                                           \
    auto thread = mma.get_slice(threadIdx.x);                                                  \
    Tensor tB = thread.partition_fragment_B(tensor(operands.b));                               \
    Tensor acc = porter::accumulator(tc, mma, partition_fragment_C(mma, BlockMN{}))

#define KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads) name(T const* a, T const* b, float* d)

// Tiles of an accumulator as temporaries, in an order of their own.
KERNEL(tiles, 128) {
    ONE_WARPGROUP(OpSS);
    Tensor tA = thread.partition_fragment_A(tensor(operands.a));
    clear(acc);
    porter::arrive(acc);
    CUTE_UNROLL
    for (int n = 1; n >= 0; --n) {
        CUTE_UNROLL
        for (int m = 0; m < 2; ++m) {
            CUTE_UNROLL
            for (int k = 0; k < 4; ++k) gemm(mma, tA(_, m, k), tB(_, n, k), acc(_, m, n));
        }
    }
    porter::commit(acc);
    porter::wait<0>(acc);
    porter::load(acc);
    porter::load(acc);  // does nothing
    copy(acc, destination(mma, d, threadIdx.x));
}

// Rows of tiles by logical_divide, as lvalues; the first overwrites, the second adds to what was cleared.
KERNEL(divided, 128) {
    ONE_WARPGROUP(OpSS);
    Tensor tA = thread.partition_fragment_A(tensor(operands.a));
    clear(acc);
    const auto rows = [&](auto i) {
        Tensor part = logical_divide(acc, Shape<Underscore, _1>{})(_, make_coord(_, i), _);
        Tensor partA = logical_divide(tA, Shape<Underscore, _1>{})(_, make_coord(_, i), _);
        mma.accumulate_ = decltype(i)::value == 0 ? GMMA::ScaleOut::Zero : GMMA::ScaleOut::One;
        porter::arrive(part, partA);
        CUTE_UNROLL
        for (int k = 0; k < 4; ++k) {
            gemm(mma, partA(_, _, k), tB(_, _, k), part);
            mma.accumulate_ = GMMA::ScaleOut::One;
        }
        porter::commit(part);
    };
    rows(Int<1>{});
    rows(Int<0>{});
    porter::wait<0>(acc);
    porter::load(acc);
    copy(acc, destination(mma, d, threadIdx.x));
}

// Registers by rows, as words and through a plain pointer; D = 2 * A * B^T + 3, the first tile 0.
KERNEL(registers, 128) {
    ONE_WARPGROUP(OpSS);
    Tensor tA = thread.partition_fragment_A(tensor(operands.a));
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    porter::arrive(acc);
    CUTE_UNROLL
    for (int k = 0; k < 4; ++k) {
        gemm(mma, tA(_, _, k), tB(_, _, k), acc);
        mma.accumulate_ = GMMA::ScaleOut::One;
    }
    porter::commit(acc);
    porter::wait<0>(acc);
    porter::load(acc);
    auto l = acc.layout();
    Tensor rows = make_tensor(acc.data(), make_layout(make_layout(get<0, 1>(l), get<1>(l)),
                                                      make_layout(get<0, 0>(l), get<0, 2>(l), get<2>(l))));
    porter::load(rows);
    CUTE_UNROLL
    for (int i = 0; i < size<0>(rows); ++i) {
        CUTE_UNROLL
        for (int j = 0; j < size<1>(rows); ++j) rows(i, j) *= 2;
    }
    Tensor words = recast<uint32_t>(acc);
    words(0) = __float_as_uint(__uint_as_float(words(0)));
    auto* plain = raw_pointer_cast(acc.data());
    CUTE_UNROLL
    for (int i = 0; i < size(acc); ++i) plain[i] += 3;
    Tensor first = acc(_, 0, 0);
    clear(first);
    copy(acc, destination(mma, d, threadIdx.x));
}

// The epilogue's own partition of the accumulator.
KERNEL(retiled, 128) {
    ONE_WARPGROUP(OpSS);
    Tensor tA = thread.partition_fragment_A(tensor(operands.a));
    clear(acc);
    porter::arrive(acc);
    gemm(mma, tA, tB, acc);
    porter::commit(acc);
    porter::wait<0>(acc);
    porter::load(acc);
    auto tiled_copy = make_tiled_copy_C(Copy_Atom<AutoVectorizingCopy, float>{}, mma);
    auto slice = tiled_copy.get_slice(threadIdx.x);
    Tensor gD = make_tensor(make_gmem_ptr(d), BlockMN{}, Stride<_128, _1>{});
    copy(tiled_copy, slice.retile_S(acc), slice.partition_D(gD));
}

// A from two fragments in flight: the second's MMAs follow in a batch of their own. D = 2 * A * B^T.
KERNEL(two_fragments, 128) {
    ONE_WARPGROUP(OpRS);
    porter::Operand second(tc.tmem + kColumns + kOperand);
    Tensor tA = thread.partition_fragment_A(tensor(operands.a));
    Tensor tX = make_fragment_like(tA);
    copy(thread.partition_A(tensor(operands.a)), tA);
    copy(tA, tX);
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    porter::arrive(acc, tA);
    CUTE_UNROLL
    for (int k = 0; k < 4; ++k) {
        gemm(mma, tA(_, _, k), tB(_, _, k), acc);
        mma.accumulate_ = GMMA::ScaleOut::One;
    }
    porter::commit(acc);
    porter::arrive(acc, tX, second);
    CUTE_UNROLL
    for (int m = 0; m < 2; ++m) {
        CUTE_UNROLL
        for (int k = 3; k >= 0; --k) gemm(mma, tX(_, m, k), tB(_, 1, k), acc(_, m, 1));
        CUTE_UNROLL
        for (int k = 0; k < 4; ++k) gemm(mma, tX(_, m, k), tB(_, 0, k), acc(_, m, 0));
    }
    porter::commit(acc);
    porter::wait<0>(acc);
    porter::load(acc);
    copy(acc, destination(mma, d, threadIdx.x));
}

// The same columns for two fragments: the second waits for the MMAs of the first. D = 2 * A * B^T.
KERNEL(shared_columns, 128) {
    ONE_WARPGROUP(OpRS);
    Tensor tA = thread.partition_fragment_A(tensor(operands.a));
    Tensor tX = make_fragment_like(tA);
    copy(thread.partition_A(tensor(operands.a)), tA);
    copy(tA, tX);
    clear(acc);
    porter::arrive(acc, tA);
    gemm(mma, tA, tB, acc);
    porter::commit(acc);
    porter::arrive(acc, tX);
    gemm(mma, tX, tB, acc);
    porter::commit(acc);
    porter::wait<0>(acc);
    porter::load(acc);
    copy(acc, destination(mma, d, threadIdx.x));
}

// A producer warpgroup whose threads leave one by one, and two consumers with their own named barriers.
KERNEL(roles, 384) {
    using Mma = decltype(make_tiled_mma(OpSS{}, Layout<Shape<_2, _1, _1>>{}));
    __shared__ porter::Shared<2> slots;
    __shared__ uint64_t full;
    const porter::Tmem<porter::columns<2>(Mma{}, BlockMN{}), 2, 1, 1> tmem(slots);
    if (threadIdx.x == 0) initialize_barrier(full, 128);
    __syncthreads();
    if (threadIdx.x < 128) {
        cutlass::arch::warpgroup_reg_dealloc<40>();
        fetch(a, b, 0, 128);
        arrive_barrier(full);
        if (threadIdx.x % 3 == 0 || threadIdx.x / 32 == 2) return;
        asm volatile("nanosleep.u32 20;");
        return;
    }
    cutlass::arch::warpgroup_reg_alloc<232>();
    extern __shared__ char storage[];
    auto& operands = *reinterpret_cast<Operands*>(storage);
    const int thread = threadIdx.x - 128;
    auto tc = tmem.warpgroup(thread / 128);
    Mma mma;
    Tensor tA = mma.get_slice(thread).partition_fragment_A(tensor(operands.a));
    Tensor tB = mma.get_slice(thread).partition_fragment_B(tensor(operands.b));
    Tensor acc = porter::accumulator(tc, mma, partition_fragment_C(mma, BlockMN{}));
    wait_barrier(full, 0);
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    porter::arrive(acc);
    CUTE_UNROLL
    for (int k = 0; k < 4; ++k) {
        gemm(mma, tA(_, _, k), tB(_, _, k), acc);
        mma.accumulate_ = GMMA::ScaleOut::One;
    }
    porter::commit(acc);
    porter::wait<0>(acc);
    for (int id = 1; id < 16; ++id) asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory");
    porter::load(acc);
    copy(acc, destination(mma, d, thread));
    if (thread / 128 == 1) return;
    asm volatile("nanosleep.u32 20;");
}

// Sixteen batches in flight, read one after the other: column blocks of 8.
KERNEL(batches, 128) {
    using Mma = decltype(make_tiled_mma(SM90_64x8x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
    constexpr int kColumns = porter::columns<1>(Mma{}, BlockMN{});
    struct Storage {
        porter::Slots<1, 16> slots;
    };
    __shared__ Storage storage;
    const porter::Tmem<kColumns, 1, 16> tmem(storage.slots);
    auto tc = tmem.warpgroup(0);
    Mma mma;
    auto& operands = fetch(a, b);
    __syncthreads();
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tA = thread.partition_fragment_A(tensor(operands.a));
    Tensor tB = thread.partition_fragment_B(tensor(operands.b));
    Tensor acc = porter::accumulator(tc, mma, partition_fragment_C(mma, BlockMN{}));
    Tensor tD = destination(mma, d, threadIdx.x);
    for (int pass = 0; pass < 3; ++pass) {  // the ring goes round
        porter::arrive(acc);
        CUTE_UNROLL
        for (int n = 0; n < 16; ++n) {
            mma.accumulate_ = GMMA::ScaleOut::Zero;
            CUTE_UNROLL
            for (int k = 0; k < 4; ++k) {
                CUTE_UNROLL
                for (int m = 0; m < 2; ++m) gemm(mma, tA(_, m, k), tB(_, n, k), acc(_, m, n));
                mma.accumulate_ = GMMA::ScaleOut::One;
            }
            porter::commit(acc);
        }
        tc.wait(15);
        tc.wait(7);
        tc.wait(0);
        porter::load(acc);
    }
    copy(acc, tD);
}

// MMAs called as the atom's own function, of two tiles; the second adds to registers of 1.
KERNEL(atoms, 128) {
    using Op = SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;
    using Mma = decltype(make_tiled_mma(Op{}));
    __shared__ porter::Shared<1> slots;
    const porter::Tmem<256, 1> tmem(slots);
    auto tc = tmem.warpgroup(0);
    Mma mma;
    auto& operands = fetch(a, b);
    __syncthreads();
    Tensor tA = mma.get_slice(threadIdx.x).partition_fragment_A(tensor(operands.a));
    Tensor tB = mma.get_slice(threadIdx.x).partition_fragment_B(tensor(operands.b));
    porter::Accumulator<float, 128> acc(tc);
    for (int i = 64; i < 128; ++i) acc[i] = 1;
    porter::arrive(acc);
    CUTE_UNROLL
    for (int k = 0; k < 4; ++k) {
        CUTE_UNROLL
        for (int m = 0; m < 2; ++m) {
            const auto scale = k > 0 || m > 0 ? GMMA::ScaleOut::One : GMMA::ScaleOut::Zero;
            porter::fma<Op>(tA(0, m, k), tB(0, 0, k), acc + m * 64, scale);
        }
    }
    porter::commit(acc);
    porter::wait<0>(acc);
    porter::load(acc);
    Tensor tD = destination(mma, d, threadIdx.x);
    CUTE_UNROLL
    for (int i = 0; i < 128; ++i) tD(i) = acc[i];
}

// Three warpgroups: the third's two accumulators lie in the halves of its own columns. D = A * B^T of its rows, which
// it adds up from both.
KERNEL(third, 384) {
    using Op = SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;
    using Mma = decltype(make_tiled_mma(Op{}));
    using Half = Shape<_64, _128>;
    __shared__ porter::Shared<3, 2> slots;
    const porter::Tmem<256, 3, 2, 0, 128> tmem(slots);
    const int index = threadIdx.x / 128;
    auto tc = tmem.warpgroup(index);
    Mma mma;
    auto& operands = fetch(a, b);
    __syncthreads();
    if (index == 1) return;
    auto thread = mma.get_slice(threadIdx.x % 128);
    Tensor sA = local_tile(tensor(operands.a), Shape<_64, _64>{}, make_coord(index / 2, 0));
    Tensor tA = thread.partition_fragment_A(sA);
    Tensor tB = thread.partition_fragment_B(tensor(operands.b));
    Tensor low = porter::accumulator(tc, mma, partition_fragment_C(mma, Half{}));
    Tensor high = porter::accumulator(tc, mma, partition_fragment_C(mma, Half{}), index == 2 ? porter::kUpperHalf : 128);
    clear(low);
    clear(high);
    porter::arrive(low);
    gemm(mma, tA(_, _, 0), tB(_, _, 0), low);
    gemm(mma, tA(_, _, 1), tB(_, _, 1), low);
    porter::commit(low);
    porter::arrive(high);
    gemm(mma, tA(_, _, 2), tB(_, _, 2), high);
    gemm(mma, tA(_, _, 3), tB(_, _, 3), high);
    porter::commit(high);
    porter::wait<1>(low);
    porter::load(low);
    porter::wait<0>(high);
    porter::load(high);
    Tensor gD = make_tensor(make_gmem_ptr(d + index / 2 * 64 * 128), Half{}, Stride<_128, _1>{});
    Tensor tD = thread.partition_C(gD);
    CUTE_UNROLL
    for (int i = 0; i < size(low); ++i) tD(i) = low(i) + high(i);
}

// Integers that clamp: what fills the registers is near the largest.
extern "C" __global__ void __launch_bounds__(128) clamped(int8_t const* a, int8_t const* b, int32_t* d) {
    using Mma = decltype(make_tiled_mma(SM90_64x16x32_S32S8S8_SS_TN_SATURATE{}));
    using Block = Shape<_64, _16>;
    alignas(1024) __shared__ int8_t storage[64 * 32 + 16 * 32];
    __shared__ porter::Shared<1> slots;
    const porter::Tmem<16, 1> tmem(slots);
    auto tc = tmem.warpgroup(0);
    using Atom = GMMA::Layout_K_SW32_Atom<int8_t>;
    Tensor sA = make_tensor(make_smem_ptr(storage), tile_to_shape(Atom{}, Shape<_64, _32>{}));
    Tensor sB = make_tensor(make_smem_ptr(storage + 64 * 32), tile_to_shape(Atom{}, Shape<_16, _32>{}));
    for (int i = threadIdx.x; i < 64 * 32; i += 128) sA(i / 32, i % 32) = a[i];
    for (int i = threadIdx.x; i < 16 * 32; i += 128) sB(i / 32, i % 32) = b[i];
    cutlass::arch::fence_view_async_shared();
    __syncthreads();
    Mma mma;
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tA = thread.partition_fragment_A(sA);
    Tensor tB = thread.partition_fragment_B(sB);
    Tensor acc = porter::accumulator(tc, mma, partition_fragment_C(mma, Block{}));
    fill(acc, 2147483600);
    porter::arrive(acc);
    gemm(mma, tA, tB, acc);
    porter::commit(acc);
    porter::wait<0>(acc);
    porter::load(acc);
    copy(acc, thread.partition_C(make_tensor(make_gmem_ptr(d), Block{}, Stride<_16, _1>{})));
}
