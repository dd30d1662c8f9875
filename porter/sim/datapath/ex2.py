# SPDX-License-Identifier: Apache-2.0
"""`ex2.approx.f32` as an H200 computes it, bit for bit.

The unit takes the argument as a fixed-point number with 23 fraction bits, cut towards zero; a negative one becomes
its ones' complement unless all its bits were cut. The result is 2^fraction, one of 2^23 words, with the integer part as
exponent. Results below the normal range are zero; without `.ftz` the compiler's sequence halves an argument
below -126 and squares the result.

`ex2_h200.bz2` holds, for each of the 2^23 fractions, the recorded word minus `_nearby`, as int8. It was recorded on
2026-11-20 by `scripts/gpu_ex2.cu`, which also says how to compare this module with a GPU: a million random
arguments of each form gave the same words.
"""

from __future__ import annotations

import bz2
from decimal import Decimal, localcontext
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.ptx.float_words import F32_INFINITY

Array = NDArray[Any]

FRACTION_BITS = 23
_ONES = (1 << FRACTION_BITS) - 1
_LOW_BITS = 11


def _powers(count: int, step_bits: int) -> Array:
    """2^(i / 2^step_bits) for i below `count`, correctly rounded to float64 whatever the platform's libm."""
    with localcontext() as context:
        context.prec = 40
        root = Decimal(2) ** (Decimal(1) / (1 << step_bits))
        values, value = [], Decimal(1)
        for _ in range(count):
            values.append(float(value))
            value *= root
    return np.array(values)


def _nearby() -> Array:
    """Words near 2^(i / 2^23): a product in float64, so the same everywhere. Shape [2^23], int32."""
    high = _powers(1 << (FRACTION_BITS - _LOW_BITS), FRACTION_BITS - _LOW_BITS)
    low = _powers(1 << _LOW_BITS, FRACTION_BITS)
    return (high[:, None] * low[None, :]).reshape(-1).astype(np.float32).view(np.int32)


@lru_cache(maxsize=1)
def fractions() -> Array:
    """Significands of 2^(i / 2^23) as hardware gives them, without the hidden bit. Shape [2^23], int32."""
    packed = resources.files("porter.sim.datapath").joinpath("ex2_h200.bz2").read_bytes()
    return (_nearby() + np.frombuffer(bz2.decompress(packed), np.int8)) - np.int32(0x3F800000)


def ex2_f32(x: Array, ftz: bool) -> Array:
    """`ex2.approx{.ftz}.f32` of a float32 array of any shape; NaN comes out as NaN of any payload."""
    x = np.asarray(x, np.float32)
    if ftz:
        return _unit(x)
    small = x < np.float32(-126)
    result = _unit(np.where(small, x * np.float32(0.5), x))
    with np.errstate(under="ignore", over="ignore"):
        return np.where(small, result * result, result)


def _unit(x: Array) -> Array:
    # beyond these every result is infinity or zero
    magnitude = np.minimum(np.abs(np.nan_to_num(x.astype(np.float64), nan=0.0)), 1024.0)
    fixed = (magnitude * (1 << FRACTION_BITS)).astype(np.int64)
    fixed = np.where((x < 0) & (fixed > 0), ~fixed, fixed)
    exponent = fixed >> FRACTION_BITS
    words = (((exponent + 127) << FRACTION_BITS) + fractions()[fixed & _ONES]).astype(np.int64)
    words = np.where(exponent > 127, F32_INFINITY, np.where(exponent < -126, 0, words))
    return np.where(np.isnan(x), np.float32(np.nan), words.astype(np.uint32).view(np.float32))
