// SPDX-License-Identifier: Apache-2.0
// What a port brings along: small wrappers around tcgen05 and Tensor Memory.
//
// A section is written if its condition holds, or once for each value of a list; in it, so are the lines between
// `//@ if` or `//@ for` and `//@ end`. $names are values, all of porter/passes/helpers.py. $at_x is where the field x of
// an instruction descriptor begins.

//@ section once if file
#pragma once

//@ section integers if file or integers
//@ if file
#include <cstddef>
//@ end
#include <cstdint>

//@ section begin
// ---- Tensor Memory and tcgen05 (sm_100a) --------------------------------------------------------

namespace tcgen05 {

//@ section ring if not own_thread
// MMA batches that a warpgroup can have in flight: how far its deepest wait lags behind its commits.
constexpr uint32_t kRing = $ring;

//@ section buffers if own_thread
// Accumulators of a tile that there are: while threads read one, MMAs of the next tile write another.
constexpr uint32_t kBuffers = $buffers;

//@ section operands if register_kinds
// A operands from registers that a warpgroup can have in Tensor Memory at a time.
constexpr uint32_t kOperands = $operands;

//@ section thread_rank if linear_thread
__device__ __forceinline__ uint32_t thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

//@ section thread_index if joined and not permuted
// The index of the thread whose rows this one has. Lane L of an M=128 tile holds row L. Warp w of a warpgroup reaches
// lanes 32w to 32w + 31, and takes the first 16 in one warpgroup, the others in the next: rows 16(2w) and 16(2w + 1),
// which m64 tiles gave to warps 2w and 2w + 1 of the eight.
__device__ __forceinline__ unsigned int thread_index() {
//@ if issuer
    const unsigned int warp = threadIdx.x / 32 - $issuer;
//@ else
    const unsigned int warp = threadIdx.x / 32;
//@ end
    if (warp >= 8) return threadIdx.x;
//@ if issuer
    return ($issuer + warp % 4 * 2 + warp / 4) * 32 + threadIdx.x % 32;
//@ else
    return (warp % 4 * 2 + warp / 4) * 32 + threadIdx.x % 32;
//@ end
}

//@ section tile_row if stacked and not permuted
// What stands for 64 times the index of a tile, where 16 times that of the warp is added. Lane L of an M=128 tile holds
// row L. Warp w of a warpgroup reaches lanes 32w to 32w + 31, and has rows 32w to 32w + 15 as its part of the first tile,
// the others as that of the second.
template <typename Index>
__device__ __forceinline__ Index tile_row(Index tile) {
    return (tile + static_cast<Index>(threadIdx.x / 32 % 4)) * 16;
}

//@ section rows_of_a if permuted
// Where 16 rows of A belong in shared memory, the ones with the number `part` of a load that begins at `rows` with the
// 16 rows `first` of a tile. Lane L of an M=128 tile holds row L of A. Row 16w+r of the first m64 tile is to be in lane
// 32w+r, where threads look for it, and that of the second in lane 32w+16+r.
template <int kRowBytes, typename Place>
__device__ __forceinline__ Place rows_of_a(Place rows, int part, int first = 0) {
    const int from = first + part;
    const int to = from / 8 * 8 + from % 4 * 2 + from / 4 % 2;
    return (Place)((uintptr_t)rows + (to - first) * (16 * kRowBytes));
}

//@ section shared_address
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

//@ section sync
// tcgen05 operations are ordered against those of other threads only through a pair of these around the
// barrier between them.
__device__ __forceinline__ void fence_before_sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void fence_after_sync() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

//@ if joined
// The eight warps of both warpgroups meet, on named barrier $first_barrier: one MMA is for all of them.
__device__ __forceinline__ void sync_warpgroup() {
    fence_before_sync();
    asm volatile("bar.sync $first_barrier, 256;" ::: "memory");
    fence_after_sync();
}
//@ else
// The four warps of a warpgroup meet, on named barrier $first_barrier for warpgroup 0 and so on downwards.
__device__ __forceinline__ void sync_warpgroup() {
    fence_before_sync();
    asm volatile("bar.sync %0, 128;" ::"r"($first_barrier - $thread / 128) : "memory");
    fence_after_sync();
}
//@ end

//@ if paired
// Both CTAs of a pair meet, with all of their threads.
__device__ __forceinline__ void sync_pair() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

//@ end
// Waits until an mbarrier has completed the phase of this parity.
__device__ __forceinline__ void wait_phase(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "WAIT:\n"
//@ if paired or called_empty
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%0], %1;\n"
//@ else
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
//@ end
        "@!complete bra WAIT;\n"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

//@ if joined
// True in the one thread that issues for both warpgroups: the elected lane of the first warp.
__device__ __forceinline__ bool elect_issuer() {
    uint32_t elected = 0;
    if ($thread / 32 == $issuer) {
//@ else
// True in the one thread that issues for its warpgroup: the elected lane of the first warp.
__device__ __forceinline__ bool elect_issuer() {
    uint32_t elected = 0;
    if ($thread / 32 % 4 == 0) {
//@ end
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "elect.sync _|p, 0xffffffff;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}"
            : "=r"(elected));
    }
    return elected != 0;
}

//@ section pair if paired
// The two CTAs of a cluster are a pair: one issues MMAs for both, each has half of their rows and half of their columns
// in its shared memory. A pair does the work of one CTA for half the rows and half the columns of the product; its first
// CTA does so for the first half of each, and the second one for the second half.
constexpr uint16_t kBothOfPair = 3;  // ranks in the cluster, as a mask
__device__ __forceinline__ int pair_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}
__device__ __forceinline__ unsigned int pair_index() { return blockIdx.x / 2; }
__device__ __forceinline__ unsigned int pair_count() { return gridDim.x / 2; }

// Half of the rows or columns of a product, in whole tiles.
template <typename Size>
__device__ __forceinline__ Size half_of(Size size, int tile) {
    return (size + 2 * tile - 1) / (2 * tile) * tile;
}

// The same place in the first CTA of the pair, whose mbarriers count the bytes of both.
__device__ __forceinline__ uint32_t of_first(uint32_t address) {
    uint32_t found;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(found) : "r"(address));
    return found;
}

