# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations of generated code on arrays: what NumPy rounds otherwise or does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.sim.codegen import runtime
from porter.sim.rounding import (
    canonical_nan,
    f32_to_bf16,
    odd_add,
    odd_fma_f64,
    round_to_f16,
    round_to_f32,
)

Array = npt.NDArray[Any]


@runtime
def pair32(x: Array, kind: str) -> Array:
    """A 64-bit value as [..., 2] 32-bit values."""
    return np.ascontiguousarray(np.asarray(x)[..., None]).view(kind)


@runtime
def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """Fused multiply-add of f32, rounded to nearest even."""
    p = np.multiply(a, b, dtype=np.float64)
    s = p + c
    r = s.astype(np.float32)
    # The sum was rounded once to 53 bits; that matters only if it now sits on a midpoint of f32, or if the
    # result is subnormal, where midpoints lie elsewhere.
    low = np.asarray(s).view(np.uint64) & np.uint64(0x1FFFFFFF)
    risky = (low == np.uint64(0x10000000)) | (np.abs(r) < np.float32(1.2e-38))
    if risky.any():
        return round_to_f32(odd_add(p, np.asarray(c, np.float64)), "rn")
    return r


@runtime
def add_f32_mode(a: Array, b: Array, mode: str) -> Array:
    return _round_sum(np.asarray(a, np.float64), np.asarray(b, np.float64), mode)


def _round_sum(x: Array, y: Array, mode: str) -> Array:
    """x + y rounded to f32; downwards a sum of zero is -0 unless both terms are +0."""
    r = round_to_f32(odd_add(x, y), mode)
    if mode == "rm":
        cancelled = (r == 0) & (x == -y) & (np.signbit(x) | np.signbit(y))
        r = np.where(cancelled, np.float32(-0.0), r)
    return r


@runtime
def mul_f32_mode(a: Array, b: Array, mode: str) -> Array:
    return round_to_f32(np.multiply(a, b, dtype=np.float64), mode)


@runtime
def fma_f32_mode(a: Array, b: Array, c: Array, mode: str) -> Array:
    p = np.multiply(a, b, dtype=np.float64)
    return _round_sum(p, np.asarray(c, np.float64), mode)


def _nudge(q: Array, residual: Array) -> Array:
    """Make an inexact float64 quotient odd, so that rounding it again is exact. `residual` has the sign of
    (true value - q) when q is representable in few bits, anything otherwise."""
    bits = q.view(np.int64)
    up = np.where((residual > 0) == (q > 0), 1, -1)
    few = (bits & 0x1FFFFFFF) == 0
    return np.where(few & (residual != 0) & np.isfinite(q), bits + up, bits).view(np.float64)


@runtime
def div_f32_mode(a: Array, b: Array, mode: str) -> Array:
    x, y = (np.asarray(v, np.float64) for v in np.broadcast_arrays(a, b))
    q = np.asarray(x / y)
    residual = np.where(np.isfinite(y), (x - q * y) * np.sign(y), 0.0)
    return round_to_f32(_nudge(q, residual), mode)


@runtime
def sqrt_f32_mode(a: Array, mode: str) -> Array:
    x = np.asarray(a, np.float64)
    q = np.asarray(np.sqrt(x))
    return round_to_f32(_nudge(q, x - q * q), mode)


@runtime
def fma_f64(a: Array, b: Array, c: Array) -> Array:
    return odd_fma_f64(np.asarray(a), np.asarray(b), np.asarray(c))


@runtime
def fma_f16(a: Array, b: Array, c: Array) -> Array:
    p = np.multiply(a, b, dtype=np.float64)
    return round_to_f16(odd_add(p, np.asarray(c, np.float64)))


@runtime
def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """bf16 operands as f32; the result as bf16 bits."""
    p = np.multiply(a, b, dtype=np.float64)
    odd = odd_add(p, np.asarray(c, np.float64))
    return f32_to_bf16(odd_to_f32(odd), "rn")


def odd_to_f32(x: Array) -> Array:
    """Round float64 to f32 by round-to-odd: enough for a later rounding to 22 bits or fewer."""
    near = round_to_f32(x, "rz")
    inexact = near.astype(np.float64) != x
    return np.where(inexact & np.isfinite(near), near.view(np.uint32) | np.uint32(1), near.view(np.uint32)).view(
        np.float32
    )


@runtime
def saturate(x: Array) -> Array:
    """.sat: clamp to [0, 1]; NaN becomes +0."""
    one = x.dtype.type(1)
    return np.where(x > 0, np.minimum(x, one), x.dtype.type(0))


@runtime
def xorsign(r: Array, a: Array, b: Array) -> Array:
    """`r` with the product's sign; NaN has none."""
    return np.copysign(np.abs(r), np.where(np.signbit(a) != np.signbit(b), -1.0, 1.0).astype(r.dtype))


@runtime
def approx(name: str, x: Array, coarse: bool = False) -> Array:
    """The approximate functions, computed in float64 and rounded: closer than hardware's, never worse."""
    v = np.asarray(x, np.float64)
    fn: dict[str, Callable[[Array], Array]] = {
        "ex2": np.exp2,
        "lg2": np.log2,
        "sin": np.sin,
        "cos": np.cos,
        "tanh": np.tanh,
        "rsqrt": lambda z: 1.0 / np.sqrt(z),
        "rcp": lambda z: 1.0 / z,
        "sqrt": np.sqrt,
    }
    r = np.asarray(fn[name](v)).astype(np.asarray(x).dtype)
    # The approximations of f64 have the low 32 bits zero (PTX ISA 9.7.3.14, 9.7.3.17).
    return (r.view(np.uint64) & np.uint64(0xFFFFFFFF << 32)).view(np.float64) if coarse else r


@runtime
def testp(x: Array, what: str) -> Array:
    info = np.finfo(x.dtype)
    finite = np.isfinite(x)
    return {
        "finite": finite,
        "infinite": np.isinf(x),
        "number": ~np.isnan(x),
        "notanumber": np.isnan(x),
        # Zeros count as normal (PTX ISA 9.7.3.1).
        "normal": finite & ((np.abs(x) >= info.smallest_normal) | (x == 0)),
        "subnormal": (x != 0) & (np.abs(x) < info.smallest_normal),
    }[what]


@runtime
def relu(x: Array) -> Array:
    """Negative values become +0; NaN becomes canonical NaN."""
    return canonical_nan(np.where((x > 0) | (x != x), x, x.dtype.type(0)))
