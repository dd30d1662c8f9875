// SPDX-License-Identifier: Apache-2.0
// CuTe C++ kernels of Hopper, each another way to declare, hand on, view and read an accumulator. main() holds each to
// a reference: C = A B^T of 128 x 128, of small integers, so that every sum is exact.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cute/tensor.hpp>
#include "cutlass/cutlass.h"
#include "cutlass/arch/barrier.h"
#include "cutlass/arch/reg_reconfig.h"
using namespace cute;
using T = cutlass::half_t;
using SS = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
using RS = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>{}));
using SS2 = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}, Layout<Shape<_2, _1, _1>>{}));
// 128 x 128 of C, K = 64 * tiles
template <class TensorA, class TensorB>
__device__ void fill_tiles(T const* a, T const* b, int t, int ld, TensorA& sA, TensorB& sB) {
  for (int i = threadIdx.x; i < 128 * 64; i += blockDim.x) { sA(i / 64, i % 64) = a[(i / 64) * ld + t * 64 + i % 64]; sB(i / 64, i % 64) = b[(i / 64) * ld + t * 64 + i % 64]; }
  cutlass::arch::fence_view_async_shared();
  __syncthreads();
}
#define SMEM extern __shared__ __align__(1024) char shared_memory[]; \
  auto l = tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_128, _64>{}); \
  Tensor sA = make_tensor(make_smem_ptr(reinterpret_cast<T*>(shared_memory)), l); \
  Tensor sB = make_tensor(make_smem_ptr(reinterpret_cast<T*>(shared_memory) + 8192), l);

__global__ void __launch_bounds__(128) plain(T const* a, T const* b, float* c, int tiles) {
  SMEM
  SS mma; auto thr = mma.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(sA), tB = thr.partition_fragment_B(sB);
  Tensor acc = partition_fragment_C(mma, Shape<_128, _128>{});
  clear(acc);
  for (int t = 0; t < tiles; ++t) {
    fill_tiles(a, b, t, tiles * 64, sA, sB);
    warpgroup_fence_operand(acc);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    __syncthreads();
  }
  Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
  copy(acc, thr.partition_C(gC));
}