// Waits for what both CTAs do.
__device__ __forceinline__ void wait_of_pair(const void* mbarrier, uint32_t parity) {
    wait_phase(shared_address(mbarrier), parity);
}

// Stages that a thread has filled.
struct PairLoads {
    uint32_t first = 0;  // mbarrier by which the first of them is given back
    uint32_t used = 0;   // a bit for each that is, by its distance from the first
    uint32_t turns = 0;  // which of them an odd number of times

    // Arrives on the first CTA's `full`, which expects so many bytes more, of a stage that `empty` gives back.
    __device__ __forceinline__ void expect(const void* full, const void* empty, uint32_t bytes) {
        asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(of_first(shared_address(full))), "r"(bytes)
                     : "memory");
        const uint32_t address = shared_address(empty);
        if (used == 0) first = address;
        const uint32_t bit = 1u << (address - first) / 8 % 32;
        used |= bit;
        turns ^= bit;
    }

    // Waits until all of them are given back: no arrival comes when this CTA may be gone.
    __device__ __forceinline__ void drain() const {
        for (uint32_t i = 0; i < 32; ++i) {
            if (used >> i & 1) wait_phase(first + 8 * (i < 16 ? i : i - 32), (turns >> i & 1) ^ 1);
        }
    }
};

// Loads a box into this CTA's shared memory; its bytes count on the first CTA's mbarrier.
__device__ __forceinline__ void load_of_pair(const void* to, const void* map, const void* mbarrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%3, %4}], [%2];"
        ::"r"(shared_address(to)), "l"(map), "r"(of_first(shared_address(mbarrier))), "r"(x), "r"(y)
        : "memory");
}

//@ section mma_thread if own_thread
// True in the one thread that waits for stages and issues the MMAs of all consumers: the elected lane of a warp that has
// nothing else to do.
__device__ __forceinline__ bool elect_mma_thread() {
    uint32_t elected = 0;
//@ if paired
    // one CTA of a pair issues for both
    if ($thread / 32 == $mma_warp && pair_rank() == 0) {
//@ else
    if ($thread / 32 == $mma_warp) {
//@ end
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "elect.sync _|p, 0xffffffff;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}"
            : "=r"(elected));
    }
    return elected != 0;
}

//@ section arrive if own_thread
//@ if paired
// Arrives on the mbarrier at this place in the first CTA of the pair.
__device__ __forceinline__ void arrive(uint32_t mbarrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(of_first(mbarrier)) : "memory");
}
//@ else
__device__ __forceinline__ void arrive(uint32_t mbarrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mbarrier) : "memory");
}
//@ end

//@ section release if releases
// Gives a stage back: its mbarrier has one arrival more once all MMAs issued so far are complete.
//@ if own_thread
//@ if paired
// Both CTAs of a pair load a part of it.
__device__ __forceinline__ void release(uint32_t mbarrier) {
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(mbarrier), "h"(kBothOfPair)
                 : "memory");
}
//@ else
__device__ __forceinline__ void release(uint32_t mbarrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(mbarrier)
                 : "memory");
}
//@ end
//@ else
__device__ __forceinline__ void release(uint32_t mbarrier) {
    if (elect_issuer()) {
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(mbarrier)
                     : "memory");
    }
}
//@ end
__device__ __forceinline__ void release(const void* mbarrier) { release(shared_address(mbarrier)); }
// Of an object that is an mbarrier.
template <class Barrier>
__device__ __forceinline__ auto release(Barrier& mbarrier) -> decltype(mbarrier.arrive(), void()) {
    static_assert(sizeof(Barrier) == sizeof(uint64_t), "this object is no mbarrier");
    release(static_cast<const void*>(&mbarrier));
}

//@ section accumulator
// An m${m}nN accumulator in Tensor Memory: N columns, one lane per row. Its first MMA overwrites it, later
// ones add to it.
//@ if tracked
struct Warpgroup;

//@ end
struct Accumulator {
    uint32_t address = 0;
    bool accumulate = false;
//@ if scaled
    uint32_t row_factors = 0;  // for MMAs from here on
    uint32_t column_factors = 0;
//@ end
//@ if tracked
    bool newer = false;  // than its registers
    uint32_t batch = 0;  // of its last MMA
    const Warpgroup* owner = nullptr;
//@ end
//@ if uses_clear

    __device__ __forceinline__ void clear() { accumulate = false; }
//@ end
};

//@ section tile if count_type
// One whose register count shows in its type, for overloads and template arguments that go by it.
template <$count_type kRegisters>
struct Tile : Accumulator {};

//@ section tile_of if class_tiles
// One that shows the class of its registers, for overloads and template arguments that go by it.
template <typename Registers>
struct TileOf : Accumulator {};

//@ section clear if tile_arrays and uses_clear
__device__ __forceinline__ void clear(Accumulator& tile) { tile.clear(); }

template <typename Tiles, uint32_t kTiles>
__device__ __forceinline__ void clear(Tiles (&tiles)[kTiles]) {
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) clear(tiles[i]);
}

//@ section each_tile if own_thread
// Every tile of an array, or the one that it is.
template <typename Use>
__device__ __forceinline__ void each_tile(Accumulator& tile, Use use) {
    use(tile);
}
//@ if tile_arrays
template <typename Tiles, uint32_t kTiles, typename Use>
__device__ __forceinline__ void each_tile(Tiles (&tiles)[kTiles], Use use) {
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) each_tile(tiles[i], use);
}
//@ end

