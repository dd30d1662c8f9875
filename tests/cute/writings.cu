// SPDX-License-Identifier: Apache-2.0
// One GEMM as many people write it: each kernel computes A * B^T of 128x64 f16 operands, or what its comment says, into D
// of 128x128.
#include <utility>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_conversion.h>
using namespace cute;
using T = half_t;
using SmemLayout = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_128, _64>{}));
using TileMN = Shape<_128, _128>;
using Mma = decltype(make_tiled_mma(SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
struct Storage { alignas(1024) T a[128 * 64], b[128 * 64]; };
__device__ auto smem(T* data) { return make_tensor(make_smem_ptr(data), SmemLayout{}); }
__device__ Storage& fetch(T const* a, T const* b) {
    extern __shared__ char shared_memory[];
    auto& storage = *reinterpret_cast<Storage*>(shared_memory);
    for (int i = threadIdx.x; i < 128 * 64; i += blockDim.x) {
        smem(storage.a)(i / 64, i % 64) = a[i];
        smem(storage.b)(i / 64, i % 64) = b[i];
    }
    cutlass::arch::fence_view_async_shared();
    __syncthreads();
    return storage;
}
__device__ auto gmem(float* d) { return make_tensor(make_gmem_ptr(d), TileMN{}, Stride<_128, _1>{}); }

// Types from a struct of traits.
template <class T_, int M, int N>
struct KernelTraits {
    using Element = T_;
    using TileShape = Shape<Int<M>, Int<N>, _64>;
    using Atom = decltype(GMMA::ss_op_selector<Element, Element, float, TileShape>());
    using TiledMma = decltype(make_tiled_mma(Atom{}, Layout<Shape<_1, _1, _1>>{}));
    static constexpr int kThreads = size(TiledMma{});
};
template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads) traits_kernel(T const* a, T const* b, float* d) {
    typename Traits::TiledMma tiled_mma;
    auto& storage = fetch(a, b);
    auto wg = tiled_mma.get_thread_slice(threadIdx.x);
    Tensor tCrA = wg.partition_fragment_A(smem(storage.a));
    Tensor tCrB = wg.partition_fragment_B(smem(storage.b));
    Tensor tCrC = partition_fragment_C(tiled_mma, select<0, 1>(typename Traits::TileShape{}));
    tiled_mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(tCrC);
    warpgroup_arrive();
    for (int k = 0; k < size<2>(tCrA); ++k) {
        cute::gemm(tiled_mma, tCrA(_, _, k), tCrB(_, _, k), tCrC);
        tiled_mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    warpgroup_fence_operand(tCrC);
    copy(tCrC, wg.partition_C(gmem(d)));
}
template __global__ void traits_kernel<KernelTraits<T, 128, 128>>(T const*, T const*, float*);

// MMAs in a lambda that is handed the accumulator.
extern "C" __global__ void __launch_bounds__(128) in_lambda(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    auto mainloop = [&](auto& c, int k) { gemm(mma, tA(_, _, k), tB(_, _, k), c); };
    warpgroup_arrive();
    for (int k = 0; k < 4; ++k) mainloop(acc, k);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    copy(acc, thr.partition_C(gmem(d)));
}

// Through two function templates, and an epilogue in a third.
template <class M, class A, class B, class C>
__device__ __forceinline__ void inner(M& m, A const& x, B const& y, C& z) {
    warpgroup_fence_operand(z);
    warpgroup_arrive();
    cute::gemm(m, x, y, z);
    warpgroup_commit_batch();
}
template <class M, class A, class B, class C>
__device__ __forceinline__ void outer(M& m, A&& x, B&& y, C& z) {
    inner(m, x, y, z);
    warpgroup_wait<0>();
    warpgroup_fence_operand(z);
}
template <class M, class C>
__device__ void epilogue(M const& m, C const& c, float* d) { copy(c, m.get_slice(threadIdx.x).partition_C(gmem(d))); }
extern "C" __global__ void __launch_bounds__(128) two_functions(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    outer(mma, tA, tB, acc);
    epilogue(mma, acc, d);
}

// The accumulator by another name.
extern "C" __global__ void __launch_bounds__(128) auto_ref(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    auto storage_acc = partition_fragment_C(mma, TileMN{});
    auto& acc = storage_acc;
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    copy(acc, thr.partition_C(gmem(d)));
}

// Through shared memory by a tiled copy, in f16.
extern "C" __global__ void __launch_bounds__(128) r2s(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    __syncthreads();
    auto smem_out = make_tensor(make_smem_ptr(storage.a), Layout<Shape<_128, _64>, Stride<_64, _1>>{});
    auto r2s = make_tiled_copy_C(Copy_Atom<AutoVectorizingCopyWithAssumedAlignment<32>, T>{}, mma);
    auto r2s_thr = r2s.get_slice(threadIdx.x);
    Tensor half = make_tensor_like<T>(acc);
    for (int i = 0; i < size(acc); ++i) half(i) = T(acc(i));
    Tensor src = r2s_thr.retile_S(half);
    auto out = make_tensor(make_smem_ptr(storage.a), Layout<Shape<_128, _128>, Stride<_128, _1>>{});
    copy(r2s, src, r2s_thr.partition_D(out));
    __syncthreads();
    for (int i = threadIdx.x; i < 128 * 128; i += 128) d[i] = float(storage.a[i]);
}

// Rows below 100 and columns below 90 only.
extern "C" __global__ void __launch_bounds__(128) predicated(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    Tensor id = thr.partition_C(make_identity_tensor(TileMN{}));
    Tensor gD = thr.partition_C(gmem(d));
    CUTE_UNROLL
    for (int i = 0; i < size(acc); ++i) {
        if (elem_less(id(i), make_coord(100, 90))) gD(i) = acc(i);
    }
}

// Twice the product.
extern "C" __global__ void __launch_bounds__(128) axpby_(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    axpby(2.f, acc, 0.f, thr.partition_C(gmem(d)));
}

// Several batches in flight, without warpgroup_fence_operand.
extern "C" __global__ void __launch_bounds__(128) outstanding(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc0 = partition_fragment_C(mma, Shape<_64, _128>{});
    Tensor acc1 = partition_fragment_C(mma, Shape<_64, _128>{});
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_arrive();
    gemm(mma, tA(_, 0, 0), tB(_, 0, 0), acc0(_, 0, 0));
    gemm(mma, tA(_, 1, 0), tB(_, 0, 0), acc1(_, 0, 0));
    warpgroup_commit_batch();
    mma.accumulate_ = GMMA::ScaleOut::One;
    for (int k = 1; k < 4; ++k) {
        warpgroup_arrive();
        gemm(mma, tA(_, 0, k), tB(_, 0, k), acc0(_, 0, 0));
        warpgroup_commit_batch();
        warpgroup_arrive();
        gemm(mma, tA(_, 1, k), tB(_, 0, k), acc1(_, 0, 0));
        warpgroup_commit_batch();
        warpgroup_wait<3>();
    }
    warpgroup_wait<1>();
    copy(acc0, thr.partition_C(local_tile(gmem(d), Shape<_64, _128>{}, make_coord(0, 0))));
    warpgroup_wait<0>();
    copy(acc1, thr.partition_C(local_tile(gmem(d), Shape<_64, _128>{}, make_coord(1, 0))));
}

// A batch for each k-step, and nobody waits in between.
extern "C" __global__ void __launch_bounds__(128) unwaited(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    for (int k = 0; k < 4; ++k) {
        warpgroup_arrive();
        gemm(mma, tA(_, _, k), tB(_, _, k), acc);
        mma.accumulate_ = GMMA::ScaleOut::One;
        warpgroup_commit_batch();
    }
    warpgroup_wait<0>();
    warpgroup_fence_operand(acc);
    copy(acc, thr.partition_C(gmem(d)));
}

// Warps that leave at once.
extern "C" __global__ void __launch_bounds__(256) early(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    if (threadIdx.x >= 128) return;
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    if (d == nullptr) return;
    copy(acc, thr.partition_C(gmem(d)));
}

// An accumulator that a function makes.
template <class M>
__device__ auto make_accumulator(M const& m) {
    Tensor c = partition_fragment_C(m, TileMN{});
    clear(c);
    return c;
}
extern "C" __global__ void __launch_bounds__(128) returned(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    auto acc = make_accumulator(mma);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    copy(acc, thr.partition_C(gmem(d)));
}

// An accumulator that a function computes and hands back.
template <class M, class A, class B>
__device__ auto compute(M& m, A const& x, B const& y) {
    Tensor c = partition_fragment_C(m, TileMN{});
    clear(c);
    warpgroup_arrive();
    gemm(m, x, y, c);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    return c;
}
extern "C" __global__ void __launch_bounds__(128) computed(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    auto acc = compute(mma, tA, tB);
    copy(acc, thr.partition_C(gmem(d)));
}

// A generic lambda for each k-step.
extern "C" __global__ void __launch_bounds__(128) for_each_k(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    for_each(make_int_sequence<4>{}, [&](auto k) { gemm(mma, tA(_, _, k), tB(_, _, k), acc); });
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    copy(acc, thr.partition_C(gmem(d)));
}

// Registers cast to an array, converted to f16.
template <class To, class Engine, class Layout>
__device__ auto convert_type(Tensor<Engine, Layout> const& tensor) {
    using From = typename Engine::value_type;
    constexpr int n = decltype(size(tensor))::value;
    cutlass::NumericArrayConverter<To, From, n> convert;
    Tensor out = make_tensor_like<To>(tensor);
    *reinterpret_cast<cutlass::Array<To, n>*>(out.data()) = convert(*reinterpret_cast<const cutlass::Array<From, n>*>(tensor.data()));
    return out;
}
extern "C" __global__ void __launch_bounds__(128) converted(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    auto out = convert_type<T>(acc);
    Tensor gD = thr.partition_C(gmem(d));
    CUTE_UNROLL
    for (int i = 0; i < size(out); ++i) gD(i) = float(out(i));
}

// Registers changed between MMAs: 1.5 times the product.
extern "C" __global__ void __launch_bounds__(128) in_place(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    transform(acc, [](float x) { return 2 * x; });
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    for (auto i = 0; i < size(acc); i++) acc[i] *= 0.5f;
    copy(acc, thr.partition_C(gmem(d)));
}

// Two kernels in a file; the second starts anew.
extern "C" __global__ void __launch_bounds__(128) first_of_two(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    copy(acc, thr.partition_C(gmem(d)));
}
extern "C" __global__ void __launch_bounds__(128) second_of_two(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    clear(acc);
    mma.accumulate_ = GMMA::ScaleOut::One;
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    copy(acc, thr.partition_C(gmem(d)));
}

// A view of each m64 tile.
extern "C" __global__ void __launch_bounds__(128) half_epilogue(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    Tensor gD = thr.partition_C(gmem(d));
    CUTE_UNROLL
    for (int m = 0; m < size<1>(acc); ++m) {
        Tensor part = acc(_, m, _);
        copy(part, gD(_, m, _));
    }
}

// A batch in each round of a loop.
extern "C" __global__ void __launch_bounds__(128) while_loop(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    int k = 0;
    do {
        warpgroup_fence_operand(acc);
        warpgroup_arrive();
        gemm(mma, tA(_, _, k), tB(_, _, k), acc);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
    } while (++k < 4);
    copy(acc, thr.partition_C(gmem(d)));
}

// A plain pointer to the registers, with an index that is constant where the loop is unrolled.
extern "C" __global__ void __launch_bounds__(128) flattened(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    float* raw = acc.data();
    Tensor gD = thr.partition_C(gmem(d));
    for (int i = 0; i < size(acc); ++i) gD(i) = raw[i];
}

// A class with a call operator, run by a kernel of its own namespace.
namespace mine { namespace kernels {
using cute::gemm;
struct Gemm {
    struct Params { T const* a; T const* b; float* d; };
    static constexpr int MaxThreadsPerBlock = 128, MinBlocksPerMultiprocessor = 1;
    CUTLASS_DEVICE void operator()(Params const& p, char*) {
        auto& storage = fetch(p.a, p.b);
        Mma mma;
        auto thr = mma.get_slice(threadIdx.x);
        Tensor tA = thr.partition_fragment_A(smem(storage.a));
        Tensor tB = thr.partition_fragment_B(smem(storage.b));
        Tensor acc = partition_fragment_C(mma, TileMN{});
        clear(acc);
        warpgroup_arrive();
        gemm(mma, tA, tB, acc);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        copy(acc, thr.partition_C(gmem(p.d)));
    }
};
template <class Kernel>
__global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, Kernel::MinBlocksPerMultiprocessor) run(typename Kernel::Params p) {
    extern __shared__ char raw[];
    Kernel kernel;
    kernel(p, raw);
}
template __global__ void run<Gemm>(Gemm::Params);
}}

// Numbers of one product are used while the MMAs of the next are in flight: twice the product.
extern "C" __global__ void __launch_bounds__(128) numbers(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    auto sum = acc(0) + acc(1);
    auto snapshot = [=](int i) { return acc(i); };
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    d[threadIdx.x] = sum + snapshot(2);
    __syncthreads();
    warpgroup_wait<0>();
    copy(acc, thr.partition_C(gmem(d)));
}

// Registers by an address that an object keeps, and by the names of a structured binding.
struct Holder {
    float* first;
    __device__ void bind(float* registers) { first = registers; }
};
template <class C>
__device__ auto halves(C& c) { return cute::make_tuple(c(_, 0, _), c(_, 1, _)); }
extern "C" __global__ void __launch_bounds__(128) addresses(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    Holder holder;
    holder.bind(&acc(0));
    auto [upper, lower] = halves(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    Tensor gD = thr.partition_C(gmem(d));
    CUTE_UNROLL
    for (int i = 0; i < size(lower); ++i) gD(_, 1, _)(i) = lower(i);
    CUTE_UNROLL
    for (int i = 0; i < size(upper); ++i) gD(_, 0, _)(i) = holder.first[i];
}

// A second accumulator, of narrower MMAs: 1001 times the product.
extern "C" __global__ void __launch_bounds__(128) two_widths(T const* a, T const* b, float* d) {
    auto& storage = fetch(a, b);
    Mma mma;
    auto thr = mma.get_slice(threadIdx.x);
    Tensor tA = thr.partition_fragment_A(smem(storage.a));
    Tensor tB = thr.partition_fragment_B(smem(storage.b));
    Tensor acc = partition_fragment_C(mma, TileMN{});
    clear(acc);
    auto narrow = make_tiled_mma(SM90_64x32x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{});
    auto part = narrow.get_slice(threadIdx.x);
    Tensor nB = part.partition_fragment_B(smem(storage.b));
    Tensor slim = partition_fragment_C(narrow, TileMN{});
    narrow.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    for (int k = 0; k < 4; ++k) {
        gemm(narrow, tA(_, _, k), nB(_, _, k), slim);
        narrow.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    copy(acc, thr.partition_C(gmem(d)));
    __syncthreads();
    Tensor gD = part.partition_C(gmem(d));
    CUTE_UNROLL
    for (int i = 0; i < size(slim); ++i) gD(i) += 1000 * slim(i);
}