__global__ void __launch_bounds__(128) makefrag(T const* a, T const* b, float* c, int tiles) {
  SMEM
  SS mma;
  Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
  auto thr = mma.get_slice(threadIdx.x);
  auto tCgC = thr.partition_C(gC);
  auto acc = thr.make_fragment_C(tCgC);
  Tensor tA = thr.partition_fragment_A(sA);
  Tensor tB = thr.partition_fragment_B(sB);
  mma.accumulate_ = GMMA::ScaleOut::Zero;
  for (int t = 0; t < tiles; ++t) {
    fill_tiles(a, b, t, tiles * 64, sA, sB);
    cute::warpgroup_arrive();
    CUTE_UNROLL
    for (int k = 0; k < size<2>(tA); ++k) {
      cute::gemm(mma, tA(_, _, k), tB(_, _, k), acc);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    __syncthreads();
  }
  for (int i = 0; i < size(acc); ++i) { if (i >= 0) tCgC(i) = acc(i); }
}

template <class Mma, class A, class B, class C>
CUTE_DEVICE void wg_gemm(Mma& mma, A const& a, B const& b, C& c, bool zero) {
  warpgroup_fence_operand(c);
  warpgroup_arrive();
  if (zero) mma.accumulate_ = GMMA::ScaleOut::Zero;
  CUTE_UNROLL
  for (int k = 0; k < size<2>(a); ++k) { cute::gemm(mma, a(_,_,k), b(_,_,k), c); mma.accumulate_ = GMMA::ScaleOut::One; }
  warpgroup_commit_batch();
}
__global__ void __launch_bounds__(128) maketensor(T const* a, T const* b, float* c, int tiles) {
  SMEM
  SS mma;
  auto thr = mma.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(sA);
  Tensor tB = thr.partition_fragment_B(sB);
  Tensor total = make_tensor<float>(partition_shape_C(mma, Shape<_128, _128>{}));
  for (int i = 0; i < size(total); ++i) total(i) = 0;
  for (int t = 0; t < tiles; ++t) {
    fill_tiles(a, b, t, tiles * 64, sA, sB);
    Tensor part = make_tensor<float>(total.layout());
    wg_gemm(mma, tA, tB, part, true);
    warpgroup_wait<0>();
    for (int i = 0; i < size(part); ++i) total(i) += part(i);
    __syncthreads();
  }
  Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
  copy(total, thr.partition_C(gC));
}

template <class Acc, class Dst>
__device__ void epilogue(Acc& acc, Dst&& dst, float scale) { for (int i = 0; i < size(acc); ++i) dst(i) = acc(i) * scale; }
__global__ void __launch_bounds__(128) lambda_rs(T const* a, T const* b, float* c, int tiles) {
  SMEM
  RS mma;
  auto thr = mma.get_slice(threadIdx.x);
  Tensor tB = thr.partition_fragment_B(sB);
  Tensor rA = thr.partition_fragment_A(sA);
  Tensor acc = partition_fragment_C(mma, Shape<_128, _128>{});
  clear(acc);
  auto run = [&](auto& operand) {
    warpgroup_fence_operand(acc);
    warpgroup_arrive();
    CUTE_UNROLL
    for (int k = 0; k < size<2>(operand); ++k) gemm(mma, operand(_, _, k), tB(_, _, k), acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    warpgroup_fence_operand(acc);
  };
  for (int t = 0; t < tiles; ++t) {
    fill_tiles(a, b, t, tiles * 64, sA, sB);
    copy(thr.partition_A(sA), rA);
    run(rA);
    __syncthreads();
    for (int i = 0; i < size(acc); ++i) acc(i) *= 1.0f;
  }
  Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
  epilogue(acc, thr.partition_C(gC), 1.0f);
}

__global__ void __launch_bounds__(128) two_acc_views(T const* a, T const* b, float* c, int tiles) {
  SMEM
  SS mma;
  auto thr = mma.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(sA);
  Tensor tB = thr.partition_fragment_B(sB);
  Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
  if (tiles > 0) {
    Tensor left = partition_fragment_C(mma, Shape<_128, _64>{});
    Tensor right = partition_fragment_C(mma, Shape<_128, _64>{});
    clear(left);
    clear(right);
    for (int t = 0; t < tiles; ++t) {
      fill_tiles(a, b, t, tiles * 64, sA, sB);
      warpgroup_arrive();
      CUTE_UNROLL
      for (int k = 0; k < 4; ++k) {
      CUTE_UNROLL
        for (int m = 0; m < 2; ++m) gemm(mma, tA(_, m, k), tB(_, 0, k), left(_, m, 0)); }
      warpgroup_commit_batch();
      warpgroup_arrive();
      CUTE_UNROLL
      for (int k = 0; k < 4; ++k) {
      CUTE_UNROLL
        for (int m = 0; m < 2; ++m) { auto slice = right(_, m, _); gemm(mma, tA(_, m, k), tB(_, 1, k), slice(_, 0)); } }
      warpgroup_commit_batch();
      warpgroup_wait<1>();
      float s = 0;
      for (int i = 0; i < size(left); ++i) s += left(i);
      if (s == 12345.678f) c[0] = s;
      warpgroup_wait<0>();
      __syncthreads();
    }
    Tensor tC = thr.partition_C(gC);
    Tensor flat = make_tensor(right.data(), right.layout());
    for (int m = 0; m < 2; ++m) for (int i = 0; i < 32; ++i) { tC(i, m, 0) = left(i, m, 0); tC(i, m, 1) = flat(i, m, 0); }
  }
}

__global__ void __launch_bounds__(256) coop2(T const* a, T const* b, float* c, int tiles) {
  SMEM
  SS2 mma;
  ThrMMA thr = mma.get_thread_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(sA);
  Tensor tB = thr.partition_fragment_B(sB);
  Tensor acc = partition_fragment_C(mma, Shape<_128, _128>{});
  clear(acc);
  for (int t = 0; t < tiles; ++t) {
    fill_tiles(a, b, t, tiles * 64, sA, sB);
    warpgroup_arrive();
    gemm(mma, tA, tB, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    __syncthreads();
  }
  Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
  if (threadIdx.x > 100000) return;
  copy(acc, thr.partition_C(gC));
}

__global__ void __launch_bounds__(384) roles(T const* a, T const* b, float* c, int tiles) {
  SMEM
  __shared__ uint64_t full[1], empty[1];
  using Bar = cutlass::arch::ClusterBarrier;
  int wg = cutlass::canonical_warp_group_idx();
  if (threadIdx.x == 0) { Bar::init(full, 128); Bar::init(empty, 256); cutlass::arch::fence_barrier_init(); }
  __syncthreads();
  if (wg == 0) {
    cutlass::arch::warpgroup_reg_dealloc<40>();
    for (int t = 0; t < tiles; ++t) {
      Bar::wait(empty, (t & 1) ^ 1);
      for (int i = threadIdx.x; i < 128 * 64; i += 128) { sA(i / 64, i % 64) = a[(i / 64) * tiles * 64 + t * 64 + i % 64]; sB(i / 64, i % 64) = b[(i / 64) * tiles * 64 + t * 64 + i % 64]; }
      cutlass::arch::fence_view_async_shared();
      Bar::arrive(full);
    }
  } else {
    cutlass::arch::warpgroup_reg_alloc<232>();
    SS2 mma;
    auto thr = mma.get_slice(threadIdx.x - 128);
    Tensor tA = thr.partition_fragment_A(sA);
    Tensor tB = thr.partition_fragment_B(sB);
    auto acc = partition_fragment_C(mma, Shape<_128, _128>{});
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    for (int t = 0; t < tiles; ++t) {
      Bar::wait(full, t & 1);
      warpgroup_arrive();
      CUTE_UNROLL
      for (int k = 0; k < size<2>(tA); ++k) { gemm(mma, tA(_, _, k), tB(_, _, k), acc); mma.accumulate_ = GMMA::ScaleOut::One; }
      warpgroup_commit_batch();
      warpgroup_wait<0>();
      Bar::arrive(empty);
    }
    Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
    copy(acc, thr.partition_C(gC));
  }
}

__global__ void __launch_bounds__(128) multistage(T const* a, T const* b, float* c, int tiles) {
  extern __shared__ __align__(1024) char shared_memory[];
  auto l = tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_128, _64, _2>{});
  Tensor sA = make_tensor(make_smem_ptr(reinterpret_cast<T*>(shared_memory)), l);
  Tensor sB = make_tensor(make_smem_ptr(reinterpret_cast<T*>(shared_memory) + 2 * 8192), l);
  auto cp = make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, T>{}, Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{});
  Tensor mA = make_tensor(make_gmem_ptr(a), make_shape(_128{}, tiles * 64), make_stride(tiles * 64, _1{}));
  Tensor mB = make_tensor(make_gmem_ptr(b), make_shape(_128{}, tiles * 64), make_stride(tiles * 64, _1{}));
  Tensor gA = local_tile(mA, Shape<_128, _64>{}, make_coord(_0{}, _));
  Tensor gB = local_tile(mB, Shape<_128, _64>{}, make_coord(_0{}, _));
  auto tc = cp.get_slice(threadIdx.x);
  Tensor tAg = tc.partition_S(gA), tBg = tc.partition_S(gB);
  Tensor tAs = tc.partition_D(as_position_independent_swizzle_tensor(sA)), tBs = tc.partition_D(as_position_independent_swizzle_tensor(sB));
  SS mma; auto thr = mma.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(sA), tB = thr.partition_fragment_B(sB);
  Tensor acc = partition_fragment_C(mma, Shape<_128, _128>{});
  clear(acc);
  copy(cp, tAg(_, _, _, 0), tAs(_, _, _, 0));
  copy(cp, tBg(_, _, _, 0), tBs(_, _, _, 0));
  cp_async_fence();
  for (int t = 0; t < tiles; ++t) {
    cp_async_wait<0>();
    __syncthreads();
    warpgroup_fence_operand(acc);
    warpgroup_arrive();
    gemm(mma, tA(_, _, _, t % 2), tB(_, _, _, t % 2), acc);
    warpgroup_commit_batch();
    warpgroup_wait<1>();
    warpgroup_fence_operand(acc);
    __syncthreads();
    if (t + 1 < tiles) {
      copy(cp, tAg(_, _, _, t + 1), tAs(_, _, _, (t + 1) % 2));
      copy(cp, tBg(_, _, _, t + 1), tBs(_, _, _, (t + 1) % 2));
    }
    cp_async_fence();
  }
  warpgroup_wait<0>();
  warpgroup_fence_operand(acc);
  Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
  axpby(1.0f, acc, 0.0f, thr.partition_C(gC));
}

struct Mainloop {
  using TiledMma = SS2;
  template <class Acc, class SA, class SB>
  CUTE_DEVICE void step(Acc& accum, SA const& sA, SB const& sB, int thread) {
    TiledMma mma;
    auto thr = mma.get_slice(thread);
    Tensor tA = thr.partition_fragment_A(sA);
    Tensor tB = thr.partition_fragment_B(sB);
    warpgroup_fence_operand(accum);
    warpgroup_arrive();
    for_each(make_seq<4>{}, [&](auto k) { gemm(mma, tA(_, _, k), tB(_, _, k), accum); });
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    warpgroup_fence_operand(accum);
  }
  template <class Acc>
  CUTE_DEVICE static void finish(Acc const& accum, float* c, int thread) {
    TiledMma mma;
    Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
    Tensor tC = mma.get_slice(thread).partition_C(gC);
    CUTE_UNROLL
    for (int i = 0; i < size(accum); ++i) tC(i) = accum(i);
  }
};
__global__ void __launch_bounds__(256) members(T const* a, T const* b, float* c, int tiles) {
  SMEM
  Mainloop loop;
  typename Mainloop::TiledMma tiled_mma;
  Tensor accum = partition_fragment_C(tiled_mma, Shape<_128, _128>{});
  clear(accum);
  for (int t = 0; t < tiles; ++t) {
    fill_tiles(a, b, t, tiles * 64, sA, sB);
    loop.step(accum, sA, sB, threadIdx.x);
    __syncthreads();
  }
  Mainloop::finish(accum, c, threadIdx.x);
}

template <bool kZero, int kWait, class Mma, class TA, class TB, class TC>
CUTE_DEVICE void gemm_step(Mma& mma, TA const& tCrA, TB const& tCrB, TC& tCrC) {
  constexpr bool Is_RS = !cute::is_base_of<cute::GMMA::DescriptorIterator, typename Mma::FrgTypeA>::value;
  if constexpr (Is_RS) { warpgroup_fence_operand(const_cast<TA&>(tCrA)); }
  warpgroup_fence_operand(tCrC);
  warpgroup_arrive();
  if constexpr (kZero) { mma.accumulate_ = GMMA::ScaleOut::Zero; }
  CUTLASS_PRAGMA_UNROLL
  for (int k_block = 0; k_block < size<2>(tCrA); ++k_block) {
    cute::gemm(mma, tCrA(_, _, k_block), tCrB(_, _, k_block), tCrC);
    mma.accumulate_ = GMMA::ScaleOut::One;
  }
  warpgroup_commit_batch();
  if constexpr (kWait >= 0) { warpgroup_wait<kWait>(); }
  warpgroup_fence_operand(tCrC);
}
__global__ void __launch_bounds__(128) constexpr_gemm(T const* a, T const* b, float* c, int tiles) {
  SMEM
  SS mma; RS mma_rs;
  auto thr = mma.get_slice(threadIdx.x);
  auto thr_rs = mma_rs.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(sA);
  Tensor tB = thr.partition_fragment_B(sB);
  Tensor total = partition_fragment_C(mma, Shape<_128, _128>{});
  fill_tiles(a, b, 0, tiles * 64, sA, sB);
  gemm_step<true, 0>(mma, tA, tB, total);
  __syncthreads();
  for (int t = 1; t < tiles; ++t) {
    fill_tiles(a, b, t, tiles * 64, sA, sB);
    Tensor rA = thr_rs.partition_fragment_A(sA);
    copy(thr_rs.partition_A(sA), rA);
    if (t % 2) {
      gemm_step<false, -1>(mma_rs, rA, tB, total);
      warpgroup_wait<0>();
      for (int i = 0; i < size(total); ++i) total(i) *= 2.f;
    } else {
      Tensor part = partition_fragment_C(mma, Shape<_128, _128>{});
      gemm_step<true, -1>(mma, tA, tB, part);
      warpgroup_wait<0>();
      for (int i = 0; i < size(total); ++i) total(i) = total(i) * 0.5f + part(i);
    }
    __syncthreads();
  }
  Tensor gC = make_tensor(make_gmem_ptr(c), make_layout(Shape<_128, _128>{}, Stride<_128, _1>{}));
  copy(total, thr.partition_C(gC));
}

template <class F> void test(char const* name, F kernel, int threads) {
  int const tiles = 3, K = 64 * tiles;
  std::vector<T> a(128 * K), b(128 * K); std::vector<float> c(16384, -1.f);
  srand(7); for (auto& x : a) x = T(rand() % 9 - 4.f); for (auto& x : b) x = T(rand() % 9 - 4.f);
  T *da, *db; float* dc; cudaMalloc(&da, 2 * a.size()); cudaMalloc(&db, 2 * b.size()); cudaMalloc(&dc, 65536);
  cudaMemcpy(da, a.data(), 2 * a.size(), cudaMemcpyHostToDevice); cudaMemcpy(db, b.data(), 2 * b.size(), cudaMemcpyHostToDevice);
  cudaMemcpy(dc, c.data(), 65536, cudaMemcpyHostToDevice);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
  kernel<<<1, threads, 65536>>>(da, db, dc, tiles); cudaError_t e = cudaDeviceSynchronize(); cudaMemcpy(c.data(), dc, 65536, cudaMemcpyDeviceToHost);
  int bad = 0;
  for (int i = 0; i < 128; ++i) for (int j = 0; j < 128; ++j) { float r = 0; for (int k = 0; k < K; ++k) r += float(a[i * K + k]) * float(b[j * K + k]); bad += !(r == c[i * 128 + j]); }
  printf("CHECK %s: %s bad=%d\n", name, cudaGetErrorString(e), bad);
}
int main() {
  test("plain", plain, 128);
  test("makefrag", makefrag, 128);
  test("maketensor", maketensor, 128);
  test("lambda_rs", lambda_rs, 128);
  test("two_acc_views", two_acc_views, 128);
  test("coop2", coop2, 256);
  test("roles", roles, 384);
  test("multistage", multistage, 128);
  test("members", members, 256);
  test("constexpr_gemm", constexpr_gemm, 128);
}
