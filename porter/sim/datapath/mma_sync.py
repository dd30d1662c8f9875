# SPDX-License-Identifier: Apache-2.0
"""mma.sync of one warp."""

from __future__ import annotations

import numpy as np

from porter.ptx.mma import M, MmaOp, N
from porter.ptx.mma_numerics import Architecture, dot_rule
from porter.ptx.types import ElementType
from porter.sim.datapath.mma_arith import Arithmetic, Words, decode_accumulator, fused_dot
from porter.sim.datapath.operands import decode


def mma_sync(
    op: MmaOp, a: Words, b: Words, c: Words, *, mode: Arithmetic = "float64", arch: Architecture = "sm_90"
) -> Words:
    """D registers [32, op.d_registers] of A, B and C registers [32 threads, registers]."""
    # Thread 4g + q; A register 2j + h holds four bytes of row 8h + g at byte 16j + 4q, B register j of
    # column g at byte 16j + 4q.
    a_rows = a.reshape(8, 4, op.a_registers // 2, 2).transpose(3, 0, 2, 1).reshape(M, -1)
    b_rows = b.reshape(8, 4, op.b_registers).transpose(0, 2, 1).reshape(N, -1)
    decoded_a = decode(np.ascontiguousarray(a_rows, dtype=np.uint32).view(np.uint8), op.a_type)
    decoded_b = decode(np.ascontiguousarray(b_rows, dtype=np.uint32).view(np.uint8), op.b_type)
    values = np.ascontiguousarray(c, dtype=np.uint32)
    if op.d_type is ElementType.F16:
        values = values.view(np.uint16).astype(np.uint32)
    tile = values.reshape(8, 4, 2, 2).transpose(2, 0, 1, 3).reshape(M, N)
    rule = dot_rule(arch, "mma", op.a_type, op.b_type, op.d_type, saturate=op.satfinite)
    start = decode_accumulator(np.ascontiguousarray(tile), op.d_type)
    words = fused_dot(decoded_a, decoded_b, start, rule, mode)
    registers = np.ascontiguousarray(words.reshape(2, 8, 4, 2).transpose(1, 2, 0, 3)).reshape(32, 4)
    if op.d_type is ElementType.F16:
        return np.ascontiguousarray(registers.astype(np.uint16)).view(np.uint32)
    return registers
