// SPDX-License-Identifier: Apache-2.0
// A tile of a tcgen05.mma by a whole warp with mma.sync.
//
// Hopper's mma.sync adds f16, bf16, tf32 and integers onto 32 bits as tcgen05.mma does, so this is exact for them.
// The fast arithmetic takes it for the others as well: floats of 8 bits and fewer as f16, in two halves of K.
#pragma once
#include "product.cuh"
#include <cuda_fp16.h>

constexpr u32 kBlock = 8;            // groups of 8 columns whose accumulators are in registers together

__device__ __forceinline__ bool by_warp(const Work& w) {
  if (w.column % 2 || w.p.sparse || w.p.factors) return false;
  if (w.p.kind == kI8) return true;
  if (porter_host.arithmetic == kFast) return true;
  return w.p.kind <= kTf32 && w.p.d_type == dF32 && !w.shift;
}

struct Fragment {      // of A: rows t/4 and t/4+8, words t%4 and t%4+4
  u32 r[4];
};

#define PORTER_MMA(form, type, c, a0, a1, a2, a3, b0, b1)                                           \
  asm volatile("mma.sync.aligned." form " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"     \
               : "+" type((c)[0]), "+" type((c)[1]), "+" type((c)[2]), "+" type((c)[3])              \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))

// Four bytes of floats of at most 8 bits as two pairs of f16, the first one in the low half.
static __device__ __noinline__ u64 widened(u32 bytes, u32 type) {
  u32 v[2];
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    unsigned short two = (unsigned short)(bytes >> 16 * i);
    if (type == tE4M3) {
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(v[i]) : "h"(two));
    } else if (type == tE5M2) {
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(v[i]) : "h"(two));
    } else {
      __half2 pair = __floats2half2_rn(decode(two & 0xFF, type, false), decode(two >> 8, type, false));
      v[i] = *(u32*)&pair;
    }
  }
  return (u64)v[1] << 32 | v[0];
}

// What tile_by_warp multiplies.
enum Family : u32 { kFloats, kNarrow, kIntegers };
__device__ __forceinline__ Family family(const Product& p) {
  return p.kind == kI8 ? kIntegers : p.kind == kF8 ? kNarrow : kFloats;
}

__device__ __forceinline__ void multiply_floats(float (&c)[4], const Fragment& a, u32 b0, u32 b1, const Product& p) {
  if (p.kind == kTf32) PORTER_MMA("m16n8k8.row.col.f32.tf32.tf32.f32", "f", c, a.r[0], a.r[1], a.r[2], a.r[3], b0, b1);
  else if (p.a_type == tF16) PORTER_MMA("m16n8k16.row.col.f32.f16.f16.f32", "f", c, a.r[0], a.r[1], a.r[2], a.r[3], b0, b1);
  else PORTER_MMA("m16n8k16.row.col.f32.bf16.bf16.f32", "f", c, a.r[0], a.r[1], a.r[2], a.r[3], b0, b1);
}

__device__ __forceinline__ void multiply_integers(float (&c)[4], const Fragment& a, u32 b0, u32 b1, const Product& p) {
  int d[4];
#pragma unroll
  for (u32 i = 0; i < 4; ++i) d[i] = __float_as_int(c[i]);
  bool sa = p.a_type == tS8, sb = p.b_type == tS8;
#define PORTER_I8(form) PORTER_MMA("m16n8k32.row.col" form, "r", d, a.r[0], a.r[1], a.r[2], a.r[3], b0, b1)
  if (p.saturate) {
    if (sa && sb) PORTER_I8(".satfinite.s32.s8.s8.s32");
    else if (sa) PORTER_I8(".satfinite.s32.s8.u8.s32");
    else if (sb) PORTER_I8(".satfinite.s32.u8.s8.s32");
    else PORTER_I8(".satfinite.s32.u8.u8.s32");
  } else {
    if (sa && sb) PORTER_I8(".s32.s8.s8.s32");
    else if (sa) PORTER_I8(".s32.s8.u8.s32");
    else if (sb) PORTER_I8(".s32.u8.s8.s32");
    else PORTER_I8(".s32.u8.u8.s32");
  }
#undef PORTER_I8
#pragma unroll
  for (u32 i = 0; i < 4; ++i) c[i] = __int_as_float(d[i]);
}

