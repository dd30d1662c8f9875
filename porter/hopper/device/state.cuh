// SPDX-License-Identifier: Apache-2.0
// What the lowered kernel keeps in global memory, and how it stops.
//
// Tensor Memory is an array of 128 lanes x 512 columns x 32 bits for each CTA, by linear CTA id; which columns are
// free is kept for each SM, whose CTAs share them. The host allocates everything, zeroes `ctas` and `sms`, and writes
// `porter_host` before a launch; the layout of the structures is repeated in porter/hopper/library.py.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#define PORTER_FN extern "C" __device__ __noinline__

constexpr u32 kLanes = 128;
constexpr u32 kColumns = 512;
constexpr u32 kUnit = 32;            // columns of the smallest allocation
constexpr u32 kQueue = 256;          // operations that may be pending in one CTA
constexpr u32 kSteps = 8;            // products onto one accumulator that make one operation
constexpr u32 kSms = 512;            // entries of `sms`
constexpr u32 kForwards = 64;        // copies of other CTAs whose completion a CTA passes on: 4 for each rank

enum Trap : u32 {
  kTrapAllocSize = 1, kTrapAllocFull, kTrapAllocRelinquished, kTrapDeallocWrong, kTrapDeallocPending,
  kTrapUnallocated, kTrapLaneQuarter, kTrapAddressNotUniform, kTrapDescriptor, kTrapInstruction,
  kTrapAccumulatorLane, kTrapStuck, kTrapCapacity, kTrapPair, kTrapPairAlloc, kTrapPairAlone, kTrapTensorMap,
  kTrapGroup,
};

constexpr u32 kReporting = 0x80000000u;   // a report that is being written

enum Mode : u32 { kEager = 0, kDeferred = 1 };
enum Arithmetic : u32 { kExact = 0, kFast = 1 };
enum Columns : u32 { kOfSm = 0, kOfCta = 1 };   // whose 512 columns an allocation takes

struct Step {          // descriptors of one product, or an address in Tensor Memory for `a`
  u64 a, b;
};

struct Item {          // one pending operation: up to kSteps products onto the same accumulator, or a commit
  Step steps[kSteps];
  u32 mask[8];         // lanes of D left alone, of both CTAs of a pair
  u32 d, idesc, flags;
  u32 count;           // steps
  u32 enable;          // a bit for each step: D is added
  u32 tiles;           // pieces that warps take one by one; 0: a commit
  u32 barrier, multicast;
  u32 site, thread;
  u32 finished, ready;
  u32 metadata;        // of a sparse A
  u32 scale_a, scale_b;  // factors of block scaling
  u32 unused[9];
};
static_assert(sizeof(Item) == 256, "layout known to the host");

struct Forward {       // a copy into this CTA whose bytes count on an mbarrier of another one
  u32 bytes, barrier, parity, busy;
};

struct Cta {
  u32 allocated;                 // one bit per unit of 32 columns
  u32 relinquished;
  unsigned char units[16];       // units of the allocation that begins here
  u64 progress;                  // global time of the last tensor-core operation, ns
  u64 claim;                     // operation << 32 | next tile
  u32 reserved;                  // operations issued
  u32 executed;
  u32 open;                      // number + 1 of the operation that further steps may join
  u32 group;                     // the cta_group that the CTA uses
  u64 flying;                    // a bit for each of `forwards` in use
  u32 asked;                     // allocations of a pair that this CTA has asked for
  u32 columns[2];                // the sizes of the last two
  u32 granted;                   // even rank: allocations made << 16 | first column of the last one
  u32 filled;                    // allocations of a pair whose cells hold NaN by now
  u32 lock;                      // held while operations are queued
  u64 whole;                     // global time when a whole warp last looked for work
  u32 sm;                        // entry of `sms` + 1, once the CTA has asked for its columns
  u32 copying;                   // held while a copy of a pair takes its place among `forwards`
  u32 unused[6];
  Forward forwards[kForwards];
};
static_assert(sizeof(Cta) == 128 + 16 * kForwards, "layout known to the host");

struct Sm {            // the Tensor Memory that the CTAs of one SM share
  u32 taken;           // one bit per unit of 32 columns
  u32 unused;
  u64 progress;        // global time of the last tensor-core operation of any of them, ns
};

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
  Sm* sms;
  Report* report;
  u64 patience;        // ns without a tensor-core operation before a waiting thread gives up
  u32 capacity;        // CTAs that the arrays have room for
  u32 mode, arithmetic;
  u32 columns;         // enum Columns
};

extern "C" { __device__ Host porter_host; }

template <typename T>
__device__ __forceinline__ T peek(const T& value) { return *(volatile const T*)&value; }

__device__ __forceinline__ u32 thread_rank() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ __forceinline__ u32 cta_id() {
  return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}
__device__ __forceinline__ u32 cta_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The linear id of the CTA of this cluster with rank `rank`.
static __device__ __noinline__ u32 cta_of_rank(u32 rank) {
  u32 nx, ny, x, y, z;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(nx));
  asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(ny));
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
  asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(y));
  asm("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(z));
  x = blockIdx.x - x + rank % nx, y = blockIdx.y - y + rank / nx % ny, z = blockIdx.z - z + rank / (nx * ny);
  return x + gridDim.x * (y + gridDim.y * z);
}
// Shared-memory offsets are the same in all CTAs; an address carries the rank in the cluster as well.
__device__ __forceinline__ u32 window(u32 rank) {
  u32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(0u), "r"(rank));
  return address;
}
constexpr u32 kOffset = 0xFFFFFF;

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

// The CTA does something: neither those that wait for its barriers nor those that wait for its columns give up yet.
__device__ __forceinline__ void progress(Cta& c) {
  u64 time = now();
  *(volatile u64*)&c.progress = time;
  if (c.sm) *(volatile u64*)&porter_host.sms[c.sm - 1].progress = time;
}

// Columns first .. first+count-1 belong to allocations.
__device__ __forceinline__ bool allocated(const Cta& c, u32 first, u32 count) {
  if (first + count > kColumns) return false;
  u32 low = first / kUnit, high = (first + count - 1) / kUnit;
  u32 wanted = ((2u << high) - 1) & ~((1u << low) - 1);
  return (peek(c.allocated) & wanted) == wanted;
}

// A kernel uses one cta_group throughout, and a pair is an even rank and the next odd one.
static __device__ __noinline__ void use_group(Cta& c, u32 group, u32 site) {
  if (c.group == group) return;
  if (c.group != 0) stop(kTrapGroup, site, group, c.group);
  u32 size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (group == 2 && size % 2) stop(kTrapPair, site, size);
  c.group = group;
}

static __device__ __noinline__ void lock(u32& word) {
  while (atomicCAS(&word, 0u, 1u) != 0u) __nanosleep(32);
  asm volatile("fence.acq_rel.cta;" ::: "memory");
}
__device__ __forceinline__ void unlock(u32& word) {
  asm volatile("fence.acq_rel.cta;" ::: "memory");
  atomicExch(&word, 0u);
}

// Operations of a pair touch the memory of both CTAs, which run on two SMs.
__device__ __forceinline__ void fence(bool pair) {
  if (pair) asm volatile("fence.acq_rel.gpu;" ::: "memory");
  else asm volatile("fence.acq_rel.cta;" ::: "memory");
}
__device__ __forceinline__ u32 load_acquire(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_release(u32* p, u32 v) {
  asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
