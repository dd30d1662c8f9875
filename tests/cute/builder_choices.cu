// What the header of builders makes of the choices of a template.
#include "cutlass_sm100.hpp"
using namespace cute;
namespace g = cutlass::gemm; namespace e = cutlass::epilogue;
using S90 = cutlass::arch::Sm90; using S100 = cutlass::arch::Sm100;
template <class A, class B> constexpr bool same = std::is_same_v<A, B>;
using T256 = Shape<_256,_128,_64>; using T128 = Shape<_128,_128,_64>; using C2 = Shape<_2,_1,_1>; using C1 = Shape<_1,_2,_1>;
static_assert(same<porter::sm100_arch<S90>, S100> && same<porter::sm100_arch<cutlass::arch::Sm80>, cutlass::arch::Sm80>);
static_assert(same<porter::mma_tile<T256, C2>, T256> && size<0>(porter::mma_tile<T256, C1>{}) == 128 && same<porter::mma_tile<T128, C2>, T128>);
static_assert(size<0>(porter::cta_tile<T256>{}) == 128 && size<1>(porter::cta_tile<T256>{}) == 128 && same<porter::cta_tile<T128>, T128>);
static_assert(same<porter::mainloop_schedule<g::KernelTmaWarpSpecializedPingpong, T128, C2>, g::KernelTmaWarpSpecialized1SmSm100>);
static_assert(same<porter::mainloop_schedule<g::KernelPtrArrayTmaWarpSpecializedPingpong, T256, C2>, g::KernelPtrArrayTmaWarpSpecialized2SmSm100>);
static_assert(same<porter::mainloop_schedule<g::KernelTmaWarpSpecializedPingpong, T256, C1>, g::KernelTmaWarpSpecialized1SmSm100>);
static_assert(same<porter::epilogue_schedule<e::collective::EpilogueScheduleAuto, T256, C2>, e::NoSmemWarpSpecialized2Sm>);
static_assert(same<porter::mainloop_schedule<g::KernelTmaWarpSpecializedPingpong, Shape<_192,_128,_64>, C2, cutlass::arch::Sm120>, g::KernelTmaWarpSpecializedPingpong>);
static_assert(same<porter::mma_tile<T256, C1, S100>, T256> && same<porter::same_tile<T128>, T128> && same<porter::same_tile<T256, S100>, T256>);
