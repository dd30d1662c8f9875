# SPDX-License-Identifier: Apache-2.0
"""Values that a loop computes from its counters, as lines: at each place in a period a number for the first period and
how far it moves with each one. What holds for lines holds for every turn, without looking at any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from porter.facts.integers import operation
from porter.ptx import ast
from porter.ptx.bits import signed, unsigned


class NoLineError(Exception):
    """A value that is no line, or one that wraps."""


class Line(NamedTuple):
    """`first + step * period`, modulo two to the power `width`."""

    first: int
    step: int = 0
    width: int = 64


Row = tuple[Line, ...]
"""By place in a period; one alone is the same at all of them."""
_WIDTHS = {"u32": 32, "b32": 32, "s32": 32, "u64": 64, "s64": 64, "b64": 64}


class Lines:
    """Lines in periods of some turns, over `periods` of them behind the first."""

    def __init__(self, period: int, periods: int) -> None:
        self._period, self.periods = period, periods

    def number(self, number: int) -> Row:
        return (Line(unsigned(number, 64)),)

    def counted(self, first: Sequence[int], step: int) -> Row:
        """What moves by `step` in each of its own periods.

        Raises:
            NoLineError: they are no part of these.
        """
        times, rest = divmod(self._period, len(first))
        if rest:
            raise NoLineError
        return tuple(Line(number + step * turn, step * times) for turn in range(times) for number in first)

    def key(self, row: Row) -> Row:
        return row

    def computed(self, ins: ast.Instruction, given: Sequence[Row]) -> Row:
        """What an integer instruction makes of its operands.

        Raises:
            NoLineError: no line, as far as is known.
        """
        parts, width = ins.parts, _WIDTHS.get(ins.parts[-1], 0)
        function = _RESULTS.get(parts[0])
        if not width or len(parts) > _MOST_PARTS.get(parts[0], 2):
            raise NoLineError
        places = max(map(len, given))
        found = []
        for place in range(places):
            lines = [row[place % len(row)] for row in given]
            if parts[0] != "selp" and not any(_cut(line, width).step for line in lines):
                constant = operation(parts)
                number = constant(*(_cut(line, line.width).first for line in lines)) if constant is not None else None
                if number is None:
                    raise NoLineError
                found.append(Line(number))
            elif function is None:
                raise NoLineError
            else:
                found.append(function(self, parts, width, lines))
        return tuple(found)

    def step(self, row: Row) -> int | None:
        """The number by which all values move with each period, modulo 2^64; None if there is no such number.

        Raises:
            NoLineError: they wrap.
        """
        steps = {unsigned(line.step if line.width == 64 else self.exact(line)[1], 64) for line in row}
        return steps.pop() if len(steps) == 1 else None

    def exact(self, line: Line, is_signed: bool = False) -> tuple[int, int]:
        """First number and step of a line that does not wrap.

        Raises:
            NoLineError: it does.
        """
        first, step, width = _cut(line, line.width)
        low = -(1 << width - 1) if is_signed else 0
        first = signed(first, width) if is_signed else first
        if not all(low <= number < low + (1 << width) for number in (first, first + step * self.periods)):
            raise NoLineError
        return first, step

    def read(self, line: Line, width: int, is_signed: bool) -> tuple[int, int]:
        """The same of an operand of so many bits."""
        narrow = _cut(line, width)
        return self.exact(narrow, is_signed and narrow.width == width)

    def divided(self, line: tuple[int, int], divisor: int) -> tuple[int, int]:
        """Of a line without a width, rounded downwards.

        Raises:
            NoLineError: that is no line.
        """
        first, step = line
        for whole in (step // divisor, -(-step // divisor)):
            rest = step - whole * divisor
            if first // divisor == (first + rest * self.periods) // divisor:
                return first // divisor, whole
        raise NoLineError


def _cut(line: Line, width: int) -> Line:
    """The lowest bits; the step as near to zero as it can be."""
    width = min(width, line.width)
    return Line(unsigned(line.first, width), signed(line.step, width), width)


def _number(line: Line) -> int:
    if _cut(line, line.width).step:
        raise NoLineError
    return unsigned(line.first, line.width)


Result = Callable[[Lines, tuple[str, ...], int, list[Line]], Line]


def _wide(lines: Lines, line: Line, width: int) -> Line:
    """A line of so many bits: one of fewer does not wrap."""
    narrow = _cut(line, width)
    return narrow if narrow.width == width else Line(*lines.exact(narrow), width)


def _sum(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    sign = -1 if parts[0] == "sub" else 1
    one, other = (_wide(lines, line, width) for line in given)
    return Line(one.first + sign * other.first, one.step + sign * other.step, width)


def _negative(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    one = _wide(lines, given[0], width)
    return Line(-one.first - (parts[0] == "not"), -one.step, width)


def _moved(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    return _cut(given[0], width)


def _converted(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    if parts[0] == "cvta":
        return given[0]
    to = _WIDTHS.get(parts[1], 0)
    if not to:
        raise NoLineError
    return Line(*lines.read(given[0], width, parts[-1][0] == "s"), to) if to > width else _cut(given[0], to)


def _product(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    if "lo" in parts:
        one, other, result = _wide(lines, given[0], width), _wide(lines, given[1], width), width
        pair = (one.first, one.step), (other.first, other.step)
    else:
        is_signed = parts[-1][0] == "s"
        pair, result = (lines.read(given[0], width, is_signed), lines.read(given[1], width, is_signed)), 2 * width
    (first, step), (number, moves) = pair if not pair[1][1] else pair[::-1]
    if moves or (result > 64 and "hi" not in parts):
        raise NoLineError
    found = first * number, step * number
    if "hi" in parts:
        found, result = lines.divided(found, 1 << width), width
    rest = _wide(lines, given[2], result) if parts[0] == "mad" else Line(0)
    return Line(found[0] + rest.first, found[1] + rest.step, result)


def _shifted(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    count = unsigned(_number(given[1]), 32)
    if parts[0] == "shl":
        one = _wide(lines, given[0], width)
        return Line(one.first << count, one.step << count, width) if count < width else Line(0)
    return Line(*lines.divided(lines.read(given[0], width, parts[-1][0] == "s"), 1 << min(count, width)), width)


def _quotient(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    """Of numbers that are not less than nothing; where the divisor moves, one that its ends agree on."""
    pair = [lines.read(line, width, parts[-1][0] == "s") for line in given]
    (first, step), (divisor, moves) = pair
    ends = [(number, number + by * lines.periods) for number, by in pair]
    if min(ends[0]) < 0 or min(ends[1]) < 1:
        raise NoLineError
    if moves:
        found = first // divisor, 0
        if found[0] != ends[0][1] // ends[1][1]:
            raise NoLineError
    else:
        found = lines.divided((first, step), divisor)
    if parts[0] == "div":
        return Line(*found, width)
    return Line(first - divisor * found[0], step - divisor * found[1] - moves * found[0], width)


def _extreme(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    """One that stays the smaller or greater one from end to end."""
    one, other = (lines.read(line, width, parts[-1][0] == "s") for line in given)
    apart = one[0] - other[0], one[0] - other[0] + (one[1] - other[1]) * lines.periods
    if min(apart) < 0 < max(apart):
        raise NoLineError
    return Line(*(one if (sum(apart) < 0) == (parts[0] == "min") else other), width)


def _masked(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    """Bits in a row."""
    moving, other = given if _cut(given[0], width).step else given[::-1]
    mask = unsigned(_number(other), width)
    low = (mask & -mask).bit_length() - 1
    high = mask.bit_length()
    if not mask or mask != (1 << high) - (1 << low):
        raise NoLineError
    if not low:
        return _cut(moving, high)
    (first, step), (under, steps) = (lines.exact(_cut(moving, bits)) for bits in (high, low))
    return Line(first - under, step - steps, width)


def _beside(lines: Lines, parts: tuple[str, ...], width: int, given: list[Line]) -> Line:
    """A number whose bits lie below those that what moves ever has."""
    moving, other = given if _cut(given[0], width).step else given[::-1]
    line, number = _wide(lines, moving, width), unsigned(_number(other), width)
    if any(part & (1 << number.bit_length()) - 1 for part in (line.first, line.step)):
        raise NoLineError
    return Line(line.first + number, line.step, width)


_RESULTS: dict[str, Result] = {
    "mov": _moved, "selp": _moved, "cvt": _converted, "cvta": _converted, "add": _sum, "sub": _sum, "neg": _negative,
    "not": _negative, "mul": _product, "mad": _product, "shl": _shifted, "shr": _shifted, "div": _quotient,
    "rem": _quotient, "and": _masked, "or": _beside, "xor": _beside, "min": _extreme, "max": _extreme,
}  # fmt: skip
_MOST_PARTS = {"mul": 3, "mad": 3, "cvt": 3, "cvta": 4}
