# SPDX-License-Identifier: Apache-2.0
"""The cells of Tensor Memory that tcgen05.mma and tcgen05.shift touch in each CTA.

Sources: PTX ISA 9.0 §9.7.16.10.5 (layouts), §9.7.16.10.6 (sparsity metadata), §9.7.16.10.7 (scale factors), §9.7.16.9
(shift).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from porter.ptx.block_scale import b_rows_per_copy, scale_cell, scale_columns, scale_count
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.operand_errors import OperandError
from porter.ptx.packing import operand_element_bits
from porter.ptx.sparse import chunk_elements, metadata_cell
from porter.ptx.tmem import (
    COLUMNS,
    LANES,
    SHIFT_COLUMNS,
    WARP_LANES,
    DLayout,
    a_cell,
    column_of,
    column_splits,
    d_cell,
    d_columns,
    d_layout,
    lane_of,
    lane_offsets,
    rows_per_cta,
)
from porter.ptx.umma import UmmaOp

Indices = NDArray[np.int64]
PARTITIONS = LANES // WARP_LANES


@dataclass(frozen=True)
class MmaArguments:
    """Operands of a tcgen05.mma as the instruction gives them. A has `a_desc` or `a_tmem`.

    `scale_d` is the scale-input-d immediate; bit i of `disable_lanes` keeps lane i unwritten (128 + i: of the odd
    CTA); `metadata` is the address of a sparse A's metadata, `scale_a` and `scale_b` those of the scale factors,
    `zero_columns` the zero-column mask descriptor.
    """

    d_addr: int
    a_desc: int | None
    a_tmem: int | None
    b_desc: int
    enable_d: bool
    scale_d: int = 0
    disable_lanes: int | None = None
    metadata: int | None = None
    scale_a: int | None = None
    scale_b: int | None = None
    zero_columns: int | None = None


@lru_cache(maxsize=1024)
def decode_idesc(op: UmmaOp, idesc: int) -> InstructionDescriptor:
    """The checked instruction descriptor. Raises OperandError if it is not legal for the instruction."""
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
        raise OperandError(str(error)) from None
    if decoded.sparse != op.sparse:
        problems.append("the sparse bit does not agree with .sp")
    if op.ashift and decoded.m not in (128, 256):
        problems.append(f".ashift is for M=128 and M=256, not M={decoded.m}")
    if problems:
        raise OperandError("instruction descriptor: " + "; ".join(problems))
    return decoded


@lru_cache(maxsize=64)
def layout_of(op: UmmaOp, m: int) -> DLayout:
    return d_layout(m, op.cta_group, ws=op.ws, sparse=op.sparse)


def stored_k(op: UmmaOp) -> int:
    """Elements of a row of A that are stored."""
    return op.k // 2 if op.sparse else op.k


@lru_cache(maxsize=128)
def d_index(layout: DLayout, n: int) -> tuple[Indices, Indices]:
    """Lane and column of D [rows of one CTA, n], relative to its address."""
    rows = np.arange(rows_per_cta(layout), dtype=np.int64)[:, None]
    cols = np.arange(n, dtype=np.int64)[None, :]
    _, lanes, columns = d_cell(layout, rows, cols, n)
    return lanes + 0 * cols, columns + 0 * rows


def mma_cells(op: UmmaOp, idesc: int, d_addr: int) -> tuple[Indices, Indices]:
    """(lanes, columns) [rows, N] of D in each CTA's Tensor Memory.

    Raises OperandError for an invalid descriptor or address.
    """
    decoded = decode_idesc(op, idesc)
    lane, column = check_d(op, decoded, d_addr)
    lanes, columns = d_index(layout_of(op, decoded.m), decoded.n)
    return lanes + lane, columns + column


def check_d(op: UmmaOp, decoded: InstructionDescriptor, d_addr: int) -> tuple[int, int]:
    """Lane and column of the accumulator's address."""
    layout = layout_of(op, decoded.m)
    lane, column = lane_of(d_addr), column_of(d_addr)
    if lane not in lane_offsets(layout):
        legal = " or ".join(str(offset) for offset in lane_offsets(layout))
        raise OperandError(f"the accumulator of an M={decoded.m} tcgen05.mma lies at lane {lane}; it must be {legal}")
    if column + d_columns(layout, decoded.n) > COLUMNS:
        raise OperandError(f"an accumulator of N={decoded.n} at column {column} passes column {COLUMNS}")
    return lane, column


