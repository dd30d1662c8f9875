// SPDX-License-Identifier: Apache-2.0
// What lowered tcgen05 instructions call: issue of products and commits, and the work of waiting threads.
//
// Products are queued in the CTA, and threads whose poll of an mbarrier failed take 16 rows of the oldest operation
// at a time. Eager: the issuing thread goes on when its product is done, and computes it where no whole warp polls.
// Deferred: it goes on at once, and commits are queued too. Products onto the same accumulator that a thread issues
// one after another are one operation then, so that D is loaded once.
#include "management.cuh"
#include "others.cuh"
#include "pairs.cuh"
#include "warp.cuh"

__device__ __forceinline__ void arrive(u32 barrier, u32 multicast) {
  if (multicast == ~0u) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
    return;
  }
  for (u32 rank = 0; rank < 16; ++rank) {
    if (!(multicast >> rank & 1)) continue;
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(barrier & kOffset), "r"(rank));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
  }
}

// One step of the oldest pending operation of a CTA by the lanes in `mask`, which are together. False if there is
// nothing to take.
static __device__ __noinline__ bool work(u32 mask, u32 id) {
  Cta& c = porter_host.ctas[id];
  u32 t = thread_rank() % 32, leader = __ffs(mask) - 1;
  u32 index = 0, tile = 0, tiles = 0, taken = 0;
  Item* queue = porter_host.queue + (size_t)id * kQueue;
  if (t == leader) {
    u64 claim = peek(c.claim);
    index = (u32)(claim >> 32), tile = (u32)claim;
    Item& item = queue[index % kQueue];
    if (load_acquire(&item.ready) == index + 1) {
      tiles = peek(item.tiles);
      u32 pieces = tiles ? tiles : 1;
      // A commit signals mbarriers by the view of the CTA that issued it.
      if (tile < pieces && (tiles || id == cta_id())) taken = atomicCAS(&c.claim, claim, claim + 1) == claim;
    }
  }
  taken = __shfl_sync(mask, taken, leader);
  if (!taken) return false;
  index = __shfl_sync(mask, index, leader), tile = __shfl_sync(mask, tile, leader);
  tiles = __shfl_sync(mask, tiles, leader);
  Item& item = queue[index % kQueue];
  bool pair = is_pair(item.flags);
  fence(pair);
  if (tiles) {
    Work w = read_work(item);
    if (mask == ~0u && by_warp(w)) tile_by_warp(w, item, tile);
    else tile_by_threads(w, item, tile, __popc(mask & ((1u << t) - 1)), __popc(mask));
  } else if (t == leader) {
    arrive(item.barrier, item.multicast);
  }
  fence(pair);
  __syncwarp(mask);
  if (t == leader) {
    u32 pieces = tiles ? tiles : 1;
    if (atomicAdd(&item.finished, 1u) + 1 == pieces) {
      fence(pair);
      item.finished = 0;
      progress(c);
      atomicAdd(&c.executed, 1u);
      fence(pair);
      atomicExch(&c.claim, (u64)(index + 1) << 32);
    }
  }
  return true;
}

__device__ __forceinline__ Item& queued(u32 index) {
  return porter_host.queue[(size_t)cta_id() * kQueue + index % kQueue];
}

// The operation that steps were joined to goes to the workers.
static __device__ __noinline__ void close_open(Cta& c) {
  u32 open = atomicExch(&c.open, 0u);
  if (open) store_release(&queued(open - 1).ready, open);
}

// All that was issued before is done when this returns. By one thread.
static __device__ __noinline__ void drain(Cta& c) {
  lock(c.lock);
  close_open(c);
  unlock(c.lock);
  while (peek(c.reserved) != peek(c.executed))
    if (!work(1u << thread_rank() % 32, cta_id())) __nanosleep(64);
}

static __device__ __noinline__ u32 issue(Cta& c, const Item& made) {
  close_open(c);
  while (peek(c.reserved) - peek(c.executed) >= kQueue)
    if (!work(1u << thread_rank() % 32, cta_id())) __nanosleep(64);
  u32 index = atomicAdd(&c.reserved, 1u);
  Item& item = queued(index);
  item.steps[0] = made.steps[0], item.count = 1, item.enable = made.enable;
  item.d = made.d, item.idesc = made.idesc, item.flags = made.flags;
  item.tiles = made.tiles, item.barrier = made.barrier, item.multicast = made.multicast;
  item.metadata = made.metadata, item.scale_a = made.scale_a, item.scale_b = made.scale_b;
  item.site = made.site, item.thread = thread_rank(), item.finished = 0;
  for (int i = 0; i < 8; ++i) item.mask[i] = made.mask[i];
  // Only a commit shows whether the products before it are done, so they can wait for it.
  if (made.tiles) atomicExch(&c.open, index + 1);
  else store_release(&item.ready, index + 1);
  return index;
}

