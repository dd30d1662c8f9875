// SPDX-License-Identifier: Apache-2.0
// One tcgen05.mma: its descriptors read and checked, and 16 rows of it computed by the lanes of a warp.
#pragma once
#include "arithmetic.cuh"

// Bits of `flags` as porter/hopper/lower.py packs them.
constexpr u32 kFlagTmemA = 1u << 6;
constexpr u32 kFlagPair = 1u << 4;
__device__ __forceinline__ u32 flag_kind(u32 flags) { return flags & 0xF; }
__device__ __forceinline__ u32 flag_shift(u32 flags) { return flags >> 8 & 0xF; }

static __device__ Product read_instruction(u32 idesc, u32 flags, u32 site) {
  Product p;
  p.kind = flag_kind(flags);
  p.n = (idesc >> 17 & 0x3F) * 8, p.m = (idesc >> 24 & 0x1F) * 16;
  p.d_type = idesc >> 4 & 3;
  u32 a = idesc >> 7 & 7, b = idesc >> 10 & 7;
  p.negate_a = idesc >> 13 & 1, p.negate_b = idesc >> 14 & 1;
  p.a_mn = idesc >> 15 & 1, p.b_mn = idesc >> 16 & 1;
  p.saturate = idesc >> 3 & 1;
  bool ok = !(idesc & (7u | 1u << 6 | 1u << 23 | 7u << 29));
  u32 pair = flags & kFlagPair ? 2 : 1;
  ok = ok && (p.m == 64 * pair || p.m == 128 * pair) && p.n >= 8 * pair && p.n <= 256 && p.n % (8 * pair) == 0;
  switch (p.kind) {
    case kF16:
      ok = ok && a < 2 && b < 2 && a == b && (p.d_type == dF32 || (p.d_type == dF16 && a == 0));
      p.a_type = a ? tBF16 : tF16, p.b_type = b ? tBF16 : tF16;
      break;
    case kTf32:
      ok = ok && a == 2 && b == 2 && p.d_type == dF32;
      p.a_type = p.b_type = tTF32;
      break;
    case kF8:
      ok = ok && a < 2 && b < 2 && p.d_type < 2;
      p.a_type = a ? tE5M2 : tE4M3, p.b_type = b ? tE5M2 : tE4M3;
      break;
    default:
      ok = ok && a < 2 && b < 2 && p.d_type == dS32 && !p.negate_a && !p.negate_b && (p.n % 16 == 0 || p.n == 8 || p.n == 24);
      p.a_type = a ? tS8 : tU8, p.b_type = b ? tS8 : tU8;
  }
  if (p.kind != kI8 && p.saturate) ok = false;
  if (!ok) stop(kTrapInstruction, site, idesc);
  return p;
}

// Descriptors hold offsets in the shared memory of a CTA; its addresses carry the rank in the cluster as well.
__device__ __forceinline__ u32 window(u32 rank) {
  u32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(0u), "r"(rank));
  return address;
}

static __device__ Rows read_operand(u64 word, bool mn_major, u32 size, u32 site) {
  Rows r;
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  r.window = window(rank);
  r.tmem = false, r.mn_major = mn_major, r.size = size, r.cells = nullptr, r.half = false, r.remote = false;
  r.start = (u32)(word & 0x3FFF) << 4, r.lbo = (u32)(word >> 16 & 0x3FFF) << 4, r.sbo = (u32)(word >> 32 & 0x3FFF) << 4;
  r.mode = (u32)(word >> 61);
  u64 reserved = word & ((3ull << 14) | (3ull << 30) | (7ull << 49) | (0x1FFull << 52));
  bool ok = (word >> 46 & 7) == 1 && !reserved && (r.mode == 0 || r.mode == 1 || r.mode == 2 || r.mode == 4 || r.mode == 6);
  ok = ok && !(r.mode == 1 && !mn_major) && !(mn_major && size == 4 && r.mode != 1) && !(mn_major && size < 4 && r.mode == 1);
  if (!ok) stop(kTrapDescriptor, site, (u32)word, (u32)(word >> 32));
  return r;
}

// Where everything of one instruction lies, for one CTA's share of it.
struct Work {
  Product p;
  Rows a, b;
  u32* d;              // first cell of the accumulator
  u32 lane;            // its lane
  u32 rows;            // of this CTA
  bool half;           // layout F
  bool enable;
  u32 shift;
  const u32* mask;
};

static __device__ Work read_work(const Item& i) {
  Work w;
  u32 site = i.site;
  const Cta& c = porter_host.ctas[cta_id()];
  w.p = read_instruction(i.idesc, i.flags, site);
  u32 size = w.p.kind == kF16 ? 2 : w.p.kind == kTf32 ? 4 : 1;
  w.half = w.p.m == 64;
  w.rows = w.p.m;
  w.lane = i.d >> 16;
  u32 column = i.d & 0xFFFF;
  if (w.lane != 0 && !(w.half && w.lane == 16)) stop(kTrapAccumulatorLane, site, w.lane, w.p.m);
  if (!allocated(c, column, w.p.n)) stop(kTrapUnallocated, site, column, w.p.n, c.allocated);
  u32* memory = tensor_memory(cta_id());
  w.d = cell(memory, 0, column);
  if (i.flags & kFlagTmemA) {
    u32 a = (u32)i.a, lane = a >> 16;
    if (lane != w.lane || w.p.a_mn) stop(kTrapAccumulatorLane, site, lane, w.lane);
    if (!allocated(c, a & 0xFFFF, 8)) stop(kTrapUnallocated, site, a & 0xFFFF, 8, c.allocated);
    w.a = Rows{};
    w.a.tmem = true, w.a.cells = cell(memory, lane, a & 0xFFFF), w.a.half = w.half;
  } else {
    w.a = read_operand(i.a, w.p.a_mn, size, site);
  }
  w.b = read_operand(i.b, w.p.b_mn, size, site);
  w.enable = i.enable;
  w.shift = flag_shift(i.flags);
  w.mask = i.mask;
  return w;
}

