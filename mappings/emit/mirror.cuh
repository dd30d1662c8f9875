// SPDX-License-Identifier: Apache-2.0
// Moves of an accumulator between Tensor Memory and its registers, in the order in which wgmma keeps it.
//
// An M=64 tile's tcgen05.ld.16x256b hands out the 32-bit D fragment of wgmma; its f16 fragment, two elements a register,
// is that of .16x128b with packing (PTX ISA 9.7.16.8; CUTLASS include/cute/atom/copy_traits_sm100.hpp).
// The functions are there once for each kind of register: $type ($c in asm), $suffix in their names. r32 to r2:
// pieces of that many registers are needed, each one access of .x$x32 to .x$x2, which cover $stride columns a register.

//@ section load_32 if loads and r32
__device__ __forceinline__ void load${suffix}_x$x32($type* r, uint32_t address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.$shape.x$x32$pack.b32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : "=$c"(r[0]), "=$c"(r[1]), "=$c"(r[2]), "=$c"(r[3]), "=$c"(r[4]), "=$c"(r[5]), "=$c"(r[6]), "=$c"(r[7]),
          "=$c"(r[8]), "=$c"(r[9]), "=$c"(r[10]), "=$c"(r[11]), "=$c"(r[12]), "=$c"(r[13]), "=$c"(r[14]), "=$c"(r[15]),
          "=$c"(r[16]), "=$c"(r[17]), "=$c"(r[18]), "=$c"(r[19]), "=$c"(r[20]), "=$c"(r[21]), "=$c"(r[22]), "=$c"(r[23]),
          "=$c"(r[24]), "=$c"(r[25]), "=$c"(r[26]), "=$c"(r[27]), "=$c"(r[28]), "=$c"(r[29]), "=$c"(r[30]), "=$c"(r[31])
        : "r"(address));
}

//@ section load_16 if loads and r16
__device__ __forceinline__ void load${suffix}_x$x16($type* r, uint32_t address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.$shape.x$x16$pack.b32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
        : "=$c"(r[0]), "=$c"(r[1]), "=$c"(r[2]), "=$c"(r[3]), "=$c"(r[4]), "=$c"(r[5]), "=$c"(r[6]), "=$c"(r[7]),
          "=$c"(r[8]), "=$c"(r[9]), "=$c"(r[10]), "=$c"(r[11]), "=$c"(r[12]), "=$c"(r[13]), "=$c"(r[14]), "=$c"(r[15])
        : "r"(address));
}

//@ section load_8 if loads and r8
__device__ __forceinline__ void load${suffix}_x$x8($type* r, uint32_t address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.$shape.x$x8$pack.b32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
        : "=$c"(r[0]), "=$c"(r[1]), "=$c"(r[2]), "=$c"(r[3]), "=$c"(r[4]), "=$c"(r[5]), "=$c"(r[6]), "=$c"(r[7])
        : "r"(address));
}

//@ section load_4 if loads and r4
__device__ __forceinline__ void load${suffix}_x$x4($type* r, uint32_t address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.$shape.x$x4$pack.b32 "
        "{%0, %1, %2, %3}, [%4];"
        : "=$c"(r[0]), "=$c"(r[1]), "=$c"(r[2]), "=$c"(r[3])
        : "r"(address));
}

//@ section load_2 if loads and r2
__device__ __forceinline__ void load${suffix}_x$x2($type* r, uint32_t address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.$shape.x$x2$pack.b32 "
        "{%0, %1}, [%2];"
        : "=$c"(r[0]), "=$c"(r[1])
        : "r"(address));
}

