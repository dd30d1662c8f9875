# SPDX-License-Identifier: Apache-2.0
"""Instructions as functions of numbers: of integers and predicates (PTX ISA 9.7.1, 9.7.2, 9.7.6 to 9.7.9), and the
comparisons of floats."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache

from porter.facts import floats
from porter.ptx.bits import signed, unsigned

Operation = Callable[..., int | None]
"""From operands to the result, all without their signs; None where the result is not defined."""

_WIDTHS = {"32": 32, "64": 64, "16": 16, "8": 8, "128": 128}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
_LOGIC: dict[str, Callable[[int, int], int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
_SINGLE: dict[str, Callable[[int, int], int]] = {
    "mov": lambda a, w: a,
    "cvt": lambda a, w: a,
    "cvta": lambda a, w: a,
    "neg": lambda a, w: -a,
    "not": lambda a, w: ~a,
    "abs": lambda a, w: abs(a),
    "popc": lambda a, w: unsigned(a, w).bit_count(),
    "brev": lambda a, w: int(f"{unsigned(a, w):0{w}b}"[::-1], 2),
    "clz": lambda a, w: w - unsigned(a, w).bit_length(),
    "bfind": lambda a, w: (unsigned(a, w) if a >= 0 else unsigned(~a, w)).bit_length() - 1,
}
_PAIRS: dict[str, Callable[[int, int, int], int | None]] = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul": lambda a, b, w: a * b,
    "and": lambda a, b, w: a & b,
    "or": lambda a, b, w: a | b,
    "xor": lambda a, b, w: a ^ b,
    "min": lambda a, b, w: min(a, b),
    "max": lambda a, b, w: max(a, b),
    "shl": lambda a, b, w: a << b if b < w else 0,
    "shr": lambda a, b, w: a >> min(b, w),
    "div": lambda a, b, w: _quotient(a, b) if b else None,
    "rem": lambda a, b, w: a - b * _quotient(a, b) if b else None,
}
_SHIFTS = frozenset(("shl", "shr"))
"""Their second operand is a number without a sign whatever the type."""


@lru_cache(maxsize=4096)
def operation(parts: tuple[str, ...]) -> Operation | None:
    """The function of an opcode's parts; None if nobody knows it."""
    name, kind = parts[0], parts[-1]
    if kind == "pred":
        return _predicate(name)
    if (of_floats := floats.operation(parts)) is not None:
        return of_floats
    width = _WIDTHS.get(kind[1:]) if kind[0] in "bsu" else None
    if width is None or {"sat", "relu"} & set(parts):
        return None
    read = signed if kind[0] == "s" else unsigned
    if name == "setp":
        return _comparison(parts, read, width)
    if name in _BY_NAME:
        return _BY_NAME[name](parts, width)
    result = _result_width(parts, width)
    if not result:
        return None
    if "shiftamt" in parts:
        return lambda a: unsigned(_left_of(_SINGLE[name](read(a, width), width), width), 32)
    if name in _SINGLE:
        one = _SINGLE[name]
        return lambda a: unsigned(one(read(a, width), width), result)
    if name == "mad":
        return _multiplied(parts, read, width, result)
    if name == "mul" and "hi" in parts:
        return lambda a, b: unsigned(read(a, width) * read(b, width) >> width, width)
    if name in _PAIRS:
        two = _PAIRS[name]
        second = unsigned if name in _SHIFTS else read

        def pair(a: int, b: int) -> int | None:
            value = two(read(a, width), second(b, 32 if name in _SHIFTS else width), width)
            return None if value is None else unsigned(value, result)

        return pair
    return None


def _left_of(bit: int, width: int) -> int:
    """By how much the highest bit that is set is shifted to the top; -1 if none is."""
    return bit if bit < 0 else width - 1 - bit


