# SPDX-License-Identifier: Apache-2.0
"""Inputs of trials: columns of words of every kind, and tensor maps, in one buffer."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from porter.ptx.tensormap import TensorMap, TensorMapType

Words = npt.NDArray[np.uint64]

VALUES = 2048


class _Random:
    """splitmix64, so that the inputs depend on nothing but this text."""

    def __init__(self, seed: int) -> None:
        self.state = np.uint64(seed)

    def __call__(self, count: int = VALUES) -> Words:
        with np.errstate(over="ignore"):
            steps = np.arange(1, count + 1, dtype=np.uint64)
            z = self.state + steps * np.uint64(0x9E3779B97F4A7C15)
            self.state = z[-1]
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return z ^ (z >> np.uint64(31))


COLUMNS = 12
"""Columns of every kind of input."""

_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
_INTEGERS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
# Operands of matrix products: exponents near each other, so that the sums are of many terms.
_SMOOTH = {"mma_f16": (5, 10), "mma_bf16": (8, 7), "mma_f32": (8, 23), "mma_f64": (11, 52)}
_PACKED = ("mma_f16x2", "mma_bf16x2", "mma_e4m3", "mma_e5m2")
KINDS = (*_FLOATS, "f16x2", "bf16x2", "f32x2", *_INTEGERS, "small", "codes", *_SMOOTH, *_PACKED)


def _specials(exponent_bits: int, fraction_bits: int) -> list[int]:
    """Zeros, subnormals, one, the largest number, infinity, signalling and quiet NaN, of both signs."""
    e, f = exponent_bits, fraction_bits
    top, one = (1 << e) - 1, (1 << (e - 1)) - 1
    positive = [
        0, 1, (1 << f) - 1, 1 << f, one << f, ((top - 1) << f) | ((1 << f) - 1), top << f, (top << f) | 1,
        (top << f) | (1 << (f - 1)), (top << f) | (1 << (f - 1)) | 5, (1 << (e + f)) - 1,
    ]  # fmt: skip
    return [x | sign << (e + f) for sign in (0, 1) for x in positive]


def _float_column(random: _Random, bits: tuple[int, int], spread: int) -> Words:
    e, f = (np.uint64(x) for x in bits)
    one = np.uint64((1 << (int(e) - 1)) - 1)
    anywhere = random() % (np.uint64(1) << e)
    near = one + random() % np.uint64(2 * spread + 1) - np.uint64(spread)
    exponent = np.where(random() % np.uint64(10) < 7, near, anywhere) if spread > 2 else near
    fraction = random() % (np.uint64(1) << f)
    # Half of the bits clear makes ties.
    fraction = np.where(random() % np.uint64(10) < 3, fraction >> (f // np.uint64(2)) << (f // np.uint64(2)), fraction)
    return (random() & np.uint64(1)) << (e + f) | exponent << f | fraction


def _place_pairs(values: list[int], column: int, into: Words) -> None:
    """Every pair of special values in the first two columns, mixed into the third; then each with others."""
    n = len(values)
    table = np.array(values, np.uint64)
    index = np.arange(n * n)
    which = index % n if column % 3 == 0 else index // n if column % 3 == 1 else (7 * index + 3) % n
    into[: n * n] = table[which]
    start = n * n + n * (column % 3)
    into[start : start + n] = table


def inputs() -> dict[str, Words]:
    """[COLUMNS, VALUES] words of every kind."""
    found: dict[str, Words] = {}
    for seed, (name, bits) in enumerate((_FLOATS | _SMOOTH).items()):
        random = _Random(1000 + seed)
        smooth = name.startswith("mma")
        columns = [_float_column(random, bits, 2 if smooth else 6) for _ in range(COLUMNS)]
        if not smooth:
            for i, column in enumerate(columns):
                _place_pairs(_specials(*bits), i, column)
        found[name] = np.stack(columns)
    for name, width in _INTEGERS.items():
        random = _Random(2000 + width)
        ones = (1 << width) - 1
        edges = [0, 1, 2, ones, 1 << (width - 1), ones >> 1, 31, 32, 33, 63, 64, 255 & ones]
        columns = []
        for i in range(COLUMNS):
            x = random() >> random() % np.uint64(64)
            x = np.where(random() % np.uint64(5) == 0, ~x, x) & np.uint64(ones)
            _place_pairs(edges, i, x)
            columns.append(x)
        found[name] = np.stack(columns)
    for name, half in (("f16x2", "f16"), ("bf16x2", "bf16"), ("mma_f16x2", "mma_f16"), ("mma_bf16x2", "mma_bf16")):
        found[name] = found[half] | np.roll(found[half], 777, axis=1) << np.uint64(16)
    found["f32x2"] = found["f32"] | np.roll(found["f32"], 777, axis=1) << np.uint64(32)
    random = _Random(3000)
    found["small"] = np.stack([random() % np.uint64(40) for _ in range(COLUMNS)])
    # All 16-bit codes are too many for one column: every 32nd, at a random place of its 32.
    steps = np.arange(VALUES, dtype=np.uint64) * np.uint64(32)
    found["codes"] = np.stack([(steps + random() % np.uint64(32)) & np.uint64(0xFFFF) for _ in range(COLUMNS)])
    # FP8 numbers without NaN and infinity.
    found["mma_e4m3"] = np.stack([random() & np.uint64(0xBFBFBFBF) for _ in range(COLUMNS)])
    found["mma_e5m2"] = np.stack([random() & np.uint64(0xBFBFBFBF) for _ in range(COLUMNS)])
    return found


def input_bytes() -> bytes:
    """The input buffer: the columns of all kinds, then tensor data."""
    found = inputs()
    return np.concatenate([found[kind].reshape(-1) for kind in KINDS]).tobytes()


def column_offset(kind: str, column: int) -> int:
    """Byte offset of a column in the input buffer."""
    return (KINDS.index(kind) * COLUMNS + column % COLUMNS) * VALUES * 8


# Tensor maps: one for every rank and mode, behind the columns.
MAPS = -(-len(KINDS) * COLUMNS * VALUES * 8 // 1024) * 1024


def map_offset(rank: int, kind: int) -> int:
    """Byte offset of the map of a rank: kind 0 tiled, 1 im2col, 2 for gathering rows."""
    return 128 * (5 * kind + rank - 1)


def tensor_maps(address: int) -> bytes:
    """The maps, of tensors of 32-bit words at `address`."""
    raw = b""
    for kind in range(3):
        for rank in range(1, 6):
            sizes = (8,) * min(rank, 4) + (4,) * (rank - 4)
            strides = tuple(4 * math.prod(sizes[: i + 1]) for i in range(rank - 1))
            box = (4,) + (1,) * (rank - 1)
            corners: tuple[int, ...] = ()
            if kind == 1 and rank >= 3:
                box, corners = (4, 4), (0,) * (rank - 2)
            found = TensorMap(TensorMapType.UINT32, address, sizes, strides, box, lower=corners, upper=corners)
            raw += found.encode()
    return raw