def a_cells(op: UmmaOp, idesc: int, a_addr: int) -> tuple[Indices, Indices]:
    """(lanes, columns) [rows, 8] of A in each CTA's Tensor Memory, in all copies that the layout needs.

    Raises OperandError for an invalid descriptor or address.
    """
    decoded = decode_idesc(op, idesc)
    layout = layout_of(op, decoded.m)
    lane, column = lane_of(a_addr), column_of(a_addr)
    if lane not in lane_offsets(layout):
        raise OperandError(f"A in Tensor Memory lies at lane {lane}, which M={decoded.m} does not allow")
    bits = operand_element_bits(op.kind, decoded.a_type)
    width = stored_k(op) * bits // 32
    if column + width > COLUMNS:
        raise OperandError(f"A at column {column} of Tensor Memory passes column {COLUMNS}")
    rows = np.arange(rows_per_cta(layout), dtype=np.int64)[:, None]
    lanes, _, _ = a_cell(layout, rows, np.int64(0) * rows, bits)
    lanes = np.concatenate([lanes + i * rows.size for i in range(column_splits(layout))])
    columns = np.arange(width, dtype=np.int64)[None, :]
    return lanes + lane + 0 * columns, columns + column + 0 * lanes


def metadata_cells(op: UmmaOp, idesc: int, address: int) -> tuple[Indices, Indices]:
    """(lanes, columns) of the metadata in each CTA's Tensor Memory. Raises OperandError for an invalid
    descriptor or address."""
    decoded = decode_idesc(op, idesc)
    lanes, columns, _ = metadata_places(op, decoded)
    lane, column = lane_of(address), column_of(address)
    layout = layout_of(op, decoded.m)
    if lane not in lane_offsets(layout):
        raise OperandError(f"sparsity metadata lies at lane {lane}, which M={decoded.m} does not allow")
    if column + int(columns.max()) >= COLUMNS:
        raise OperandError(f"sparsity metadata at column {column} passes column {COLUMNS} of Tensor Memory")
    return lanes + lane, columns + column


def metadata_places(op: UmmaOp, decoded: InstructionDescriptor) -> tuple[Indices, Indices, Indices]:
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


def scale_cells(op: UmmaOp, idesc: int, address: int, operand: str) -> tuple[Indices, Indices]:
    """(lanes, columns) of the scale factors of operand "a" or "b" in each CTA's Tensor Memory, in all
    partitions. Raises OperandError for an invalid descriptor or address."""
    decoded = decode_idesc(op, idesc)
    rows = _scale_rows(op, decoded, operand)
    lane, column = lane_of(address) & (LANES - 1), column_of(address)
    if lane:
        raise OperandError(f"scale factors lie at lane {lane}; it must be 0")
    if column + scale_columns(rows) > COLUMNS:
        raise OperandError(f"scale factors at column {column} pass column {COLUMNS} of Tensor Memory")
    numbers = np.arange(rows, dtype=np.int64)
    lanes, columns, _ = scale_cell(numbers, 0 * numbers, 0 * numbers)
    partitions = np.arange(PARTITIONS, dtype=np.int64)[:, None]
    return lanes + WARP_LANES * partitions, columns + column + 0 * partitions


def _scale_rows(op: UmmaOp, decoded: InstructionDescriptor, operand: str) -> int:
    layout = layout_of(op, decoded.m)
    return rows_per_cta(layout) if operand == "a" else b_rows_per_copy(layout, decoded.n)


def shift_cells(taddr: int) -> tuple[Indices, Indices]:
    """(lanes, columns) that a tcgen05.shift reads and writes. Raises OperandError for an illegal address."""
    lane, column = lane_of(taddr), column_of(taddr)
    if lane % WARP_LANES or lane >= LANES:
        raise OperandError(f"tcgen05.shift starts at a multiple of 32 lanes, not at lane {lane}")
    if column + SHIFT_COLUMNS > COLUMNS:
        raise OperandError(f"tcgen05.shift at column {column} passes column {COLUMNS} of Tensor Memory")
    lanes = np.arange(lane, lane + WARP_LANES, dtype=np.int64)[:, None]
    columns = np.arange(column, column + SHIFT_COLUMNS, dtype=np.int64)[None, :]
    return lanes + 0 * columns, columns + 0 * lanes


def mma_footprint(
    op: UmmaOp, idesc: int, args: MmaArguments
) -> list[tuple[Literal["d", "a", "metadata", "scale"], bool, Indices, Indices]]:
    """(what, written, lanes, columns) of all that the instruction touches in each CTA's Tensor Memory: first the
    accumulator; A a second time where it is shifted. Raises OperandError for an invalid descriptor or address."""
    found: list[tuple[Literal["d", "a", "metadata", "scale"], bool, Indices, Indices]]
    found = [("d", True, *mma_cells(op, idesc, args.d_addr))]
    if args.a_tmem is not None:
        found += [("a", write, *a_cells(op, idesc, args.a_tmem)) for write in (False, True)[: 1 + op.ashift]]
    if args.metadata is not None:
        found.append(("metadata", False, *metadata_cells(op, idesc, args.metadata)))
    for address, name in ((args.scale_a, "a"), (args.scale_b, "b")):
        if address is not None:
            found.append(("scale", False, *scale_cells(op, idesc, address, name)))
    return found
