# SPDX-License-Identifier: Apache-2.0
"""Instructions that move bits: logic bit by bit, shifts, fields and permutations (PTX ISA 9.7.1.19 f., 9.7.8, 9.7.9.7).

Where they move whole bytes they move words. Logic is made byte by byte, as far as bytes are numbers or the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from porter.equal.contents import fitted
from porter.equal.words import Words, extended, in_order, is_number, mixed, number_in, signs, word

Result = Callable[[list[Words]], Words]
_Made = Callable[[tuple[str, ...], list[Words]], Words | None]
_ALL_ONES = np.uint64(255)


def moved(parts: tuple[str, ...], opaque: Result) -> Result:
    """What an opcode of `MOVES` makes of its operands; `opaque`, where that is no matter of whole bytes."""
    how = _MOVES[parts[0]]

    def result(given: list[Words]) -> Words:
        found = how(parts, given)
        return opaque(given) if found is None else found

    return result


def number_of(data: Words) -> int | None:
    """The number that an operand is in all lanes."""
    if not bool(is_number(data).all()) or not bool((data == data[0]).all()):
        return None
    return number_in(data[0])


# Logic ------------------------------------------------------------------------------------------------


def _inverted(data: Words) -> Words:
    return np.where(is_number(data), ~data & _ALL_ONES, data ^ word("bytes not"))


def _combined(head: str, first: Words, second: Words) -> Words:
    """`and`, `or`, `xor` byte by byte."""
    one, other = in_order(first, second)
    # numbers are less than other words: the first is one if either is
    made = mixed(word(f"bytes {head}"), one, other)
    numbers, same, opposed = is_number(one) & is_number(other), one == other, one == _inverted(other)
    if head == "and":
        made = np.where((one == _ALL_ONES) | same, other, np.where((one == 0) | opposed, np.uint64(0), made))
        return np.where(numbers, one & other, made)
    if head == "or":
        made = np.where((one == 0) | same, other, np.where((one == _ALL_ONES) | opposed, _ALL_ONES, made))
        return np.where(numbers, one | other, made)
    made = np.where(same, np.uint64(0), np.where(opposed, _ALL_ONES, made))
    made = np.where(one == 0, other, np.where(one == _ALL_ONES, _inverted(other), made))
    return np.where(numbers, one ^ other, made)


def _logic(parts: tuple[str, ...], given: list[Words]) -> Words:
    return _combined(parts[0], given[0], given[1])


def _not(parts: tuple[str, ...], given: list[Words]) -> Words:
    return _inverted(given[0])


def _looked_up(parts: tuple[str, ...], given: list[Words]) -> Words | None:
    table = number_of(given[3])
    return None if table is None or len(parts) != 2 else _by_table(table, given[:3])


def _by_table(table: int, operands: Sequence[Words]) -> Words:
    """A function of bits by its table, where the last operand is the lowest bit of a row's number: as what `and`, `or`
    and `xor` make of the others' and of one operand, or else as a choice by the first one."""
    if not operands:
        return np.full(1, _ALL_ONES if table & 1 else 0, np.uint64)
    rows = 1 << len(operands) - 1
    every = (1 << rows) - 1
    for index in reversed(range(len(operands))):
        bit, rest = 1 << len(operands) - 1 - index, [*operands[:index], *operands[index + 1 :]]
        numbers = [[row for row in range(2 * rows) if bool(row & bit) == value] for value in (False, True)]
        off, on = (sum((table >> row & 1) << i for i, row in enumerate(some)) for some in numbers)
        one = operands[index]
        if off == on:
            return np.broadcast_to(_by_table(off, rest), one.shape)
        if not off or not on:
            return _combined("and", _by_table(on or off, rest), one if on else _inverted(one))
        if every in (off, on):
            return _combined(
                "or", _by_table(on if off == every else off, rest), _inverted(one) if off == every else one
            )
        if off == every ^ on:
            return _combined("xor", _by_table(off, rest), one)
    first, *others = operands
    on, off = table >> rows, table & every
    held, else_ = _by_table(on, others), _by_table(off, others)
    return _combined("or", _combined("and", first, held), _combined("and", _inverted(first), else_))


# Bytes ------------------------------------------------------------------------------------------------


def _shifted(parts: tuple[str, ...], given: list[Words]) -> Words | None:
    data, amount = given[0], number_of(given[1])
    size = data.shape[1]
    if amount is None or amount % 8:
        return None
    count = min(amount // 8, size)
    zeros = np.zeros((len(data), count), np.uint64)
    if parts[0] == "shl":
        return np.concatenate((zeros, data[:, : size - count]), axis=1)
    above = zeros if parts[-1][0] != "s" else np.broadcast_to(signs(data)[:, -1:], zeros.shape)
    return np.concatenate((data[:, count:], above), axis=1)


def _funnelled(parts: tuple[str, ...], given: list[Words]) -> Words | None:
    amount = number_of(given[2])
    if amount is None:
        return None
    amount = min(amount, 32) if "clamp" in parts else amount & 31
    if amount % 8:
        return None
    first = 4 - amount // 8 if parts[1] == "l" else amount // 8
    return np.concatenate(given[:2], axis=1)[:, first : first + 4]


def _permuted(parts: tuple[str, ...], given: list[Words]) -> Words | None:
    """Without a mode: four bytes of eight, or their signs."""
    selector = given[2][:, :2]
    if len(parts) != 2 or not bool(is_number(selector).all()):
        return None
    nibbles = np.stack([selector[:, i // 2] >> np.uint64(4 * (i % 2)) & np.uint64(15) for i in range(4)], axis=1)
    both = np.concatenate(given[:2], axis=1)
    return np.take_along_axis(np.concatenate((both, signs(both)), axis=1), nibbles.astype(np.intp), axis=1)


def _field(start: Words, count: Words, size: int) -> tuple[int, int] | None:
    """First byte and number of bytes of a field that lies in a register of `size` bytes; the lowest byte of both
    operands counts."""
    first, length = number_of(start[:, :1]), number_of(count[:, :1])
    if first is None or length is None or first % 8 or length % 8 or first + length > 8 * size:
        return None
    return first // 8, length // 8


def _extracted(parts: tuple[str, ...], given: list[Words]) -> Words | None:
    data = given[0]
    found = _field(given[1], given[2], data.shape[1])
    if found is None or not found[1]:
        return None
    field = data[:, found[0] : sum(found)]
    return fitted(extended(field, data.shape[1]) if parts[-1][0] == "s" else field, data.shape[1])


def _inserted(parts: tuple[str, ...], given: list[Words]) -> Words | None:
    data, base = given[:2]
    found = _field(given[2], given[3], data.shape[1])
    if found is None:
        return None
    first, count = found
    return np.concatenate((base[:, :first], data[:, :count], base[:, first + count :]), axis=1)


_MOVES: dict[str, _Made] = {
    "and": _logic, "or": _logic, "xor": _logic, "not": _not, "lop3": _looked_up, "shl": _shifted, "shr": _shifted,
    "shf": _funnelled, "prmt": _permuted, "bfe": _extracted, "bfi": _inserted,
}  # fmt: skip
MOVES = frozenset(_MOVES)