//@ section warpgroup
//@ if own_thread
// What a warpgroup needs to read the sums of a tile, and the thread that issues to make them.
struct Warpgroup {
    uint32_t tmem;      // first column of this tile's accumulators, at lane offset 0 or 16
    uint32_t full;      // shared address of kBuffers mbarriers: sums are complete; behind them as many: they are read
    uint32_t turn = 0;  // tiles before this one
//@ if double_buffered
    uint32_t first = 0;    // what `tmem` is of the first accumulator
    uint32_t columns = 0;  // of one accumulator
//@ end
//@ if may_be_empty
    uint32_t made = 0;  // shared address of as many words: which tiles have a sum at all
//@ end
//@ else
// What a warpgroup needs to issue MMAs and to learn that they are complete.
struct Warpgroup {
    uint32_t tmem;           // first column of its accumulators, at lane offset 0 or 16
    uint32_t done;           // shared address of kRing mbarriers, on which its commits arrive
//@ if scaled
    uint32_t factors;        // first column of factors, at lane 0
    uint32_t staged;         // shared address of those of a turn, behind which an mbarrier says that they are copied
    uint32_t scaled = 0;     // turns so far
//@ end
    uint32_t committed = 0;  // batches committed so far
//@ end
//@ if shares
    uint32_t first_given = 0;  // mbarrier that it gave back first, for all CTAs
    uint32_t used = 0;       // a bit for each that it gave back, by its distance from the first
    uint32_t turns = 0;      // which of them an odd number of times
//@ end
//@ if register_kinds
    uint32_t operands = 0;   // A operands that MMAs may still read
    bool open = false;       // whether some of them are in no batch yet
    uint32_t operand_column = 0;  // where they begin, behind the accumulators
//@ end
//@ if tracked or guarded_commit
    uint32_t complete = 0;   // batches known to be over
//@ end
//@ if tile_arrays or tracked

//@ if stacked
    // Lays out two tiles in the same columns: one takes the lower 16 of the 32 lanes that each warp can reach.
    template <typename Tiles, uint32_t kTiles>
    __device__ __forceinline__ void place(Tiles (&tiles)[kTiles], uint32_t, uint32_t) const {
        static_assert(kTiles == 2, "an M=128 MMA is for two tiles");
        tiles[0].address = tmem;
        tiles[1].address = tmem + (1u << $half_lane_bit);
    }
//@ else
    // Lays out tiles of `columns` columns each, from column `first` on.
    template <typename Tiles, uint32_t kTiles>
    __device__ __forceinline__ void place(Tiles (&tiles)[kTiles], uint32_t first, uint32_t columns) const {
        constexpr uint32_t kEach = sizeof(Tiles) / sizeof(Accumulator);
#pragma unroll
        for (uint32_t i = 0; i < kTiles; ++i) place(tiles[i], first + i * kEach * columns, columns);
    }
    __device__ __forceinline__ void place(Accumulator& tile, uint32_t first, uint32_t) const {
        tile.address = tmem + first;
//@ if tracked
        tile.owner = this;
//@ end
    }
//@ end
//@ end

//@ if shares
    // Gives a stage of all CTAs of a cluster back: the mbarrier at this place has one arrival more in each of `ctas`
    // once all MMAs issued so far are complete.
    __device__ __forceinline__ void release(const void* mbarrier, uint16_t ctas) {
//@ if not own_thread
        if (!elect_issuer()) return;
//@ end
        const uint32_t address = shared_address(mbarrier);
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(address), "h"(ctas)
                     : "memory");
        if (used == 0) first_given = address;
        const uint32_t bit = 1u << (address - first_given) / 8 % 32;
        used |= bit;
        turns ^= bit;
    }
    __device__ __forceinline__ void release(const uint64_t& mbarrier, uint16_t ctas) { release(&mbarrier, ctas); }

//@ if called_empty
    // Waits until all CTAs called the stages empty, and gave back what this one did: no arrival comes after it, when this
    // CTA may be gone.
    __device__ __forceinline__ void drain(const void* mbarriers, uint32_t stages) const {
//@ if not own_thread
        if (!elect_issuer()) return;
//@ end
        for (uint32_t i = 0; i < stages; ++i) {
            const uint32_t address = shared_address(mbarriers) + 8 * i, bit = (address - first_given) / 8 % 32;
            // the first phase is the one in which the stage is called empty
            wait_phase(address, used >> bit & 1 ? turns >> bit & 1 : 0);
        }
    }
//@ else
    // Waits until all CTAs gave back what this one did: no arrival comes after it, when this CTA may be gone.
    __device__ __forceinline__ void drain() const {
//@ if not own_thread
        if (!elect_issuer()) return;
//@ end
        for (uint32_t i = 0; i < 32; ++i) {
            if (used >> i & 1) wait_phase(first_given + 8 * (i < 16 ? i : i - 32), (turns >> i & 1) ^ 1);
        }
    }
//@ end

//@ end
//@ if own_thread
    // In front of the first MMA of a tile: its accumulator has been read.
    template <typename... Tiles>
    __device__ __forceinline__ void begin(Tiles&... tiles) {
        wait_phase(full + (kBuffers + turn % kBuffers) * 8, turn / kBuffers % 2 ^ 1);
        fence_after_sync();
        (place_turn(tiles), ...);
    }

    // Behind the last MMA of a tile: `full` completes a phase once all of them are complete.
    template <typename... Tiles>
    __device__ __forceinline__ void end(Tiles&... tiles) {
        const uint32_t barrier = full + turn % kBuffers * 8;
//@ if may_be_empty
        uint32_t found = 0, bit = 0;
        (each_tile(tiles, [&](Accumulator& tile) { found |= uint32_t(tile.accumulate) << bit++; }), ...);
//@ if paired
#pragma unroll
        for (uint32_t rank = 0; rank < 2; ++rank) {
            asm volatile(
                "{\n"
                ".reg .b32 word, full;\n"
                "mapa.shared::cluster.u32 word, %0, %3;\n"
                "mapa.shared::cluster.u32 full, %1, %3;\n"
                "st.shared::cluster.b32 [word], %2;\n"
                "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [full];\n"
                "}" ::"r"(made + turn % kBuffers * 4),
                "r"(barrier), "r"(found), "r"(rank)
                : "memory");
        }
//@ else
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(made + turn % kBuffers * 4), "r"(found) : "memory");
        arrive(barrier);
//@ end
//@ end
//@ if paired
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(barrier), "h"(kBothOfPair)
                     : "memory");
