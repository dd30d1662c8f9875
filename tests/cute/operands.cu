// SPDX-License-Identifier: Apache-2.0
// Batches with several A fragments in registers. A is 128x64, B 128x64: tiles of 64 rows, A0, A1, B0, B1. D is 128x128,
// whose tile (i, j) has what the kernel writes there.
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>

using namespace cute;
using T = half_t;
using TileLayout = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_64, _64>{}));
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>{}));
using MmaShared = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
using MmaPair = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>{},
                                        Layout<Shape<_2, _1, _1>>{}));
using Square = Shape<_64, _64>;
using Tall = Shape<_128, _64>;

struct Storage {
    alignas(1024) T a[64 * 64], b[2][64 * 64];
};

__device__ auto tile(T* data) { return make_tensor(make_smem_ptr(data), TileLayout{}); }

__device__ Storage& fetch(T const* a, T const* b) {
    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<Storage*>(shared_memory);
    for (int i = threadIdx.x; i < 128 * 64; i += blockDim.x) {
        tile(storage.b[i / 4096])(i / 64 % 64, i % 64) = b[i];
        if (i < 64 * 64) tile(storage.a)(i / 64, i % 64) = a[i];
    }
    cutlass::arch::fence_view_async_shared();
    __syncthreads();
    return storage;
}

// Rows of A in registers.
template <class Shape, class TiledMma>
__device__ auto rows(TiledMma const& mma, T const* a, int i, float factor = 1) {
    Tensor all = make_tensor(make_gmem_ptr(a), cute::Shape<_128, _64>{}, Stride<_64, _1>{});
    Tensor source = mma.get_slice(threadIdx.x).partition_A(local_tile(all, Shape{}, make_coord(i, 0)));
    Tensor fragment = make_fragment_like<T>(source);
    for (int j = 0; j < size(fragment); ++j) fragment(j) = T(factor * float(source(j)));
    return fragment;
}

template <class Shape, class TiledMma, class Acc>
__device__ void write(TiledMma const& mma, Acc const& acc, float* d, int i, int j) {
    Tensor all = make_tensor(make_gmem_ptr(d), cute::Shape<_128, _128>{}, Stride<_128, _1>{});
    copy(acc, mma.get_slice(threadIdx.x).partition_C(local_tile(all, Shape{}, make_coord(i, j))));
}

// (0, 0): A0 B0, (1, 1): A1 B1.
extern "C" __global__ void __launch_bounds__(128) two(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Square>(mma, a, 1);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    warpgroup_arrive();
    gemm(mma, tA0, tB0, acc0);
    gemm(mma, tA1, tB1, acc1);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 1, 1);
}

// (0, 0): A0 B0, (0, 1): A0 B1.
extern "C" __global__ void __launch_bounds__(128) same(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA = rows<Square>(mma, a, 0);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    warpgroup_arrive();
    gemm(mma, tA, tB0, acc0);
    gemm(mma, tA, tB1, acc1);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 0, 1);
}

// (0, 0): A0 B0 + A1 B1.
extern "C" __global__ void __launch_bounds__(128) sum(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Square>(mma, a, 1);
    Tensor acc = partition_fragment_C(mma, Square{});
    clear(acc);
    warpgroup_fence_operand(acc);
    warpgroup_arrive();
    gemm(mma, tA0, tB0, acc);
    gemm(mma, tA1, tB1, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc, d, 0, 0);
}

// (0, 0): A0 B0, (1, 1): A1 B1, (0, 1): 2 A0 B1, (1, 0): 2 A1 B0.
extern "C" __global__ void __launch_bounds__(128) four(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Square>(mma, a, 0), tA1 = rows<Square>(mma, a, 1);
    Tensor tA2 = rows<Square>(mma, a, 0, 2), tA3 = rows<Square>(mma, a, 1, 2);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    Tensor acc2 = partition_fragment_C(mma, Square{});
    Tensor acc3 = partition_fragment_C(mma, Square{});
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_arrive();
    CUTE_UNROLL
    for (int k = 0; k < size<2>(tA0); ++k) {
        gemm(mma, tA0(_, _, k), tB0(_, _, k), acc0);
        gemm(mma, tA1(_, _, k), tB1(_, _, k), acc1);
        gemm(mma, tA2(_, _, k), tB1(_, _, k), acc2);
        gemm(mma, tA3(_, _, k), tB0(_, _, k), acc3);
        mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 1, 1);
    write<Square>(mma, acc2, d, 0, 1);
    write<Square>(mma, acc3, d, 1, 0);
}

