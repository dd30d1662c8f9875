# SPDX-License-Identifier: Apache-2.0
"""Operands of tcgen05.mma out of shared memory and Tensor Memory: A, B, scale factors, sparsity metadata."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from porter.ptx.block_scale import scale_count
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.mma_cells import (
    Indices,
    a_cells,
    decode_idesc,
    layout_of,
    metadata_cells,
    metadata_places,
    scale_cells,
    stored_k,
)
from porter.ptx.operand_errors import OperandError
from porter.ptx.packing import operand_element_bits
from porter.ptx.sparse import NIBBLE
from porter.ptx.tmem import (
    rows_per_cta,
)
from porter.ptx.umma import UmmaOp
from porter.ptx.zero_columns import ZeroColumns
from porter.sim.datapath.four_bit import decode_scales
from porter.sim.datapath.mma_arith import Decoded, Words
from porter.sim.datapath.operands import Bytes, decode_containers, decode_pairs, read_smem_operand


def read_a(op: UmmaOp, idesc: int, smem: Bytes, tmem: Words, a_desc: int | None, a_tmem: int | None) -> list[Decoded]:
    """What is stored of A [rows of one CTA, stored K]: once, or a copy for each lane range of a split
    accumulator."""
    decoded = decode_idesc(op, idesc)
    rows = rows_per_cta(layout_of(op, decoded.m))
    bits = operand_element_bits(op.kind, decoded.a_type)
    if a_tmem is None:
        if a_desc is None:
            raise OperandError("tcgen05.mma without an A operand")
        return [read_smem_operand(smem, a_desc, "sm_100", rows, stored_k(op), decoded.a_type, decoded.a_mn_major, bits)]
    if decoded.a_mn_major:
        raise OperandError("A in Tensor Memory is K-major only")
    lanes, columns = a_cells(op, idesc, a_tmem)
    raw = np.ascontiguousarray(tmem[lanes, columns]).view(np.uint8)
    a = decode_pairs(raw, decoded.a_type) if bits == 4 else decode_containers(raw, decoded.a_type)
    return list(a.reshape(-1, rows, stored_k(op)))


def read_b(
    op: UmmaOp, decoded: InstructionDescriptor, smem: Sequence[Bytes], b_desc: int, zero_columns: int | None
) -> Decoded:
    """B [N, K] of both CTAs of a pair, with the columns replaced by zeros that the mask names."""
    width = decoded.n // op.cta_group
    mask = None if zero_columns is None else ZeroColumns.decode(zero_columns)
    shift = mask.shift if mask is not None else 0
    bits = operand_element_bits(op.kind, decoded.b_type)
    b = np.concatenate(
        [
            read_smem_operand(shared, b_desc, "sm_100", width + shift, op.k, decoded.b_type, decoded.b_mn_major, bits)
            for shared in smem
        ]
    )
    if mask is None:
        return b
    b = b[shift:]
    try:
        b[np.array(mask.zeroed(decoded.m, decoded.n))] = 0.0
    except ValueError as error:
        raise OperandError(str(error)) from None
    return b


# Sparsity ---------------------------------------------------------------------------------------------


def read_metadata(op: UmmaOp, idesc: int, tmem: Words, address: int) -> list[Indices]:
    """The nibbles [rows, chunks], a copy for each lane range of a split accumulator."""
    decoded = decode_idesc(op, idesc)
    lanes, columns = metadata_cells(op, idesc, address)
    _, _, low = metadata_places(op, decoded)
    nibbles = tmem[lanes, columns].astype(np.int64) >> low & ((1 << NIBBLE) - 1)
    return list(nibbles.reshape(-1, rows_per_cta(layout_of(op, decoded.m)), nibbles.shape[1]))


# Block scaling ----------------------------------------------------------------------------------------


def read_scales(op: UmmaOp, idesc: int, tmem: Words, address: int, operand: str) -> Decoded:
    """The factors [partition, row, factor] of operand "a" or "b"."""
    decoded = decode_idesc(op, idesc)
    assert isinstance(decoded, ScaledDescriptor)
    lanes, columns = scale_cells(op, idesc, address, operand)
    scale_id = decoded.a_scale_id if operand == "a" else decoded.b_scale_id
    codes = np.ascontiguousarray(tmem[lanes, columns]).view(np.uint8).reshape(*lanes.shape, 4)
    count = scale_count(op.kind, op.scale_vector)
    return decode_scales(codes[:, :, scale_id : scale_id + count], decoded.scale_type)