def _result_width(parts: tuple[str, ...], width: int) -> int:
    if parts[0] in ("cvt", "cvta") and len(parts) > 2 and parts[-2][0] in "bsu":
        return _WIDTHS.get(parts[-2][1:], width if parts[0] == "cvta" else 0)
    if parts[0] == "cvt":
        return 0
    if parts[0] in ("popc", "clz", "bfind"):
        return 32
    return 2 * width if "wide" in parts else width


def _predicate(name: str) -> Operation | None:
    if name in ("mov", "not"):
        flip = int(name == "not")
        return lambda a: a & 1 ^ flip
    if name in _LOGIC:
        two = _LOGIC[name]
        return lambda a, b: two(a & 1, b & 1)
    return None


def _comparison(parts: tuple[str, ...], read: Callable[[int, int], int], width: int) -> Operation | None:
    compare = _COMPARE.get(parts[1])
    if compare is None or len(parts) > 4:
        return None
    if len(parts) == 3:
        return lambda a, b: int(compare(read(a, width), read(b, width)))
    joined = _LOGIC.get(parts[2])
    return None if joined is None else lambda a, b, c: joined(int(compare(read(a, width), read(b, width))), c & 1)


def _multiplied(parts: tuple[str, ...], read: Callable[[int, int], int], width: int, result: int) -> Operation:
    if "hi" in parts:
        return lambda a, b, c: unsigned((read(a, width) * read(b, width) >> width) + read(c, width), result)
    return lambda a, b, c: unsigned(read(a, width) * read(b, width) + read(c, result), result)


def _quotient(a: int, b: int) -> int:
    """Towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _selected(parts: tuple[str, ...], width: int) -> Operation:
    return lambda a, b, p: unsigned(a if p & 1 else b, width)


def _inserted(parts: tuple[str, ...], width: int) -> Operation:
    def bfi(a: int, b: int, start: int, count: int) -> int:
        field = unsigned(((1 << (count & 255)) - 1) << (start & 255), width)
        return b & ~field & ((1 << width) - 1) | (a << (start & 255)) & field

    return bfi


def _extracted(parts: tuple[str, ...], width: int) -> Operation:
    def bfe(a: int, start: int, count: int) -> int:
        start, count = start & 255, count & 255
        field = unsigned(a, width) >> start & ((1 << count) - 1)
        top = min(start + count - 1, width - 1)
        negative = parts[-1][0] == "s" and count and a >> top & 1
        return unsigned(field - (1 << (top - start + 1)) if negative and top >= start else field, width)

    return bfe


def _looked_up(parts: tuple[str, ...], width: int) -> Operation | None:
    if len(parts) != 2:
        return None

    def lop3(a: int, b: int, c: int, table: int) -> int:
        found = 0
        for row in range(8):
            if table >> row & 1:
                found |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return unsigned(found, width)

    return lop3


def _funnelled(parts: tuple[str, ...], width: int) -> Operation:
    def shf(low: int, high: int, count: int) -> int:
        count = min(count & 0xFFFFFFFF, 32) if parts[2] == "clamp" else count & 31
        both = unsigned(high, 32) << 32 | unsigned(low, 32)
        return unsigned(both << count >> 32 if parts[1] == "l" else both >> count, 32)

    return shf


def _permuted(parts: tuple[str, ...], width: int) -> Operation | None:
    if len(parts) != 2:
        return None

    def prmt(low: int, high: int, selector: int) -> int:
        both, found = unsigned(high, 32) << 32 | unsigned(low, 32), 0
        for i in range(4):
            pick = selector >> 4 * i & 15
            byte = both >> 8 * (pick & 7) & 255
            found |= (byte if pick < 8 else 255 * (byte >> 7)) << 8 * i
        return found

    return prmt


_BY_NAME: dict[str, Callable[[tuple[str, ...], int], Operation | None]] = {
    "selp": _selected, "bfi": _inserted, "bfe": _extracted, "lop3": _looked_up, "shf": _funnelled, "prmt": _permuted,
}  # fmt: skip
