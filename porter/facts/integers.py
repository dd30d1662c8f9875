# SPDX-License-Identifier: Apache-2.0
"""Instructions as functions of numbers: of integers and predicates (PTX ISA 9.7.1, 9.7.2, 9.7.6 to 9.7.9), and the
comparisons of floats."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import cast

from porter.facts import floats
from porter.facts.launched import PARAMETERS
from porter.ptx.bits import signed, unsigned

Operation = Callable[..., int | None]
"""From operands to the result, all without their signs; None where the result is not defined."""

_WIDTHS = {"32": 32, "64": 64, "16": 16, "8": 8, "128": 128}
_NARROW, REGISTER_BITS = 32, 64
"""Numbers with less bits stand in wider registers, the widest of which has so many."""
_COMPARE = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
_LOGIC = {"and": "&", "or": "|", "xor": "^"}
_RESULTS = {
    "mov": "{a}", "cvt": "{a}", "cvta": "{a}", "neg": "-{a}", "not": "~{a}", "abs": "abs({a})",
    "popc": "{a}.bit_count()", "brev": "int(format({a}, '0{width}b')[::-1], 2)", "clz": "{width} - {a}.bit_length()",
    "bfind": "({a} if {a} >= 0 else ~{a}).bit_length() - 1",
    "add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}", "mad": "{a} * {b} + {c}",
    "and": "{a} & {b}", "or": "{a} | {b}", "xor": "{a} ^ {b}", "min": "min({a}, {b})", "max": "max({a}, {b})",
    "shl": "({a} << {b} if {b} < {width} else 0)", "shr": "{a} >> min({b}, {width})",
    "selp": "({a} if {c} & 1 else {b})",
}  # fmt: skip
"""By name the result as an expression of Python, of operands that are read as their type says."""
_HIGHEST = "({a} if {a} >= 0 else ~{a}).bit_length()"
_LEFT_OF_HIGHEST = f"({{width}} - {_HIGHEST} if {_HIGHEST} else -1)"
_HIGH = {"mul": "{a} * {b} >> {width}", "mad": "({a} * {b} >> {width}) + {c}"}
_LOW_BITS_ALONE = frozenset(
    ("mov", "cvt", "cvta", "neg", "not", "add", "sub", "mul", "mad", "and", "or", "xor", "selp")
)
"""Whose result follows, as far as it goes, from as many low bits of the operands."""
_COPIES = frozenset(("mov", "selp"))
"""Numbers of all types alike."""
_SHIFTS = frozenset(("shl", "shr"))
"""Their second operand is a number without a sign whatever the type."""


def _read(operand: str, width: int, is_signed: bool) -> str:
    low = f"({operand} & {(1 << width) - 1})"
    return f"(({low} ^ {1 << width - 1}) - {1 << width - 1})" if is_signed else low


@lru_cache(maxsize=4096)
def expression(parts: tuple[str, ...]) -> str | None:
    """The result of an opcode's parts as an expression of Python, in which `{a}`, `{b}`, `{c}` stand for its operands;
    None where there is none."""
    name, kind = parts[0], parts[-1]
    if kind == "pred":
        return _predicate(name)
    digits = kind.lstrip("bsuf") if name in _COPIES else kind[1:] if kind[0] in "bsu" else ""
    width = _WIDTHS.get(digits)
    if width is None or {"sat", "relu"} & set(parts):
        return None
    if name == "setp":
        return _comparison(parts, width, kind[0] == "s")
    high = "hi" in parts
    result = width if high else _result_width(parts, width)
    text = _LEFT_OF_HIGHEST if "shiftamt" in parts else (_HIGH if high else _RESULTS).get(name)
    if name == "cvta" and "param" in parts and "to" not in parts:
        # What `mov` gives is generic already; of 32 bits the window is lost.
        text = f"{{a}} | {PARAMETERS}"
    if text is None or not result:
        return None
    if name in _LOW_BITS_ALONE and result <= width and not high:
        given = {"a": "{a}", "b": "{b}", "c": "{c}"}
    else:
        given = {letter: _read(f"{{{letter}}}", width, kind[0] == "s") for letter in "ab"}
        given["c"] = _read("{c}", result, kind[0] == "s")
        if name in _SHIFTS:
            given["b"] = _read("{b}", 32, False)
    text = f"({text.format(width=width, **given)}) & {(1 << result) - 1}"
    if name == "cvt" and parts[-2][0] == "s" and result < _NARROW:
        # the register may be wider (PTX ISA 9.4.1)
        return f"({_read(text, result, True)}) & {(1 << REGISTER_BITS) - 1}"
    return text


@lru_cache(maxsize=4096)
def operation(parts: tuple[str, ...]) -> Operation | None:
    """The function of an opcode's parts; None if nobody knows it."""
    if (of_floats := floats.operation(parts)) is not None:
        return of_floats
    text = expression(parts)
    if text is not None:
        names = [letter for letter in "abc" if f"{{{letter}}}" in text]
        return cast("Operation", eval(f"lambda {', '.join(names)}: {text.format(a='a', b='b', c='c')}"))
    name, kind = parts[0], parts[-1]
    width = _WIDTHS.get(kind[1:]) if kind[0] in "bsu" else None
    if width is None:
        return None
    if name in _BY_NAME:
        return _BY_NAME[name](parts, width)
    return _divided(name, width, kind[0] == "s") if name in ("div", "rem") else None


def _result_width(parts: tuple[str, ...], width: int) -> int:
    if parts[0] in ("cvt", "cvta") and len(parts) > 2 and parts[-2][0] in "bsu":
        return _WIDTHS.get(parts[-2][1:], width if parts[0] == "cvta" else 0)
    if parts[0] == "cvt":
        return 0
    if parts[0] in ("popc", "clz", "bfind"):
        return 32
    return 2 * width if "wide" in parts else width


def _predicate(name: str) -> str | None:
    if name in ("mov", "not"):
        return "{a} & 1" if name == "mov" else "{a} & 1 ^ 1"
    return f"({{a}} {_LOGIC[name]} {{b}}) & 1" if name in _LOGIC else None


def _comparison(parts: tuple[str, ...], width: int, is_signed: bool) -> str | None:
    compare = _COMPARE.get(parts[1])
    if compare is None or len(parts) > 4 or (len(parts) == 4 and parts[2] not in _LOGIC):
        return None
    text = f"(1 if {_read('{a}', width, is_signed)} {compare} {_read('{b}', width, is_signed)} else 0)"
    return text if len(parts) == 3 else f"{text} {_LOGIC[parts[2]]} ({{c}} & 1)"


def _divided(name: str, width: int, is_signed: bool) -> Operation:
    read = signed if is_signed else unsigned

    def div(a: int, b: int) -> int | None:
        above, below = read(a, width), read(b, width)
        if not below:
            return None
        quotient = _quotient(above, below)
        return unsigned(quotient if name == "div" else above - below * quotient, width)

    return div


def _quotient(a: int, b: int) -> int:
    """Towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


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
    "bfi": _inserted, "bfe": _extracted, "lop3": _looked_up, "shf": _funnelled, "prmt": _permuted,
}  # fmt: skip