constexpr u64 kPatienceOfOne = 200000;   // ns

// Operation `index` of this CTA is done when this returns. Whole warps are a hundred times faster than the one thread
// that waits here: it works where no such warp has looked for work lately.
static __device__ __noinline__ void finish(Cta& c, const Cta& peer, u32 index, bool pair) {
  u64 since = now();
  while ((int)(peek(c.executed) - index) <= 0) {
    u64 helped = max(peek(c.whole), peek(peer.whole));
    bool alone = now() > max(since, helped) + kPatienceOfOne;
    if (!alone || !work(1u << thread_rank() % 32, cta_id())) __nanosleep(32);
  }
  fence(pair);
}

// The product as a further step of the operation before it.
static __device__ __noinline__ bool join(Cta& c, const Item& made) {
  u32 open = peek(c.open);
  if (!open) return false;
  Item& item = queued(open - 1);
  if (item.thread != thread_rank() || item.count == kSteps || item.d != made.d || item.idesc != made.idesc) return false;
  if (item.flags != made.flags || item.metadata != made.metadata) return false;
  if (item.scale_a != made.scale_a || item.scale_b != made.scale_b) return false;
  for (int i = 0; i < 8; ++i)
    if (item.mask[i] != made.mask[i]) return false;
  item.steps[item.count] = made.steps[0];
  item.enable |= made.enable << item.count;
  item.count += 1;
  return true;
}

static __device__ __noinline__ void product(u32 d, u64 a, u64 b, u32 idesc, u32 enable, u32 flags, const u32* mask, u32 site,
                                            u32 metadata = 0, u32 scale_a = 0, u32 scale_b = 0) {
  Item item;
  item.metadata = metadata, item.scale_a = scale_a, item.scale_b = scale_b;
  item.steps[0].a = a, item.steps[0].b = b, item.d = d, item.idesc = idesc, item.flags = flags;
  item.enable = enable, item.count = 1, item.site = site, item.barrier = item.multicast = 0;
  for (int i = 0; i < 8; ++i) item.mask[i] = mask[i];
  Cta& c = state(site);
  use_group(c, is_pair(flags) ? 2 : 1, site);
  Work w = read_work(item);
  check_work(w, item);
  item.tiles = tile_count(w);
  progress(c);
  lock(c.lock);
  if (porter_host.mode == kDeferred) {
    if (!join(c, item)) issue(c, item);
    unlock(c.lock);
  } else {
    u32 index = issue(c, item);
    close_open(c);
    unlock(c.lock);
    finish(c, porter_host.ctas[work_cta(w, w.own ^ 1)], index, is_pair(flags));
  }
}

