# SPDX-License-Identifier: Apache-2.0
"""Number formats of tensors: exact decoding to float64, correctly rounded encoding, and distance in ULPs.

Encoding rounds in float64 first and casts afterwards, because a cast from float64 through float32 rounds
twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Float64 = npt.NDArray[np.float64]


_AT_ONCE = 1 << 16
"""Elements whose steps of rounding stay in a processor's cache."""


@dataclass(frozen=True)
class DType:
    """A number format as stored in memory.

    `significand` counts the bits of a normal number with the hidden one, `emin` is the exponent of the
    smallest normal number and `largest` the largest finite value (integers: `smallest` to `largest`).
    `container` is the NumPy type that holds one element, `bits` the unsigned type of the same width.
    """

    name: str
    container: np.dtype
    significand: int
    emin: int
    largest: float
    is_float: bool = True
    has_infinity: bool = True
    smallest: float = 0.0
    is_scale: bool = False
    """Whether it has powers of two alone: no zero and no sign. Values are then encoded by their magnitude."""

    @property
    def itemsize(self) -> int:
        return self.container.itemsize

    @property
    def bits(self) -> np.dtype:
        return np.dtype(f"u{self.itemsize}")

    @property
    def max_exact_integer(self) -> int:
        """Every integer of magnitude up to this is a value of the format."""
        if not self.is_float:
            return int(self.largest)
        return int(min(2**self.significand, self.largest))

    @property
    def emax(self) -> int:
        """Exponent of the largest finite value."""
        return int(np.frexp(self.largest)[1]) - 1

    @property
    def min_subnormal(self) -> float:
        return float(np.ldexp(1.0, self.emin - self.significand + 1))

    def round(self, values: Float64) -> Float64:
        """`values` rounded to nearest even in this format, as the converting instructions do: overflow goes
        to infinity where there is one, else to the largest value. Integers are rounded and clamped."""
        values = np.asarray(values, dtype=np.float64)
        if self.is_scale:
            values = np.maximum(np.abs(values), self.min_subnormal)
        if not self.is_float:
            return np.clip(np.rint(values), self.smallest, self.largest)
        if self.significand >= 53:
            return values
        with np.errstate(all="ignore"):
            exponent = np.maximum(np.frexp(values)[1] - 1, self.emin)
            step = np.ldexp(1.0, exponent - (self.significand - 1))
            rounded = np.where(np.isfinite(values), np.rint(values / step) * step, values)
            over = np.abs(rounded) > self.largest
            limit = np.inf if self.has_infinity else self.largest
        return np.where(over, np.copysign(limit, rounded), rounded)

    def encode(self, values: Float64) -> Array:
        """`values` (any shape) as elements of this format, rounded to nearest even."""
        values = np.asarray(values, dtype=np.float64)
        if values.size <= _AT_ONCE:
            return self._encoded(values)
        result = np.empty(values.shape, self.container)
        flat, made = values.reshape(-1), result.reshape(-1)
        for at in range(0, values.size, _AT_ONCE):
            made[at : at + _AT_ONCE] = self._encoded(flat[at : at + _AT_ONCE])
        return result

    def _encoded(self, values: Float64) -> Array:
        rounded = self.round(values)
        if self.is_float:
            with np.errstate(all="ignore"):
                return rounded.astype(self.container)
        if np.isnan(rounded).any():
            raise ValueError(f"{self.name} has no NaN")
        return rounded.astype(self.container)

    def decode(self, elements: Array) -> Float64:
        """Elements of this format as float64; exact. The low 13 bits that tf32 ignores are dropped."""
        elements = np.asarray(elements)
        if self.name == "tf32":
            elements = (elements.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        with np.errstate(all="ignore"):
            return elements.astype(np.float64)

    def ordered(self, elements: Array) -> npt.NDArray[np.int64]:
        """Numbers whose differences are ULP distances: neighbouring values differ by one, +0 and -0 are
        equal."""
        elements = np.ascontiguousarray(elements)
        if not self.is_float:
            return elements.astype(np.int64)
        bits = elements.view(self.bits)
        if self.name == "tf32":
            bits = bits >> np.uint32(13)
        width = 19 if self.name == "tf32" else self.itemsize * 8
        magnitude = (bits & np.array((1 << (width - 1)) - 1, self.bits)).astype(np.int64)
        negative = (bits >> np.array(width - 1, self.bits)).astype(bool)
        return np.where(negative, -magnitude, magnitude)

    def half_ulp(self, values: Float64) -> Float64:
        """Half the distance between neighbours at each value: the most that rounding once can lose."""
        if not self.is_float:
            return np.zeros_like(values)
        with np.errstate(all="ignore"):
            finite = np.where(np.isfinite(values), values, 0.0)
            exponent = np.where(finite == 0, self.emin, np.maximum(np.frexp(finite)[1] - 1, self.emin))
            return np.ldexp(0.5, exponent - (self.significand - 1))


def _float(
    name: str, container: str | type[np.generic], digits: int, emin: int, largest: float, inf: bool = True
) -> DType:
    return DType(name, np.dtype(container), digits, emin, largest, True, inf)


def _int(name: str, container: str) -> DType:
    info = np.iinfo(container)
    return DType(name, np.dtype(container), 0, 0, float(info.max), False, False, float(info.min))


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        _float("f64", "f8", 53, -1022, float(np.finfo("f8").max)),
        _float("f32", "f4", 24, -126, float(np.finfo("f4").max)),
        _float("tf32", "f4", 11, -126, (2 - 2.0**-10) * 2.0**127),
        _float("f16", "f2", 11, -14, 65504.0),
        _float("bf16", ml_dtypes.bfloat16, 8, -126, (2 - 2.0**-7) * 2.0**127),
        _float("f8e4m3", ml_dtypes.float8_e4m3fn, 4, -6, 448.0, False),
        _float("f8e5m2", ml_dtypes.float8_e5m2, 3, -14, 57344.0),
        DType("f8e8m0", np.dtype(ml_dtypes.float8_e8m0fnu), 1, -127, 2.0**127, has_infinity=False, is_scale=True),
        _int("s8", "i1"),
        _int("u8", "u1"),
        _int("s16", "i2"),
        _int("u16", "u2"),
        _int("s32", "i4"),
        _int("u32", "u4"),
        _int("s64", "i8"),
        _int("u64", "u8"),
    )
}
