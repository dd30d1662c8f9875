// SPDX-License-Identifier: Apache-2.0
// Operands of tcgen05.mma: matrices in shared memory, of this CTA or the other one of a pair, and in Tensor Memory.
#pragma once
#include "arithmetic.cuh"

struct Rows {          // a decoded operand
  const u32* cells;    // its first cell in Tensor Memory, or null: it lies in shared memory
  u32 start, lbo, sbo, mode;
  u32 size, bits;      // bytes of an element; bits that 16 elements in 16 bytes of shared memory take each
  bool mn_major;
};

// Where rows of it lie: the shared-memory window of a CTA.
struct Place {
  u32 window;
  bool remote;
};

__device__ __forceinline__ u32 swizzled(u32 address, u32 mode) {
  switch (mode) {      // the codes of the descriptor
    case 1: return address ^ (address >> 2 & 0x60);
    case 2: return address ^ (address >> 3 & 0x70);
    case 4: return address ^ (address >> 3 & 0x30);
    case 6: return address ^ (address >> 3 & 0x10);
    default: return address;
  }
}
__device__ __forceinline__ u32 span(u32 mode) { return mode == 4 ? 64 : mode == 6 ? 32 : 128; }

static __device__ __noinline__ Rows read_operand(u64 word, bool mn_major, u32 size, u32 bits, u32 site) {
  Rows r;
  r.mn_major = mn_major, r.size = size, r.bits = bits, r.cells = nullptr;
  r.start = (u32)(word & 0x3FFF) << 4, r.lbo = (u32)(word >> 16 & 0x3FFF) << 4, r.sbo = (u32)(word >> 32 & 0x3FFF) << 4;
  r.mode = (u32)(word >> 61);
  u64 reserved = word & ((3ull << 14) | (3ull << 30) | (7ull << 49) | (0x1FFull << 52));
  bool ok = (word >> 46 & 7) == 1 && !reserved && (r.mode == 0 || r.mode == 1 || r.mode == 2 || r.mode == 4 || r.mode == 6);
  ok = ok && !(r.mode == 1 && !mn_major) && !(mn_major && size == 4 && r.mode != 1) && !(mn_major && size < 4 && r.mode == 1);
  if (!ok) stop(kTrapDescriptor, site, (u32)word, (u32)(word >> 32));
  return r;
}

// A row's bytes lie in chunks of 16.
__device__ __forceinline__ bool whole(const Rows& r) { return !r.mn_major && r.bits == 8 * r.size; }