// (0, 0): A0 B0, (0, 1): A0 B1 of shared memory, (1, 1): A1 B1.
extern "C" __global__ void __launch_bounds__(128) mixed(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    MmaShared shared;
    Tensor tS = shared.get_slice(threadIdx.x).partition_fragment_A(tile(storage.a));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Square>(mma, a, 1);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(shared, Square{});
    Tensor acc2 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    clear(acc2);
    warpgroup_arrive();
    gemm(shared, tS, tB1, acc1);
    gemm(mma, tA0, tB0, acc0);
    gemm(mma, tA1, tB1, acc2);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(shared, acc1, d, 0, 1);
    write<Square>(mma, acc2, d, 1, 1);
}

// (0, 0): 7 A0 B0, (1, 1): 7 A1 B1: the fragments change between the batches.
extern "C" __global__ void __launch_bounds__(128) changing(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Square>(mma, a, 1);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    for (int round = 0; round < 3; ++round) {
        warpgroup_arrive();
        gemm(mma, tA0, tB0, acc0);
        gemm(mma, tA1, tB1, acc1);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        for (int i = 0; i < size(tA0); ++i) {
            tA0(i) = tA0(i) + tA0(i);
            tA1(i) = tA1(i) + tA1(i);
        }
    }
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 1, 1);
}

// (0, 0): A0 B0 + A1 B0, (1, 1): A1 B1 + A0 B1: two batches in flight, the fragments in another order.
extern "C" __global__ void __launch_bounds__(128) in_flight(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Square>(mma, a, 1);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    warpgroup_arrive();
    gemm(mma, tA0, tB0, acc0);
    gemm(mma, tA1, tB1, acc1);
    warpgroup_commit_batch();
    warpgroup_arrive();
    gemm(mma, tA1, tB0, acc0);
    gemm(mma, tA0, tB1, acc1);
    warpgroup_commit_batch();
    warpgroup_wait<1>();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 1, 1);
}

// Both rows of tiles at once: (:, 0): A B0, (:, 1): 2 A B1. Two m64 tiles of one warpgroup.
extern "C" __global__ void __launch_bounds__(128) tall(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Tall>(mma, a, 0);
    Tensor tA1 = rows<Tall>(mma, a, 0, 2);
    Tensor acc0 = partition_fragment_C(mma, Tall{});
    Tensor acc1 = partition_fragment_C(mma, Tall{});
    clear(acc0);
    clear(acc1);
    warpgroup_arrive();
    gemm(mma, tA0, tB0, acc0);
    gemm(mma, tA1, tB1, acc1);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Tall>(mma, acc0, d, 0, 0);
    write<Tall>(mma, acc1, d, 0, 1);
}

// The same by two warpgroups.
extern "C" __global__ void __launch_bounds__(256) pair(T const* a, T const* b, float* d) {
    MmaPair mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Tall>(mma, a, 0);
    Tensor tA1 = rows<Tall>(mma, a, 0, 2);
    Tensor acc0 = partition_fragment_C(mma, Tall{});
    Tensor acc1 = partition_fragment_C(mma, Tall{});
    clear(acc0);
    clear(acc1);
    warpgroup_arrive();
    gemm(mma, tA0, tB0, acc0);
    gemm(mma, tA1, tB1, acc1);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Tall>(mma, acc0, d, 0, 0);
    write<Tall>(mma, acc1, d, 0, 1);
}