template <Family kFamily>
__device__ __forceinline__ void multiply_row(float (&c)[kBlock][4], const Fragment& a, const u32 (&b)[kBlock][2], u32 flip,
                                             const Product& p) {
#define PORTER_EACH(statement)                       \
  _Pragma("unroll") for (u32 j = 0; j < kBlock; ++j) { \
    u32 b0 = b[j][0] ^ flip, b1 = b[j][1] ^ flip;    \
    statement;                                       \
  }
#define PORTER_FLOATS(form) PORTER_EACH(PORTER_MMA(form, "f", c[j], a.r[0], a.r[1], a.r[2], a.r[3], b0, b1))
  if (kFamily == kIntegers) PORTER_EACH(multiply_integers(c[j], a, b0, b1, p))
  else if (p.kind == kTf32) PORTER_FLOATS("m16n8k8.row.col.f32.tf32.tf32.f32")
  else if (p.a_type == tF16) PORTER_FLOATS("m16n8k16.row.col.f32.f16.f16.f32")
  else PORTER_FLOATS("m16n8k16.row.col.f32.bf16.bf16.f32")
#undef PORTER_FLOATS
#undef PORTER_EACH
}

// Two neighbouring cells of a pair's Tensor Memory are read past the L1 cache, which another SM's writes miss.
__device__ __forceinline__ void load_two(const u32* from, bool pair, float& x, float& y) {
  if (pair) asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(from) : "memory");
  else asm volatile("ld.relaxed.cta.global.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(from) : "memory");
}
__device__ __forceinline__ void store_two(u32* to, bool pair, float x, float y) {
  if (pair) asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y) : "memory");
  else asm volatile("st.relaxed.cta.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y) : "memory");
}
__device__ __forceinline__ float half_cell(float cell) {
  return __half2float(__ushort_as_half((unsigned short)__float_as_uint(cell)));
}
__device__ __forceinline__ float half_rounded(float v) {
  return __uint_as_float(0xFFFF0000u | __half_as_ushort(__float2half_rn(v)));
}

