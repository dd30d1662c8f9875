# SPDX-License-Identifier: Apache-2.0
"""Integers and predicates of a warp's 32 lanes, as instructions compute them from the index of the thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.object_]
"""One value a lane: an integer without its sign, or a truth value."""

_WIDTHS = {"32": 32, "64": 64, "16": 16, "8": 8}
_COMPARE: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip


def every(value: int) -> Lanes:
    """The same integer in all lanes."""
    return np.full(32, value, dtype=object)


def computed(parts: Sequence[str], given: Sequence[Lanes]) -> Lanes | None:
    """The result of an instruction, or None where this does not know it."""
    kind = parts[-1]
    if kind == "pred":
        return _logic(parts[0], [g.astype(bool).astype(object) for g in given])
    width = _WIDTHS.get(kind.lstrip("bsu"))
    if width is None or kind[0] not in "bsu":
        return None
    if parts[0] == "setp":
        return _compared(parts, given, kind, width)
    if parts[0] == "selp" and len(given) == 3:
        return np.where(given[2].astype(bool), given[0], given[1])
    values = [_signed(g, width) for g in given] if kind[0] == "s" else [_unsigned(g, width) for g in given]
    found = _number(parts, values, width)
    if found is None:
        return None
    if parts[0] == "cvt":
        width = _WIDTHS.get(parts[-2].lstrip("bsu"), 0)
        return _unsigned(found, width) if width else None
    return _unsigned(found, 2 * width if "wide" in parts else width)


def _compared(parts: Sequence[str], given: Sequence[Lanes], kind: str, width: int) -> Lanes | None:
    compare = _COMPARE.get(parts[1])
    if compare is None or len(given) != 2 or len(parts) != 3:
        return None
    a, b = (_signed(g, width) if kind[0] == "s" else _unsigned(g, width) for g in given)
    return compare(a, b).astype(object)


def _logic(operation: str, given: Sequence[Lanes]) -> Lanes | None:
    match operation, len(given):
        case "mov", 1:
            return given[0]
        case "not", 1:
            return np.array([not v for v in given[0]], dtype=object)
        case "and", 2:
            return given[0] & given[1]
        case "or", 2:
            return given[0] | given[1]
        case "xor", 2:
            return given[0] ^ given[1]
    return None


def _number(parts: Sequence[str], given: Sequence[Lanes], width: int) -> Lanes | None:
    if "hi" in parts or "sat" in parts:
        return None
    match parts[0], list(given):
        case ("mov" | "cvt" | "cvta"), [a]:
            # the source of a conversion has a type of its own
            return a if parts[0] != "cvt" or parts[1][:1] in "bsu" else None
        case "add", [a, b]:
            return a + b
        case "sub", [a, b]:
            return a - b
        case "mul", [a, b]:
            return a * b
        case "mad", [a, b, c]:
            return a * b + c
        case "neg", [a]:
            return -a
        case "not", [a]:
            return ~a
        case "and", [a, b]:
            return a & b
        case "or", [a, b]:
            return a | b
        case "xor", [a, b]:
            return a ^ b
        case "min", [a, b]:
            return np.minimum(a, b)
        case "max", [a, b]:
            return np.maximum(a, b)
        case "shl", [a, b]:
            return np.array([x << int(y) if y < width else 0 for x, y in zip(a, b, strict=True)], dtype=object)
        case "shr", [a, b]:
            return np.array([x >> min(int(y), width) for x, y in zip(a, b, strict=True)], dtype=object)
        case "div", [a, b] if all(x >= 0 and y > 0 for x, y in zip(a, b, strict=True)):
            return a // b
        case "rem", [a, b] if all(x >= 0 and y > 0 for x, y in zip(a, b, strict=True)):
            return a % b
    return None


def _unsigned(value: Lanes, width: int) -> Lanes:
    return value & ((1 << width) - 1)


def _signed(value: Lanes, width: int) -> Lanes:
    low = _unsigned(value, width)
    return np.where(low >> (width - 1), low - (1 << width), low)