template <class TiledMma, class A0, class A1, class B0, class B1, class C0, class C1>
__device__ void multiply_both(TiledMma& mma, A0 const& tA0, A1 const& tA1, B0 const& tB0, B1 const& tB1, C0& acc0,
                              C1& acc1) {
    warpgroup_arrive();
    gemm(mma, tA0, tB0, acc0);
    gemm(mma, tA1, tB1, acc1);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
}

// (0, 0): A0 B0, (1, 1): A1 B1, by a function.
extern "C" __global__ void __launch_bounds__(128) function(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Square>(mma, a, 1);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    multiply_both(mma, tA0, tA1, tB0, tB1, acc0, acc1);
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 1, 1);
}

// (0, 0): A0 B0, (1, 1): A1 B1 of 32 columns.
extern "C" __global__ void __launch_bounds__(128) narrow(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Shape<_64, _32>>(mma, a, 1);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    const auto issue = [&] {
        CUTE_UNROLL
        for (int k = 0; k < size<2>(tA1); ++k) gemm(mma, tA1(_, _, k), tB1(_, _, k), acc1);
        gemm(mma, tA0, tB0, acc0);
    };
    warpgroup_arrive();
    issue();
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 1, 1);
}

// (0, 0): A0 B0, and (1, 1): A1 B1 where a constant says so.
template <bool kTwo>
__global__ void __launch_bounds__(128) chosen_kernel(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Square>(mma, a, 1);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    warpgroup_arrive();
    gemm(mma, tA0, tB0, acc0);
    if constexpr (kTwo) gemm(mma, tA1, tB1, acc1);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 1, 1);
}
template __global__ void chosen_kernel<true>(T const*, T const*, float*);
template __global__ void chosen_kernel<false>(T const*, T const*, float*);

// (0, 0): A0 B0, (1, 1): A1 B1 of the first k-step, by steps that are named one by one.
extern "C" __global__ void __launch_bounds__(128) unrolled(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Square>(mma, a, 1);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    warpgroup_arrive();
    gemm(mma, tA0(_, _, 0), tB0(_, _, 0), acc0);
    gemm(mma, tA0(_, _, 1), tB0(_, _, 1), acc0);
    gemm(mma, tA0(_, _, 2), tB0(_, _, 2), acc0);
    gemm(mma, tA0(_, _, 3), tB0(_, _, 3), acc0);
    gemm(mma, tA1(_, _, 0), tB1(_, _, 0), acc1);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 1, 1);
}

constexpr bool kShared = true;

// (0, 0): A0 B0. The type of the fragment that is not used has no name where columns are counted.
extern "C" __global__ void __launch_bounds__(128) branches(T const* a, T const* b, float* d) {
    Mma mma;
    MmaShared shared;
    auto& storage = fetch(a, b);
    Tensor tB0 = mma.get_slice(threadIdx.x).partition_fragment_B(tile(storage.b[0]));
    Tensor tS = shared.get_slice(threadIdx.x).partition_fragment_A(tile(storage.a));
    Tensor acc = partition_fragment_C(mma, Square{});
    clear(acc);
    if constexpr (kShared) {
        warpgroup_arrive();
        gemm(shared, tS, tB0, acc);
        warpgroup_commit_batch();
    } else {
        Tensor tR = [&] { return rows<Square>(mma, a, 0); }();
        warpgroup_arrive();
        gemm(mma, tR, tB0, acc);
        warpgroup_commit_batch();
    }
    warpgroup_wait<0>();
    write<Square>(mma, acc, d, 0, 0);
}

// Two m64 tiles of one warpgroup, a batch for each k-step: (:, 0): A B0, (:, 1): 2 A B1, both by tiles that lie as far
// apart as in the whole fragment.
extern "C" __global__ void __launch_bounds__(128) steps(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA0 = rows<Tall>(mma, a, 0);
    Tensor tA1 = rows<Tall>(mma, a, 0, 2);
    Tensor acc0 = partition_fragment_C(mma, Tall{});
    Tensor acc1 = partition_fragment_C(mma, Tall{});
    clear(acc0);
    clear(acc1);
    CUTE_UNROLL
    for (int k = 0; k < size<2>(tA0); ++k) {
        warpgroup_arrive();
        gemm(mma, tA0(_, _, k), tB0(_, _, k), acc0);
        gemm(mma, tA1(_, _, k), tB1(_, _, k), acc1);
        warpgroup_commit_batch();
        warpgroup_wait<1>();
    }
    warpgroup_wait<0>();
    write<Tall>(mma, acc0, d, 0, 0);
    write<Tall>(mma, acc1, d, 0, 1);
}

