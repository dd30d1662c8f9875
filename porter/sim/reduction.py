# SPDX-License-Identifier: Apache-2.0
"""What atomics and reductions write (PTX ISA 9.7.13.5, 9.7.9.25.4.2)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from porter.sim.rounding import (
    bf16_to_f32,
    f32_to_bf16,
    float_bits,
    float_max,
    float_min,
    flush_f32,
    kept_nan,
)

Array = npt.NDArray[Any]
ReduceOp = Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"]


def combine(old: Array, b: Array, c: Array | None, op: str, type_name: str, flush: bool = False) -> Array:
    """New memory contents (unsigned bits) from old contents and operands.

    `flush`: f32 sums take subnormals as zero and give none, which is so in global memory (PTX ISA 9.7.13.5).
    """
    if flush:
        total = flush_f32(old.view(np.float32)) + flush_f32(b.view(np.float32))
        return float_bits(flush_f32(total))
    if op == "exch":
        return b
    if op == "cas":
        assert c is not None
        return np.where(old == b, c, old)
    if op in ("and", "or", "xor"):
        return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op](old, b)
    if op == "inc":
        return np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))
    if op == "dec":
        return np.where((old == 0) | (old > b), b, old - old.dtype.type(1))
    if type_name in ("f16x2", "bf16x2"):
        halves = combine(_halves(old), _halves(b), None, op, type_name[:-2])
        return np.ascontiguousarray(halves).view(np.uint32)[..., 0]
    if type_name == "bf16":
        x, y = bf16_to_f32(old), bf16_to_f32(b)
        return f32_to_bf16(_arith(x, y, op))
    dtype = {"s": "i", "f": "f"}.get(type_name[0], "u") + str(old.dtype.itemsize)
    x, y = old.view(dtype), b.view(dtype)
    if dtype == "f8":
        # The memory's adder does not make a signalling NaN quiet.
        return float_bits(kept_nan(_arith(x, y, op), y, x, quiet=False))
    if dtype[0] == "f":
        return float_bits(_arith(x, y, op))
    return _arith(x, y, op).view(old.dtype)


def _halves(x: Array) -> Array:
    return np.ascontiguousarray(x)[..., None].view(np.uint16)


def _arith(x: Array, y: Array, op: str) -> Array:
    if op == "add":
        return x + y
    if x.dtype.kind == "f":
        return float_min(x, y, False) if op == "min" else float_max(x, y, False)
    return np.minimum(x, y) if op == "min" else np.maximum(x, y)
