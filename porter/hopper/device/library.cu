// SPDX-License-Identifier: Apache-2.0
// What lowered tcgen05 instructions call: issue of products and commits, and the work of waiting threads.
//
// Eager: the issuing thread computes a product at once. Deferred: products and commits are queued in the CTA,
// and threads whose poll of an mbarrier failed take 16 rows of the oldest product at a time.
#include "management.cuh"
#include "product.cuh"

__device__ __forceinline__ void arrive(u32 barrier, u32 multicast) {
  if (multicast == ~0u) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
    return;
  }
  for (u32 rank = 0; rank < 16; ++rank) {
    if (!(multicast >> rank & 1)) continue;
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(barrier & 0xFFFFFF), "r"(rank));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
  }
}

static __device__ __noinline__ void whole_product(const Item& item) {
  Work w = read_work(item);
  for (u32 row = 0; row < w.rows; ++row) any_row(w, row, 0, 1);
}

__device__ __forceinline__ u32 shared_load_acquire(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_release(u32* p, u32 v) {
  asm volatile("st.release.cta.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// One step of the oldest pending operation by the lanes in `mask`, which are together. False if there is nothing
// to take.
static __device__ __noinline__ bool work(u32 mask) {
  Cta& c = porter_host.ctas[cta_id()];
  u32 t = thread_rank() % 32, leader = __ffs(mask) - 1;
  u32 index = 0, tile = 0, tiles = 0, taken = 0;
  Item* queue = porter_host.queue + (size_t)cta_id() * kQueue;
  if (t == leader) {
    u64 claim = *(volatile u64*)&c.claim;
    index = (u32)(claim >> 32), tile = (u32)claim;
    Item& item = queue[index % kQueue];
    if (shared_load_acquire(&item.ready) == index + 1) {
      tiles = *(volatile u32*)&item.tiles;
      u32 pieces = tiles ? tiles : 1;
      if (tile < pieces) taken = atomicCAS(&c.claim, claim, claim + 1) == claim;
      __threadfence_block();
    }
  }
  taken = __shfl_sync(mask, taken, leader);
  if (!taken) return false;
  index = __shfl_sync(mask, index, leader), tile = __shfl_sync(mask, tile, leader);
  tiles = __shfl_sync(mask, tiles, leader);
  Item& item = queue[index % kQueue];
  if (tiles) {
    Work w = read_work(item);
    if (mask == ~0u && by_warp(w)) {
      warp_tile(w, tile);
    } else {
      u32 rank = __popc(mask & ((1u << t) - 1)), step = __popc(mask);
      for (u32 row = tile * 16; row < tile * 16 + 16; ++row) any_row(w, row, rank, step);
    }
  } else if (t == leader) {
    arrive(item.barrier, item.multicast);
  }
  __threadfence();
  __syncwarp(mask);
  if (t == leader) {
    u32 pieces = tiles ? tiles : 1;
    if (atomicAdd(&item.finished, 1u) + 1 == pieces) {
      __threadfence_block();
      item.finished = 0;
      *(volatile u64*)&c.progress = now();
      atomicAdd(&c.executed, 1u);
      __threadfence_block();
      atomicExch(&c.claim, (u64)(index + 1) << 32);
    }
  }
  return true;
}

static __device__ void issue(const Item& made) {
  Cta& c = state(made.site);
  u32 index = atomicAdd(&c.reserved, 1u);
  while (index - *(volatile u32*)&c.executed >= kQueue) work(1u << thread_rank() % 32);
  Item& item = porter_host.queue[(size_t)cta_id() * kQueue + index % kQueue];
  item.a = made.a, item.b = made.b, item.d = made.d, item.idesc = made.idesc, item.flags = made.flags;
  item.enable = made.enable, item.tiles = made.tiles, item.barrier = made.barrier, item.multicast = made.multicast;
  item.site = made.site, item.finished = 0;
  for (int i = 0; i < 8; ++i) item.mask[i] = made.mask[i];
  __threadfence_block();
  store_release(&item.ready, index + 1);
}

static __device__ void product(u32 d, u64 a, u64 b, u32 idesc, u32 enable, u32 flags, const u32* mask, u32 site) {
  Item item;
  item.a = a, item.b = b, item.d = d, item.idesc = idesc, item.flags = flags, item.enable = enable;
  for (int i = 0; i < 8; ++i) item.mask[i] = i < 4 ? mask[i] : 0;
  item.site = site;
  Cta& c = state(site);
  Work w = read_work(item);
  item.tiles = w.rows / 16;
  *(volatile u64*)&c.progress = now();
  if (porter_host.mode == kDeferred) {
    issue(item);
  } else {
    whole_product(item);
    __threadfence();
  }
}

PORTER_FN void porter_mma(u32 d, u64 a, u64 b, u32 idesc, u32 enable, u32 flags, u32 site) {
  u32 mask[4] = {0, 0, 0, 0};
  product(d, a, b, idesc, enable, flags, mask, site);
}

PORTER_FN void porter_mma_masked(u32 d, u64 a, u64 b, u32 idesc, u32 enable, u32 flags, u32 m0, u32 m1, u32 m2, u32 m3,
                                 u32 site) {
  u32 mask[4] = {m0, m1, m2, m3};
  product(d, a, b, idesc, enable, flags, mask, site);
}

PORTER_FN void porter_commit(u32 barrier, u32 multicast, u32 site) {
  Cta& c = state(site);
  *(volatile u64*)&c.progress = now();
  if (porter_host.mode == kDeferred) {
    Item item = {};
    item.barrier = barrier, item.multicast = multicast, item.site = site;
    issue(item);
  } else {
    __threadfence();
    arrive(barrier, multicast);
  }
}

// tcgen05.cp: rows of shared memory to lanes. `blocks` holds up to four (first row, rows, first lane).
PORTER_FN void porter_copy(u32 address, u64 descriptor, u32 row_words, u32 blocks0, u32 blocks1, u32 blocks2, u32 blocks3,
                           u32 site) {
  Cta& c = state(site);
  while (porter_host.mode == kDeferred && *(volatile u32*)&c.reserved != *(volatile u32*)&c.executed)
    work(1u << thread_rank() % 32);
  Rows r = read_operand(descriptor, false, 4, site);
  u32 column = address & 0xFFFF, lane = address >> 16;
  if (!allocated(c, column, row_words)) stop(kTrapUnallocated, site, column, row_words, c.allocated);
  u32 blocks[4] = {blocks0, blocks1, blocks2, blocks3};
  u32* memory = tensor_memory(cta_id());
  for (u32 i = 0; i < 4; ++i) {
    u32 first = blocks[i] & 0xFF, count = blocks[i] >> 8 & 0xFF, to = blocks[i] >> 16;
    for (u32 row = 0; row < count; ++row)
      for (u32 word = 0; word < row_words; ++word)
        *(volatile u32*)cell(memory, (lane + to + row) % kLanes, column + word) = operand_word(r, first + row, word);
  }
  __threadfence();
}

// Called by threads whose poll of an mbarrier failed.
PORTER_FN void porter_poll(u32 site) {
  Cta& c = state(site);
  u32 mask = __activemask();
  u64 last = *(volatile u64*)&c.progress, time = now();
  if (porter_host.mode == kDeferred) {
    // A lone thread is slow at this; it lets whole warps go first.
    bool help = mask == ~0u || (last != 0 && time > last + 20000);
    help = __shfl_sync(mask, help, __ffs(mask) - 1);
    if (help && work(mask)) return;
  }
  if (last == 0) {
    atomicCAS(&c.progress, 0ull, time);
  } else if (time > last + porter_host.patience && time > *(volatile u64*)&c.progress + porter_host.patience) {
    stop(kTrapStuck, site, *(volatile u32*)&c.reserved, *(volatile u32*)&c.executed);
  }
  __nanosleep(64);
}

PORTER_FN void porter_fence() { __threadfence(); }
