// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma: its descriptors read and checked, where its accumulator lies, and rows of it by single threads.
#pragma once
#include "operands.cuh"

// Bits of `flags` as porter/hopper/tensor_memory.py packs them.
constexpr u32 kFlagPair = 1u << 4;
constexpr u32 kFlagWs = 1u << 5;
constexpr u32 kFlagTmemA = 1u << 6;
constexpr u32 kFlagSparse = 1u << 7;
constexpr u32 kFactorsAt = 12;       // scale factors along K
__device__ __forceinline__ u32 flag_kind(u32 flags) { return flags & 0xF; }
__device__ __forceinline__ u32 flag_shift(u32 flags) { return flags >> 8 & 0xF; }
__device__ __forceinline__ bool is_pair(u32 flags) { return flags & kFlagPair; }

__device__ __forceinline__ u32 f8_type(u32 code) {
  switch (code) {
    case 0: return tE4M3;
    case 1: return tE5M2;
    case 3: return tE2M3;
    case 4: return tE3M2;
    default: return tE2M1;
  }
}
__device__ __forceinline__ u32 type_bits(u32 type) {
  return type == tTF32 ? 32 : type <= tBF16 ? 16 : type == tE2M3 || type == tE3M2 ? 6 : type == tE2M1 ? 4 : 8;
}

static __device__ __noinline__ Product read_instruction(u32 idesc, u32 flags, u32 site) {
  Product p;
  p.kind = flag_kind(flags);
  p.n = (idesc >> 17 & 0x3F) * 8, p.m = (idesc >> 24 & 0x1F) * 16;
  p.d_type = idesc >> 4 & 3;
  u32 a = idesc >> 7 & 7, b = idesc >> 10 & 7;
  p.negate_a = idesc >> 13 & 1, p.negate_b = idesc >> 14 & 1;
  p.a_mn = idesc >> 15 & 1, p.b_mn = idesc >> 16 & 1;
  p.saturate = idesc >> 3 & 1;
  p.group = is_pair(flags) ? 2 : 1;
  bool ws = flags & kFlagWs;
  p.sparse = flags & kFlagSparse, p.selector = idesc & 3;
  p.factors = flags >> kFactorsAt & 7, p.e4m3_scales = !(idesc >> 23 & 1), p.a_scale = idesc >> 29 & 3, p.b_scale = idesc >> 4 & 3;
  bool ok = (idesc >> 2 & 1) == (p.sparse ? 1 : 0) && !(idesc & 1u << 6);
  if (p.factors) {
    p.d_type = dF32, p.saturate = false;
    ok = ok && !(idesc >> 31) && !(idesc & 1u << 3) && (p.factors == 4 || !p.e4m3_scales) && !(p.a_scale % p.factors) && !(p.b_scale % p.factors);
  } else {
    ok = ok && !(idesc & (1u << 23 | 1u << 29)) && (ws || !(idesc >> 30)) && (p.sparse || p.selector == 0);
  }
  if (ws) ok = ok && (p.m == 32 || p.m == 64 || p.m == 128) && (p.n == 64 || p.n == 128 || p.n == 256);
  else ok = ok && (p.m == 64 * p.group || p.m == 128 * p.group) && p.n >= 8 * p.group && p.n <= 256 && p.n % (8 * p.group) == 0;
  // Layouts A to G of the PTX ISA.
  p.rows = p.m / p.group, p.half = p.rows == 64 && (p.group == 1 || p.sparse) && !ws;
  p.splits = p.half ? 1 : kLanes / p.rows;
  switch (p.kind) {
    case kF16:
      ok = ok && a < 2 && b < 2 && a == b && (p.d_type == dF32 || (p.d_type == dF16 && a == 0));
      p.a_type = a ? tBF16 : tF16, p.b_type = b ? tBF16 : tF16;
      break;
    case kTf32:
      ok = ok && a == 2 && b == 2 && p.d_type == dF32;
      p.a_type = p.b_type = tTF32;
      break;
    case kMx4:
    case kNv4:
      ok = ok && a == 1 && b == 1 && !p.a_mn && !p.b_mn;
      p.a_type = p.b_type = tE2M1;
      break;
    case kMx8:
    case kF8:
      ok = ok && a < 6 && a != 2 && b < 6 && b != 2 && p.d_type < 2;
      p.a_type = f8_type(a), p.b_type = f8_type(b);
      break;
    default:
      ok = ok && a < 2 && b < 2 && p.d_type == dS32 && !p.negate_a && !p.negate_b;
      ok = ok && (p.group == 2 ? p.n % 32 == 0 : p.n % 16 == 0 || p.n == 8 || p.n == 24);
      p.a_type = a ? tS8 : tU8, p.b_type = b ? tS8 : tU8;
  }
  if (p.b_mn && type_bits(p.b_type) <= 8) ok = ok && p.n % (16 * p.group) == 0;
  if (p.kind != kI8 && p.saturate) ok = false;
  if (!ok) stop(kTrapInstruction, site, idesc);
  return p;
}

