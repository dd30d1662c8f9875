// SPDX-License-Identifier: Apache-2.0
// Allocation of Tensor Memory and the addresses of tcgen05.ld and tcgen05.st.
#pragma once
#include "state.cuh"

// All 32 lanes. `address` is of shared::cta; a CTA that asks for more than its 512 columns would wait forever.
PORTER_FN void porter_alloc(u32 address, u32 columns, u32 site) {
  Cta& c = state(site);
  u32 lane = thread_rank() % 32;
  u32 start = 0;
  if (lane == 0) {
    if (columns < kUnit || columns > kColumns || (columns & (columns - 1))) stop(kTrapAllocSize, site, columns);
    if (c.relinquished) stop(kTrapAllocRelinquished, site, columns);
    u32 units = columns / kUnit, wanted = units == 32 ? ~0u : (1u << units) - 1;
    u32 found = 16;
    for (u32 at = 0; at + units <= 16; at += units) {
      if (!(c.allocated & (wanted << at))) { found = at; break; }
    }
    if (found == 16) stop(kTrapAllocFull, site, columns, c.allocated);
    c.allocated |= wanted << found;
    c.units[found] = (unsigned char)units;
    c.progress = now();
    start = found * kUnit;
  }
  start = __shfl_sync(~0u, start, 0);
  u32* memory = tensor_memory(cta_id());
  for (u32 row = 0; row < kLanes; ++row)
    for (u32 k = lane; k < columns; k += 32) *cell(memory, row, start + k) = 0xFFFFFFFFu;
  __threadfence();
  __syncwarp();
  if (lane == 0) asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(start) : "memory");
  __syncwarp();
}

PORTER_FN void porter_dealloc(u32 address, u32 columns, u32 site) {
  Cta& c = state(site);
  if (thread_rank() % 32 == 0) {
    u32 unit = (address & 0xFFFF) / kUnit;
    if (address % kUnit || address >= kColumns || columns % kUnit || c.units[unit % 16] != columns / kUnit || !columns)
      stop(kTrapDeallocWrong, site, address, columns, c.allocated);
    u32 pending = *(volatile u32*)&c.reserved - *(volatile u32*)&c.executed;
    if (pending) stop(kTrapDeallocPending, site, pending);
    c.units[unit] = 0;
    c.allocated &= ~(((1u << (columns / kUnit)) - 1) << unit);
    __threadfence();
  }
  __syncwarp();
}

PORTER_FN void porter_relinquish(u32 site) {
  if (thread_rank() % 32 == 0) state(site).relinquished = 1;
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
