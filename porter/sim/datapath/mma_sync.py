# SPDX-License-Identifier: Apache-2.0
"""mma.sync: fragments of many warps to matrices, the products, and back.

FP8 products are made of f16 ones on the chips modelled: of the even and the odd pairs of every four elements of K
in turn, from zero, to which C is then added with one rounding. The order and both roundings were found from an
H200's result words (none of 131072 differs).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.ptx.mma import MmaOp, N, a_position, b_position, d_position
from porter.ptx.mma_numerics import Architecture, dot_rule
from porter.ptx.types import FP8_TYPES, ElementType
from porter.sim.datapath.mma_arith import Arithmetic, Decoded, Words, decode_accumulator, encode_accumulator, fused_dot
from porter.sim.datapath.operands import decode
from porter.sim.rounding import float_bits, odd_fma_f64

T = ElementType
Array = NDArray[Any]
_LANES = np.arange(32)[:, None, None]


@lru_cache(maxsize=64)
def _places(bits: int, registers: int, m: int) -> tuple[Array, Array]:
    """(row, k) of every element [32, registers, elements] of A, or of B where `m` is 0."""
    register = np.arange(registers)[None, :, None]
    element = np.arange(max(32 // bits, 1))[None, None, :]
    row, k = a_position(_LANES, register, element, bits, m) if m else b_position(_LANES, register, element, bits)
    shape = (32, registers, element.size)
    return np.broadcast_to(row, shape), np.broadcast_to(k, shape)


def _matrix(registers: Array, element: ElementType, m: int) -> Decoded:
    """Operand matrices [warps, rows, k] of registers [warps, 32, registers]."""
    bits = element.bits
    words = np.ascontiguousarray(registers)
    if element is T.F64:
        values = words.view(np.float64)[..., None]
    elif bits == 4:
        codes = ((words[..., None] >> (4 * np.arange(8, dtype=np.uint32))) & np.uint32(15)).astype(np.int64)
        values = np.where((codes > 7) & (element is T.S4), codes - 16, codes).astype(np.float64)
    else:
        raw = words.view(np.uint8).reshape(*words.shape, 4)
        values = decode(raw, element)
    row, k = _places(bits, registers.shape[2], m)
    out = np.zeros((registers.shape[0], int(row.max()) + 1, int(k.max()) + 1))
    out[:, row, k] = values
    return out


def _accumulators(op: MmaOp, c: Array) -> Array:
    """C [warps, m, 8] as bits (f64: values) of registers [warps, 32, registers]."""
    words = np.ascontiguousarray(c)
    if op.d_type is T.F16:
        words = words.view(np.uint16).astype(np.uint32)
    values = words.shape[2]
    row, column = d_position(np.arange(32)[:, None], np.arange(values)[None, :])
    out = np.zeros((words.shape[0], op.m, N), words.dtype)
    out[:, row, column] = words
    return out


def _registers(op: MmaOp, words: Array) -> Array:
    """The inverse of `_accumulators`."""
    row, column = d_position(np.arange(32)[:, None], np.arange(op.m * N // 32)[None, :])
    found = np.ascontiguousarray(words[:, row, column])
    if op.d_type is T.F16:
        return np.ascontiguousarray(found.astype(np.uint16)).view(np.uint32)
    return found


def _fma_chain(a: Decoded, b: Decoded, c: Decoded) -> Decoded:
    """Double precision: one fused multiply-add after the other along K."""
    for i in range(a.shape[2]):
        c = odd_fma_f64(a[:, :, None, i], b[:, None, :, i], c)
    return c


def _fp8(op: MmaOp, a: Decoded, b: Decoded, start: Decoded, arch: Architecture) -> Words:
    rule = dot_rule(arch, "mma", T.F16, T.F16, op.d_type)
    total = np.zeros(start.shape)
    pair = np.arange(op.k) % 4 // 2
    for which in (0, 1):
        k = pair == which
        total = decode_accumulator(fused_dot(a[:, k], b[:, k], total, rule, "exact"), op.d_type)
    with np.errstate(all="ignore"):
        return encode_accumulator(total + start, op.d_type)


def mma_warps(
    op: MmaOp, a: Array, b: Array, c: Array, *, mode: Arithmetic = "float64", arch: Architecture = "sm_90"
) -> Array:
    """D registers [warps, 32, op.d_registers] of A, B and C registers [warps, 32, registers] (f64: 64-bit)."""
    left, right = _matrix(a, op.a_type, op.m), _matrix(b, op.b_type, 0)
    words = _accumulators(op, c)
    if op.d_type is T.F64:
        with np.errstate(all="ignore"):
            return _registers(op, float_bits(_fma_chain(left, right, words.view(np.float64))))
    if op.d_type is T.S32:
        if op.bits == "xor":
            total = left.sum(axis=2)[:, :, None] + right.sum(axis=2)[:, None, :] - 2 * (left @ right.swapaxes(1, 2))
        else:
            total = left @ right.swapaxes(1, 2)
        total = total + words.view(np.int32)
        if op.satfinite:
            total = np.clip(total, -(2**31), 2**31 - 1)
        return _registers(op, total.astype(np.int64).astype(np.uint32))
    rule = dot_rule(arch, "mma", op.a_type, op.b_type, op.d_type)
    software = op.a_type in FP8_TYPES and mode == "exact"
    done = []
    for one_a, one_b, one_c in zip(left, right, words, strict=True):
        start = decode_accumulator(np.ascontiguousarray(one_c), op.d_type)
        if software:
            done.append(_fp8(op, one_a, one_b, start, arch))
        else:
            done.append(fused_dot(one_a, one_b, start, rule, mode))
    return _registers(op, np.stack(done))