PORTER_FN void porter_mma(u32 d, u64 a, u64 b, u32 idesc, u32 enable, u32 flags, u32 site) {
  u32 mask[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  product(d, a, b, idesc, enable, flags, mask, site);
}

PORTER_FN void porter_mma_masked(u32 d, u64 a, u64 b, u32 idesc, u32 enable, u32 flags, u32 m0, u32 m1, u32 m2, u32 m3,
                                 u32 m4, u32 m5, u32 m6, u32 m7, u32 site) {
  u32 mask[8] = {m0, m1, m2, m3, m4, m5, m6, m7};
  product(d, a, b, idesc, enable, flags, mask, site);
}

// The forms with sparsity or block scaling.
PORTER_FN void porter_mma_extended(u32 d, u64 a, u64 b, u32 idesc, u32 enable, u32 flags, u32 metadata, u32 scale_a,
                                   u32 scale_b, u32 m0, u32 m1, u32 m2, u32 m3, u32 m4, u32 m5, u32 m6, u32 m7, u32 site) {
  u32 mask[8] = {m0, m1, m2, m3, m4, m5, m6, m7};
  product(d, a, b, idesc, enable, flags, mask, site, metadata, scale_a, scale_b);
}

PORTER_FN void porter_commit(u32 barrier, u32 multicast, u32 group, u32 site) {
  Cta& c = state(site);
  use_group(c, group, site);
  progress(c);
  if (porter_host.mode == kDeferred) {
    Item item = {};
    item.barrier = barrier, item.multicast = multicast, item.site = site, item.flags = group == 2 ? kFlagPair : 0;
    lock(c.lock);
    issue(c, item);
    unlock(c.lock);
  } else {
    fence(group == 2);
    arrive(barrier, multicast);
  }
}

// tcgen05.cp: rows of shared memory to lanes, in each CTA of the group. `blocks` holds up to four (first row, rows,
// first lane).
PORTER_FN void porter_copy(u32 address, u64 descriptor, u32 row_words, u32 bits, u32 group, u32 blocks0, u32 blocks1, u32 blocks2,
                           u32 blocks3, u32 site) {
  Cta& c = state(site);
  use_group(c, group, site);
  if (porter_host.mode == kDeferred) drain(c);
  // Narrow floats come out in bytes of their own: 0b0xxxxxx0 and 0b00xxxx00.
  Rows r = read_operand(descriptor, false, bits < 8 ? 1 : 4, bits, site);
  u32 shift = bits == 6 ? 1 : bits == 4 ? 2 : 0;
  u32 column = address & 0xFFFF, lane = address >> 16;
  u32 blocks[4] = {blocks0, blocks1, blocks2, blocks3};
  u32 rank = cta_rank();
  for (u32 which = 0; which < group; ++which) {
    u32 to = which ? rank ^ 1 : rank, id = which ? cta_of_rank(to) : cta_id();
    const Cta& there = porter_host.ctas[id];
    if (!allocated(there, column, row_words)) stop(kTrapUnallocated, site, column, row_words, there.allocated);
    Place at = {window(to), which != 0};
    u32* memory = tensor_memory(id);
    for (u32 i = 0; i < 4; ++i) {
      u32 first = blocks[i] & 0xFF, count = blocks[i] >> 8 & 0xFF, begin = blocks[i] >> 16;
      for (u32 row = 0; row < count; ++row)
        for (u32 word = 0; word < row_words; ++word)
          *(volatile u32*)cell(memory, (lane + begin + row) % kLanes, column + word) = operand_word(r, at, first + row, word) << shift;
    }
  }
  fence(group == 2);
}

// tcgen05.shift: eight columns of 32 lanes, each lane of which takes what the next one held.
PORTER_FN void porter_shift(u32 address, u32 group, u32 site) {
  Cta& c = state(site);
  use_group(c, group, site);
  if (porter_host.mode == kDeferred) drain(c);
  u32 column = address & 0xFFFF, lane = address >> 16, rank = cta_rank();
  if (lane % 32 || lane >= kLanes) stop(kTrapLaneQuarter, site, lane, thread_rank() / 32);
  for (u32 which = 0; which < group; ++which) {
    u32 id = which ? cta_of_rank(rank ^ 1) : cta_id();
    const Cta& there = porter_host.ctas[id];
    if (!allocated(there, column, 8)) stop(kTrapUnallocated, site, column, 8, there.allocated);
    u32* memory = tensor_memory(id);
    for (u32 row = lane; row < lane + 31; ++row)
      for (u32 i = 0; i < 8; ++i)
        *(volatile u32*)cell(memory, row, column + i) = *(volatile u32*)cell(memory, row + 1, column + i);
  }
  fence(group == 2);
}

constexpr u64 kPatienceOfSome = 1000000, kPatienceOfAll = 20000;   // ns

__device__ __forceinline__ void poll(u32 mask, u32 site, u32 peer, bool pair) {
  Cta& c = state(site);
  u64 last = peek(c.progress), time = now();
  if (pair) last = max(last, peek(porter_host.ctas[peer].progress));
  // Threads that are not a whole warp are slow at this; they let whole warps do it where there are some.
  const bool whole = mask == ~0u;
  if (whole) *(volatile u64*)&c.whole = time;
  bool help = whole || (porter_host.mode == kDeferred && last != 0 && time > last + kPatienceOfAll &&
                        time > peek(c.whole) + kPatienceOfSome);
  help = __shfl_sync(mask, help, __ffs(mask) - 1);
  u32 done = 0;
  while (help && (work(mask, cta_id()) || (pair && work(mask, peer)))) {
    ++done;
    if (whole) *(volatile u64*)&c.whole = now();
  }
  if (done) return;
  if (last == 0) {
    atomicCAS(&c.progress, 0ull, time);
  } else if (time > last + porter_host.patience && time > peek(c.progress) + porter_host.patience) {
    stop(kTrapStuck, site, peek(c.reserved), peek(c.executed));
  }
  __nanosleep(64);
}

// Called by threads whose poll of an mbarrier failed.
PORTER_FN void porter_poll(u32 site) { poll(__activemask(), site, 0, false); }

// The same where CTAs work in pairs.
PORTER_FN void porter_pair_poll(u32 site) {
  Cta& c = state(site);
  u32 mask = __activemask();
  if (peek(c.flying)) pass_on(c);
  // Only whole warps count as such below.
  __syncwarp(mask);
  poll(mask, site, cta_of_rank(cta_rank() ^ 1), true);
}
