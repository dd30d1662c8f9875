// SPDX-License-Identifier: Apache-2.0
// Copies of a CTA pair: cp.async.bulk.tensor with .cta_group::2.
//
// Their bytes may count on an mbarrier of the other CTA of the pair, which Hopper's TMA cannot do: it signals the
// CTA that the bytes go to. Such a copy completes on an mbarrier that this library adds to the CTA, and threads
// of that CTA that poll pass its bytes on.
#pragma once
#include "state.cuh"

// As large as the alignment of a swizzled tile, so that what follows keeps its own.
__shared__ __align__(1024) u64 porter_landed[128];

__device__ __forceinline__ u32 landed_address(u32 index) {
  return (u32)__cvta_generic_to_shared(porter_landed) + 8 * index;
}

// At the beginning of a kernel.
PORTER_FN void porter_pair_begin() {
  if (thread_rank() != 0) return;
  for (u32 i = 0; i < kForwards; ++i)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(landed_address(i)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ bool has_landed(const Cta& c, u32 index) {
  u32 done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done) : "r"(landed_address(index)), "r"(peek(c.forwards[index].parity)) : "memory");
  return done;
}

// Passes on what has landed in this CTA. All threads of a warp may call this together: one of them does it.
static __device__ __noinline__ void pass_on(Cta& c) {
  u64 flying = peek(c.flying);
  while (flying) {
    u32 i = __ffsll(flying) - 1;
    u64 bit = 1ull << i;
    flying &= flying - 1;
    if (!has_landed(c, i)) continue;
    // What was seen may be an earlier use of the mbarrier: only who takes the bit knows.
    if (!(atomicAnd(&c.flying, ~bit) & bit)) continue;
    fence(true);
    if (!has_landed(c, i)) {
      atomicOr(&c.flying, bit);
      continue;
    }
    Forward& f = c.forwards[i];
    u32 bytes = peek(f.bytes), barrier = peek(f.barrier);
    *(volatile u32*)&f.parity = peek(f.parity) ^ 1;
    fence(true);
    asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    store_release(&f.busy, 0);
  }
}

// Bytes that a copy with a tiled tensor map moves: the format of porter/ptx/tensormap.py, which the simulator's driver
// writes, or the hardware's (porter/ptx/tensormap_hw.py).
static __device__ __noinline__ u32 copied_bytes(u64 map, u32 site) {
  const u32* words = (const u32*)map;
  u32 flags = words[2], rank, result;
  if ((words[0] & 0xFFFF) == 0x0254) {
    const unsigned char* bytes = (const unsigned char*)map;
    constexpr u64 sizes = 0x4442842884421ull;  // bytes of the types, 4 bits each
    rank = bytes[2], result = sizes >> 4 * bytes[3] & 0xF;
    for (u32 i = 0; i < rank && i < 5; ++i) {
      u32 box = bytes[56 + i] + 1, stride = i ? bytes[61 + i / 2] >> 4 * (i & 1) & 0xF : 1;
      result *= (box + stride - 1) / stride;
    }
  } else {
    constexpr u64 sizes = 0x28442884421ull;
    rank = (flags >> 4 & 7) + 1, result = (sizes >> 4 * (flags >> 7 & 0xF) & 0xF) * ((words[13] >> 24) + 1);
    if (flags & 1) result = 0;
    for (u32 i = 1; i < rank; ++i) {
      u32 box = (words[14] >> 8 * (i - 1) & 0xFF) + 1, stride = (words[13] >> 3 * i & 7) + 1;
      result *= (box + stride - 1) / stride;
    }
  }
  if (result == 0 || rank > 5) stop(kTrapTensorMap, site, flags);
  return result;
}

// CTAs of `mask` whose bytes count on an mbarrier of the CTA that they go to.
PORTER_FN u32 porter_pair_direct(u32 barrier, u32 mask) {
  return mask & (0x5555u << (barrier >> 24 & 1));
}

// Before a copy to the CTAs of `mask`: its bytes will count on `barrier` in the other CTA of each one's pair.
// Gives the mbarrier that the copy itself completes on.
PORTER_FN u32 porter_pair_copy(u32 barrier, u32 mask, u64 map, u32 site) {
  Cta& c = state(site);
  u32 rank = cta_rank();
  use_group(c, 2, site);
  // Four copies of each CTA may be on their way.
  u32 index = rank * 4, bytes = copied_bytes(map, site);
  u64 since = now();
  // Several threads of a CTA may issue copies.
  lock(c.copying);
  for (u32 slot = 0;; slot = (slot + 1) % 4) {
    u32 free = 1;
    for (u32 to = 0; to < 16; ++to)
      if (mask >> to & 1) free &= load_acquire(&porter_host.ctas[cta_of_rank(to)].forwards[index + slot].busy) == 0;
    if (free) {
      index += slot;
      break;
    }
    pass_on(c);
    if (now() > since + porter_host.patience) stop(kTrapStuck, site, peek(c.reserved), peek(c.executed));
  }
  for (u32 to = 0; to < 16; ++to)
    if (mask >> to & 1) *(volatile u32*)&porter_host.ctas[cta_of_rank(to)].forwards[index].busy = 1;
  unlock(c.copying);
  u32 landed = landed_address(index);
  for (u32 to = 0; to < 16; ++to) {
    if (!(mask >> to & 1)) continue;
    Cta& there = porter_host.ctas[cta_of_rank(to)];
    Forward& f = there.forwards[index];
    u32 other, counted;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(landed), "r"(to));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted) : "r"(barrier & kOffset), "r"(to ^ 1));
    *(volatile u32*)&f.bytes = bytes, *(volatile u32*)&f.barrier = counted;
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(other), "r"(bytes) : "memory");
    fence(true);
    atomicOr(&there.flying, 1ull << index);
  }
  return landed;
}
