// A GEMM of CUTLASS's collective builders, as Hopper code writes it: tags through aliases, a fused bias, two
// configurations of one template, one of which takes a tile of 256 rows.
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/device_kernel.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/fusion/operations.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"

using namespace cute;

using Arch = cutlass::arch::Sm90;
using Element = cutlass::bfloat16_t;

template <class Tile, class Cluster, class Schedule, class Plan>
struct Gemm {
  using Fusion = cutlass::epilogue::fusion::LinCombPerRowBias<Element, float, float>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float,
      float, Element, cutlass::layout::RowMajor, 8, Element, cutlass::layout::RowMajor, 8, Plan, Fusion>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      Arch, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor, 8, Element,
      cutlass::layout::ColumnMajor, 8, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      Schedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
};

using Small = Gemm<Shape<_64, _128, _64>, Shape<_1, _2, _1>, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                   cutlass::epilogue::TmaWarpSpecialized>;
using Large = Gemm<Shape<_256, _128, _64>, Shape<_2, _1, _1>, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                   cutlass::epilogue::TmaWarpSpecializedCooperative>;

template __global__ void cutlass::device_kernel<Small::Kernel>(typename Small::Kernel::Params CUTLASS_GRID_CONSTANT const);
template __global__ void cutlass::device_kernel<Large::Kernel>(typename Large::Kernel::Params CUTLASS_GRID_CONSTANT const);