//@ else
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                     : "memory");
//@ end
        next();
    }

    // In front of the first use of the sums of a tile.
    template <typename... Tiles>
    __device__ __forceinline__ void take(Tiles&... tiles) {
        wait_phase(full + turn % kBuffers * 8, turn / kBuffers % 2);
        __syncwarp();  // lanes go on together, as behind wgmma.wait_group
        fence_after_sync();
        (place_turn(tiles), ...);
//@ if may_be_empty
        uint32_t found, bit = 0;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(found) : "r"(made + turn % kBuffers * 4) : "memory");
        (each_tile(tiles, [&](Accumulator& tile) { tile.accumulate = found >> bit++ & 1; }), ...);
//@ else
        (each_tile(tiles, [](Accumulator& tile) { tile.accumulate = true; }), ...);
//@ end
    }

    // Behind the last load of them: MMAs may write there again.
    __device__ __forceinline__ void give_back() {
        fence_before_sync();
        arrive(full + (kBuffers + turn % kBuffers) * 8);
        next();
    }

  private:
    template <typename Tiles>
    __device__ __forceinline__ void place_turn(Tiles& tiles) const {
//@ if double_buffered
        each_tile(tiles, [&](Accumulator& tile) { tile.address = tmem + (tile.address - first) % columns; });
//@ end
    }

    __device__ __forceinline__ void next() {
        ++turn;
//@ if double_buffered
        tmem = first + turn % kBuffers * columns;
//@ end
    }
//@ else
    // Closes a batch: its mbarrier completes a phase once all MMAs issued so far are complete.
    __device__ __forceinline__ void commit() {
//@ if guarded_commit
        if (committed - complete >= kRing) {
            wait(kRing - 1);  // room in the ring
//@ if not sync_in_wait
            sync_warpgroup();  // all warps have seen it, ahead of the batch whose completion would look alike
//@ end
        }
//@ end
        if (elect_issuer()) {
//@ if deep
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(done + committed % kRing * 8)
//@ else
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(done)
//@ end
                         : "memory");
        }
        ++committed;
//@ if register_kinds
        open = false;
//@ end
    }

    // Waits until at most `pending` batches are in flight.
//@ if register_kinds or tracked or guarded_commit
    __device__ __forceinline__ void wait(uint32_t pending) {
//@ else
    __device__ __forceinline__ void wait(uint32_t pending) const {
//@ end
//@ if register_kinds
        if (pending == 0 && !open) operands = 0;
//@ end
        if (committed <= pending) {
            __syncwarp();  // lanes go on together, as behind wgmma.wait_group
            return;
        }
        const uint32_t batch = committed - pending - 1;
//@ if deep
        wait_phase(done + batch % kRing * 8, batch / kRing % 2);
//@ else
        wait_phase(done, batch % 2);
//@ end
//@ if tracked or guarded_commit
        complete = max(complete, committed - pending);
//@ end
//@ if sync_in_wait
        sync_warpgroup();  // no warp runs ahead by a batch
//@ else
        __syncwarp();  // lanes go on together, as behind wgmma.wait_group
        fence_after_sync();
//@ end
    }
//@ if register_kinds

    // Stores a warp's fragment of a 64-row A operand, 32 bytes of K, behind the accumulators; gives its address.
    __device__ __forceinline__ uint32_t store_operand(uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
        if (operands == kOperands) {
//@ if not guarded_commit
            wait(kRing - 1);  // room in the ring
//@ if not sync_in_wait
            sync_warpgroup();  // all warps have seen it, ahead of the batch whose completion would look alike
//@ end
//@ end
            commit();
            wait(0);
        }
        open = true;
        const uint32_t operand = tmem + operand_column + $operand_columns * operands++;
        asm volatile("tcgen05.st.sync.aligned.16x128b.x2.b32 [%4], {%0, %1, %2, %3};"
                     :
                     : "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(operand + ($thread / 32 % 4 << $quarter_bit))
                     : "memory");
        asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
        return operand;
    }
//@ end
//@ end
};

//@ section scale if scaled
// The exponent of a power of two, as ue8m0 has it. Powers that no normal float has count as 2^-127, and infinity as NaN.
// The nearest power is taken, whatever the last bits of a function's result are.
__device__ __forceinline__ uint32_t exponent_of(float power) {
    const uint32_t bits = __float_as_uint(power);
    return bits < 0x00800000u ? 0 : min((bits + 0x00400000u) >> 23, 255u);
}

// Factors of the rows that MMAs from here on add to: `upper` of row lane / 4 of this warp's, `lower` of the one 8 rows
// below. All threads of both warpgroups call it.
//@ if column_factors
// `columns` gives all of them the factor of each of the `n` columns.
template <typename Columns>
__device__ __forceinline__ void scale(Warpgroup& tc, Accumulator& d, float upper, float lower, uint32_t n, Columns columns) {
//@ else
__device__ __forceinline__ void scale(Warpgroup& tc, Accumulator& d, float upper, float lower) {
//@ end
    // those of the turn before have been copied, and MMAs of the one before that have read theirs
    wait_phase(tc.staged + $staged_bytes, (tc.scaled + 1) % 2);
    fence_after_sync();
    const uint32_t lane = $thread % 32, half = tc.tmem >> $half_lane_bit & 1;
    if (lane % 4 < 2) {
        const uint32_t row = half * 16 + lane % 4 * 8 + lane / 4;
        const uint32_t word = tc.staged + row * 16 + $thread / 32 % 4 * 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(word), "r"(exponent_of(lane % 4 == 0 ? upper : lower)) : "memory");
    }
//@ if column_factors
    const uint32_t column = half * 128 + $thread % 128;
    if (column < n) {
        const uint32_t word = tc.staged + (1 + column / 128) * $factor_bytes + column % 32 * 16 + column % 128 / 32 * 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(word), "r"(exponent_of(columns(column))) : "memory");
    }
//@ end
    // the copy reads what threads have written
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    sync_warpgroup();
    d.row_factors = tc.factors + tc.scaled % 2 * $factor_set;
    d.column_factors = $columns_at;
    if (elect_issuer()) {
        // 32 rows of 16 bytes, to all four quarters of the lanes; MMAs of this thread come behind it
        const uint64_t from = $staged_desc | tc.staged >> 4;
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(d.row_factors), "l"(from) : "memory");
//@ if column_factors
        for (uint32_t i = 0; i < (n + 127) / 128; ++i) {
            asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(d.column_factors + 4 * i),
                         "l"(from + (i + 1) * ($factor_bytes >> 4))
                         : "memory");
        }
