# SPDX-License-Identifier: Apache-2.0
"""wgmma.mma_async on one warpgroup's registers and one CTA's shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.ptx.mma_numerics import Architecture, DotRule, dot_rule
from porter.ptx.operand_errors import OperandError
from porter.ptx.types import ElementType
from porter.ptx.wgmma import WgmmaOp
from porter.sim.datapath.mma_arith import Arithmetic, Mask, Words, accumulate, decode_accumulator, fused_dot
from porter.sim.datapath.operands import Bytes, Decoded, read_register_operand, read_smem_operand, read_smem_operands
from porter.sim.datapath.sparse import expand, register_nibbles


def wgmma(
    op: WgmmaOp,
    smem: Bytes,
    *,
    a_desc: int | None,
    a_regs: Words | None,
    b_desc: int,
    d: Words,
    scale_d: bool,
    negate_a: bool = False,
    negate_b: bool = False,
    trans_a: bool = False,
    trans_b: bool = False,
    metadata: Words | None = None,
    selector: int = 0,
    mode: Arithmetic = "float64",
    rules: Architecture = "sm_90",
) -> Words:
    """The D registers [128 threads, op.d_registers] after the instruction; `d` is left alone.

    A comes from `a_desc` or from `a_regs` [128, 4]. A sparse A has `metadata` registers [128] and a sparsity
    `selector`. `scale_d` false ignores `d`. `rules` "sm_100" adds as
    tcgen05 does, so that 8-bit floats can be compared bit for bit with a port. Raises OperandError for
    invalid operands.
    """
    if (trans_a or trans_b) and not op.has_transpose:
        raise OperandError(f"{op.a_type.value} operands of wgmma are K-major only")
    if a_regs is not None:
        a = read_register_operand(a_regs, op.a_type)
    elif a_desc is not None:
        a = read_smem_operand(smem, a_desc, "sm_90", op.m, op.stored_k, op.a_type, trans_a)
    else:
        raise OperandError("wgmma without an A operand")
    b = read_smem_operand(smem, b_desc, "sm_90", op.n, op.k, op.b_type, trans_b)
    if negate_a != negate_b:
        a = -a
    rule = _rule(op, rules)
    c = decode_accumulator(tile_of_registers(d, op.n, op.d_type), op.d_type) if scale_d else None
    active = None
    if op.sparse:
        a, active = _expand(op, a, metadata, selector)
    return registers_of_tile(fused_dot(a, b, c, rule, mode, active=active), op.d_type)


def _expand(op: WgmmaOp, stored: Decoded, metadata: Words | None, selector: int) -> tuple[Decoded, Mask]:
    if metadata is None:
        raise OperandError("a sparse wgmma without metadata")
    return expand(stored, register_nibbles(metadata, op.k, op.a_type.bits, selector), op.a_type.bits)


@lru_cache(maxsize=64)
def _rule(op: WgmmaOp, rules: Architecture) -> DotRule:
    native = rules == "sm_90" or op.a_type is ElementType.B1
    arch: Architecture = "sm_90" if native else "sm_100"
    return dot_rule(arch, "wgmma" if native else "tcgen05", op.a_type, op.b_type, op.d_type, saturate=op.satfinite)


# Many warpgroups --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WgmmaForm:
    """A wgmma instruction without its operands, as the parameters of `wgmma` say them."""

    op: WgmmaOp
    negate: bool
    trans_a: bool
    trans_b: bool
    mode: Arithmetic
    rules: Architecture
    selector: int = 0


def multiply(
    form: WgmmaForm,
    smem: Bytes,
    ctas: list[int],
    a: int | Words,
    b: int,
    words: Words,
    scale_d: bool,
    seen: dict[Any, Decoded],
    metadata: Words | None = None,
) -> None:
    """One wgmma of many warpgroups, in place on their accumulators `words` [warpgroups, 64, n].

    `smem` [blocks, bytes]; `ctas` is the block of each warpgroup. `a` is the descriptor of all, or registers
    [warpgroups, 128, 4]; `b` the descriptor of all. `seen` keeps decoded B operands, and room to work in, for
    calls between which shared memory stays as it is. A sparse A has `metadata` [warpgroups, 128]. In float64 mode
    NaN results are left for `canonical`. Raises OperandError as `wgmma` does; then `words` is unchanged.
    """
    op = form.op
    if (form.trans_a or form.trans_b) and not op.has_transpose:
        raise OperandError(f"{op.a_type.value} operands of wgmma are K-major only")
    if isinstance(a, int):
        left = read_smem_operands(smem, ctas, a, "sm_90", op.m, op.stored_k, op.a_type, form.trans_a)
    else:
        left = np.stack([read_register_operand(one, op.a_type) for one in a])
    key = b, op.n, op.k, op.b_type, form.trans_b, tuple(ctas)
    right = seen.get(key)
    if right is None:
        right = read_smem_operands(smem, ctas, b, "sm_90", op.n, op.k, op.b_type, form.trans_b, k_first=True)
        seen[key] = right
    if form.negate:
        left = -left
    if op.sparse:
        _multiply_sparse(form, left, right, metadata, words, scale_d)
        return
    shape = words.shape
    scratch = seen.get(shape)
    if scratch is None:
        scratch = seen[shape] = np.empty(shape)
    accumulate(words, left, right, scale_d, _rule(op, form.rules), form.mode, scratch)


def _multiply_sparse(
    form: WgmmaForm, left: Decoded, right: Decoded, metadata: Words | None, words: Words, scale_d: bool
) -> None:
    op, rule = form.op, _rule(form.op, form.rules)
    groups = [_expand(op, a, None if metadata is None else metadata[i], form.selector) for i, a in enumerate(left)]
    for one, (a, active), b in zip(words, groups, right, strict=True):
        c = decode_accumulator(one, rule.d_type) if scale_d else None
        one[...] = fused_dot(a, b.T, c, rule, form.mode, active=active)


def take_registers(registers: Words, n: int, d_type: ElementType) -> Words:
    """Accumulators [warpgroups, 64, n] of registers [registers, 4 warps of each warpgroup, 32]."""
    groups = registers.shape[1] // 4
    if d_type is ElementType.F16:
        halves = np.ascontiguousarray(registers).view(np.uint16).astype(np.uint32)
        split = halves.reshape(n // 8, 2, groups, 4, 8, 4, 2).transpose(2, 3, 1, 4, 0, 5, 6)
        return np.ascontiguousarray(split).reshape(groups, 64, n)
    # Axes: warpgroup, warp, row half, group, column block, quad, column pair.
    split = registers.reshape(n // 8, 2, 2, groups, 4, 8, 4).transpose(3, 4, 1, 5, 0, 6, 2)
    return np.ascontiguousarray(split).reshape(groups, 64, n)


def put_registers(words: Words, d_type: ElementType) -> Words:
    """The inverse of `take_registers`."""
    groups, _, n = words.shape
    if d_type is ElementType.F16:
        halves = words.astype(np.uint16).reshape(groups, 4, 2, 8, n // 8, 4, 2)
        packed: Words = np.ascontiguousarray(halves.transpose(4, 2, 0, 1, 3, 5, 6)).view(np.uint32)
        return packed.reshape(n // 4, groups * 4, 32)
    split = words.reshape(groups, 4, 2, 8, n // 8, 4, 2).transpose(4, 2, 6, 0, 1, 3, 5)
    return np.ascontiguousarray(split).reshape(n // 2, groups * 4, 32)


# Fragments of one warpgroup ---------------------------------------------------------------------------


def tile_of_registers(registers: Words, n: int, d_type: ElementType) -> Words:
    """D [64, n] of fragment registers [128, n/2], or [128, n/4] for f16 (then one f16 per word)."""
    if d_type is ElementType.F16:
        halves = np.ascontiguousarray(registers, dtype=np.uint32).view(np.uint16)
        split = halves.reshape(4, 8, 4, n // 8, 2, 2).astype(np.uint32)
    else:
        split = np.asarray(registers, dtype=np.uint32).reshape(4, 8, 4, n // 8, 2, 2)
    # Axes: warp, group, quad, column block, row half, column pair.
    return np.ascontiguousarray(split.transpose(0, 4, 1, 3, 2, 5)).reshape(64, n)


def registers_of_tile(tile: Words, d_type: ElementType) -> NDArray[np.uint32]:
    """The inverse of `tile_of_registers`."""
    n = tile.shape[1]
    source = tile.astype(np.uint16) if d_type is ElementType.F16 else tile
    split = source.reshape(4, 2, 8, n // 8, 4, 2).transpose(0, 2, 4, 3, 1, 5)
    return np.ascontiguousarray(split).reshape(128, n // 2).view(np.uint32)