// Where everything of an operation lies, but for the operands of its steps.
struct Work {
  Product p;
  u32 lane, column;    // of D
  u32 even;            // id of the CTA with the even rank, or of the only one
  u32 odd;
  u32 window[2];       // their shared memory
  u32 own;             // which of them this thread is in
  bool pair;
  u32 shift;
};

__device__ __forceinline__ u32 work_cta(const Work& w, u32 which) { return which ? w.odd : w.even; }
__device__ __forceinline__ Place place(const Work& w, u32 which) { return {w.window[which], which != w.own}; }

static __device__ __noinline__ Work read_work(const Item& i) {
  Work w;
  w.p = read_instruction(i.idesc, i.flags, i.site);
  w.pair = is_pair(i.flags), w.shift = flag_shift(i.flags);
  w.lane = i.d >> 16, w.column = i.d & 0xFFFF;
  u32 rank = cta_rank();
  w.own = w.pair ? rank % 2 : 0;
  w.even = w.own ? cta_of_rank(rank - 1) : cta_id();
  w.odd = !w.pair ? w.even : w.own ? cta_id() : cta_of_rank(rank + 1);
  w.window[0] = window(rank - w.own), w.window[1] = window(rank - w.own + (w.pair ? 1 : 0));
  return w;
}

// What the hardware would refuse, when the instruction is issued.
static __device__ __noinline__ void check_work(const Work& w, const Item& i) {
  u32 site = i.site, size = type_bits(w.p.a_type) > 16 ? 4 : type_bits(w.p.a_type) > 8 ? 2 : 1;
  if (w.lane != 0 && !(w.p.half && w.lane == 16)) stop(kTrapAccumulatorLane, site, w.lane, w.p.m);
  for (u32 which = 0; which <= (w.pair ? 1 : 0); ++which) {
    const Cta& c = porter_host.ctas[work_cta(w, which)];
    u32 width = w.p.n / w.p.splits;
    if (!allocated(c, w.column, width)) stop(kTrapUnallocated, site, w.column, width, c.allocated);
    if (i.flags & kFlagTmemA) {
      u32 a = (u32)i.steps[0].a;
      if (a >> 16 != w.lane || w.p.a_mn) stop(kTrapAccumulatorLane, site, a >> 16, w.lane);
      if (!allocated(c, a & 0xFFFF, 8)) stop(kTrapUnallocated, site, a & 0xFFFF, 8, c.allocated);
    }
  }
  u32 others[3] = {i.metadata, i.scale_a, i.scale_b};
  u32 widths[3] = {size >= 2 ? 1u : 2u, w.p.rows / 32, (w.p.n / w.p.splits + 31) / 32};
  for (u32 k = w.p.sparse ? 0 : 1; k < (w.p.factors ? 3 : 1); ++k)
    for (u32 which = 0; which <= (w.pair ? 1 : 0); ++which) {
      const Cta& c = porter_host.ctas[work_cta(w, which)];
      u32 column = others[k] & 0xFFFF;
      if (!allocated(c, column, widths[k])) stop(kTrapUnallocated, site, column, widths[k], c.allocated);
    }
  if (!(i.flags & kFlagTmemA)) read_operand(i.steps[0].a, w.p.a_mn, size, 8, site);
  read_operand(i.steps[0].b, w.p.b_mn, size, 8, site);
}

