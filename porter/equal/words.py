# SPDX-License-Identifier: Apache-2.0
"""Bytes of data as words of 64 bits that stand for how they were made.

A byte of global memory at the launch is the word of its address, a byte that is a number is that number, and what an
instruction makes of data is the word of the instruction and of what it was given, in order. Two words are equal where
bytes were made in the same way, and else with a probability of 2**-64 or so: these are fingerprints of terms, as
hash-consing has them, of terms that are never written down.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from math import prod

import numpy as np
import numpy.typing as npt

from porter.ptx.arch import WARP

Words = npt.NDArray[np.uint64]

_FACTORS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
_SHIFTS = (np.uint64(32), np.uint64(29))
_FACTOR, _LAST_FACTOR = (np.uint64(factor) for factor in _FACTORS)
_ALL_BITS = (1 << 64) - 1
_ONE = np.uint64(1)
PIECE = 1 << 13
"""Words that are worked on at once: larger arrays are asked of the system each time, and cleared by it."""
REGISTER = 8
"""Bytes of the widest register that has a sign."""
_NUMBERS = np.uint64(256)
"""Words below it are bytes that are numbers."""
_OPPOSITE = np.uint64(0xA5F1523D9C3B7700)


@lru_cache(maxsize=4096)
def word(text: str) -> np.uint64:
    """The word of a name."""
    return np.uint64(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little"))


def words_of(text: str) -> tuple[int, int]:
    """Two words of a name of which there are many."""
    digest = blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def stirred(name: int, number: int) -> Words:
    """A word of a name and a number: another one for each number of a name."""
    found = name + number * _FACTORS[0] & _ALL_BITS
    found = (found ^ found >> 29) * _FACTORS[1] & _ALL_BITS
    return np.array(found ^ found >> 32, np.uint64)


def mixed(first: Words | np.uint64, *others: Words | np.uint64) -> Words:
    """The word of words in order, element by element."""
    found = np.asarray(first)
    for other in others:
        if found.ndim:
            begun = found >> _SHIFTS[0]
            begun ^= found
            begun *= _FACTOR
        else:
            # numbers of Python do not warn when they wrap
            number = int(found)
            begun = np.array((number ^ number >> 32) * _FACTORS[0] & _ALL_BITS, np.uint64)
        alone = not other.ndim and not begun.ndim
        both: Words = (np.array([other]) if alone else other) + begun
        _stir(both)
        found = both.reshape(()) if alone else both
    return found


def _stir(data: Words) -> None:
    data ^= data >> _SHIFTS[1]
    data *= _LAST_FACTOR
    data ^= data >> _SHIFTS[0]


def joined(data: Words) -> Words:
    """The word of what the last axis holds: the sum of words that stand for one of them and its place each."""
    size = data.shape[-1]
    if size < 2:
        return mixed(_ONE, data[..., 0]) if size else np.zeros(data.shape[:-1], np.uint64)
    if data.size > PIECE and data.ndim > 1:
        return np.concatenate([joined(data[part]) for part in pieces(data.shape)])
    first, second = _factors(size)
    each = data * first
    each ^= each >> _SHIFTS[0]
    found: Words = each @ second
    return found ^ second[-1]


def pieces(shape: tuple[int, ...]) -> list[slice]:
    """The rows of an array in parts that fit in a cache."""
    step = max(PIECE * shape[0] // prod(shape), 1)
    return [slice(start, start + step) for start in range(0, shape[0], step)]


@lru_cache(maxsize=256)
def _factors(size: int) -> tuple[Words, Words]:
    """Two odd numbers for each place in a row."""
    found = [[int(word(f"factor {number} of {at}")) | 1 for at in range(size)] for number in (1, 2)]
    return np.array(found[0], np.uint64), np.array(found[1], np.uint64)


def spread(words: Words, size: int) -> Words:
    """The bytes [..., size] of values that are known by their words."""
    return words[..., None] + _factors(size)[0]


def element_words(data: Words) -> Words:
    """The words of values whose bytes [..., size] are known: those that were spread, or that of all bytes."""
    factors = _factors(data.shape[-1])[0]
    found = data - factors
    whole = (found[..., 1:] == found[..., :1]).all(axis=-1)
    return found[..., 0] if whole.all() else np.where(whole, found[..., 0], joined(data))


def of_addresses(addresses: npt.NDArray[np.int64]) -> Words:
    """What bytes of global memory hold at the launch."""
    return mixed(word("global memory"), addresses.astype(np.uint64))


@lru_cache(maxsize=4096)
def constant(number: int, size: int) -> Words:
    """A number in all lanes: [32, size]."""
    data = np.frombuffer((number & (1 << 8 * size) - 1).to_bytes(size, "little"), np.uint8)
    return np.broadcast_to(data.astype(np.uint64), (WARP, size))


def number_in(row: Words) -> int:
    """The number that bytes are."""
    return sum(int(byte) << 8 * i for i, byte in enumerate(row))


def is_number(data: Words) -> npt.NDArray[np.bool_]:
    return data < _NUMBERS


def opposite(predicate: Words) -> Words:
    """Not a predicate [..., 1]; the opposite of that is the predicate."""
    return np.where(is_number(predicate), predicate ^ np.uint64(1), predicate ^ _OPPOSITE)


def chosen(predicate: Words, first: Words, second: Words) -> Words:
    """`first` where a predicate [..., 1] holds, else `second`."""
    other = opposite(predicate)
    swaps = other < predicate
    low = np.where(swaps, other, predicate)
    one, two = np.where(swaps, second, first), np.where(swaps, first, second)
    found = np.where(one == two, one, mixed(word("choice"), low, one, two))
    known = np.where(predicate == np.uint64(0), second, first)
    return np.where(is_number(predicate), known, found)


def signs(data: Words) -> Words:
    """Of each byte of data [..., bytes] the byte that stands for its highest bit, zeros or ones. That of a byte which
    stands for the sign of another one of them is itself."""
    made = mixed(word("sign"), data)
    made = np.where((made[..., None, :] == data[..., :, None]).any(axis=-1), data, made)
    return np.where(is_number(data), np.where(data < np.uint64(0x80), np.uint64(0), np.uint64(0xFF)), made)


def extended(data: Words, size: int = REGISTER) -> Words:
    """Signed numbers [.., bytes] in so many bytes: above them stands their sign."""
    above = np.broadcast_to(signs(data)[..., -1:], (*data.shape[:-1], max(size - data.shape[-1], 0)))
    return np.concatenate((data, above), axis=-1)


def in_order(one: Words, other: Words) -> tuple[Words, Words]:
    """Both, the lesser one first: operands of what commutes."""
    return np.minimum(one, other), np.maximum(one, other)


def of_predicates(head: str, first: Words, second: Words) -> Words:
    """`and`, `or`, `xor` of predicates [..., 1]."""
    one, other = in_order(first, second)
    zero, yes = np.uint64(0), np.uint64(1)
    opposed = one == opposite(other)
    made = mixed(word(f"predicates {head}"), one, other)
    if head == "and":
        made = np.where(one == other, one, np.where(opposed, zero, made))
        return np.where(one == zero, zero, np.where(one == yes, other, made))
    if head == "or":
        made = np.where(one == other, one, np.where(opposed, yes, made))
        return np.where(one == zero, other, np.where(one == yes, yes, made))
    made = np.where(one == other, zero, np.where(opposed, yes, made))
    return np.where(one == zero, other, np.where(one == yes, opposite(other), made))
