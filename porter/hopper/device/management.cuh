// SPDX-License-Identifier: Apache-2.0
// Allocation of Tensor Memory and the addresses of tcgen05.ld and tcgen05.st.
#pragma once
#include "state.cuh"

__device__ __forceinline__ u32 units_mask(u32 units) { return (1u << units) - 1; }

// The first unit of a run that is free in `taken`, aligned to its size; 16 if there is none.
__device__ __forceinline__ u32 find_free(u32 taken, u32 units) {
  for (u32 at = 0; at + units <= 16; at += units)
    if (!(taken & units_mask(units) << at)) return at;
  return 16;
}

__device__ __forceinline__ void wait_for_columns(u64 since, u32 code, u32 site, u32 columns, u32 taken) {
  if (now() > since + porter_host.patience) stop(code, site, columns, taken);
  __nanosleep(500);
}

// The SM whose columns this CTA takes. Blackwell runs the CTAs of a pair on two SMs, Hopper may run both on one: the
// even ones and the odd ones each share their columns then.
static __device__ __noinline__ void find_sm(Cta& c, u32 group) {
  if (c.sm || porter_host.columns == kOfCta) return;
  u32 id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  c.sm = (2 * id + (group == 2 ? cta_rank() % 2 : 0)) % kSms + 1;
}

// One bit per unit that this CTA cannot take.
__device__ __forceinline__ u32& taken_units(Cta& c) {
  u32 sm = peek(c.sm);
  return sm ? porter_host.sms[sm - 1].taken : c.allocated;
}
__device__ __forceinline__ u64 busy(Cta& c) {
  u32 sm = peek(c.sm);
  return sm ? peek(porter_host.sms[sm - 1].progress) : 0;
}

__device__ __forceinline__ bool take_units(u32& word, u32 units, u32 at) {
  u32 mask = units_mask(units) << at;
  for (u32 taken = peek(word); !(taken & mask);) {
    u32 before = atomicCAS(&word, taken, taken | mask);
    if (before == taken) return true;
    taken = before;
  }
  return false;
}

// The first unit of an allocation by one CTA; waits until the CTAs of its SM leave it one.
static __device__ __noinline__ u32 take_columns(Cta& c, u32 units, u32 site) {
  find_sm(c, 1);
  for (u64 since = now();;) {
    u32 taken = peek(taken_units(c)), at = find_free(taken, units);
    if (at < 16) {
      if (!take_units(taken_units(c), units, at)) continue;
      atomicOr(&c.allocated, units_mask(units) << at);
      return at;
    }
    wait_for_columns(max(since, busy(c)), kTrapAllocFull, site, units * kUnit, taken);
  }
}

// The same for a pair: columns that are free in both SMs, once both CTAs have asked. The even rank chooses.
static __device__ __noinline__ u32 take_pair_columns(Cta& c, u32 units, u32 site) {
  u32 rank = cta_rank();
  Cta& peer = porter_host.ctas[cta_of_rank(rank ^ 1)];
  find_sm(c, 2);
  u32 number = c.asked + 1;
  c.columns[number % 2] = units * kUnit;
  store_release(&c.asked, number);
  u64 since = now();
  while (load_acquire(&peer.asked) < number)
    wait_for_columns(max(since, busy(c)), kTrapPairAlone, site, units * kUnit, 0);
  u32 other = peek(peer.columns[number % 2]);
  if (other != units * kUnit) stop(kTrapPairAlloc, site, units * kUnit, other);
  for (;;) {
    u32 taken = peek(taken_units(c)) | peek(taken_units(peer)), at = find_free(taken, units);
    if (rank % 2) {
      u32 granted = load_acquire(&peer.granted);
      if (granted >> 16 >= number) return granted & 0xFFFF;
    } else if (at < 16) {
      if (!take_units(taken_units(c), units, at)) continue;
      if (take_units(taken_units(peer), units, at)) {
        atomicOr(&c.allocated, units_mask(units) << at);
        atomicOr(&peer.allocated, units_mask(units) << at);
        store_release(&c.granted, number << 16 | at);
        return at;
      }
      atomicAnd(&taken_units(c), ~(units_mask(units) << at));
    }
    wait_for_columns(max(since, max(busy(c), busy(peer))), kTrapAllocFull, site, units * kUnit, taken);
  }
}

