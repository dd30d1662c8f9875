# SPDX-License-Identifier: Apache-2.0
"""Operands of tcgen05.mma out of shared memory and Tensor Memory: A, B, scale factors, sparsity metadata."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from porter.ptx.block_scale import b_rows_per_copy, scale_cell, scale_columns, scale_count
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.packing import operand_element_bits
from porter.ptx.sparse import NIBBLE, chunk_elements, metadata_cell
from porter.ptx.tmem import (
    COLUMNS,
    LANES,
    WARP_LANES,
    DLayout,
    a_cell,
    column_of,
    column_splits,
    d_layout,
    lane_of,
    lane_offsets,
    rows_per_cta,
)
from porter.ptx.umma import UmmaOp
from porter.ptx.zero_columns import ZeroColumns
from porter.sim.datapath.errors import DatapathError
from porter.sim.datapath.four_bit import decode_scales
from porter.sim.datapath.mma_arith import Decoded, Words
from porter.sim.datapath.operands import Bytes, decode_containers, decode_pairs, read_smem_operand

Indices = NDArray[np.int64]
PARTITIONS = LANES // WARP_LANES
_CELL_LANE_MASK = LANES - 1


@lru_cache(maxsize=1024)
def decode_idesc(op: UmmaOp, idesc: int) -> InstructionDescriptor:
    """The checked instruction descriptor. Raises DatapathError if it is not legal for the instruction."""
    try:
        if op.block_scale:
            scaled = ScaledDescriptor.decode(idesc, op.kind)
            problems = scaled.problems(cta_group=op.cta_group)
            problems += scaled.scale_problems(scale_count(op.kind, op.scale_vector))
            decoded: InstructionDescriptor = scaled
        else:
            decoded = InstructionDescriptor.decode(idesc, op.kind)
            problems = decoded.problems(cta_group=op.cta_group, ws=op.ws)
    except ValueError as error:
        raise DatapathError(str(error)) from None
    if decoded.sparse != op.sparse:
        problems.append("the sparse bit does not agree with .sp")
    if op.ashift and decoded.m not in (128, 256):
        problems.append(f".ashift is for M=128 and M=256, not M={decoded.m}")
    if problems:
        raise DatapathError("instruction descriptor: " + "; ".join(problems))
    return decoded


@lru_cache(maxsize=64)
def layout_of(op: UmmaOp, m: int) -> DLayout:
    return d_layout(m, op.cta_group, ws=op.ws, sparse=op.sparse)


def stored_k(op: UmmaOp) -> int:
    """Elements of a row of A that are stored."""
    return op.k // 2 if op.sparse else op.k


def a_cells(op: UmmaOp, idesc: int, a_addr: int) -> tuple[Indices, Indices]:
    """(lanes, columns) [rows, 8] of A in each CTA's Tensor Memory, in all copies that the layout needs.

    Raises DatapathError for an invalid descriptor or address.
    """
    decoded = decode_idesc(op, idesc)
    layout = layout_of(op, decoded.m)
    lane, column = lane_of(a_addr), column_of(a_addr)
    if lane not in lane_offsets(layout):
        raise DatapathError(f"A in Tensor Memory lies at lane {lane}, which M={decoded.m} does not allow")
    bits = operand_element_bits(op.kind, decoded.a_type)
    width = stored_k(op) * bits // 32
    if column + width > COLUMNS:
        raise DatapathError(f"A at column {column} of Tensor Memory passes column {COLUMNS}")
    rows = np.arange(rows_per_cta(layout), dtype=np.int64)[:, None]
    lanes, _, _ = a_cell(layout, rows, np.int64(0) * rows, bits)
    lanes = np.concatenate([lanes + i * rows.size for i in range(column_splits(layout))])
    columns = np.arange(width, dtype=np.int64)[None, :]
    return lanes + lane + 0 * columns, columns + column + 0 * lanes


def read_a(op: UmmaOp, idesc: int, smem: Bytes, tmem: Words, a_desc: int | None, a_tmem: int | None) -> list[Decoded]:
    """What is stored of A [rows of one CTA, stored K]: once, or a copy for each lane range of a split
    accumulator."""
    decoded = decode_idesc(op, idesc)
    rows = rows_per_cta(layout_of(op, decoded.m))
    bits = operand_element_bits(op.kind, decoded.a_type)
    if a_tmem is None:
        if a_desc is None:
            raise DatapathError("tcgen05.mma without an A operand")
        return [read_smem_operand(smem, a_desc, "sm_100", rows, stored_k(op), decoded.a_type, decoded.a_mn_major, bits)]
    if decoded.a_mn_major:
        raise DatapathError("A in Tensor Memory is K-major only")
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
        raise DatapathError(str(error)) from None
    return b


# Sparsity ---------------------------------------------------------------------------------------------


def metadata_cells(op: UmmaOp, idesc: int, address: int) -> tuple[Indices, Indices]:
    """(lanes, columns) of the metadata in each CTA's Tensor Memory. Raises DatapathError for an invalid
    descriptor or address."""
    decoded = decode_idesc(op, idesc)
    lanes, columns, _ = _metadata_places(op, decoded)
    lane, column = lane_of(address), column_of(address)
    layout = layout_of(op, decoded.m)
    if lane not in lane_offsets(layout):
        raise DatapathError(f"sparsity metadata lies at lane {lane}, which M={decoded.m} does not allow")
    if column + int(columns.max()) >= COLUMNS:
        raise DatapathError(f"sparsity metadata at column {column} passes column {COLUMNS} of Tensor Memory")
    return lanes + lane, columns + column


def _metadata_places(op: UmmaOp, decoded: InstructionDescriptor) -> tuple[Indices, Indices, Indices]:
    """Lane, column and lowest bit of each nibble [copies * rows, chunks], relative to the address."""
    layout = layout_of(op, decoded.m)
    bits = operand_element_bits(op.kind, decoded.a_type)
    rows = np.arange(rows_per_cta(layout), dtype=np.int64)[:, None]
    chunks = np.arange(op.k // chunk_elements(bits), dtype=np.int64)[None, :]
    lanes, columns, low = metadata_cell(layout, rows, chunks, bits, decoded.sparsity_selector)
    copies = column_splits(layout)
    return (
        np.concatenate([lanes + i * rows.size for i in range(copies)]),
        np.concatenate([columns] * copies),
        np.concatenate([low] * copies),
    )


def read_metadata(op: UmmaOp, idesc: int, tmem: Words, address: int) -> list[Indices]:
    """The nibbles [rows, chunks], a copy for each lane range of a split accumulator."""
    decoded = decode_idesc(op, idesc)
    lanes, columns = metadata_cells(op, idesc, address)
    _, _, low = _metadata_places(op, decoded)
    nibbles = tmem[lanes, columns].astype(np.int64) >> low & ((1 << NIBBLE) - 1)
    return list(nibbles.reshape(-1, rows_per_cta(layout_of(op, decoded.m)), nibbles.shape[1]))


# Block scaling ----------------------------------------------------------------------------------------


def scale_cells(op: UmmaOp, idesc: int, address: int, operand: str) -> tuple[Indices, Indices]:
    """(lanes, columns) of the scale factors of operand "a" or "b" in each CTA's Tensor Memory, in all
    partitions. Raises DatapathError for an invalid descriptor or address."""
    decoded = decode_idesc(op, idesc)
    rows = _scale_rows(op, decoded, operand)
    lane, column = lane_of(address) & _CELL_LANE_MASK, column_of(address)
    if lane:
        raise DatapathError(f"scale factors lie at lane {lane}; it must be 0")
    if column + scale_columns(rows) > COLUMNS:
        raise DatapathError(f"scale factors at column {column} pass column {COLUMNS} of Tensor Memory")
    numbers = np.arange(rows, dtype=np.int64)
    lanes, columns, _ = scale_cell(numbers, 0 * numbers, 0 * numbers)
    partitions = np.arange(PARTITIONS, dtype=np.int64)[:, None]
    return lanes + WARP_LANES * partitions, columns + column + 0 * partitions


def _scale_rows(op: UmmaOp, decoded: InstructionDescriptor, operand: str) -> int:
    layout = layout_of(op, decoded.m)
    return rows_per_cta(layout) if operand == "a" else b_rows_per_copy(layout, decoded.n)


def read_scales(op: UmmaOp, idesc: int, tmem: Words, address: int, operand: str) -> Decoded:
    """The factors [partition, row, factor] of operand "a" or "b"."""
    decoded = decode_idesc(op, idesc)
    assert isinstance(decoded, ScaledDescriptor)
    lanes, columns = scale_cells(op, idesc, address, operand)
    scale_id = decoded.a_scale_id if operand == "a" else decoded.b_scale_id
    codes = np.ascontiguousarray(tmem[lanes, columns]).view(np.uint8).reshape(*lanes.shape, 4)
    count = scale_count(op.kind, op.scale_vector)
    return decode_scales(codes[:, :, scale_id : scale_id + count], decoded.scale_type)