// Sixteen rows of D in one CTA, all columns that lie in their lanes.
struct Tile {
  u32 cta, row, lane;      // which CTA of the pair, its first row in that CTA and the lane of that
  u32 first, last;         // columns of D
};

__device__ __forceinline__ u32 tile_count(const Work& w) { return w.p.m / 16 * w.p.splits; }
__device__ __forceinline__ Tile tile_of(const Work& w, u32 index) {
  u32 blocks = w.p.rows / 16, width = w.p.n / w.p.splits;
  Tile t;
  t.cta = index / (blocks * w.p.splits), index %= blocks * w.p.splits;
  u32 split = index / blocks;
  t.row = index % blocks * 16;
  t.lane = w.p.half ? t.row * 2 + w.lane : t.row + split * w.p.rows;
  t.first = split * width, t.last = t.first + width;
  return t;
}
__device__ __forceinline__ u32* tile_cell(const Work& w, const Tile& t, u32 row, u32 n) {
  return cell(tensor_memory(work_cta(w, t.cta)), t.lane + row, w.column + n - t.first);
}
__device__ __forceinline__ bool written(const Item& i, const Tile& t, u32 row) {
  u32 lane = t.lane + row;
  return !(i.mask[t.cta * 4 + lane / 32] >> lane % 32 & 1);
}

// The operands of one step for a tile; `row` is the tile's first row in `a`.
struct Operands {
  Rows a, b;
  Place at;            // of A
  u32 row;
};
__device__ __forceinline__ Operands read_step(const Work& w, const Item& i, u32 step, const Tile& t) {
  Operands o;
  u32 a = type_bits(w.p.a_type), b = type_bits(w.p.b_type);
  // Two elements in a byte: read as bytes.
  if (w.p.kind >= kMx4) a = b = 8;
  o.at = place(w, t.cta);
  if (i.flags & kFlagTmemA) {
    o.a = Rows{};
    o.a.size = (a + 7) / 8, o.a.bits = a;
    o.a.cells = cell(tensor_memory(work_cta(w, t.cta)), 0, (u32)i.steps[step].a & 0xFFFF), o.row = t.lane;
  } else {
    o.a = read_operand(i.steps[step].a, w.p.a_mn, (a + 7) / 8, a, i.site), o.row = t.row;
  }
  o.b = read_operand(i.steps[step].b, w.p.b_mn, (b + 7) / 8, b, i.site);
  return o;
}
// Column n of D is row n of B, or of the odd CTA's B.
__device__ __forceinline__ Place b_place(const Work& w, u32& n) {
  u32 half = w.p.n / 2, which = w.pair && n >= half;
  if (which) n -= half;
  return place(w, which);
}

// Row `row` of a tile, columns first, first+step, ... by one thread.
template <int K>
__device__ __forceinline__ void float_row(const Work& w, const Tile& t, const Operands& o, u32 row, u32 first, u32 stride,
                                          bool enable) {
  float a[K], b[K];
  u32 words[8];
  operand_row(o.a, o.at, o.row + row, words);
  decode_row<K>(words, w.p.a_type, w.p.negate_a, a);
  bool exact = porter_host.arithmetic == kExact;
#pragma unroll 1
  for (u32 n = t.first + first; n < t.last; n += stride) {
    u32 column = n;
    Place at = b_place(w, column);
    operand_row(o.b, at, column, words);
    decode_row<K>(words, w.p.b_type, w.p.negate_b, b);
    volatile u32* to = tile_cell(w, t, row, n);
    u32 c = *to;
    u32 sum = exact ? exact_dot<K>(a, b, c, w.p, enable, w.shift) : fast_dot<K>(a, b, c, w.p, enable, w.shift);
    // The upper half of a cell with an f16 result is open: a NaN shows who relies on it.
    *to = w.p.d_type == dF16 ? sum | 0xFFFF0000u : sum;
  }
}