//@ end
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(tc.staged + $staged_bytes)
                     : "memory");
    }
    ++tc.scaled;
}

//@ section raster if raster
// Rows of tiles in a group.
constexpr uint32_t kGroup = $raster;

// Another number for each of `count` tiles, `across` of which are a row: one behind the other within a column of a group
// of rows, so that those that run at a time share rows and columns of the operands in L2.
__device__ __forceinline__ uint32_t raster(uint32_t tile, uint32_t across, uint32_t count) {
    const uint32_t down = count / across;
    if (tile >= down * across) return tile;
    const uint32_t first = tile / (kGroup * across) * kGroup;
    const uint32_t rows = min(down - first, kGroup);
    const uint32_t inside = tile - first * across;
    return (first + inside % rows) * across + inside / rows;
}
//@ if raster_numbers
template <typename Tile, typename Across, typename Count>
__device__ __forceinline__ Tile tile_quotient(Tile tile, Across across, Count count) {
    return static_cast<Tile>(raster(tile, across, count) / static_cast<uint32_t>(across));
}
template <typename Tile, typename Across, typename Count>
__device__ __forceinline__ Tile tile_remainder(Tile tile, Across across, Count count) {
    return static_cast<Tile>(raster(tile, across, count) % static_cast<uint32_t>(across));
}
//@ end
//@ if raster_grid
// Of a grid of tiles.
__device__ __forceinline__ uint3 raster(uint3 index) {
    const uint32_t tile = raster(index.y * gridDim.x + index.x, gridDim.x, gridDim.x * gridDim.y);
    return {tile % gridDim.x, tile / gridDim.x, index.z};
}
__device__ __forceinline__ uint3 block_index() { return raster(blockIdx); }
//@ end

//@ section tiles if tiles
// Answers to requests for a tile that there are: while all read one, the next one arrives.
constexpr uint32_t kAnswers = 2;

// The tiles that a CTA works on: its own, then those of CTAs that have not begun, whose launch it cancels. One thread
// asks for a tile while the one before it is loaded; each thread that loads, issues MMAs or stores reads the answer.
struct Tiles {
    uint32_t answers;    // shared address of kAnswers times 16 bytes
    uint32_t answered;   // of as many mbarriers: an answer is there; behind them as many: all have read it
    uint3 index;         // the place of the tile's CTA in the grid
    uint32_t begun = 0;  // tiles so far

    // Goes on to the next tile. False where there is none.
    __device__ __forceinline__ bool next() {
        if (begun++ == 0) return true;
        const uint32_t turn = begun - 2;
        const uint32_t slot = turn % kAnswers;
        uint32_t found;
        wait_phase(answered + slot * 8, turn / kAnswers % 2);
        asm volatile(
            "{\n"
            ".reg .pred found;\n"
            ".reg .b128 answer;\n"
            "ld.shared.b128 answer, [%4];\n"
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 found, answer;\n"
            "selp.u32 %3, 1, 0, found;\n"
            "@found clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%0, %1, %2, _}, answer;\n"
            "}"
            : "+r"(index.x), "+r"(index.y), "+r"(index.z), "=r"(found)
            : "r"(answers + slot * 16)
            : "memory");
        // what was read here is written by the asynchronous proxy next
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        arrive(answered + (kAnswers + slot) * 8);
//@ if raster_grid
        if (found != 0) index = raster(index);
//@ end
        return found != 0;
    }

    // One thread asks for the tile behind this one.
    __device__ __forceinline__ void ask() const {
//@ if many_loaders
        if ($thread != $tile_asker) return;
//@ end
        const uint32_t turn = begun - 1;
        const uint32_t slot = turn % kAnswers;
        const uint32_t barrier = answered + slot * 8;
        wait_phase(barrier + kAnswers * 8, turn / kAnswers % 2 ^ 1);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(barrier) : "memory");
        asm volatile(
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(
                answers + slot * 16),
            "r"(barrier)
            : "memory");
    }
};

//@ if tile_meets
// Behind a tile all warps that store meet, on named barrier $first_barrier: what is in shared memory has been read.
__device__ __forceinline__ void end_tile() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("bar.sync $first_barrier, $tile_storing;" ::: "memory");
}
//@ end

//@ section shared
// Shared memory of Tmem.
//@ if padded_shared
// A multiple of 1024 bytes, so that dynamic shared memory keeps its alignment behind it.
template <uint32_t kWarpgroups>
struct alignas(1024) Shared {
//@ else
template <uint32_t kWarpgroups>
struct Shared {
//@ end
//@ if own_thread
    uint64_t full[kBuffers];   // the sums of a tile are complete
    uint64_t empty[kBuffers];  // and read
//@ if may_be_empty
    uint32_t made[kBuffers];   // a bit for each tile that has a sum
//@ end
//@ if tiles
    alignas(16) uint32_t answers[kAnswers][4];  // which tile comes next
    uint64_t answered[2 * kAnswers];            // an answer is there; it has been read
//@ end
//@ else
    uint64_t done[kWarpgroups][kRing];
//@ end
//@ if scaled
//@ if column_factors
    alignas(128) uint32_t factors[3][32][4];  // of row 32j + i in word [0][i][j], of columns in those behind
//@ else
    alignas(128) uint32_t factors[1][32][4];  // of row 32j + i in word [0][i][j]
//@ end
    uint64_t copied;                          // they are in Tensor Memory
//@ end
    uint32_t tmem;
//@ if not paired
    uint32_t running;  // warps of the CTA that have not ended
//@ end
};

//@ section tmem
// Tensor Memory of a CTA whose kWarpgroups warpgroups need kColumns columns each. It is allocated here and
// freed on every way out of the kernel.
template <uint32_t kColumns, uint32_t kWarpgroups>
class Tmem {
  public:
    __device__ __forceinline__ explicit Tmem(Shared<kWarpgroups>& shared) : shared_(shared) {
//@ if paired
        sync_pair();  // the other CTA is there
//@ end
        if ($thread / 32 == 0) {
            asm volatile("tcgen05.alloc.cta_group::$ctas.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                             shared_address(&shared_.tmem)),
                         "n"(kAllocated)
                         : "memory");
            asm volatile("tcgen05.relinquish_alloc_permit.cta_group::$ctas.sync.aligned;");
        }
        if ($thread == 0) {
//@ if own_thread
            for (uint32_t i = 0; i < 2 * kBuffers; ++i) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&shared_.full[0]) + i * 8),
                             "r"(i < kBuffers ? kSumsAreMade : kSumsAreRead)
                             : "memory");
            }