//@ section load if loads
// Reads an accumulator into registers, in the order in which wgmma keeps it. One that no MMA has written is 0.
template <typename Registers>
__device__ __forceinline__ void load$suffix(Registers& registers, const Accumulator& tile) {
    constexpr uint32_t kRegisters = sizeof(Registers) / sizeof($type);
    $type* r = reinterpret_cast<$type*>(&registers);
    if (tile.accumulate) {
        const uint32_t quarter = $thread / 32 % 4 << $quarter_bit;  // of the lanes, which the warp can reach
        const uint32_t address = tile.address + quarter;
        $type loaded[kRegisters];
//@ if r32
#pragma unroll
        for (uint32_t i = 0; i + 32 <= kRegisters; i += 32) {
            load${suffix}_x$x32(loaded + i, address + $stride * i);
        }
//@ end
//@ if r16
        if constexpr (kRegisters & 16) {
            load${suffix}_x$x16(loaded + kRegisters / 32 * 32, address + $stride * (kRegisters / 32 * 32));
        }
//@ end
//@ if r8
        if constexpr (kRegisters & 8) {
            load${suffix}_x$x8(loaded + kRegisters / 16 * 16, address + $stride * (kRegisters / 16 * 16));
        }
//@ end
//@ if r4
        if constexpr (kRegisters & 4) {
            load${suffix}_x$x4(loaded + kRegisters / 8 * 8, address + $stride * (kRegisters / 8 * 8));
        }
//@ end
//@ if r2
        if constexpr (kRegisters & 2) {
            load${suffix}_x$x2(loaded + kRegisters / 4 * 4, address + $stride * (kRegisters / 4 * 4));
        }
//@ end
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
        for (uint32_t i = 0; i < kRegisters; ++i) {
            asm volatile("" : "+$c"(loaded[i]));  // no use of it in front of the wait
            r[i] = loaded[i];
        }
    } else {
        // A zero that the compiler sees would draw what is computed from the registers into both branches.
#pragma unroll
        for (uint32_t i = 0; i < kRegisters; ++i) asm volatile("mov.b32 %0, 0;" : "=$c"(r[i]));
    }
}

//@ section load_volatile if loads and volatile_registers
// The same for registers that are volatile.
template <typename Registers>
__device__ __forceinline__ void load$suffix(volatile Registers& registers, const Accumulator& tile) {
    constexpr uint32_t kRegisters = sizeof(Registers) / sizeof($type);
    volatile $type* r = reinterpret_cast<volatile $type*>(&registers);
    $type loaded[kRegisters];
    load$suffix(loaded, tile);
#pragma unroll
    for (uint32_t i = 0; i < kRegisters; ++i) r[i] = loaded[i];
}

//@ section load_arrays if loads and tile_arrays
template <typename Registers, typename Tiles, uint32_t kTiles>
__device__ __forceinline__ void load$suffix(Registers (&registers)[kTiles], const Tiles (&tiles)[kTiles]) {
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) load$suffix(registers[i], tiles[i]);
}

//@ section load_each if scalar_loads
// The same for registers that are separate variables.
template <typename... Registers>
__device__ __forceinline__ void load${suffix}_each(const Accumulator& tile, Registers&... registers) {
    $type values[sizeof...(registers)];
    load$suffix(values, tile);
    uint32_t i = 0;
    ((registers = values[i++]), ...);
}

//@ section store_32 if stores and r32
__device__ __forceinline__ void store${suffix}_x$x32(const $type* r, uint32_t address) {
    asm volatile(
        "tcgen05.st.sync.aligned.$shape.x$x32$unpack.b32 [%32], "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31};"
        :
        : "$c"(r[0]), "$c"(r[1]), "$c"(r[2]), "$c"(r[3]), "$c"(r[4]), "$c"(r[5]), "$c"(r[6]), "$c"(r[7]),
          "$c"(r[8]), "$c"(r[9]), "$c"(r[10]), "$c"(r[11]), "$c"(r[12]), "$c"(r[13]), "$c"(r[14]), "$c"(r[15]),
          "$c"(r[16]), "$c"(r[17]), "$c"(r[18]), "$c"(r[19]), "$c"(r[20]), "$c"(r[21]), "$c"(r[22]), "$c"(r[23]),
          "$c"(r[24]), "$c"(r[25]), "$c"(r[26]), "$c"(r[27]), "$c"(r[28]), "$c"(r[29]), "$c"(r[30]), "$c"(r[31]),
          "r"(address)
        : "memory");
}

//@ section store_16 if stores and r16
__device__ __forceinline__ void store${suffix}_x$x16(const $type* r, uint32_t address) {
    asm volatile(
        "tcgen05.st.sync.aligned.$shape.x$x16$unpack.b32 [%16], "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15};"
        :
        : "$c"(r[0]), "$c"(r[1]), "$c"(r[2]), "$c"(r[3]), "$c"(r[4]), "$c"(r[5]), "$c"(r[6]), "$c"(r[7]),
          "$c"(r[8]), "$c"(r[9]), "$c"(r[10]), "$c"(r[11]), "$c"(r[12]), "$c"(r[13]), "$c"(r[14]), "$c"(r[15]),
          "r"(address)
        : "memory");
}

