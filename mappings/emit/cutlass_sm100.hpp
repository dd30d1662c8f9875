// SPDX-License-Identifier: Apache-2.0
// What CUTLASS's builders are asked for on Blackwell (sm_100a) where a template's arguments say what it was on Hopper.
//
//   porter::sm100_arch<Arch>                              arch::Sm100 for arch::Sm90; others stay
//   porter::mma_tile<Tile, Cluster>                       the tile of the builders: of a CTA, or of a CTA pair
//   porter::mainloop_schedule<Schedule, Tile, Cluster>    with one SM or two, as the tile needs it; others than Hopper's
//   porter::epilogue_schedule<Schedule, Tile, Cluster>    schedules stay
//   porter::cta_tile<Tile>                                the tile of one CTA, for nodes of visitor trees
//   porter::same_tile<Tile>                               the tile, where other code counts with its rows
//
// A last argument is the tag of the architecture where that is a template's: for others than Hopper's nothing changes.
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
  static constexpr bool is_hopper = false;
};

// Stands for an architecture that is known to be Hopper.
struct Hopper;

template <>
struct Sm100Arch<Hopper> {
  static constexpr bool is_hopper = true;
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

// Tiles and schedules, where the architecture is Hopper: those of others stay.
template <class Tile, bool is_hopper>
struct CtaTile {
  using type = Tile;
};

template <class Tile>
struct CtaTile<Tile, true> {
  using type = cute::conditional_t<
      is_legal<Tile>() && rows<Tile> == 256, decltype(cute::replace<0>(Tile{}, cute::Int<128>{})), Tile>;
};

template <class Tile, bool is_hopper>
struct SameTile {
  using type = Tile;
};

template <class Tile>
struct SameTile<Tile, true> {
  static_assert(is_legal<Tile>() && rows<Tile> <= 128,
                "code beside the builders counts with this tile: give it 64 or 128 rows, as a CTA of sm_100a has");
  using type = Tile;
};

template <class Schedule, class Tile, class Cluster, bool is_hopper>
struct Asked {
  using tile = Tile;
  using schedule = Schedule;
};

template <class Schedule, class Tile, class Cluster>
struct Asked<Schedule, Tile, Cluster, true> {
  using tile = cute::conditional_t<is_pair<Tile, Cluster>, Tile, typename CtaTile<Tile, true>::type>;
  using schedule = cute::conditional_t<is_pair<Tile, Cluster>, typename Sm100Schedule<Schedule>::two,
                                       typename Sm100Schedule<Schedule>::one>;
};

}  // namespace detail

template <class Arch>
using sm100_arch = typename detail::Sm100Arch<Arch>::type;

template <class Tile, class Arch = detail::Hopper>
using cta_tile = typename detail::CtaTile<Tile, detail::Sm100Arch<Arch>::is_hopper>::type;

template <class Tile, class Arch = detail::Hopper>
using same_tile = typename detail::SameTile<Tile, detail::Sm100Arch<Arch>::is_hopper>::type;

template <class Tile, class Cluster, class Arch = detail::Hopper>
using mma_tile = typename detail::Asked<void, Tile, Cluster, detail::Sm100Arch<Arch>::is_hopper>::tile;

template <class Schedule, class Tile, class Cluster, class Arch = detail::Hopper>
using mainloop_schedule =
    typename detail::Asked<Schedule, Tile, Cluster, detail::Sm100Arch<Arch>::is_hopper>::schedule;

template <class Schedule, class Tile, class Cluster, class Arch = detail::Hopper>
using epilogue_schedule = mainloop_schedule<Schedule, Tile, Cluster, Arch>;

// ---- Tags of Hopper ----------------------------------------------------------------------------------------------

namespace detail {
//@ tags
}  // namespace detail
}  // namespace porter