__device__ __forceinline__ u32 d_lane(const Work& w, u32 row) {
  return w.half ? row / 16 * 32 + row % 16 + w.lane : row;
}
__device__ __forceinline__ bool written(const Work& w, u32 lane) { return !(w.mask[lane / 32] >> lane % 32 & 1); }

// Row `row`, columns first, first+step, ... by one thread.
template <int K>
__device__ __forceinline__ void float_row(const Work& w, u32 row, u32 first, u32 step) {
  float a[K], b[K];
  u32 words[8];
  u32 lane = d_lane(w, row);
  if (!written(w, lane)) return;
  operand_row(w.a, row, words);
  decode_row<K>(words, w.p.a_type, w.p.negate_a, a);
  bool exact = porter_host.arithmetic == kExact;
#pragma unroll 1
  for (u32 n = first; n < w.p.n; n += step) {
    operand_row(w.b, n, words);
    decode_row<K>(words, w.p.b_type, w.p.negate_b, b);
    u32* to = w.d + lane * kColumns + n;
    u32 c = *(volatile u32*)to;
    *(volatile u32*)to = exact ? exact_dot<K>(a, b, c, w.p, w.enable, w.shift) : fast_dot<K>(a, b, c, w.p, w.enable, w.shift);
  }
}

__device__ __forceinline__ void integer_row(const Work& w, u32 row, u32 first, u32 step) {
  u32 a[8], b[8];
  u32 lane = d_lane(w, row);
  if (!written(w, lane)) return;
  operand_row(w.a, row, a);
#pragma unroll 1
  for (u32 n = first; n < w.p.n; n += step) {
    operand_row(w.b, n, b);
    u32* to = w.d + lane * kColumns + n;
    *(volatile u32*)to = integer_dot(a, b, *(volatile u32*)to, w.p, w.enable);
  }
}

static __device__ __noinline__ void row_f16(const Work& w, u32 row, u32 first, u32 step) { float_row<16>(w, row, first, step); }
static __device__ __noinline__ void row_tf32(const Work& w, u32 row, u32 first, u32 step) { float_row<8>(w, row, first, step); }
static __device__ __noinline__ void row_f8(const Work& w, u32 row, u32 first, u32 step) { float_row<32>(w, row, first, step); }
static __device__ __noinline__ void row_i8(const Work& w, u32 row, u32 first, u32 step) { integer_row(w, row, first, step); }

__device__ __forceinline__ void any_row(const Work& w, u32 row, u32 first, u32 step) {
  switch (w.p.kind) {
    case kF16: row_f16(w, row, first, step); break;
    case kTf32: row_tf32(w, row, first, step); break;
    case kF8: row_f8(w, row, first, step); break;
    default: row_i8(w, row, first, step);
  }
}

// Rows 16*tile .. of the product with mma.sync, by a whole warp. f32 accumulators of f16, bf16 and tf32 only:
// Hopper's mma.sync adds these as tcgen05.mma does.
static __device__ __noinline__ void warp_tile(const Work& w, u32 tile) {
  u32 t = thread_rank() % 32, g = t / 4, q = t % 4;
  u32 row = tile * 16 + g;
  u32 flip = w.p.kind == kTf32 ? 0x80000000u : 0x80008000u;
  u32 flip_a = w.p.negate_a ? flip : 0, flip_b = w.p.negate_b ? flip : 0;
  u32 a0 = operand_word(w.a, row, q) ^ flip_a, a1 = operand_word(w.a, row + 8, q) ^ flip_a;
  u32 a2 = operand_word(w.a, row, q + 4) ^ flip_a, a3 = operand_word(w.a, row + 8, q + 4) ^ flip_a;
  u32 lane = d_lane(w, row);
  bool keep0 = written(w, lane), keep1 = written(w, lane + 8);
  volatile float* d = (volatile float*)(w.d + lane * kColumns + 2 * q);
#pragma unroll 1
  for (u32 n = 0; n < w.p.n; n += 8) {
    u32 b0 = operand_word(w.b, n + g, q) ^ flip_b, b1 = operand_word(w.b, n + g, q + 4) ^ flip_b;
    float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    volatile float* high = d + 8 * kColumns;
    if (w.enable) c0 = d[n], c1 = d[n + 1], c2 = high[n], c3 = high[n + 1];
#define PORTER_MMA(form, ...)                                                                            \
  asm volatile("mma.sync.aligned." form " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"         \
               : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                  \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
    if (w.p.a_type == tF16) PORTER_MMA("m16n8k16.row.col.f32.f16.f16.f32");
    else if (w.p.a_type == tBF16) PORTER_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
    else PORTER_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
#undef PORTER_MMA
    if (keep0) d[n] = c0, d[n + 1] = c1;
    if (keep1) high[n] = c2, high[n + 1] = c3;
  }
}

__device__ __forceinline__ bool by_warp(const Work& w) {
  return w.p.kind <= kTf32 && w.p.d_type == dF32 && !w.shift && w.p.n % 8 == 0;
}
