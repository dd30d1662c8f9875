# SPDX-License-Identifier: Apache-2.0
"""Comparisons of floating-point numbers as functions of their bits (PTX ISA 9.7.3.11, 9.7.5.3), sums and products
(9.7.3.3 to 9.7.3.5), and conversions (9.7.9.21), which are exact or give the nearest number: what kernels make of a
launch's scalars."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.bits import signed, unsigned

Operation = Callable[..., int | None]
_ORDERED: dict[str, Callable[[float, float], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
_ROUNDED = frozenset(("rn", "ftz"))
_LOGIC: dict[str, Callable[[int, int], int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
_TYPES: dict[str, tuple[npt.DTypeLike, npt.DTypeLike]] = {
    "f16": (np.uint16, np.float16), "bf16": (np.uint32, np.float32), "f32": (np.uint32, np.float32),
    "f64": (np.uint64, np.float64),
}  # fmt: skip
"""Bits and value; a bf16 is the upper half of an f32."""


def value_of(bits: int, kind: str) -> float:
    """The number that some bits are."""
    held, value = _TYPES[kind]
    whole = unsigned(bits, _BITS[kind]) << (16 if kind == "bf16" else 0)
    return float(np.array(whole, held).view(value))


def bits_of(value: float, kind: str) -> int | None:
    """The bits of a constant; None where the type has no such number, or several for it."""
    floating_kind = kind.replace("b", "f")
    if floating_kind not in ("f32", "f64") or value != value:
        return None
    held, floating = _TYPES[floating_kind]
    return int(np.array(value, floating).view(held))


@lru_cache(maxsize=1024)
def operation(parts: tuple[str, ...]) -> Operation | None:
    """The function of an opcode's parts; None if it is not one of these."""
    kind = parts[-1]
    converts = parts[0] == "cvt" and parts[1:-2] == ("rn",) and parts[-2] in _BITS
    if converts and kind[0] in "su":
        return _of_integers(int(kind[1:]), kind[0] == "s", parts[-2])
    if kind not in _BITS:
        return None
    if converts:
        return lambda a: _rounded(value_of(a, kind), parts[-2])
    if parts[0] == "setp":
        return _comparison(parts[1], [p for p in parts[2:-1] if p != "ftz"], kind, "ftz" in parts)
    modifiers = frozenset(parts[1:-1])
    if parts[0] in _ARITHMETIC and kind in ("f32", "f64") and modifiers <= _ROUNDED:
        compute = _ARITHMETIC[parts[0]]
        return lambda a, b: _nearest(compute, a, b, kind, "ftz" in modifiers)
    if parts[0] == "cvt" and len(parts) == 3 and _BITS.get(parts[1], 0) > _BITS[kind] and parts[1] != "bf16":
        return lambda a: bits_of(value_of(a, kind), parts[1])
    return None


def _of_integers(width: int, is_signed: bool, kind: str) -> Operation:
    """An integer rounded to the nearest number."""

    def convert(a: int) -> int | None:
        number = (signed if is_signed else unsigned)(a, width)
        return _rounded(number, kind) if abs(number) <= _EXACT else None

    return convert


def _rounded(value: float, kind: str) -> int | None:
    """The bits of the nearest number, of two the even one; None for what is none, and what would be rounded twice."""
    if value != value:
        return None
    with np.errstate(over="ignore"):
        if kind != "bf16":
            held, floating = _TYPES[kind]
            return int(np.array(value, floating).view(held))
        single = np.array(value, np.float32)
    whole = int(single.view(np.uint32))
    return whole + 0x7FFF + (whole >> 16 & 1) >> 16 if float(single) == value else None


_EXACT = 1 << 53
"""Integers up to here are doubles, so that they are rounded once."""


def _nearest(compute: Callable[[Any, Any], Any], a: int, b: int, kind: str, flushes: bool) -> int | None:
    """Rounded to the nearest."""
    _, floating = _TYPES[kind]
    one, other = (np.array(_flushed(value_of(v, kind), flushes), floating) for v in (a, b))
    with np.errstate(all="ignore"):
        return bits_of(_flushed(float(compute(one, other)), flushes), kind)


def _comparison(name: str, joined: list[str], kind: str, flushes: bool) -> Operation | None:
    test = _test(name)
    if test is None or len(joined) > 1 or (joined and joined[0] not in _LOGIC):
        return None

    def compare(a: int, b: int, *c: int) -> int:
        one, other = (_flushed(value_of(v, kind), flushes) for v in (a, b))
        found = int(test(one, other))
        return _LOGIC[joined[0]](found, c[0] & 1) if joined else found

    return compare


def _flushed(value: float, flushes: bool) -> float:
    return math.copysign(0.0, value) if flushes and abs(value) < float(np.finfo(np.float32).tiny) else value


def _test(name: str) -> Callable[[float, float], bool] | None:
    """What ends in u also holds where an operand is NaN; what does not, `ne` included, never does."""
    if name in ("num", "nan"):
        return lambda a, b: (a != a or b != b) is (name == "nan")
    holds = _ORDERED.get(name.removesuffix("u"))
    if holds is None:
        return None
    return lambda a, b: name.endswith("u") if a != a or b != b else holds(a, b)