// The same with tiles of their own: (0, 0): A0 B0, (1, 0): A1 B0.
extern "C" __global__ void __launch_bounds__(128) single_tiles(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    Tensor tB = mma.get_slice(threadIdx.x).partition_fragment_B(tile(storage.b[0]));
    Tensor tA = rows<Tall>(mma, a, 0);
    Tensor acc = partition_fragment_C(mma, Tall{});
    clear(acc);
    CUTE_UNROLL
    for (int k = 0; k < size<2>(tA); ++k) {
        warpgroup_arrive();
        gemm(mma, tA(_, 1, k), tB(_, 0, k), acc(_, 1, 0));
        gemm(mma, tA(_, 0, k), tB(_, 0, k), acc(_, 0, 0));
        warpgroup_commit_batch();
        warpgroup_wait<0>();
    }
    write<Tall>(mma, acc, d, 0, 0);
}

// (0, 0): A0 B0, (1, 0): A1 B0, whose accumulators are one tensor.
extern "C" __global__ void __launch_bounds__(128) stacked(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    Tensor tB = mma.get_slice(threadIdx.x).partition_fragment_B(tile(storage.b[0]));
    Tensor tA0 = rows<Square>(mma, a, 0);
    Tensor tA1 = rows<Square>(mma, a, 1);
    Tensor both = make_tensor<float>(append(partition_shape_C(mma, Square{}), _2{}));
    Tensor acc0 = both(_, _, _, 0);
    Tensor acc1 = both(_, _, _, 1);
    clear(both);
    warpgroup_arrive();
    gemm(mma, tA0, tB, acc0);
    gemm(mma, tA1, tB, acc1);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    write<Square>(mma, acc1, d, 1, 0);
}

// (0, 0): A0 B0, and a kernel that ends with MMAs in flight: some committed, some not.
extern "C" __global__ void __launch_bounds__(128) in_flight_at_the_end(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    auto thread = mma.get_slice(threadIdx.x);
    Tensor tB0 = thread.partition_fragment_B(tile(storage.b[0]));
    Tensor tB1 = thread.partition_fragment_B(tile(storage.b[1]));
    Tensor tA = rows<Square>(mma, a, 0);
    Tensor acc0 = partition_fragment_C(mma, Square{});
    Tensor acc1 = partition_fragment_C(mma, Square{});
    clear(acc0);
    clear(acc1);
    warpgroup_arrive();
    gemm(mma, tA, tB0, acc0);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    write<Square>(mma, acc0, d, 0, 0);
    warpgroup_arrive();
    gemm(mma, tA, tB1, acc1);
    warpgroup_commit_batch();
    if (d[0] == 12345) return;
    warpgroup_arrive();
    gemm(mma, tA, tB1, acc1);
}

// (0, 0): 2 A0 B0, whose tiles of two k-steps are stored as two fragments, the later one first.
extern "C" __global__ void __launch_bounds__(128) tall_steps(T const* a, T const* b, float* d) {
    Mma mma;
    auto& storage = fetch(a, b);
    Tensor tB = mma.get_slice(threadIdx.x).partition_fragment_B(tile(storage.b[0]));
    Tensor tA = rows<Tall>(mma, a, 0);
    Tensor acc = partition_fragment_C(mma, Tall{});
    clear(acc);
    CUTE_UNROLL
    for (int k = 0; k < size<2>(tA); ++k) {
        const int next = (k + 1) % size<2>(tA);
        warpgroup_arrive();
        gemm(mma, tA(_, _, next), tB(_, _, next), acc);
        gemm(mma, tA(_, _, k), tB(_, _, k), acc);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
    }
    write<Tall>(mma, acc, d, 0, 0);
}
