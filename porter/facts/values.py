# SPDX-License-Identifier: Apache-2.0
"""Values of a register in a warp: a number that all lanes have, one a lane, or data that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat

from porter.facts.integers import REGISTER_BITS, operation
from porter.ptx.arch import WARP
from porter.ptx.bits import signed, unsigned

ALL = (1 << WARP) - 1
"""All lanes of a warp."""

Value = int | tuple[int | None, ...] | None
"""An int is the same in all lanes that hold it, a tuple has one of each lane, None is not known."""


@lru_cache(maxsize=1024)
def bits(mask: int) -> tuple[int, ...]:
    """The numbers of the bits that are set, lowest first."""
    return tuple(_bits(mask))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def first(mask: int) -> int:
    """The lowest lane of a mask."""
    return (mask & -mask).bit_length() - 1


def of_lane(value: Value, lane: int) -> int | None:
    return value[lane] if isinstance(value, tuple) else value


def is_known(value: Value, mask: int) -> bool:
    """Whether the value is known in all these lanes."""
    if isinstance(value, tuple):
        return None not in value or all(value[lane] is not None for lane in bits(mask))
    return value is not None


def squeezed(lanes: tuple[int | None, ...], mask: int) -> Value:
    """One number where all lanes of a mask agree."""
    one = lanes[first(mask)]
    if mask == ALL:
        return one if lanes.count(one) == WARP else lanes
    if not mask & (mask - 1):
        return one
    return one if all(lanes[lane] == one for lane in bits(mask)) else lanes


def alike(value: Value, mask: int) -> Value:
    """The value as the lanes of a mask have it: one number where they agree."""
    return squeezed(value, mask) if isinstance(value, tuple) else value


def merged(old: Value, new: Value, taken: int, mask: int) -> Value:
    """`new` in the lanes `taken`, `old` in the other ones of a mask."""
    if old is new or (isinstance(old, int) and old == new):
        return old
    if isinstance(old, tuple) and old == new:
        return squeezed(old, mask)
    lanes = list(old) if isinstance(old, tuple) else [old] * WARP
    if isinstance(new, tuple):
        for lane in bits(taken):
            lanes[lane] = new[lane]
    else:
        for lane in bits(taken):
            lanes[lane] = new
    return squeezed(tuple(lanes), mask)


def shifted(value: Value, offset: int) -> Value:
    """The value and a number."""
    if isinstance(value, tuple):
        return tuple(None if v is None else v + offset for v in value)
    return None if value is None else value + offset


def with_sign(value: Value, bits: int) -> Value:
    """A signed number of so many bits in a register that may be wider (PTX ISA 9.4.1): above it stands its sign."""
    if isinstance(value, tuple):
        return tuple(None if v is None else unsigned(signed(v, bits), REGISTER_BITS) for v in value)
    return None if value is None else unsigned(signed(value, bits), REGISTER_BITS)


def apply(parts: tuple[str, ...], given: Sequence[Value], mask: int) -> Value:
    """The result of an integer instruction; what depends on data is not known."""
    if (parts[-1] == "pred" or parts[0] == "selp") and (short := _decided(parts, given)) is not None:
        return short
    function = operation(parts)
    if function is None:
        return None
    alike = True
    for value in given:
        if value is None:
            return None
        if value.__class__ is not int:
            alike = False
    return function(*given) if alike else _in_lanes(parts, tuple(given), mask)


@lru_cache(maxsize=1 << 14)
def _in_lanes(parts: tuple[str, ...], given: tuple[Value, ...], mask: int) -> Value:
    """What `apply` finds where lanes differ: turns and executions come to the same again and again."""
    function = operation(parts)
    assert function is not None
    rows = zip(*(v if isinstance(v, tuple) else repeat(v, WARP) for v in given), strict=False)
    return squeezed(tuple(None if None in row else function(*row) for row in rows), mask)


def _decided(parts: tuple[str, ...], given: Sequence[Value]) -> Value:
    """What some operands decide although others are not known."""
    if parts[0] == "selp" and isinstance(given[2], int):
        return given[0] if given[2] & 1 else given[1]
    if parts[-1] == "pred" and parts[0] in ("and", "or") and len(given) == 2:
        decides = int(parts[0] == "or")
        if any(isinstance(v, int) and v & 1 == decides for v in given):
            return decides
    return None
