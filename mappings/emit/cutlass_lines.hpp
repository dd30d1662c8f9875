// SPDX-License-Identifier: Apache-2.0
// What a port writes around arguments of CUTLASS's builders, and what the header beside it knows of tags by rules.

//@ section arch_tag
template <>
struct Sm100Arch<$name> {
  using type = $becomes;
  static constexpr bool is_hopper = true;
};

//@ section schedule_tag
template <>
struct Sm100Schedule<$name> {
  using one = $one;
  using two = $two;
};

//@ section arch
porter::sm100_arch<$tag>

//@ section schedule
//@ if arch
porter::${part}_schedule<$tag, $tile, $cluster, $arch>
//@ else
porter::${part}_schedule<$tag, $tile, $cluster>
//@ end

//@ section same_tile
//@ if arch
porter::same_tile<$tile, $arch>
//@ else
porter::same_tile<$tile>
//@ end

//@ section mma_tile
//@ if arch
porter::mma_tile<$tile, $cluster, $arch>
//@ else
porter::mma_tile<$tile, $cluster>
//@ end

//@ section cta_tile
porter::cta_tile<$tile>
