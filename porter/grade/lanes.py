# SPDX-License-Identifier: Apache-2.0
"""Integers and predicates of a warp's lanes, as instructions compute them from the index of the thread."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from porter.ptx.arch import WARP

Lanes = tuple[int, ...]
"""One value a lane: an integer without its sign, or 0 and 1 of a predicate."""

_WIDTHS = {"32": 32, "64": 64, "16": 16, "8": 8}
_Pair = Callable[[int, int], int]
_COMPARE: dict[str, _Pair] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
_PAIRS: dict[str, _Pair] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "min": min, "max": max,
}  # fmt: skip
_LOGIC = ("and", "or", "xor")


def every(value: int) -> Lanes:
    """The same integer in all lanes."""
    return (value,) * WARP


def computed(parts: Sequence[str], given: Sequence[Lanes]) -> Lanes | None:
    """The result of an instruction, or None where this does not know it."""
    kind = parts[-1]
    if kind == "pred":
        return _logic(parts[0], given)
    width = _WIDTHS.get(kind.lstrip("bsu"))
    if width is None or kind[0] not in "bsu" or not given:
        return None
    if parts[0] == "selp":
        return tuple(a if p else b for a, b, p in zip(*given, strict=True)) if len(given) == 3 else None
    read = signed if kind[0] == "s" else unsigned
    values = [tuple(read(v, width) for v in lanes) for lanes in given]
    if parts[0] == "setp":
        compare = _COMPARE.get(parts[1])
        if compare is None or len(values) != 2 or len(parts) != 3:
            return None
        return tuple(int(compare(a, b)) for a, b in zip(*values, strict=True))
    found = _number(parts, values, width)
    result = _width_of_result(parts, width)
    return tuple(unsigned(v, result) for v in found) if found is not None and result else None


def _width_of_result(parts: Sequence[str], width: int) -> int:
    if parts[0] == "cvt":
        return _WIDTHS.get(parts[-2].lstrip("bsu"), 0)
    return 2 * width if "wide" in parts else width


def _logic(operation: str, given: Sequence[Lanes]) -> Lanes | None:
    if operation == "mov" and len(given) == 1:
        return given[0]
    if operation == "not" and len(given) == 1:
        return tuple(int(not v) for v in given[0])
    if operation in _LOGIC and len(given) == 2:
        return tuple(_PAIRS[operation](a, b) for a, b in zip(*given, strict=True))
    return None


def _number(parts: Sequence[str], given: Sequence[Lanes], width: int) -> Lanes | None:
    if "hi" in parts or "sat" in parts:
        return None
    name = parts[0]
    if len(given) == 1:
        single: dict[str, Callable[[int], int]] = {
            "mov": int, "cvt": int, "cvta": int, "neg": operator.neg, "not": operator.invert,
        }  # fmt: skip
        return tuple(map(single[name], given[0])) if name in single else None
    if name == "mad" and len(given) == 3:
        return tuple(a * b + c for a, b, c in zip(*given, strict=True))
    if len(given) != 2:
        return None
    rows = list(zip(*given, strict=True))
    match name:
        case "shl":
            return tuple(a << b if b < width else 0 for a, b in rows)
        case "shr":
            return tuple(a >> min(b, width) for a, b in rows)
        case "div" | "rem" if all(a >= 0 and b > 0 for a, b in rows):
            return tuple(a // b if name == "div" else a % b for a, b in rows)
    return tuple(_PAIRS[name](a, b) for a, b in rows) if name in _PAIRS else None


def unsigned(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


def signed(value: int, width: int) -> int:
    low = unsigned(value, width)
    return low - (1 << width) if low >> (width - 1) else low
