// SPDX-License-Identifier: Apache-2.0
// What the lowered kernel keeps in global memory, and how it stops.
//
// Tensor Memory is an array of 128 lanes x 512 columns x 32 bits for each CTA, by linear CTA id. The host
// allocates everything, zeroes `ctas`, and writes `porter_host` before a launch; the layout of the structures
// is repeated in porter/hopper/library.py.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#define PORTER_FN extern "C" __device__ __noinline__

constexpr u32 kLanes = 128;
constexpr u32 kColumns = 512;
constexpr u32 kUnit = 32;            // columns of the smallest allocation
constexpr u32 kQueue = 256;          // operations that may be pending in one CTA

enum Trap : u32 {
  kTrapAllocSize = 1, kTrapAllocFull, kTrapAllocRelinquished, kTrapDeallocWrong, kTrapDeallocPending,
  kTrapUnallocated, kTrapLaneQuarter, kTrapAddressNotUniform, kTrapDescriptor, kTrapInstruction,
  kTrapAccumulatorLane, kTrapStuck, kTrapCapacity, kTrapPair,
};

constexpr u32 kReporting = 0x80000000u;   // a report that is being written

enum Mode : u32 { kEager = 0, kDeferred = 1 };
enum Arithmetic : u32 { kExact = 0, kFast = 1 };

struct Item {          // one pending operation
  u64 a, b;
  u32 d, idesc, flags, enable;
  u32 mask[8];         // lanes of D left alone
  u32 tiles;           // pieces that warps take one by one; 0: a commit
  u32 barrier, multicast;
  u32 site;
  u32 finished, ready;
  u32 unused[10];
};
static_assert(sizeof(Item) == 128, "layout known to the host");

struct Cta {
  u32 allocated;                 // one bit per unit of 32 columns
  u32 relinquished;
  unsigned char units[16];       // units of the allocation that begins here
  u64 progress;                  // global time of the last tensor-core operation, ns
  u64 claim;                     // operation << 32 | next tile
  u32 reserved;                  // operations issued
  u32 executed;
  u32 unused[4];
};
static_assert(sizeof(Cta) == 64, "layout known to the host");

struct Report {        // in host memory: the context does not outlive a trap
  u32 code, site;
  u32 block[3];
  u32 thread;
  u32 values[4];
};

struct Host {
  u32* tmem;
  Cta* ctas;
  Item* queue;
  Report* report;
  u64 patience;        // ns without a tensor-core operation before a waiting thread gives up
  u32 capacity;        // CTAs that the arrays have room for
  u32 mode, arithmetic;
  u32 unused;
};

extern "C" { __device__ Host porter_host; }

__device__ __forceinline__ u32 thread_rank() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ __forceinline__ u32 cta_id() {
  return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}
__device__ __forceinline__ u64 now() {
  u64 t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

static __device__ __noinline__ void stop(u32 code, u32 site, u32 v0 = 0, u32 v1 = 0, u32 v2 = 0) {
  Report* r = porter_host.report;
  if (r != nullptr && atomicCAS_system(&r->code, 0u, kReporting) != 0u) {
    // Whoever traps ends the whole grid: not before the first one has written its report.
    for (u32 i = 0; i < 100000 && *(volatile u32*)&r->code == kReporting; ++i) __nanosleep(200);
  } else if (r != nullptr) {
    r->site = site;
    r->block[0] = blockIdx.x, r->block[1] = blockIdx.y, r->block[2] = blockIdx.z;
    r->thread = thread_rank();
    r->values[0] = v0, r->values[1] = v1, r->values[2] = v2;
    __threadfence_system();
    *(volatile u32*)&r->code = code;
    __threadfence_system();
  }
  asm volatile("trap;");
}

__device__ __forceinline__ Cta& state(u32 site) {
  u32 id = cta_id();
  if (id >= porter_host.capacity) stop(kTrapCapacity, site, id, porter_host.capacity);
  return porter_host.ctas[id];
}
__device__ __forceinline__ u32* tensor_memory(u32 id) {
  return porter_host.tmem + (size_t)id * kLanes * kColumns;
}
__device__ __forceinline__ u32* cell(u32* memory, u32 lane, u32 column) {
  return memory + lane * kColumns + column;
}

// Columns first .. first+count-1 belong to allocations.
__device__ __forceinline__ bool allocated(const Cta& c, u32 first, u32 count) {
  if (first + count > kColumns) return false;
  u32 low = first / kUnit, high = (first + count - 1) / kUnit;
  u32 wanted = ((2u << high) - 1) & ~((1u << low) - 1);
  return (*(volatile const u32*)&c.allocated & wanted) == wanted;
}