__device__ __forceinline__ u32 load_word(u32 address, bool remote) {
  u32 v;
  if (remote) asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  else asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

// Where chunk `chunk` of 16 bytes of a K-major row lies. No swizzle moves anything inside of it.
__device__ __forceinline__ u32 chunk_address(const Rows& r, const Place& p, u32 row, u32 chunk) {
  u32 at = r.mode == 0 ? row % 8 * 16 + row / 8 * r.sbo + chunk * r.lbo
                       : row % 8 * span(r.mode) + row / 8 * r.sbo + chunk * 16;
  return p.window | (swizzled(r.start + at, r.mode) & 0x3FFFF);
}

// Where element (row, k) of an MN-major operand lies.
__device__ __forceinline__ u32 element_address(const Rows& r, const Place& p, u32 row, u32 k) {
  u32 at;
  if (r.mode == 0) {
    u32 chunk = 16 / r.size;
    at = row % chunk * r.size + row / chunk * r.sbo + k % 8 * 16 + k / 8 * r.lbo;
  } else {
    u32 w = span(r.mode), deep = r.mode == 1 ? 4 : 8;
    at = row * r.size % w + row * r.size / w * r.lbo + k % deep * w + k / deep * r.sbo;
  }
  return p.window | (swizzled(r.start + at, r.mode) & 0x3FFFF);
}

// Bytes 4*word .. of row `row` of an operand whose row does not lie in chunks of whole bytes.
static __device__ __noinline__ u32 gathered_word(Rows r, Place p, u32 row, u32 word) {
  u32 per = 4 / r.size, result = 0;
  for (u32 i = 0; i < per; ++i) {
    u32 k = word * per + i, address, bit;
    if (r.bits < 8) {
      // Sixteen elements lie packed at the beginning of each 16 bytes.
      u32 in = (r.mn_major ? row : k) % 16;
      address = r.mn_major ? element_address(r, p, row - in, k) : chunk_address(r, p, row, k / 16);
      bit = in * r.bits, address += bit / 8, bit %= 8;
    } else {
      address = element_address(r, p, row, k), bit = 0;
    }
    bit += address % 4 * 8;
    u32 v = load_word(address & ~3u, p.remote) >> bit;
    if (bit + r.bits > 32) v |= load_word((address & ~3u) + 4, p.remote) << (32 - bit);
    if (r.bits < 32) v &= (1u << r.bits % 32) - 1;
    result |= v << (8 * r.size * i);
  }
  return result;
}

// Bytes 4*word .. of row `row` of the operand.
__device__ __forceinline__ u32 operand_word(const Rows& r, const Place& p, u32 row, u32 word) {
  if (r.cells != nullptr) {
    u32 v = ((volatile const u32*)(r.cells + row * kColumns))[word];
    // Narrow floats lie in the middle of their bytes: 0b0xxxxxx0 and 0b00xxxx00.
    return r.bits == 6 ? v >> 1 & 0x3F3F3F3F : r.bits == 4 ? v >> 2 & 0x0F0F0F0F : v;
  }
  if (!whole(r)) return gathered_word(r, p, row, word);
  return load_word(chunk_address(r, p, row, word / 4) + word % 4 * 4, p.remote);
}

// All eight words of a row.
__device__ __forceinline__ void operand_row(const Rows& r, const Place& p, u32 row, u32* words) {
  if (r.cells == nullptr && whole(r) && !p.remote) {
#pragma unroll
    for (u32 chunk = 0; chunk < 2; ++chunk) {
      u32* w = words + 4 * chunk;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(chunk_address(r, p, row, chunk)) : "memory");
    }
    return;
  }
#pragma unroll
  for (u32 w = 0; w < 8; ++w) words[w] = operand_word(r, p, row, w);
}

// Rows of 16 bytes at lane addresses 0-15 to the fragment of a warp: word t%4 of row t/4, of both matrices.
__device__ __forceinline__ void load_fragment(u32 address, bool transposed, u32& low, u32& high) {
  if (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(address) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(address) : "memory");
}

// The same for four matrices, at the addresses of all lanes.
__device__ __forceinline__ void load_fragments(u32 address, u32& r0, u32& r1, u32& r2, u32& r3) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(address) : "memory");
}

// Whether eight rows on always means `sbo` bytes on: the swizzle repeats itself by then.
__device__ __forceinline__ bool regular(const Rows& r, const Place& p) {
  return r.cells == nullptr && !p.remote && whole(r) && (r.mode == 0 || r.sbo % (8 * span(r.mode)) == 0);
}

// Words t%4 (low half) and t%4+4 of row row + t/4, by a whole warp, thread t.
static __device__ __noinline__ u64 odd_fragment(Rows r, Place p, u32 row, u32 t) {
  u32 low, high;
  if (r.cells == nullptr && !p.remote && r.size == 2) {
    load_fragment(element_address(r, p, row, t / 8 % 2 * 8 + t % 8), true, low, high);
  } else {
    low = operand_word(r, p, row + t / 4, t % 4), high = operand_word(r, p, row + t / 4, t % 4 + 4);
  }
  return (u64)high << 32 | low;
}
__device__ __forceinline__ void operand_fragment(const Rows& r, const Place& p, u32 row, u32 t, u32& low, u32& high) {
  if (r.cells == nullptr && !p.remote && whole(r)) {
    load_fragment(chunk_address(r, p, row + t % 8, t / 8 % 2), false, low, high);
    return;
  }
  u64 both = odd_fragment(r, p, row, t);
  low = (u32)both, high = (u32)(both >> 32);
}