template <Family kFamily>
static __device__ __noinline__ void family_tile(const Work& work, const Item& item, u32 index) {
  const Work w = work;
  const u32 count = item.count, enable = item.enable;
  Tile tile = tile_of(w, index);
  u32 t = thread_rank() % 32, g = t / 4, q = t % 4;
  u32 flip = w.p.kind == kTf32 ? 0x80000000u : 0x80008000u;
  u32 flip_a = w.p.negate_a ? flip : 0, flip_b = w.p.negate_b ? flip : 0;
  if (kFamily != kFloats) flip_a = flip_b = 0;
  const bool halves = kFamily != kIntegers && w.p.d_type == dF16;
  const bool negate = kFamily == kNarrow && w.p.negate_a != w.p.negate_b;
  // Row of the lane whose address ldmatrix takes, and the matrix: for A two row groups of each half of K, for B two
  // halves of K of each row group.
  const u32 a_row = t % 16, a_chunk = t / 16, b_row = t % 8 + t / 16 * 8, b_chunk = t / 8 % 2;
  bool keep0 = written(item, tile, g), keep1 = written(item, tile, g + 8);
  float scale = w.shift ? __uint_as_float((127 - w.shift) << 23) : 1.0f;
  bool add = enable & 1;
#pragma unroll 1
  for (u32 first = tile.first; first < tile.last; first += 8 * kBlock) {
    float c[kBlock][4];
    u32* low = tile_cell(w, tile, g, first + 2 * q);
    u32* high = low + 8 * kColumns;
    u32 blocks = min(kBlock, (tile.last - first) / 8);
#pragma unroll
    for (u32 j = 0; j < kBlock; ++j) {
      c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
      if (add && j < blocks) load_two(low + 8 * j, w.pair, c[j][0], c[j][1]), load_two(high + 8 * j, w.pair, c[j][2], c[j][3]);
    }
#pragma unroll 1
    for (u32 step = 0; step < count; ++step) {
      Operands o = read_step(w, item, step, tile);
      bool clear = step && !(enable >> step & 1);
      if (clear || halves || w.shift) {
#pragma unroll
        for (u32 j = 0; j < kBlock; ++j)
#pragma unroll
          for (u32 i = 0; i < 4; ++i) {
            if (halves) c[j][i] = half_cell(c[j][i]);
            c[j][i] = clear ? 0 : c[j][i] * scale;
          }
      }
      Fragment a[2];
      if (regular(o.a, o.at)) {
        load_fragments(chunk_address(o.a, o.at, o.row + a_row, a_chunk), a[0].r[0], a[0].r[1], a[0].r[2], a[0].r[3]);
      } else {
        operand_fragment(o.a, o.at, o.row, t, a[0].r[0], a[0].r[2]);
        operand_fragment(o.a, o.at, o.row + 8, t, a[0].r[1], a[0].r[3]);
      }
      if (kFamily == kNarrow) {
        Fragment bytes = a[0];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          u64 wide = widened(bytes.r[i], w.p.a_type);
          a[i / 2].r[i % 2] = (u32)wide, a[i / 2].r[i % 2 + 2] = (u32)(wide >> 32);
        }
      }
#pragma unroll
      for (u32 i = 0; i < 4; ++i) a[0].r[i] ^= flip_a;
      if (kFamily != kNarrow && !halves && !w.pair && blocks % 2 == 0 && regular(o.b, place(w, 0))) {
        u32 address = chunk_address(o.b, place(w, 0), first + b_row, b_chunk), b[kBlock][2];
#pragma unroll
        for (u32 j = 0; j < kBlock; j += 2) {
          b[j][0] = b[j][1] = b[j + 1][0] = b[j + 1][1] = 0;
          if (j < blocks) load_fragments(address + j * o.b.sbo, b[j][0], b[j][1], b[j + 1][0], b[j + 1][1]);
        }
        multiply_row<kFamily>(c, a[0], b, flip_b, w.p);
        continue;
      }
#pragma unroll
      for (u32 j = 0; j < kBlock; ++j) {
        if (j >= blocks) break;
        u32 n = first + 8 * j, b0, b1;
        Place at = b_place(w, n);
        operand_fragment(o.b, at, n, t, b0, b1);
        if (kFamily == kFloats) multiply_floats(c[j], a[0], b0 ^ flip_b, b1 ^ flip_b, w.p);
        if (kFamily == kIntegers) multiply_integers(c[j], a[0], b0, b1, w.p);
        if (kFamily == kNarrow) {
#pragma unroll
          for (u32 i = 0; i < 4; ++i) c[j][i] = negate ? -c[j][i] : c[j][i];
#pragma unroll
          for (u32 half = 0; half < 2; ++half) {
            const Fragment& x = a[half];
            u64 b = widened(half ? b1 : b0, w.p.b_type);
            PORTER_MMA("m16n8k16.row.col.f32.f16.f16.f32", "f", c[j], x.r[0], x.r[1], x.r[2], x.r[3], (u32)b, (u32)(b >> 32));
          }
#pragma unroll
          for (u32 i = 0; i < 4; ++i) c[j][i] = negate ? -c[j][i] : c[j][i];
        }
        if (halves) {
#pragma unroll
          for (u32 i = 0; i < 4; ++i) c[j][i] = half_rounded(c[j][i]);
        }
      }
    }
#pragma unroll
    for (u32 j = 0; j < kBlock; ++j) {
      if (j >= blocks) break;
      if (keep0) store_two(low + 8 * j, w.pair, c[j][0], c[j][1]);
      if (keep1) store_two(high + 8 * j, w.pair, c[j][2], c[j][3]);
    }
  }
}

__device__ __forceinline__ void tile_by_warp(const Work& w, const Item& item, u32 index) {
  switch (family(w.p)) {
    case kFloats: family_tile<kFloats>(w, item, index); break;
    case kNarrow: family_tile<kNarrow>(w, item, index); break;
    default: family_tile<kIntegers>(w, item, index);
  }
}
