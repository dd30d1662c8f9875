// SPDX-License-Identifier: Apache-2.0
// A GEMM of CUTLASS's collective builders, run on small integers and held to a reference on the host. BIASED: with a
// bias for each row and a cluster of two blocks.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/fusion/operations.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

using namespace cute;

using Element = cutlass::bfloat16_t;
using TileShape = Shape<_128, _128, _64>;
#ifdef BIASED
using ClusterShape = Shape<_2, _1, _1>;
using FusionOperation = cutlass::epilogue::fusion::LinCombPerRowBias<Element, float, Element>;
using Schedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
using Plan = cutlass::epilogue::TmaWarpSpecialized;
#else
using ClusterShape = Shape<_1, _1, _1>;
using FusionOperation = cutlass::epilogue::fusion::LinearCombination<Element, float>;
using Schedule = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
using Plan = cutlass::epilogue::TmaWarpSpecializedCooperative;
#endif

using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, Element, cutlass::layout::RowMajor, 8, Element,
    cutlass::layout::RowMajor, 8, Plan, FusionOperation>::CollectiveOp;
using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor, 8, Element,
    cutlass::layout::ColumnMajor, 8, float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<
        static_cast<int>(sizeof(typename CollectiveEpilogue::SharedStorage))>,
    Schedule>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, CollectiveMainloop, CollectiveEpilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

template <class T>
T* on_device(std::vector<T> const& v) {
  T* p;
  cudaMalloc(&p, v.size() * sizeof(T));
  cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice);
  return p;
}

std::vector<Element> integers(size_t count, unsigned seed) {
  std::vector<Element> found(count);
  for (auto& x : found) seed = seed * 1664525u + 1013904223u, x = Element(float(int(seed >> 16) % 7 - 3));
  return found;
}

int main() {
  const int m = 256, n = 128, k = 128;
  auto a = integers(m * k, 1), b = integers(n * k, 2), c = integers(m * n, 3), bias = integers(m, 4);
  std::vector<Element> d(m * n);
  auto on_a = on_device(a), on_b = on_device(b), on_c = on_device(c), on_d = on_device(d), on_bias = on_device(bias);
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {on_a, cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1}), on_b,
       cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1})},
      {{}, on_c, cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, {m, n, 1}), on_d,
       cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, {m, n, 1})}};
  arguments.epilogue.thread.alpha = 2.f, arguments.epilogue.thread.beta = 3.f;
#ifdef BIASED
  arguments.epilogue.thread.bias_ptr = on_bias;
#endif
  void* workspace = nullptr;
  if (size_t size = Gemm::get_workspace_size(arguments)) cudaMalloc(&workspace, size);
  Gemm gemm;
  auto status = gemm.can_implement(arguments);
  if (status == cutlass::Status::kSuccess) status = gemm.initialize(arguments, workspace);
  if (status == cutlass::Status::kSuccess) status = gemm.run();
  const auto error = cudaDeviceSynchronize();
  cudaMemcpy(d.data(), on_d, d.size() * sizeof(Element), cudaMemcpyDeviceToHost);
  int bad = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int p = 0; p < k; ++p) sum += float(a[i * k + p]) * float(b[j * k + p]);
      float want = 2 * sum + 3 * float(c[i * n + j]);
#ifdef BIASED
      want += float(bias[i]);
#endif
      bad += !(Element(want) == d[i * n + j]);
    }
  printf("%s, %s, %d wrong\n", cutlass::cutlassGetStatusString(status), cudaGetErrorString(error), bad);
  if (bad) abort();
  return 0;
}