//@ section store_8 if stores and r8
__device__ __forceinline__ void store${suffix}_x$x8(const $type* r, uint32_t address) {
    asm volatile(
        "tcgen05.st.sync.aligned.$shape.x$x8$unpack.b32 [%8], "
        "{%0, %1, %2, %3, %4, %5, %6, %7};"
        :
        : "$c"(r[0]), "$c"(r[1]), "$c"(r[2]), "$c"(r[3]), "$c"(r[4]), "$c"(r[5]), "$c"(r[6]), "$c"(r[7]),
          "r"(address)
        : "memory");
}

//@ section store_4 if stores and r4
__device__ __forceinline__ void store${suffix}_x$x4(const $type* r, uint32_t address) {
    asm volatile(
        "tcgen05.st.sync.aligned.$shape.x$x4$unpack.b32 [%4], "
        "{%0, %1, %2, %3};"
        :
        : "$c"(r[0]), "$c"(r[1]), "$c"(r[2]), "$c"(r[3]),
          "r"(address)
        : "memory");
}

//@ section store_2 if stores and r2
__device__ __forceinline__ void store${suffix}_x$x2(const $type* r, uint32_t address) {
    asm volatile(
        "tcgen05.st.sync.aligned.$shape.x$x2$unpack.b32 [%2], "
        "{%0, %1};"
        :
        : "$c"(r[0]), "$c"(r[1]),
          "r"(address)
        : "memory");
}

//@ section store if stores
// Writes registers back to their accumulator; sync_warpgroup() orders the next MMA behind it.
template <typename Registers>
__device__ __forceinline__ void store$suffix(const Registers& registers, Accumulator& tile) {
    constexpr uint32_t kRegisters = sizeof(Registers) / sizeof($type);
    const $type* r = reinterpret_cast<const $type*>(&registers);
    const uint32_t quarter = $thread / 32 % 4 << $quarter_bit;  // of the lanes, which the warp can reach
    const uint32_t address = tile.address + quarter;
//@ if r32
#pragma unroll
    for (uint32_t i = 0; i + 32 <= kRegisters; i += 32) {
        store${suffix}_x$x32(r + i, address + $stride * i);
    }
//@ end
//@ if r16
    if constexpr (kRegisters & 16) {
        store${suffix}_x$x16(r + kRegisters / 32 * 32, address + $stride * (kRegisters / 32 * 32));
    }
//@ end
//@ if r8
    if constexpr (kRegisters & 8) {
        store${suffix}_x$x8(r + kRegisters / 16 * 16, address + $stride * (kRegisters / 16 * 16));
    }
//@ end
//@ if r4
    if constexpr (kRegisters & 4) {
        store${suffix}_x$x4(r + kRegisters / 8 * 8, address + $stride * (kRegisters / 8 * 8));
    }
//@ end
//@ if r2
    if constexpr (kRegisters & 2) {
        store${suffix}_x$x2(r + kRegisters / 4 * 4, address + $stride * (kRegisters / 4 * 4));
    }
//@ end
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    tile.accumulate = true;
}

//@ section store_volatile if stores and volatile_registers
template <typename Registers>
__device__ __forceinline__ void store$suffix(const volatile Registers& registers, Accumulator& tile) {
    constexpr uint32_t kRegisters = sizeof(Registers) / sizeof($type);
    const volatile $type* r = reinterpret_cast<const volatile $type*>(&registers);
    $type stored[kRegisters];
#pragma unroll
    for (uint32_t i = 0; i < kRegisters; ++i) stored[i] = r[i];
    store$suffix(stored, tile);
}

//@ section update if updates
// Some registers of an accumulator, from Tensor Memory and back, each changed by `each` with its number.
template <uint32_t kPiece, typename Load, typename Store, typename Each>
__device__ __forceinline__ void change${suffix}_piece($type* r, uint32_t first, uint32_t address, bool accumulate, Load load, Store store, Each& each) {
    if (accumulate) {
        load(r + first, address + $stride * first);
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
        for (uint32_t i = 0; i < kPiece; ++i) asm volatile("" : "+$c"(r[first + i]));  // no use of it in front of the wait
    } else {
        // A zero that the compiler sees would draw what is computed from the registers into both branches.
#pragma unroll
        for (uint32_t i = 0; i < kPiece; ++i) asm volatile("mov.b32 %0, 0;" : "=$c"(r[first + i]));
    }
#pragma unroll
    for (uint32_t i = 0; i < kPiece; ++i) each(first + i);
    store(r + first, address + $stride * first);
}

