# SPDX-License-Identifier: Apache-2.0
"""Double precision in the directed rounding modes, by exact integer arithmetic one value at a time.

Kernels use these modes rarely (`__dadd_rz` and the like), so this is short rather than fast.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_PRECISION, _LEAST = 53, -1074
_LARGEST = (1 << 53) - 1, 971


def _parts(x: float) -> tuple[int, int]:
    """x = m * 2**e."""
    m, e = math.frexp(x)
    return int(math.ldexp(m, 53)), e - 53


def round_exact(m: int, e: int, sticky: bool, mode: str, negative_zero: bool = False) -> float:
    """m * 2**e, plus something less than 2**e of the same sign if `sticky`, rounded once (rn, rz, rm, rp)."""
    negative = m < 0 or (m == 0 and negative_zero)
    m = abs(m)
    if m == 0 and not sticky:
        return -0.0 if negative else 0.0
    # Two more bits than the format keeps, below them only whether anything is left.
    shift = max(m.bit_length() - _PRECISION, _LEAST - e)
    if shift < 2:
        m, e, shift = m << (2 - shift), e - (2 - shift), 2
    rest = m & ((1 << shift) - 1)
    m, e = m >> shift, e + shift
    half = 1 << (shift - 1)
    inexact = rest != 0 or sticky
    if mode == "rn":
        up = rest > half or (rest == half and (sticky or m & 1 == 1))
    else:
        up = inexact and ((mode == "rp" and not negative) or (mode == "rm" and negative))
    m += up
    if m.bit_length() > _PRECISION:
        m, e = m >> 1, e + 1
    if e > _LARGEST[1]:
        away = mode == "rn" or (mode == "rp" and not negative) or (mode == "rm" and negative)
        value = math.inf if away else math.ldexp(*_LARGEST)
    else:
        value = math.ldexp(m, e)
    return -value if negative else value


def _sum(x: tuple[int, int], x_negative: bool, y: tuple[int, int], y_negative: bool, mode: str) -> float:
    e = min(x[1], y[1])
    m = (x[0] << (x[1] - e)) + (y[0] << (y[1] - e))
    # A sum of zeros of one sign keeps it; any other sum of zero is +0, and -0 downwards.
    negative_zero = x_negative if x_negative == y_negative else mode == "rm"
    return round_exact(m, e, False, mode, negative_zero)


def _one(op: str, mode: str, a: float, b: float, c: float) -> float:
    """One result, for finite operands; the caller has dealt with division by zero and roots of negatives."""
    sign_a, sign_b, sign_c = (math.copysign(1.0, v) < 0 for v in (a, b, c))
    (ma, ea), (mb, eb) = _parts(a), _parts(b)
    if op in ("+", "-"):
        return _sum((ma, ea), sign_a, (mb if op == "+" else -mb, eb), sign_b == (op == "+"), mode)
    product = ma * mb, ea + eb
    if op == "*":
        return round_exact(*product, False, mode, sign_a != sign_b)
    if op == "fma":
        return _sum(product, sign_a != sign_b, _parts(c), sign_c, mode)
    if op == "sqrt":
        shift = 64 + (ea & 1)
        root = math.isqrt(ma << shift)
        return round_exact(root, (ea - shift) // 2, root * root != ma << shift, mode, sign_a)
    quotient, rest = divmod(abs(ma) << 64, abs(mb))
    if sign_a != sign_b:
        quotient = -quotient
    return round_exact(quotient, ea - eb - 64, rest != 0, mode, sign_a != sign_b)


_NEAREST: dict[str, Any] = {
    "+": lambda a, b, c: a + b,
    "-": lambda a, b, c: a - b,
    "*": lambda a, b, c: a * b,
    "/": lambda a, b, c: a / b,
    "fma": lambda a, b, c: a * b + c,
    "sqrt": lambda a, b, c: np.sqrt(a),
}


def directed(op: str, mode: str, a: Array, b: Array | None = None, c: Array | None = None) -> Array:
    """`op` (+ - * / fma sqrt rcp) of float64 arrays, rounded as `mode` says (rn, rz, rm, rp)."""
    if op == "rcp":
        return directed("/", mode, np.array(1.0), a)
    x, y, z = np.broadcast_arrays(a, 0.0 if b is None else b, 0.0 if c is None else c)
    special = ~(np.isfinite(x) & np.isfinite(y) & np.isfinite(z))
    if op == "/":
        special |= y == 0
    if op == "sqrt":
        special |= x < 0
    with np.errstate(all="ignore"):
        result = np.array(_NEAREST[op](x, y, z), np.float64)
    for at in np.argwhere(~special):
        i = tuple(at)
        result[i] = _one(op, mode, float(x[i]), float(y[i]), float(z[i]))
    return result


def integer_to_f64(x: Array, mode: str) -> Array:
    """Integers as float64, rounded as `mode` says."""
    values = [round_exact(int(v), 0, False, mode) for v in np.asarray(x).reshape(-1).tolist()]
    return np.array(values, np.float64).reshape(np.shape(x))