//@ if tiles
            for (uint32_t i = 0; i < 2 * kAnswers; ++i) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&shared_.answered[i])),
                             "r"(i < kAnswers ? 1u : kAnswerIsRead)
                             : "memory");
            }
//@ end
//@ else
            for (uint32_t i = 0; i < kWarpgroups * kRing; ++i) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&shared_.done[0][0]) + i * 8)
                             : "memory");
            }
//@ if scaled
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&shared_.copied)) : "memory");
//@ end
//@ end
//@ if not paired
            shared_.running = (blockDim.x * blockDim.y * blockDim.z + 31) / 32;
//@ end
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        fence_before_sync();
//@ if paired
        sync_pair();
//@ else
        __syncthreads();
//@ end
        fence_after_sync();
//@ if ones
        // columns of B are not scaled: their factors are 1 in all lanes
        if ($thread / 32 < 4) {
            asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %1, %1, %1, %1, %1, %1, %1};" ::"r"(
                             shared_.tmem + kNeeded + $ones_column + ($thread / 32 << $quarter_bit)),
                         "r"($ones_word)
                         : "memory");
            asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
        }
        fence_before_sync();
        __syncthreads();
        fence_after_sync();
//@ end
    }

//@ if paired
    // Neither CTA ends while the other one may still read its shared memory or arrive on its mbarriers.
    __device__ __forceinline__ ~Tmem() {
        fence_before_sync();
        sync_pair();
        fence_after_sync();
        __syncwarp();
        if ($thread / 32 == 0) {
            asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(shared_.tmem), "n"(kAllocated));
        }
    }
//@ else
    // Whichever warp ends last frees. None waits for another, which may be at a barrier that counts ended threads.
    __device__ __forceinline__ ~Tmem() {
        fence_before_sync();
        __syncwarp();
        uint32_t running = 0;
        if ($thread % 32 == 0) {
            asm volatile("atom.acq_rel.cta.shared::cta.add.s32 %0, [%1], -1;"
                         : "=r"(running)
                         : "r"(shared_address(&shared_.running))
                         : "memory");
        }
        if (__shfl_sync(0xffffffff, running, 0) == 1) {
            fence_after_sync();
            asm volatile("tcgen05.dealloc.cta_group::$ctas.sync.aligned.b32 %0, %1;" ::"r"(shared_.tmem), "n"(kAllocated));
        }
    }
//@ end

//@ if own_thread
    // Of the thread that issues: for the first consumer, whose accumulators begin where those of all do.
    __device__ __forceinline__ Warpgroup mma_thread() const { return warpgroup(0); }

//@ if tiles
    __device__ __forceinline__ Tiles tiles() const {
//@ if raster_grid
        return {shared_address(&shared_.answers[0]), shared_address(&shared_.answered[0]), block_index()};
//@ else
        return {shared_address(&shared_.answers[0]), shared_address(&shared_.answered[0]), blockIdx};
//@ end
    }

//@ end
//@ if joined
    // Each of two warpgroups takes 16 of the 32 lanes that its warps can reach.
//@ end
    __device__ __forceinline__ Warpgroup warpgroup(uint32_t index) const {
        Warpgroup found{shared_.tmem + (index << $half_lane_bit), shared_address(&shared_.full[0])};
//@ if double_buffered
        found.first = found.tmem;
        found.columns = kNeeded;
//@ end
//@ if may_be_empty
        found.made = shared_address(&shared_.made[0]);
//@ end
        return found;
    }

