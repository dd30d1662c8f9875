// SPDX-License-Identifier: Apache-2.0
// CuTe C++ kernels of Hopper whose accumulators device functions, methods and lambdas declare, and one that is the call
// operator of a class. main() holds each to a reference: C = A B^T of 128 x 128, of small integers, so that every sum
// is exact.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cute/tensor.hpp>
#include "cutlass/cutlass.h"
#include "cutlass/arch/barrier.h"
#include "cutlass/device_kernel.h"
using namespace cute;
using T = cutlass::half_t;
using SS = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
using RS = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>{}));
using SS2 = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}, Layout<Shape<_2, _1, _1>>{}));
using Full = Shape<_128, _128>;
// 128 x 64 of A and of B
template <class TensorA, class TensorB>
__device__ void fill_tiles(T const* a, T const* b, int t, int ld, TensorA& sA, TensorB& sB, int threads) {
  for (int i = threadIdx.x; i < 128 * 64; i += threads) { sA(i / 64, i % 64) = a[(i / 64) * ld + t * 64 + i % 64]; sB(i / 64, i % 64) = b[(i / 64) * ld + t * 64 + i % 64]; }
  cutlass::arch::fence_view_async_shared();
}
#define SMEM(memory) \
  auto l = tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_128, _64>{}); \
  Tensor sA = make_tensor(make_smem_ptr(reinterpret_cast<T*>(memory)), l); \
  Tensor sB = make_tensor(make_smem_ptr(reinterpret_cast<T*>(memory) + 8192), l);
#define OPERANDS \
  auto thr = mma.get_slice(threadIdx.x); \
  Tensor tA = thr.partition_fragment_A(sA); \
  Tensor tB = thr.partition_fragment_B(sB);

template <bool kZero, class Mma, class TA, class TB, class TC>
CUTE_DEVICE void multiply(Mma& mma, TA const& tA, TB const& tB, TC& acc) {
  warpgroup_fence_operand(acc);
  warpgroup_arrive();
  if constexpr (kZero) mma.accumulate_ = GMMA::ScaleOut::Zero;
  CUTE_UNROLL
  for (int k = 0; k < size<2>(tA); ++k) {
    gemm(mma, tA(_, _, k), tB(_, _, k), acc);
    mma.accumulate_ = GMMA::ScaleOut::One;
  }
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  warpgroup_fence_operand(acc);
}
template <class Mma, class TC>
CUTE_DEVICE void store(Mma& mma, TC& acc, float* c, int thread) {
  Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Full{}, Stride<_128, _1>{}));
  copy(acc, mma.get_slice(thread).partition_C(gC));
}

// No accumulator of the caller is in sight; a tile of constants of its own.
template <int kRows, class Mma, class TA, class TB, class Total>
__device__ void add_product(Mma mma, TA const& tA, TB const& tB, Total& total) {
  constexpr int kColumns = 128;
  Tensor part = partition_fragment_C(mma, Shape<Int<kRows>, Int<kColumns>>{});
  multiply<true>(mma, tA, tB, part);
  for (int i = 0; i < size(part); ++i) total(i) += part(i);
}
__global__ void __launch_bounds__(128) called(T const* a, T const* b, float* c, int tiles) {
  extern __shared__ __align__(1024) char memory[];
  SMEM(memory)
  SS mma;
  OPERANDS
  auto total = make_tensor<float>(partition_shape_C(mma, Full{}));
  clear(total);
  for (int t = 0; t < tiles; ++t) {
    fill_tiles(a, b, t, tiles * 64, sA, sB, 128);
    __syncthreads();
    add_product<128>(mma, tA, tB, total);
    __syncthreads();
  }
  store(mma, total, c, threadIdx.x);
}

// An accumulator that is alive across a call which has one, too: half of each.
template <class Mma, class TA, class TB, class TC>
__device__ void both(Mma mma, TA const& tA, TB const& tB, TC& total, bool first) {
  Tensor sum = partition_fragment_C(mma, Full{});
  multiply<true>(mma, tA, tB, sum);
  add_product<128>(mma, tA, tB, total);
  for (int i = 0; i < size(sum); ++i) total(i) -= sum(i);
  multiply<false>(mma, tA, tB, sum);
  for (int i = 0; i < size(sum); ++i) total(i) += sum(i) * .5f;
}
__global__ void __launch_bounds__(128) across(T const* a, T const* b, float* c, int tiles) {
  extern __shared__ __align__(1024) char memory[];
  SMEM(memory)
  SS mma;
  OPERANDS
  auto total = make_tensor<float>(partition_shape_C(mma, Full{}));
  clear(total);
  for (int t = 0; t < tiles; ++t) {
    fill_tiles(a, b, t, tiles * 64, sA, sB, 128);
    __syncthreads();
    both(mma, tA, tB, total, t == 0);
    __syncthreads();
  }
  store(mma, total, c, threadIdx.x);
}