// Changes an accumulator in pieces, of which one at a time takes registers; sync_warpgroup() orders the next MMA behind
// it. One that no MMA has written is 0.
template <typename Registers, typename Each>
__device__ __forceinline__ void update$suffix(Registers& registers, Accumulator& tile, Each each) {
    constexpr uint32_t kRegisters = sizeof(Registers) / sizeof($type);
    $type* r = reinterpret_cast<$type*>(&registers);
    const uint32_t quarter = $thread / 32 % 4 << $quarter_bit;  // of the lanes, which the warp can reach
    const uint32_t address = tile.address + quarter;
//@ if r32
#pragma unroll
    for (uint32_t i = 0; i + 32 <= kRegisters; i += 32) {
        change${suffix}_piece<32>(r, i, address, tile.accumulate, load${suffix}_x$x32, store${suffix}_x$x32, each);
    }
//@ end
//@ if r16
    if constexpr (kRegisters & 16) {
        change${suffix}_piece<16>(r, kRegisters / 32 * 32, address, tile.accumulate, load${suffix}_x$x16, store${suffix}_x$x16, each);
    }
//@ end
//@ if r8
    if constexpr (kRegisters & 8) {
        change${suffix}_piece<8>(r, kRegisters / 16 * 16, address, tile.accumulate, load${suffix}_x$x8, store${suffix}_x$x8, each);
    }
//@ end
//@ if r4
    if constexpr (kRegisters & 4) {
        change${suffix}_piece<4>(r, kRegisters / 8 * 8, address, tile.accumulate, load${suffix}_x$x4, store${suffix}_x$x4, each);
    }
//@ end
//@ if r2
    if constexpr (kRegisters & 2) {
        change${suffix}_piece<2>(r, kRegisters / 4 * 4, address, tile.accumulate, load${suffix}_x$x2, store${suffix}_x$x2, each);
    }
//@ end
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    tile.accumulate = true;
}

//@ section store_arrays if stores and tile_arrays
template <typename Registers, typename Tiles, uint32_t kTiles>
__device__ __forceinline__ void store$suffix(const Registers (&registers)[kTiles], Tiles (&tiles)[kTiles]) {
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) store$suffix(registers[i], tiles[i]);
}

//@ section store_each if scalar_stores
template <typename... Registers>
__device__ __forceinline__ void store${suffix}_each(Accumulator& tile, const Registers&... registers) {
    const $type values[] = {registers...};
    store$suffix(values, tile);
}

//@ section tracking if tracks
// Registers that are kept true: outside of batches in flight they hold the accumulator, whatever is done with them.
// Stores them unless the tile is newer; gives whether it did.
template <typename Registers>
__device__ __forceinline__ bool stored$suffix(const Registers& registers, Accumulator& tile) {
    if (tile.newer) return false;
    store$suffix(registers, tile);
    return true;
}
// Behind a wait: loads what a batch that is complete has changed.
template <typename Registers>
__device__ __forceinline__ void to_registers$suffix(Registers& registers, Accumulator& tile) {
    if (!tile.newer || tile.owner->complete <= tile.batch) return;
    load$suffix(registers, tile);
    tile.newer = false;
}
//@ if tile_arrays

template <typename Registers, typename Tiles, uint32_t kTiles>
__device__ __forceinline__ bool stored$suffix(const Registers (&registers)[kTiles], Tiles (&tiles)[kTiles]) {
    bool any = false;
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) any |= stored$suffix(registers[i], tiles[i]);
    return any;
}
template <typename Registers, typename Tiles, uint32_t kTiles>
__device__ __forceinline__ void to_registers$suffix(Registers (&registers)[kTiles], Tiles (&tiles)[kTiles]) {
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) to_registers$suffix(registers[i], tiles[i]);
}
//@ end
// In front of an MMA: what threads may have changed goes to Tensor Memory.
template <typename Registers, typename Tile>
__device__ __forceinline__ void to_tensor_memory$suffix(const Registers& registers, Tile& tile) {
    if (stored$suffix(registers, tile)) sync_warpgroup();
}

//@ section tracking_each if tracks and scalar_tracks
template <typename... Registers>
__device__ __forceinline__ void to_registers${suffix}_each(Accumulator& tile, Registers&... registers) {
    $type values[] = {registers...};
    to_registers$suffix(values, tile);
    uint32_t i = 0;
    ((registers = values[i++]), ...);
}
template <typename... Registers>
__device__ __forceinline__ void to_tensor_memory${suffix}_each(Accumulator& tile, const Registers&... registers) {
    const $type values[] = {registers...};
    to_tensor_memory$suffix(values, tile);
}
