// SPDX-License-Identifier: Apache-2.0
// What instructions outside tcgen05 become that Hopper lacks.
#pragma once
#include "state.cuh"

// redux.sync of f32 over the lanes of `mask`. Bits of `how`: 1 maximum, 2 absolute values, 4 a NaN prevails.
PORTER_FN u32 porter_redux(u32 value, u32 mask, u32 how) {
  if (how & 2) value &= 0x7FFFFFFF;
  u32 first = __ffs(mask) - 1, result = __shfl_sync(mask, value, first);
  for (u32 lane = 0; lane < 32; ++lane) {
    u32 other = __shfl_sync(mask, value, mask >> lane & 1 ? lane : first);
    float x = __uint_as_float(result), y = __uint_as_float(other), z;
    switch (how & 5) {
      case 0: asm("min.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); break;
      case 1: asm("max.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); break;
      case 4: asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); break;
      default: asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    }
    result = __float_as_uint(z);
  }
  return result;
}

// clusterlaunchcontrol.try_cancel: a response of zeros, which says that nothing was canceled, here or in all CTAs of
// the cluster.
PORTER_FN void porter_no_cancel(u32 place, u32 barrier, u32 everywhere) {
  u32 size, rank;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  rank = cta_rank();
  for (u32 to = 0; to < size; ++to) {
    if (to != rank && !everywhere) continue;
    u32 address = window(to) | (place & kOffset), signal = window(to) | (barrier & kOffset);
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0u) : "memory");
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
    asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(signal), "r"(16u) : "memory");
  }
}