//@ else
//@ if joined
    // Each of two warpgroups takes 16 of the 32 lanes that its warps can reach; their MMAs are complete together.
    __device__ __forceinline__ Warpgroup warpgroup(uint32_t index) const {
        return {shared_.tmem + (index << $half_lane_bit),
//@ else
//@ if stacked
    // Two tiles of a warpgroup share columns.
    __device__ __forceinline__ Warpgroup warpgroup(uint32_t index) const {
        return {shared_.tmem + index * (kColumns / 2),
//@ else
    // An m$m tile takes 16 of the 32 lanes that each warp can reach, so two warpgroups share columns.
    __device__ __forceinline__ Warpgroup warpgroup(uint32_t index) const {
        return {shared_.tmem + (index % 2 << $half_lane_bit) + index / 2 * kColumns,
//@ end
//@ end
//@ if register_kinds
                shared_address(&shared_.done[$batches_of][0]), 0, 0, false,
                kColumns - kOperands * $operand_columns};
//@ else
//@ if scaled
                shared_address(&shared_.done[$batches_of][0]), shared_.tmem + kNeeded, shared_address(&shared_.factors[0][0][0])};
//@ else
                shared_address(&shared_.done[$batches_of][0])};
//@ end
//@ end
    }
//@ end

  private:
//@ if stacked
    static constexpr uint32_t kNeeded = kColumns / 2 * kWarpgroups;
//@ else
//@ if paired
    static constexpr uint32_t kNeeded = 2 * kColumns;  // of both CTAs' columns
//@ else
    static constexpr uint32_t kNeeded = kColumns * ((kWarpgroups + 1) / 2);
//@ end
//@ end
//@ if joined
    static_assert(kWarpgroups == 2, "an M=128 MMA is for two warpgroups");
//@ end
//@ if own_thread
    static constexpr uint32_t kAll = kBuffers * kNeeded;
    // Arrivals on the mbarriers of an accumulator.
//@ if may_be_empty
    static constexpr uint32_t kSumsAreMade = 2;
//@ else
    static constexpr uint32_t kSumsAreMade = 1;
//@ end
//@ if paired
    static constexpr uint32_t kSumsAreRead = 2 * kWarpgroups * 128;
//@ else
    static constexpr uint32_t kSumsAreRead = kWarpgroups * 128;
//@ end
//@ if tiles
    // Threads that load, the one that issues MMAs, and those that store.
    static constexpr uint32_t kAnswerIsRead = $tile_loaders + 1 + kWarpgroups * 128;
//@ end
    static_assert(kAll <= $columns, "the accumulators do not fit into Tensor Memory");
    // a power of two, at least $min_allocation
    static constexpr uint32_t kAllocated = kAll <= 32 ? 32 : kAll <= 64 ? 64 : kAll <= 128 ? 128 : kAll <= 256 ? 256 : 512;
//@ else
//@ if scaled
    static constexpr uint32_t kWithFactors = kNeeded + $factor_columns;
    static_assert(kWithFactors <= $columns, "the accumulators and their factors do not fit into Tensor Memory");
    // a power of two, at least $min_allocation
    static constexpr uint32_t kAllocated = kWithFactors <= 32 ? 32
                                           : kWithFactors <= 64 ? 64
                                           : kWithFactors <= 128 ? 128
                                           : kWithFactors <= 256 ? 256 : 512;
//@ else
    static_assert(kNeeded <= $columns, "the accumulators do not fit into Tensor Memory");
    // a power of two, at least $min_allocation
    static constexpr uint32_t kAllocated =
        kNeeded <= 32 ? 32 : kNeeded <= 64 ? 64 : kNeeded <= 128 ? 128 : kNeeded <= 256 ? 256 : 512;
//@ end
//@ end

    Shared<kWarpgroups>& shared_;
};

//@ section formats
// Formats, as the instruction descriptor encodes them (PTX ISA 9.7.16.4.2).
//@ for formats
constexpr uint32_t $name = $code;
//@ end

//@ section instruction_descriptor
// Instruction descriptor of an m${m}nN product.
//@ if saturate
__host__ __device__ constexpr uint32_t instruction_descriptor(uint32_t d, uint32_t a, uint32_t b, uint32_t n,
                                                              bool negate_a = false, bool negate_b = false,
                                                              bool a_mn_major = false,
                                                              bool b_mn_major = false, bool saturate = false) {
    return uint32_t(saturate) << $at_saturate | d << $at_d_type | a << $at_a_type | b << $at_b_type | uint32_t(negate_a) << $at_negate_a | uint32_t(negate_b) << $at_negate_b |
//@ else
__host__ __device__ constexpr uint32_t instruction_descriptor(uint32_t d, uint32_t a, uint32_t b, uint32_t n,
                                                              bool negate_a = false, bool negate_b = false,
                                                              bool a_mn_major = false,
                                                              bool b_mn_major = false) {
    return d << $at_d_type | a << $at_a_type | b << $at_b_type | uint32_t(negate_a) << $at_negate_a | uint32_t(negate_b) << $at_negate_b |
//@ end
           uint32_t(a_mn_major) << $at_a_major | uint32_t(b_mn_major) << $at_b_major | $twice_n >> $n_shift << $at_n | ${m}u >> $m_shift << $at_m;
}

// A Hopper shared-memory descriptor becomes one of sm_100 by its version field (PTX ISA 9.7.16.4.1).
constexpr uint64_t kDescriptorVersion = ${version}ull << $at_version;
//@ if masked_descriptors

// What lies between its fields wgmma does not look at, and is reserved here.
__device__ __forceinline__ uint64_t sm100_descriptor(uint64_t hopper) {
    return (hopper & $descriptor_fields) | kDescriptorVersion;
}
//@ end

//@ section mma for kinds
//@ if own_thread
// d (+)= a * b. One thread calls it for all consumers.
//@ else
// d (+)= a * b. All threads of the warpgroup call it, one issues.
//@ end
__device__ __forceinline__ void mma_$kind(Accumulator& d, uint64_t a_desc, uint64_t b_desc, uint32_t idesc,
                                        bool scale_d = true) {
//@ if own_thread
//@ if stacked
    // the MMA of the first tile makes the second one with it
    if ((d.address >> $half_lane_bit & 1) == 0) {
//@ else
    {
//@ end
//@ else
//@ if stacked
    // the MMA of the first tile makes the second one with it
    if ((d.address >> $half_lane_bit & 1) == 0 && elect_issuer()) {
//@ else
    if (elect_issuer()) {
//@ end
//@ end
        asm volatile(
            "{\n"
            ".reg .pred accumulate;\n"
            "setp.ne.b32 accumulate, %4, 0;\n"
            "tcgen05.mma.cta_group::$ctas.kind::$kind [%0], %1, %2, %3, accumulate;\n"
            "}" ::"r"(d.address),
            "l"($sm100_a), "l"($sm100_b), "r"(idesc),
            "r"(uint32_t(d.accumulate && scale_d))
            : "memory");
    }
    d.accumulate = true;
//@ if tracked
    d.newer = true;
    d.batch = d.owner->committed;
//@ end
}

//@ section mma_scaled if scaled
// d (+)= a * b, times the factors of rows. All threads call it, one issues. The descriptor has the number of a factor's
// byte, 0, where others have the type of D.
__device__ __forceinline__ void mma_$unscaled_kind(Accumulator& d, uint64_t a_desc, uint64_t b_desc, uint32_t idesc,
                                        bool scale_d = true) {
    if (elect_issuer()) {
        asm volatile(
            "{\n"
            ".reg .pred accumulate;\n"
            "setp.ne.b32 accumulate, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::$scaled_kind.block_scale [%0], %1, %2, %3, [%5], [%6], accumulate;\n"
            "}" ::"r"(d.address),
            "l"($sm100_a), "l"($sm100_b),
            "r"((idesc & ~$d_type_mask) | $scale_type), "r"(uint32_t(d.accumulate && scale_d)), "r"(d.row_factors),
            "r"(d.column_factors)
            : "memory");
    }
    d.accumulate = true;
}

//@ section mma_from_registers for register_kinds
// d (+)= a * b with the fragment of a in registers: it goes to Tensor Memory, and all four warps must have stored
// theirs before one thread issues.
__device__ __forceinline__ void mma_$kind(Warpgroup& tc, Accumulator& d, uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint64_t b_desc, uint32_t idesc, bool scale_d = true) {
    const uint32_t a = tc.store_operand(a0, a1, a2, a3);
    sync_warpgroup();
    if (elect_issuer()) {
        asm volatile(
            "{\n"
            ".reg .pred accumulate;\n"
            "setp.ne.b32 accumulate, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::$kind [%0], [%1], %2, %3, accumulate;\n"
            "}" ::"r"(d.address),
            "r"(a), "l"($sm100_b), "r"(idesc), "r"(uint32_t(d.accumulate && scale_d))
            : "memory");
    }
    d.accumulate = true;
//@ if tracked
    d.newer = true;
    d.batch = d.owner->committed;
//@ end
}

//@ section rows if row_stores
template <uint32_t kBytes>
struct Word;
template <>
struct Word<1> { using Type = uint8_t; };
template <>
struct Word<2> { using Type = uint16_t; };
template <>
struct Word<4> { using Type = uint32_t; };
template <class Value>
struct Alike { using Type = Value; };
template <class Value>
using Same = typename Alike<Value>::Type;

// Rows that a warp stores, a few columns of them at a time: staged in shared memory, from where each leaves by one copy.
// Lanes have the elements of a fragment of MMAs: lane l two in every eight columns of row l / 4, and of row l / 4 + 8 if
// there are two `kHalves`. A turn of the warp's loop over columns has `kStep` of them, of `kBytes` each. Those that the
// kernel does not store, and rows that do not begin at 16 bytes, keep it from such copies: each lane stores its own then.
template <uint32_t kBytes, uint32_t kStep, uint32_t kHalves, uint32_t kFirstWarp, uint32_t kWarps>
struct Rows {
    using Element = typename Word<kBytes>::Type;
    static constexpr uint32_t kWide = $row_bytes;  // bytes of a row that leave together
    static constexpr uint32_t kPitch = kWide + (kBytes > 2 ? 8 * kBytes : 16);  // rows of a quarter meet other banks
    static constexpr uint32_t kStaged = 8 * kHalves * kPitch;
    static_assert(kStep % 8 == 0 && kWide % (kStep * kBytes) == 0, "turns have parts of rows");
    static_assert(kWide / kBytes / 4 <= 32, "a bit for each element of a lane");

    uint64_t row[kHalves] = {};   // where the columns that are staged go
    uint32_t found[kHalves] = {};  // a bit for each of them that this lane has staged
    uint32_t columns = 0;
    uint32_t turn = 0;

    // Two parts for each warp: one is written while the other leaves.
    __device__ __forceinline__ static unsigned char* staging() {
        static_assert(2 * kStaged * kWarps <= 45056, "static shared memory does not hold the rows of so many warps");
        __shared__ alignas(128) unsigned char memory[kWarps][2][kStaged];
        return memory[$thread / 32 - kFirstWarp][0];
    }

    // Stages what the kernel stores: an element at `column` of a turn, or two from there on, in half `half`, of lanes
    // l % 4 == 0.
    template <class Value>
    __device__ __forceinline__ void put(uint32_t half, uint32_t column, Value& where, const Same<Value>& value) {
        static_assert(sizeof(Value) == kBytes, "elements of another type");
        stage(half, column, where, value, 1);
    }
    template <class Value>
    __device__ __forceinline__ void put_pair(uint32_t half, uint32_t column, Value& where, const Same<Value>& value) {
        static_assert(sizeof(Value) == 2 * kBytes, "elements of another type");
        stage(half, column, where, value, 3);
    }

    template <class Value>
    __device__ __forceinline__ void stage(uint32_t half, uint32_t column, Value& where, const Value& value,
                                          uint32_t bits) {
        const uint32_t lane = $thread % 32, at = columns + column + lane % 4 * 2;
        row[half] = reinterpret_cast<uint64_t>(&where) - at * kBytes;
        *reinterpret_cast<Value*>(part(half) + at * kBytes) = value;
        found[half] |= bits << ((columns + column) / 8 * 2 + column % 2);
    }

    // Behind a turn of the loop over columns.
    __device__ __forceinline__ void next() {
        columns += kStep;
        if (columns * kBytes == kWide) store();
    }

    // Behind that loop: all is stored.
    __device__ __forceinline__ void end() {
        if (columns != 0) store();
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        __syncwarp();
    }

    // Where this lane's row of the columns that are staged is.
    __device__ __forceinline__ unsigned char* part(uint32_t half) const {
        return staging() + turn % 2 * kStaged + (half * 8 + $thread % 32 / 4) * kPitch;
    }

    // What is staged leaves.
    __device__ __forceinline__ void store() {
        const uint32_t lane = $thread % 32, bytes = columns * kBytes;
        const uint32_t all = columns == 128 ? ~0u : (1u << columns / 4) - 1;
        bool whole = bytes % 16 == 0;
#pragma unroll
        for (uint32_t half = 0; half < kHalves; ++half) whole = whole && found[half] == all && row[half] % 16 == 0;
        // a copy reads what four lanes have staged
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (__all_sync(0xffffffff, whole)) {
            if (lane % 4 < kHalves) {
                const uint64_t to = lane % 4 == 0 ? row[0] : row[kHalves - 1];
                asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                             "r"(shared_address(part(lane % 4))), "r"(bytes)
                             : "memory");
            }
        } else {
#pragma unroll
            for (uint32_t half = 0; half < kHalves; ++half) {
#pragma unroll 1
                for (uint32_t i = 0; i < columns / 4; ++i) {
                    const uint32_t at = (i / 2 * 8 + lane % 4 * 2 + i % 2) * kBytes;
                    if ((found[half] >> i & 1) == 0) continue;
                    *reinterpret_cast<Element*>(row[half] + at) = *reinterpret_cast<const Element*>(part(half) + at);
                }
            }
        }
        // a group for each part, also for one without copies: what the next part is staged over has been read then
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 1;" ::: "memory");
        __syncwarp();
#pragma unroll
        for (uint32_t half = 0; half < kHalves; ++half) found[half] = 0;
        columns = 0;
        ++turn;
    }
};

//@ section mirrors for mirrors
$moves

//@ section end
}  // namespace tcgen05
