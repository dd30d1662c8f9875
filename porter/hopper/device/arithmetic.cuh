// SPDX-License-Identifier: Apache-2.0
// The sum of the products of one tcgen05.mma for one element of D.
//
// One instruction takes 32 bytes of K from every row of A and B: eight words. Exact arithmetic is the
// truncated fused dot product of porter/ptx/mma_numerics.py.
#pragma once
#include "state.cuh"
#include <cuda_fp16.h>

enum Kind : u32 { kF16 = 0, kTf32 = 1, kF8 = 2, kI8 = 3, kMx8 = 4, kMx4 = 5, kNv4 = 6 };
enum Type : u32 { tF16, tBF16, tTF32, tE4M3, tE5M2, tS8, tU8, tE2M3, tE3M2, tE2M1 };
enum DType : u32 { dF16 = 0, dF32 = 1, dS32 = 2 };

struct Product {       // a decoded instruction descriptor
  u32 m, n, kind, a_type, b_type, d_type;
  bool negate_a, negate_b, a_mn, b_mn, saturate;
  u32 group;           // CTAs
  u32 rows, splits;    // rows of D in each CTA, and lane ranges that its columns are split over
  bool half;           // 16 rows in each lane quarter
  bool sparse;
  u32 selector;        // of a sparse A's metadata
  u32 factors;         // scale factors along K; 0: no block scaling
  bool e4m3_scales;    // not powers of two
  u32 a_scale, b_scale;  // their first bytes
};

// A float of six or four bits: `mantissa` bits below an exponent with bias `bias`.
__device__ __forceinline__ float narrow_float(u32 raw, u32 sign, u32 mantissa, int bias) {
  float v = __uint_as_float((raw & (sign - 1)) << (23 - mantissa)) * __uint_as_float((254u - bias) << 23);
  return raw & sign ? -v : v;
}

__device__ __forceinline__ float decode(u32 raw, u32 type, bool negate) {
  float v;
  switch (type) {
    case tF16: v = __half2float(__ushort_as_half((unsigned short)raw)); break;
    case tBF16: v = __uint_as_float(raw << 16); break;
    case tTF32: v = __uint_as_float(raw & ~0x1FFFu); break;
    case tE2M3: v = narrow_float(raw, 0x20, 3, 1); break;
    case tE3M2: v = narrow_float(raw, 0x20, 2, 3); break;
    case tE2M1: v = narrow_float(raw, 0x8, 1, 1); break;
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
  switch (type) {
    case tF16: case tE5M2: return -14;
    case tE4M3: return -6;
    case tE3M2: return -2;
    case tE2M3: case tE2M1: return 0;
    default: return -126;
  }
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
