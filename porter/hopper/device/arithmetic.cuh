// SPDX-License-Identifier: Apache-2.0
// Operands of one tcgen05.mma and the sum of their products.
//
// One instruction takes 32 bytes of K from every row of A and B: eight words. Exact arithmetic is the
// truncated fused dot product of porter/ptx/mma_numerics.py.
#pragma once
#include "state.cuh"
#include <cuda_fp16.h>

enum Kind : u32 { kF16 = 0, kTf32 = 1, kF8 = 2, kI8 = 3 };
enum Type : u32 { tF16, tBF16, tTF32, tE4M3, tE5M2, tS8, tU8 };
enum DType : u32 { dF16 = 0, dF32 = 1, dS32 = 2 };

struct Product {       // a decoded instruction descriptor
  u32 m, n, kind, a_type, b_type, d_type;
  bool negate_a, negate_b, a_mn, b_mn, saturate;
};

struct Rows {          // a decoded operand
  bool tmem, mn_major, remote;
  u32 window;          // where the CTA's shared memory begins, in a cluster
  u32 start, lbo, sbo, mode, size;
  const u32* cells;    // first cell of A in Tensor Memory
  bool half;           // rows as in layout F
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

__device__ __forceinline__ u32 load_word(u32 address, bool remote) {
  u32 v;
  if (remote) asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  else asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

// Where chunk `chunk` of 16 bytes of a K-major row lies. No swizzle moves anything inside of it.
__device__ __forceinline__ u32 chunk_address(const Rows& r, u32 row, u32 chunk) {
  u32 at = r.mode == 0 ? row % 8 * 16 + row / 8 * r.sbo + chunk * r.lbo
                       : row % 8 * span(r.mode) + row / 8 * r.sbo + chunk * 16;
  return r.window | (swizzled(r.start + at, r.mode) & 0x3FFFF);
}

// Bytes 4*word .. of row `row` of an operand whose row does not lie in chunks.
static __device__ __noinline__ u32 gathered_word(const Rows& r, u32 row, u32 word) {
  u32 per = 4 / r.size, result = 0;
  for (u32 i = 0; i < per; ++i) {
    u32 k = word * per + i, at;
    if (r.mode == 0) {
      u32 chunk = 16 / r.size;
      at = row % chunk * r.size + row / chunk * r.sbo + k % 8 * 16 + k / 8 * r.lbo;
    } else {
      u32 w = span(r.mode), deep = r.mode == 1 ? 4 : 8;
      at = row * r.size % w + row * r.size / w * r.lbo + k % deep * w + k / deep * r.sbo;
    }
    u32 address = r.window | (swizzled(r.start + at, r.mode) & 0x3FFFF);
    u32 v = load_word(address & ~3u, r.remote) >> (address % 4 * 8);
    if (r.size < 4) v &= (1u << 8 * r.size) - 1;
    result |= v << (8 * r.size * i);
  }
  return result;
}

__device__ __forceinline__ const u32* tmem_row(const Rows& r, u32 row) {
  return r.cells + (r.half ? row / 16 * 32 + row % 16 : row) * kColumns;
}

// Bytes 4*word .. of row `row` of the operand.
__device__ __forceinline__ u32 operand_word(const Rows& r, u32 row, u32 word) {
  if (r.tmem) return ((volatile const u32*)tmem_row(r, row))[word];
  if (r.mn_major) return gathered_word(r, row, word);
  return load_word(chunk_address(r, row, word / 4) + word % 4 * 4, r.remote);
}

__device__ __forceinline__ float decode(u32 raw, u32 type, bool negate) {
  float v;
  switch (type) {
    case tF16: v = __half2float(__ushort_as_half((unsigned short)raw)); break;
    case tBF16: v = __uint_as_float(raw << 16); break;
    case tTF32: v = __uint_as_float(raw & ~0x1FFFu); break;
    default: {
      u32 pair;
      if (type == tE4M3) asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)raw));
      else asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)raw));
      v = __half2float(__ushort_as_half((unsigned short)pair));
    }
  }
  return negate ? -v : v;
}

constexpr int kNone = -10000;   // stands for the exponent of zero

// The exponent as encoded: a subnormal number has the smallest normal one.
__device__ __forceinline__ int exponent(float v, int least) {
  u32 bits = __float_as_uint(v) & 0x7FFFFFFF;
  return bits == 0 ? kNone : max((int)(bits >> 23) - 127, least);
}
__device__ __forceinline__ int least_exponent(u32 type) {
  return type == tF16 || type == tE5M2 ? -14 : type == tE4M3 ? -6 : -126;
}
__device__ __forceinline__ double power(int e) { return __hiloint2double((1023 + e) << 20, 0); }