__device__ __forceinline__ void integer_row(const Work& w, const Tile& t, const Operands& o, u32 row, u32 first, u32 stride,
                                            bool enable) {
  u32 a[8], b[8];
  operand_row(o.a, o.at, o.row + row, a);
#pragma unroll 1
  for (u32 n = t.first + first; n < t.last; n += stride) {
    u32 column = n;
    Place at = b_place(w, column);
    operand_row(o.b, at, column, b);
    volatile u32* to = tile_cell(w, t, row, n);
    *to = integer_dot(a, b, *to, w.p, enable);
  }
}

// Scale factor `factor` of row `row` of A or column of B, of those that the partition of `lane` holds.
__device__ __forceinline__ double scale_factor(const u32* memory, u32 address, u32 lane, u32 row, u32 byte, bool e4m3) {
  u32 word = *(volatile const u32*)cell((u32*)memory, lane / 32 * 32 + row % 32, (address & 0xFFFF) + row / 32);
  u32 code = word >> 8 * byte & 0xFF;
  if (e4m3) return (double)decode(code & 0x7F, tE4M3, false);
  return code == 0xFF ? (double)__uint_as_float(0x7FFFFFFF) : power((int)code - 127);
}

// Element `i` of a row of words.
__device__ __forceinline__ u32 element(const u32* words, u32 i, u32 bits) {
  return bits == 32 ? words[i] : words[i * bits / 32] >> i * bits % 32 & ((1u << bits) - 1);
}

// Where in K a sparse A's `stored`-th element lies, by its metadata.
__device__ __forceinline__ u32 sparse_place(const u32* memory, u32 address, const Tile& t, u32 row, u32 stored, u32 bits,
                                            u32 selector) {
  u32 kept = bits == 32 ? 1 : bits == 4 ? 4 : 2, chunk = stored / kept, lane, column, bit;
  stored %= kept;
  if (bits >= 16) {
    lane = row % 8 + 8 * (chunk / 4), column = selector, bit = 16 * (row / 8) + 4 * (chunk % 4);
  } else {
    lane = row, column = chunk / 8, bit = 4 * (chunk % 8);
  }
  u32 nibble = *(volatile const u32*)cell((u32*)memory, t.lane + lane, (address & 0xFFFF) + column) >> bit & 0xF;
  if (bits == 32) return chunk * 2 + nibble / 8;
  if (bits == 4) return chunk * 8 + 2 * (nibble >> 2 * (stored / 2) & 3) + stored % 2;
  return chunk * 4 + (nibble >> 2 * stored & 3);
}

// The sum over all K of one element with sparsity or block scaling. Four-bit kinds are rounded to nearest once, all
// others are exact as exact_dot is.
static __device__ __noinline__ u32 general_dot(const float* a, const unsigned char* place, u32 count, const float* b,
                                               const double* scales, u32 c_bits, const Product& p, bool enable) {
  bool four = p.kind >= kMx4;
  double c = enable ? accumulator(c_bits, p.d_type) : 0.0, plain = c;
  int least_a = least_exponent(p.a_type), least_b = least_exponent(p.b_type), largest = kNone;
  u32 per = p.factors ? count / p.factors : count;
  for (u32 i = 0; i < count; ++i) {
    double product = (double)a[i] * (double)b[place[i]] * (p.factors ? scales[i / per] : 1.0);
    plain += product;
    int e = exponent(a[i], least_a) + exponent(b[place[i]], least_b);
    if (a[i] != 0 && b[place[i]] != 0) largest = max(largest, e + (p.factors ? ilogb(scales[0]) : 0));
  }
  if (!isfinite(plain)) {
    if (isnan(plain)) return p.d_type == dF16 ? 0x7FFFu : 0x7FFFFFFFu;
    return p.d_type == dF16 ? (plain < 0 ? 0xFC00u : 0x7C00u) : (plain < 0 ? 0xFF800000u : 0x7F800000u);
  }
  if (four) return __float_as_uint((float)plain);
  if (largest == kNone) return c == 0 && !p.factors ? 0 : p.d_type == dF16 ? (u32)__half_as_ushort(__double2half(c)) : __float_as_uint((float)c);
  if (c != 0) largest = max(largest, max((int)((__double_as_longlong(c) >> 52) & 0x7FF) - 1023, p.d_type == dF16 ? -14 : -126));
  double unit = power(25 - largest), total = trunc(c * unit);
  for (u32 i = 0; i < count; ++i) total += trunc((double)a[i] * (double)b[place[i]] * (p.factors ? scales[0] : 1.0) * unit);
  return total == 0 ? 0 : rounded(total * power(largest - 25), p.d_type);
}

