// SPDX-License-Identifier: Apache-2.0
// What CUTLASS's builders are asked for on Blackwell (sm_100a) where a template's arguments say what it was on Hopper.
//
//   porter::sm100_arch<Arch>                              arch::Sm100 for arch::Sm90; others stay
//   porter::mma_tile<Tile, Cluster>                       the tile of the builders: of a CTA, or of a CTA pair
//   porter::mainloop_schedule<Schedule, Tile, Cluster>    with one SM or two, as the tile needs it; others than Hopper's
//   porter::epilogue_schedule<Schedule, Tile, Cluster>    schedules stay
//   porter::cta_tile<Tile>                                the tile of one CTA, for nodes of visitor trees
//   porter::same_tile<Tile>                               the tile, where other code counts with its rows
#pragma once

#include <cute/tensor.hpp>

#include <cutlass/arch/arch.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/dispatch_policy.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>

namespace porter {
namespace detail {

template <class Arch>
struct Sm100Arch {
  using type = Arch;
};

// A schedule of Hopper and what stands for it; any other stands for itself.
template <class Schedule>
struct Sm100Schedule {
  using one = Schedule;
  using two = Schedule;
};

template <class Tile>
constexpr int rows = int(cute::size<0>(Tile{}));

template <class Tile>
constexpr bool is_legal() {
  constexpr int m = rows<Tile>, n = int(cute::size<1>(Tile{}));
  static_assert(m == 64 || m == 128 || m == 256, "a tile of sm_100a has 64 or 128 rows a CTA, or 256 a CTA pair");
  static_assert(n % (m == 64 ? 8 : 16) == 0 && n <= 256, "a tile of sm_100a has a multiple of 16 columns (8 with 64 rows), up to 256");
  return true;
}

template <class Tile, class Cluster>
constexpr bool is_pair =
    is_legal<Tile>() && rows<Tile> == 256 && rows<Cluster> % 2 == 0 && int(cute::size<1>(Tile{})) % 32 == 0;

template <class Tile>
constexpr bool has_rows_of_one_sm() {
  static_assert(rows<Tile> <= 128, "code beside the builders counts with this tile: give it 64 or 128 rows, as a CTA of sm_100a has");
  return true;
}

template <bool, class Tile>
struct Checked {
  using type = Tile;
};

}  // namespace detail

template <class Arch>
using sm100_arch = typename detail::Sm100Arch<Arch>::type;

template <class Tile>
using cta_tile = cute::conditional_t<
    detail::is_legal<Tile>() && detail::rows<Tile> == 256,
    decltype(cute::replace<0>(Tile{}, cute::Int<128>{})), Tile>;

template <class Tile, class Cluster>
using mma_tile = cute::conditional_t<detail::is_pair<Tile, Cluster>, Tile, cta_tile<Tile>>;

template <class Tile>
using same_tile = typename detail::Checked<detail::is_legal<Tile>() && detail::has_rows_of_one_sm<Tile>(), Tile>::type;

template <class Schedule, class Tile, class Cluster>
using mainloop_schedule = cute::conditional_t<
    detail::is_pair<Tile, Cluster>, typename detail::Sm100Schedule<Schedule>::two,
    typename detail::Sm100Schedule<Schedule>::one>;

template <class Schedule, class Tile, class Cluster>
using epilogue_schedule = mainloop_schedule<Schedule, Tile, Cluster>;

// ---- Tags of Hopper ----------------------------------------------------------------------------------------------

namespace detail {
//@ tags
}  // namespace detail
}  // namespace porter