__device__ __forceinline__ double accumulator(u32 bits, u32 d_type) {
  return d_type == dF16 ? (double)__half2float(__ushort_as_half((unsigned short)bits)) : (double)__uint_as_float(bits);
}
__device__ __forceinline__ u32 rounded(double exact, u32 d_type) {
  if (d_type == dF16) return __half_as_ushort(__double2half(exact));
  if (fabs(exact) >= 3.4028236692093846e38) return exact < 0 ? 0xFF800000u : 0x7F800000u;
  return __float_as_uint(__double2float_rz(exact));
}

template <int K>
__device__ u32 exact_dot(const float* a, const float* b, u32 c_bits, const Product& p, bool enable, u32 shift) {
  constexpr int kFraction = 25;
  double c = enable ? accumulator(c_bits, p.d_type) : 0.0;
  if (shift) c *= power(-(int)shift);
  int least_a = least_exponent(p.a_type), least_b = least_exponent(p.b_type);
  int largest = kNone;
  bool finite = isfinite(c);
  if (c != 0 && finite) {
    int e = (__double2hiint(c) >> 20 & 0x7FF) - 1023;
    largest = max(e, p.d_type == dF16 ? -14 : -126);
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    finite &= isfinite(a[k]) && isfinite(b[k]);
    if (a[k] != 0 && b[k] != 0) largest = max(largest, exponent(a[k], least_a) + exponent(b[k], least_b));
  }
  if (!finite) {
    double total = isfinite(c) ? 0.0 : c;
    for (int k = 0; k < K; ++k) {
      double product = (double)a[k] * (double)b[k];
      if (!isfinite(product)) total += product;
    }
    if (isnan(total)) return p.d_type == dF16 ? 0x7FFFu : 0x7FFFFFFFu;
    if (isinf(total)) return p.d_type == dF16 ? (total < 0 ? 0xFC00u : 0x7C00u) : (total < 0 ? 0xFF800000u : 0x7F800000u);
  }
  if (largest == kNone) return 0;
  double unit = power(kFraction - largest);
  double total = trunc(c * unit);
#pragma unroll
  for (int k = 0; k < K; ++k) total += trunc((double)a[k] * (double)b[k] * unit);
  return total == 0 ? 0 : rounded(total * power(largest - kFraction), p.d_type);
}

template <int K>
__device__ u32 fast_dot(const float* a, const float* b, u32 c_bits, const Product& p, bool enable, u32 shift) {
  float total = enable ? (float)accumulator(c_bits, p.d_type) : 0.0f;
  if (shift) total *= (float)power(-(int)shift);
#pragma unroll
  for (int k = 0; k < K; ++k) total = fmaf(a[k], b[k], total);
  if (p.d_type == dF16) return __half_as_ushort(__float2half_rn(total));
  return isnan(total) ? 0x7FFFFFFFu : __float_as_uint(total);
}

__device__ __forceinline__ u32 integer_dot(const u32* a, const u32* b, u32 c, const Product& p, bool enable) {
  long long total = enable ? (long long)(int)c : 0;
#pragma unroll
  for (int w = 0; w < 8; ++w)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int x = a[w] >> 8 * i & 0xFF, y = b[w] >> 8 * i & 0xFF;
      if (p.a_type == tS8) x = (signed char)x;
      if (p.b_type == tS8) y = (signed char)y;
      total += x * y;
    }
  if (p.saturate) total = max(-2147483648LL, min(2147483647LL, total));
  return (u32)total;
}

template <int K>
__device__ __forceinline__ void decode_row(const u32* words, u32 type, bool negate, float* out) {
  constexpr int per = K / 8, bits = 32 / per;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    u32 raw = words[k / per] >> (k % per * bits);
    if (bits < 32) raw &= (1u << (bits % 32)) - 1;
    out[k] = decode(raw, type, negate);
  }
}

// All eight words of a row.
__device__ __forceinline__ void operand_row(const Rows& r, u32 row, u32* words) {
  if (!r.tmem && !r.mn_major && !r.remote) {
#pragma unroll
    for (u32 chunk = 0; chunk < 2; ++chunk) {
      u32* w = words + 4 * chunk;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(chunk_address(r, row, chunk)) : "memory");
    }
    return;
  }
#pragma unroll
  for (u32 w = 0; w < 8; ++w) words[w] = operand_word(r, row, w);
}