// A tile with sparsity or block scaling, by threads as below.
static __device__ __noinline__ void general_tile(const Work& w, const Item& item, const Tile& t, const Operands& o, u32 first,
                                                 u32 stride, bool enable) {
  const Product& p = w.p;
  u32 bits = p.kind >= kMx4 ? 4 : p.kind == kF16 ? 16 : p.kind == kTf32 ? 32 : 8;
  u32 count = 256 / bits, logical = p.sparse ? 2 * count : count;
  const u32* memory = tensor_memory(work_cta(w, t.cta));
#pragma unroll 1
  for (u32 row = 0; row < 16; ++row) {
    if (!written(item, t, row)) continue;
    float a[64], b[128];
    unsigned char place[64];
    u32 words[16];
    operand_row(o.a, o.at, o.row + row, words);
    for (u32 i = 0; i < count; ++i) {
      u32 raw = element(words, i, bits);
      a[i] = p.kind == kI8 ? (float)(p.a_type == tS8 ? (int)(signed char)raw : (int)raw) : decode(raw, p.a_type, p.negate_a);
      place[i] = p.sparse ? sparse_place(memory, item.metadata, t, row, i, bits, p.selector) : i;
    }
#pragma unroll 1
    for (u32 n = t.first + first; n < t.last; n += stride) {
      u32 column = n;
      Place at = b_place(w, column);
      for (u32 word = 0; word < logical * bits / 32; ++word) words[word] = operand_word(o.b, at, column, word);
      for (u32 i = 0; i < logical; ++i) {
        u32 raw = element(words, i, bits);
        b[i] = p.kind == kI8 ? (float)(p.b_type == tS8 ? (int)(signed char)raw : (int)raw) : decode(raw, p.b_type, p.negate_b);
      }
      volatile u32* to = tile_cell(w, t, row, n);
      if (p.kind == kI8) {
        long long total = enable ? (long long)(int)*to : 0;
        for (u32 i = 0; i < count; ++i) total += (int)a[i] * (int)b[place[i]];
        if (p.saturate) total = max(-2147483648LL, min(2147483647LL, total));
        *to = (u32)total;
        continue;
      }
      double scales[4];
      for (u32 i = 0; i < p.factors; ++i)
        scales[i] = scale_factor(memory, item.scale_a, t.lane + row, t.row + row, p.a_scale + i, p.e4m3_scales) *
                    scale_factor(memory, item.scale_b, t.lane + row, n - t.first, p.b_scale + i, p.e4m3_scales);
      u32 sum = general_dot(a, place, count, b, scales, *to, p, enable);
      *to = p.d_type == dF16 ? sum | 0xFFFF0000u : sum;
    }
  }
}

// A tile of all steps, by threads that take every `stride`th column each.
static __device__ __noinline__ void tile_by_threads(const Work& w, const Item& i, u32 index, u32 first, u32 stride) {
  Tile t = tile_of(w, index);
#pragma unroll 1
  for (u32 step = 0; step < i.count; ++step) {
    Operands o = read_step(w, i, step, t);
    bool enable = i.enable >> step & 1;
    if (w.p.sparse || w.p.factors) {
      general_tile(w, i, t, o, first, stride, enable);
      continue;
    }
#pragma unroll 1
    for (u32 row = 0; row < 16; ++row) {
      if (!written(i, t, row)) continue;
      switch (w.p.kind) {
        case kF16: float_row<16>(w, t, o, row, first, stride, enable); break;
        case kTf32: float_row<8>(w, t, o, row, first, stride, enable); break;
        case kF8: float_row<32>(w, t, o, row, first, stride, enable); break;
        default: integer_row(w, t, o, row, first, stride, enable);
      }
    }
  }
}