// Two accumulators in the same columns, the second in a lambda; A of the second from registers, by choice of a constant.
template <bool kInRegisters>
__device__ void shared_columns(char* memory, T const* a, T const* b, float* c, int tiles) {
  auto layout = tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_128, _64>{});
  Tensor sA = make_tensor(make_smem_ptr(reinterpret_cast<T*>(memory)), layout);
  Tensor sB = make_tensor(make_smem_ptr(reinterpret_cast<T*>(memory) + 8192), layout);
  SS mma;
  RS mma_rs;
  OPERANDS
  auto thr_rs = mma_rs.get_slice(threadIdx.x);
  Tensor rA = thr_rs.partition_fragment_A(sA);
  auto total = make_tensor<float>(partition_shape_C(mma, Full{}));
  fill_tiles(a, b, 0, tiles * 64, sA, sB, 128);
  __syncthreads();
  Tensor first = partition_fragment_C(mma, Full{});
  multiply<true>(mma, tA, tB, first);
  copy(first, total);
  auto step = [&](int t) {
    Tensor part = partition_fragment_C(mma, Full{});
    __syncthreads();
    fill_tiles(a, b, t, tiles * 64, sA, sB, 128);
    __syncthreads();
    copy(thr_rs.partition_A(sA), rA);
    if constexpr (kInRegisters) {
      multiply<true>(mma_rs, cute::conditional_return<kInRegisters>(rA, tA), tB, part);
    } else {
      multiply<true>(mma, cute::conditional_return<kInRegisters>(rA, tA), tB, part);
    }
    for (int i = 0; i < size(part); ++i) total(i) += part(i);
  };
  for (int t = 1; t < tiles; ++t) step(t);
  store(mma, total, c, threadIdx.x);
}
__global__ void __launch_bounds__(128) columns(T const* a, T const* b, float* c, int tiles) {
  extern __shared__ __align__(1024) char memory[];
  shared_columns<true>(memory, a, b, c, tiles);
}

// A collective, and a kernel that is a call operator: a warpgroup that loads, and two that multiply.
template <class TiledMma_>
struct Mainloop {
  using TiledMma = TiledMma_;
  template <class SA, class SB, class TC>
  CUTE_DEVICE bool run(SA const& sA, SB const& sB, TC& total, int tiles, int thread) {
    TiledMma mma;
    auto thr = mma.get_slice(thread / 128 * 128);
    Tensor tA = thr.partition_fragment_A(sA);
    Tensor tB = thr.partition_fragment_B(sB);
    Tensor part = partition_fragment_C(mma, Full{});
    for (int t = 0; t < tiles; ++t) {
      cutlass::arch::NamedBarrier::sync(384, 0);
      multiply<true>(mma, tA, tB, part);
      for (int i = 0; i < size(part); ++i) total(i) += part(i);
      cutlass::arch::NamedBarrier::sync(384, 1);
    }
    return tiles > 0;
  }
};
template <class Loop_>
struct Entry {
  using Loop = Loop_;
  using TiledMma = typename Loop::TiledMma;
  static constexpr uint32_t MaxThreadsPerBlock = CUTE_STATIC_V(size(TiledMma{})) + 128;
  static constexpr uint32_t MinBlocksPerMultiprocessor = 1;
  struct Params { T const* a; T const* b; float* c; int tiles; };
  CUTE_DEVICE void operator()(Params const& params, char* memory) {
    SMEM(memory)
    int const warp_group_idx = cutlass::canonical_warp_group_idx();
    if (warp_group_idx == 0) {
      for (int t = 0; t < params.tiles; ++t) {
        fill_tiles(params.a, params.b, t, params.tiles * 64, sA, sB, 128);
        cutlass::arch::NamedBarrier::sync(384, 0);
        cutlass::arch::NamedBarrier::sync(384, 1);
      }
    } else {
      TiledMma mma;
      Loop loop;
      Tensor total = partition_fragment_C(mma, Full{});
      clear(total);
      bool const valid = loop.run(sA, sB, total, params.tiles, threadIdx.x - 128);
      if (valid) store(mma, total, params.c, threadIdx.x - 128);
    }
  }
};
using Operator = Entry<Mainloop<SS2>>;

template <class F> void test(char const* name, F run) {
  int const tiles = 3, K = 64 * tiles;
  std::vector<T> a(128 * K), b(128 * K); std::vector<float> c(16384, -1.f);
  srand(7); for (auto& x : a) x = T(rand() % 9 - 4.f); for (auto& x : b) x = T(rand() % 9 - 4.f);
  T *da, *db; float* dc; cudaMalloc(&da, 2 * a.size()); cudaMalloc(&db, 2 * b.size()); cudaMalloc(&dc, 65536);
  cudaMemcpy(da, a.data(), 2 * a.size(), cudaMemcpyHostToDevice); cudaMemcpy(db, b.data(), 2 * b.size(), cudaMemcpyHostToDevice);
  cudaMemcpy(dc, c.data(), 65536, cudaMemcpyHostToDevice);
  run(da, db, dc, tiles);
  cudaError_t e = cudaDeviceSynchronize(); cudaMemcpy(c.data(), dc, 65536, cudaMemcpyDeviceToHost);
  int bad = 0;
  for (int i = 0; i < 128; ++i) for (int j = 0; j < 128; ++j) { float r = 0; for (int k = 0; k < K; ++k) r += float(a[i * K + k]) * float(b[j * K + k]); bad += !(r == c[i * 128 + j]); }
  printf("CHECK %s: %s bad=%d\n", name, cudaGetErrorString(e), bad);
}
int main() {
  test("called", [](auto... x) { called<<<1, 128, 32768>>>(x...); });
  test("across", [](auto... x) { across<<<1, 128, 32768>>>(x...); });
  test("columns", [](auto... x) { columns<<<1, 128, 32768>>>(x...); });
  test("Entry::operator()", [](auto... x) { cutlass::device_kernel<Operator><<<1, 384, 32768>>>(Operator::Params{x...}); });
}
