# SPDX-License-Identifier: Apache-2.0
"""Rounding between floating-point formats, vectorized. Modes rn, rna, rz, rm, rp as in PTX ISA 9.7.3."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx import nan
from porter.ptx.float_words import F16_INFINITY, F16_SIGN, F32_FRACTION, F32_INFINITY, F32_SIGN

Array = npt.NDArray[Any]

_CANONICAL: dict[Any, Any] = {
    np.dtype("f2"): np.uint16(nan.CANONICAL["f16"]),
    np.dtype("f4"): np.uint32(nan.CANONICAL["f32"]),
}


def float_bits(x: Array) -> Array:
    """The bits of f16, f32 or f64 results. NaN of the first two is canonical; f64 keeps its payload."""
    x = np.asarray(x)
    bits = x.view(f"u{x.dtype.itemsize}")
    canonical = _CANONICAL.get(x.dtype)
    if canonical is not None:
        bad = x != x
        if bad.any():
            return np.where(bad, canonical, bits)
    return bits


def canonical_nan(x: Array) -> Array:
    """The same values; every NaN of f16 and f32 the canonical one."""
    x = np.asarray(x)
    return float_bits(x).view(x.dtype)


def kept_nan(result: Array, *operands: Array, quiet: bool = True) -> Array:
    """An f64 result whose NaN is that of the first operand that is one, else that of an invalid operation."""
    r = np.asarray(result)
    bad = r != r
    if not bad.any():
        return r
    bits = np.full(r.shape, nan.F64_INVALID, np.uint64)
    for x in reversed(operands):
        x = np.broadcast_to(x, r.shape)
        bits = np.where(x != x, x.view(np.uint64) | np.uint64(nan.F64_QUIET if quiet else 0), bits)
    return np.where(bad, bits, r.view(np.uint64)).view(np.float64)


def float_min(a: Array, b: Array, nan_wins: bool) -> Array:
    """The number if one operand is NaN, unless `nan_wins`; -0 is less than +0."""
    a, b = np.broadcast_arrays(a, b)
    r = np.where((a == b) & np.signbit(b), b, np.fmin(a, b))
    return _nan_rule(a, b, np.where((a == b) & np.signbit(a), a, r), nan_wins)


def float_max(a: Array, b: Array, nan_wins: bool) -> Array:
    a, b = np.broadcast_arrays(a, b)
    r = np.where((a == b) & np.signbit(a), b, np.fmax(a, b))
    return _nan_rule(a, b, np.where((a == b) & np.signbit(b), a, r), nan_wins)


def _nan_rule(a: Array, b: Array, r: Array, nan_wins: bool) -> Array:
    bad = (np.isnan(a) | np.isnan(b)) if nan_wins else (np.isnan(a) & np.isnan(b))
    if not bad.any():
        return r
    return kept_nan(np.where(bad, np.nan, r), b, a) if r.dtype == np.float64 else np.where(bad, r.dtype.type(np.nan), r)


def flush_f16(x: Array) -> Array:
    """Subnormal float16 to zero of the same sign."""
    u = np.asarray(x, np.float16).view(np.uint16)
    return np.where((u & np.uint16(F16_INFINITY)) == 0, u & np.uint16(F16_SIGN), u).view(np.float16)


def bf16_to_f32(x: Array) -> Array:
    """bf16 bits (uint16) to float32."""
    return (np.asarray(x).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x: Array, mode: str = "rn") -> Array:
    """float32 to bf16 bits (uint16)."""
    u = np.asarray(x, np.float32).view(np.uint32)
    low = u & np.uint32(0xFFFF)
    if mode == "rn":
        add = np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))
    elif mode == "rna":
        add = np.full_like(u, 0x8000)
    elif mode == "rz":
        add = np.zeros_like(u)
    else:
        away = (u >> np.uint32(31)) == (1 if mode == "rm" else 0)
        add = np.where(away & (low != 0), np.uint32(0xFFFF), np.uint32(0))
    special = (u & np.uint32(F32_INFINITY)) == np.uint32(F32_INFINITY)
    rounded = (np.where(special, u, u + add) >> np.uint32(16)).astype(np.uint16)
    bad = special & ((u & np.uint32(F32_FRACTION)) != 0)
    return np.where(bad, np.uint16(nan.CANONICAL["bf16"]), rounded)


def flush_f32(x: Array) -> Array:
    """Subnormal float32 to zero of the same sign."""
    u = np.asarray(x, np.float32).view(np.uint32)
    return np.where((u & np.uint32(F32_INFINITY)) == 0, u & np.uint32(F32_SIGN), u).view(np.float32)


def odd_add(x: Array, y: Array) -> Array:
    """x + y in float64, rounded to odd: a later rounding to 51 bits or fewer is then exact."""
    s = np.asarray(x + y)
    t = s - x
    error = (x - (s - t)) + (y - t)
    inexact = (error != 0) & np.isfinite(s)
    if not inexact.any():
        return s
    bits = s.view(np.int64)
    even = (bits & 1) == 0
    step = np.where((error > 0) == (s > 0), 1, -1)
    return np.where(inexact & even, bits + step, bits).view(np.float64)


def _split(x: Array) -> tuple[Array, Array]:
    c = x * 134217729.0
    high = c - (c - x)
    return high, x - high


def odd_fma_f64(a: Array, b: Array, c: Array) -> Array:
    """a*b + c in float64 with one rounding, to nearest even.

    Error-free product and sums with round-to-odd for the low parts; operands are scaled by powers of two so
    that no intermediate overflows. Results below 2**-960 are rounded twice.
    """
    a, b, c = (np.asarray(v, np.float64) for v in np.broadcast_arrays(a, b, c))
    plain = a * b + c
    ordinary = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    ma, ea = np.frexp(np.where(ordinary, a, 1.0))
    mb, eb = np.frexp(np.where(ordinary, b, 1.0))
    shift = ea.astype(np.int64) + eb
    cs = np.ldexp(np.where(ordinary, c, 0.0), np.clip(-shift, -2000, 2000).astype(np.int32))
    huge = ~np.isfinite(cs) | (np.abs(cs) > 2.0**900)
    # An addend below every bit of the product only has to tell a tie from an inexact sum.
    tiny = ordinary & (c != 0) & (np.abs(cs) < 2.0**-900)
    cs = np.where(huge, 0.0, np.where(tiny, np.copysign(2.0**-900, c), cs))
    p = ma * mb
    ah, al = _split(ma)
    bh, bl = _split(mb)
    e = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    uh = cs + e
    t = uh - cs
    ul = (cs - (uh - t)) + (e - t)
    vh = p + uh
    t = vh - p
    vl = (p - (vh - t)) + (uh - t)
    z = vh + odd_add(vl, ul)
    scaled = np.ldexp(z, np.clip(shift, -3000, 3000).astype(np.int32))
    return np.where(ordinary & ~huge, scaled, np.where(ordinary & huge, c, plain))


def round_to_f32(x: Array, mode: str) -> Array:
    """float64 to float32 in a rounding mode."""
    x = np.asarray(x, np.float64)
    r = x.astype(np.float32)
    if mode == "rn":
        return r
    back = r.astype(np.float64)
    bits = r.view(np.int32)
    if mode == "rz":
        back_off = (np.abs(back) > np.abs(x)) & np.isfinite(x)
        return np.where(back_off, bits - 1, bits).view(np.float32)
    upward = mode == "rp"
    wrong = ((back < x) if upward else (back > x)) & np.isfinite(x)
    towards = np.float32(np.inf if upward else -np.inf)
    return np.where(wrong, np.nextafter(r, towards), r)


def round_to_f16(x: Array) -> Array:
    """float64 to float16, to nearest even."""
    return np.asarray(x, np.float64).astype(np.float16)


def quantize(x: Array, precision: int, e_min: int, largest: float, mode: str) -> Array:
    """Round float64 values to a format of `precision` significand bits and least exponent `e_min`.

    Magnitudes that exceed `largest` after rounding become infinite, except toward zero, where the directed
    modes stop at `largest`. NaN and infinities stay.
    """
    x = np.asarray(x, np.float64)
    finite = np.isfinite(x)
    _, e = np.frexp(np.where(finite, x, 1.0))
    quantum = np.ldexp(1.0, np.maximum(e.astype(np.int32) - 1, e_min) - (precision - 1))
    q = np.where(finite, x, 0.0) / quantum
    if mode == "rn":
        r = np.rint(q)
    elif mode == "rna":
        r = np.copysign(np.floor(np.abs(q) + 0.5), q)
    elif mode == "rz":
        r = np.trunc(q)
    else:
        r = np.ceil(q) if mode == "rp" else np.floor(q)
    r = np.copysign(r * quantum, x)
    over = finite & (np.abs(r) > largest)
    if over.any():
        stops = (mode == "rz") | ((mode == "rp") & (x < 0)) | ((mode == "rm") & (x > 0))
        r = np.where(over, np.copysign(np.where(stops, largest, np.inf), x), r)
    return np.where(finite, r, x)