// All 32 lanes. `address` is of shared::cta.
PORTER_FN void porter_alloc(u32 address, u32 columns, u32 group, u32 site) {
  Cta& c = state(site);
  u32 lane = thread_rank() % 32;
  u32 start = 0;
  if (lane == 0) {
    use_group(c, group, site);
    if (columns < kUnit || columns > kColumns || (columns & (columns - 1))) stop(kTrapAllocSize, site, columns);
    if (c.relinquished) stop(kTrapAllocRelinquished, site, columns);
    u32 units = columns / kUnit;
    u32 found = group == 2 ? take_pair_columns(c, units, site) : take_columns(c, units, site);
    c.units[found] = (unsigned char)units;
    progress(c);
    start = found * kUnit;
  }
  start = __shfl_sync(~0u, start, 0);
  u32* memory = tensor_memory(cta_id());
  for (u32 row = 0; row < kLanes; ++row)
    for (u32 k = lane; k < columns; k += 32) *cell(memory, row, start + k) = 0xFFFFFFFFu;
  fence(group == 2);
  __syncwarp();
  if (lane == 0 && group == 2) {
    // An operation that the other CTA issues next writes here as well.
    Cta& peer = porter_host.ctas[cta_of_rank(cta_rank() ^ 1)];
    store_release(&c.filled, c.asked);
    for (u64 since = now(); load_acquire(&peer.filled) < c.asked;)
      wait_for_columns(since, kTrapPairAlone, site, columns, 0);
  }
  if (lane == 0) asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(start) : "memory");
  __syncwarp();
}

PORTER_FN void porter_dealloc(u32 address, u32 columns, u32 group, u32 site) {
  Cta& c = state(site);
  if (thread_rank() % 32 == 0) {
    use_group(c, group, site);
    u32 unit = (address & 0xFFFF) / kUnit;
    if (address % kUnit || address >= kColumns || columns % kUnit || c.units[unit % 16] != columns / kUnit || !columns)
      stop(kTrapDeallocWrong, site, address, columns, c.allocated);
    u32 pending = peek(c.reserved) - peek(c.executed);
    if (pending) stop(kTrapDeallocPending, site, pending);
    c.units[unit] = 0;
    fence(group == 2);
    u32 left = ~(units_mask(columns / kUnit) << unit);
    atomicAnd(&c.allocated, left);
    atomicAnd(&taken_units(c), left);
    progress(c);
  }
  __syncwarp();
}

PORTER_FN void porter_relinquish(u32 group, u32 site) {
  if (thread_rank() % 32 == 0) {
    use_group(state(site), group, site);
    state(site).relinquished = 1;
  }
}

enum Shape : u32 { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };

// The first cell of this thread; the others lie at constant distances. `columns` are those that the whole
// access covers, `split` the distance of the second half of 16x32bx2.
PORTER_FN u64 porter_cells(u32 address, u32 shape, u32 packed, u32 columns, u32 split, u32 site) {
  Cta& c = state(site);
  u32 t = thread_rank() % 32, quarter = thread_rank() / 32 % 4;
  u32 lane = address >> 16, column = address & 0xFFFF;
  if (__shfl_sync(~0u, address, 0) != address) stop(kTrapAddressNotUniform, site, address);
  u32 alignment = shape == k32x32b ? 32 : 16;
  if (lane >= kLanes || (lane / 32 != 0 && lane / 32 != quarter) || lane % alignment)
    stop(kTrapLaneQuarter, site, lane, thread_rank() / 32);
  if (!allocated(c, column, columns) || (split && !allocated(c, column + split, columns)))
    stop(kTrapUnallocated, site, column, columns + split, c.allocated);
  u32 row = 0, first = 0;
  switch (shape) {
    case k32x32b: row = t; break;
    case k16x64b: row = t / 4 + 8 * (t % 2), first = t / 2 % 2; break;
    case k16x128b: row = t / 4, first = t % 4; break;
    case k16x256b: row = t / 4, first = 2 * (t % 4); break;
    default: row = t % 16; break;
  }
  if (packed) first *= 2;
  if (shape == k16x32bx2 && t >= 16) first += split;
  return (u64)cell(tensor_memory(cta_id()), quarter * 32 + lane % 32 + row, column + first);
}
