# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma, tcgen05.shift, tcgen05.ld and tcgen05.st on the Tensor Memory of one CTA or a CTA pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from porter.ptx.block_scale import ScaleType
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.mma_numerics import Architecture, DotRule, Unit, dot_rule, four_bit_rule
from porter.ptx.packing import operand_element_bits
from porter.ptx.tmem import (
    COLUMNS,
    LANES,
    SHIFT_COLUMNS,
    WARP_LANES,
    DLayout,
    column_of,
    d_cell,
    d_columns,
    lane_of,
    lane_offsets,
    rows_per_cta,
)
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind, UmmaOp
from porter.sim.datapath.errors import DatapathError
from porter.sim.datapath.four_bit import four_bit_dot
from porter.sim.datapath.mma_arith import (
    Arithmetic,
    Decoded,
    Mask,
    Words,
    decode_accumulator,
    fused_dot,
)
from porter.sim.datapath.operands import Bytes
from porter.sim.datapath.sparse import expand
from porter.sim.datapath.tcgen05_operands import (
    a_cells,
    decode_idesc,
    layout_of,
    metadata_cells,
    read_a,
    read_b,
    read_metadata,
    read_scales,
    scale_cells,
    stored_k,
)

__all__ = ["MmaArguments", "a_cells", "decode_idesc", "stored_k"]

Indices = NDArray[np.int64]

F16_UPPER_HALF = 0xFFFF0000
"""What the upper half of a cell holds after an f16 result, which the PTX ISA leaves open: a NaN pattern, so
that a program relying on it fails."""


@lru_cache(maxsize=128)
def _d_index(layout: DLayout, n: int) -> tuple[Indices, Indices]:
    """Lane and column of D [rows of one CTA, n], relative to its address."""
    rows = np.arange(rows_per_cta(layout), dtype=np.int64)[:, None]
    cols = np.arange(n, dtype=np.int64)[None, :]
    _, lanes, columns = d_cell(layout, rows, cols, n)
    return lanes + 0 * cols, columns + 0 * rows


@lru_cache(maxsize=128)
def _d_rows(layout: DLayout, n: int) -> Indices | None:
    """Lane of each row of D, relative to its address, if a row's columns follow each other in one lane."""
    lanes, columns = _d_index(layout, n)
    plain = (lanes == lanes[:, :1]).all() and (columns == np.arange(n)).all()
    return lanes[:, 0] if plain else None


class Place:
    """Where D lies in Tensor Memory."""

    def __init__(self, layout: DLayout, n: int, lane: int, column: int) -> None:
        self.index: tuple[Any, Any]
        rows = _d_rows(layout, n)
        if rows is not None:
            self.index = rows + lane, slice(column, column + n)
        else:
            lanes, columns = _d_index(layout, n)
            self.index = lanes + lane, columns + column

    def take(self, tmem: Words) -> Words:
        return tmem[self.index]

    def put(self, tmem: Words, words: Words) -> None:
        tmem[self.index] = words


def flat_cells(tmem: Words) -> Words:
    """Tensor Memory [128, 512] as one axis, aliasing it."""
    if not tmem.flags.c_contiguous:
        raise ValueError("Tensor Memory must be one contiguous array")
    return tmem.reshape(-1)


def mma_cells(op: UmmaOp, idesc: int, d_addr: int) -> tuple[Indices, Indices]:
    """(lanes, columns) [rows, N] of D in each CTA's Tensor Memory.

    Raises DatapathError for an invalid descriptor or address.
    """
    decoded = decode_idesc(op, idesc)
    lane, column = check_d(op, decoded, d_addr)
    lanes, columns = _d_index(layout_of(op, decoded.m), decoded.n)
    return lanes + lane, columns + column


def check_d(op: UmmaOp, decoded: InstructionDescriptor, d_addr: int) -> tuple[int, int]:
    """Lane and column of the accumulator's address."""
    layout = layout_of(op, decoded.m)
    lane, column = lane_of(d_addr), column_of(d_addr)
    if lane not in lane_offsets(layout):
        legal = " or ".join(str(offset) for offset in lane_offsets(layout))
        raise DatapathError(f"the accumulator of an M={decoded.m} tcgen05.mma lies at lane {lane}; it must be {legal}")
    if column + d_columns(layout, decoded.n) > COLUMNS:
        raise DatapathError(f"an accumulator of N={decoded.n} at column {column} passes column {COLUMNS}")
    return lane, column


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


def mma_footprint(
    op: UmmaOp, idesc: int, args: MmaArguments
) -> list[tuple[Literal["d", "a", "metadata", "scale"], bool, Indices, Indices]]:
    """(what, written, lanes, columns) of all that the instruction touches in each CTA's Tensor Memory: first the
    accumulator; A a second time where it is shifted. Raises DatapathError for an invalid descriptor or address."""
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


def mma(
    op: UmmaOp,
    idesc: int,
    args: MmaArguments,
    *,
    smem: Sequence[Bytes],
    tmem: Sequence[Words],
    mode: Arithmetic = "float64",
    rules: Architecture = "sm_100",
) -> None:
    """Execute a tcgen05.mma, updating `tmem` in place.

    `smem` and `tmem` hold one array, or with cta_group 2 those of the even and the odd CTA. Raises DatapathError
    for invalid operands.
    """
    decoded = decode_idesc(op, idesc)
    _check_operands(op, args, smem, tmem)
    layout = layout_of(op, decoded.m)
    lane, column = check_d(op, decoded, args.d_addr)
    for name, address in (("A", args.a_tmem), ("the metadata", args.metadata)):
        if address is not None and lane_of(address) != lane:
            raise DatapathError(f"{name} lies at lane {lane_of(address)} of Tensor Memory, the accumulator at {lane}")
    lanes = _d_index(layout, decoded.n)[0]
    place = Place(layout, decoded.n, lane, column)
    b = read_b(op, decoded, smem, args.b_desc, args.zero_columns)
    dot = _Dot(op, idesc, decoded, mode, rules)
    for cta, memory in enumerate(tmem):
        copies = read_a(op, idesc, smem[cta], memory, args.a_desc, args.a_tmem)
        masks = None
        if args.metadata is not None:
            copies, masks = _expand_copies(op, idesc, decoded, copies, memory, args.metadata)
        if decoded.negate_a != decoded.negate_b:
            copies = [-a for a in copies]
        c = None
        if args.enable_d:
            c = decode_accumulator(place.take(memory), decoded.d_type)
            if args.scale_d:
                c *= 2.0**-args.scale_d
        if args.scale_a is not None and args.scale_b is not None:
            scales_a = read_scales(op, idesc, memory, args.scale_a, "a")
            scales_b = read_scales(op, idesc, memory, args.scale_b, "b")
            words = dot.scaled(copies, masks, b, c, scales_a, scales_b, lanes)
        else:
            words = dot.plain(copies, masks, b, c)
        if decoded.d_type is ElementType.F16:
            words |= np.uint32(F16_UPPER_HALF)
        if args.disable_lanes is not None:
            off = args.disable_lanes >> (128 * cta)
            keep = np.array([off >> i & 1 for i in range(128)], dtype=bool)[lanes + lane]
            words = np.where(keep, place.take(memory), words)
        place.put(memory, words)
        if op.ashift and args.a_tmem is not None:
            a_lanes, a_columns = a_cells(op, idesc, args.a_tmem)
            shift_rows(memory, a_lanes[:, 0], a_columns[0])


def _expand_copies(
    op: UmmaOp, idesc: int, decoded: InstructionDescriptor, stored: list[Decoded], memory: Words, metadata: int
) -> tuple[list[Decoded], list[Mask]]:
    """Each copy of a sparse A by its copy of the metadata: with zeros, and where it is stored."""
    nibbles = read_metadata(op, idesc, memory, metadata)
    copies = stored * (len(nibbles) // len(stored))
    bits = operand_element_bits(op.kind, decoded.a_type)
    expanded = [expand(a, words, bits) for a, words in zip(copies, nibbles, strict=True)]
    return [a for a, _ in expanded], [mask for _, mask in expanded]


def _check_operands(op: UmmaOp, args: MmaArguments, smem: Sequence[Bytes], tmem: Sequence[Words]) -> None:
    if len(smem) != op.cta_group or len(tmem) != op.cta_group:
        raise DatapathError(f"cta_group::{op.cta_group} needs the memories of {op.cta_group} CTAs")
    if args.scale_d and op.kind.value not in ("f16", "tf32"):
        raise DatapathError(f"kind::{op.kind.value} has no scale-input-d")
    if args.disable_lanes is not None and not op.has_disable_lanes:
        raise DatapathError("disable-output-lane is not available with .ws and block scaling")
    if (args.metadata is not None) != op.sparse:
        raise DatapathError("sparsity metadata goes with .sp")
    if (args.scale_a is not None and args.scale_b is not None) != op.block_scale:
        raise DatapathError("scale factors go with .block_scale")
    if args.zero_columns is not None and not op.ws:
        raise DatapathError("a zero-column mask goes with .ws")
    if op.ashift and args.a_tmem is None:
        raise DatapathError(".ashift needs A in Tensor Memory")


@dataclass(frozen=True)
class _Dot:
    """The sums of products of one instruction."""

    op: UmmaOp
    idesc: int
    decoded: InstructionDescriptor
    mode: Arithmetic
    rules: Architecture

    def _rule(self) -> DotRule:
        d = self.decoded
        unit: Unit = "tcgen05" if self.rules == "sm_100" else "wgmma"
        return dot_rule(self.rules, unit, d.a_type, d.b_type, d.d_type, saturate=d.saturate)

    def plain(self, copies: list[Decoded], masks: list[Mask] | None, b: Decoded, c: Decoded | None) -> Words:
        """D [rows, N], where each copy of A multiplies its share of the columns."""
        rule, width = self._rule(), b.shape[0] // len(copies)
        parts = []
        for i, a in enumerate(copies):
            share = slice(i * width, (i + 1) * width)
            active = None if masks is None else masks[i]
            parts.append(fused_dot(a, b[share], None if c is None else c[:, share], rule, self.mode, active=active))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def scaled(
        self,
        copies: list[Decoded],
        masks: list[Mask] | None,
        b: Decoded,
        c: Decoded | None,
        scales_a: Decoded,
        scales_b: Decoded,
        lanes: Indices,
    ) -> Words:
        """The same with factors [partition, row, factor]; each partition of lanes takes its own."""
        out = np.empty((copies[0].shape[0], b.shape[0]), np.uint32)
        width = scales_b.shape[1]
        for start in range(0, b.shape[0], width):
            share = slice(start, start + width)
            i = start // width % len(copies)
            partitions = lanes[:, start] // WARP_LANES
            for partition in np.unique(partitions).tolist():
                same = [p for p in np.unique(partitions).tolist() if _equal(scales_b[p], scales_b[partition])]
                if same[0] != partition:
                    continue
                rows = np.flatnonzero(np.isin(partitions, same))
                factors = scales_a[partitions[rows], rows]
                out[rows, share] = self._scaled_rows(
                    copies[i][rows],
                    None if masks is None else masks[i][rows],
                    b[share],
                    None if c is None else c[rows, share],
                    factors,
                    scales_b[partition],
                )
        return out

    def _scaled_rows(
        self, a: Decoded, active: Mask | None, b: Decoded, c: Decoded | None, scales_a: Decoded, scales_b: Decoded
    ) -> Words:
        if self.op.kind is Kind.MXF8F6F4:
            scales = scales_a[:, 0], scales_b[:, 0]
            return fused_dot(a, b, c, self._rule(), self.mode, active=active, scales=scales)
        assert isinstance(self.decoded, ScaledDescriptor)
        scale_type = self.decoded.scale_type
        rule = four_bit_rule(scale_type is ScaleType.UE4M3, self.op.sparse)
        return four_bit_dot(a, b, scales_a, scales_b, c, rule, scale_type, self.mode)


def _equal(a: Decoded, b: Decoded) -> bool:
    return np.array_equal(a, b, equal_nan=True)


def shift_rows(memory: Words, lanes: Indices, columns: Indices) -> None:
    """Move the row above into each of `lanes`, within each 32 lanes, whose last row stays."""
    moved = lanes[(lanes + 1) % WARP_LANES != 0]
    memory[moved[:, None], columns[None, :]] = memory[moved[:, None] + 1, columns[None, :]]


def shift_cells(taddr: int) -> tuple[Indices, Indices]:
    """(lanes, columns) that a tcgen05.shift reads and writes. Raises DatapathError for an illegal address."""
    lane, column = lane_of(taddr), column_of(taddr)
    if lane % WARP_LANES or lane >= LANES:
        raise DatapathError(f"tcgen05.shift starts at a multiple of 32 lanes, not at lane {lane}")
    if column + SHIFT_COLUMNS > COLUMNS:
        raise DatapathError(f"tcgen05.shift at column {column} passes column {COLUMNS} of Tensor Memory")
    lanes = np.arange(lane, lane + WARP_LANES, dtype=np.int64)[:, None]
    columns = np.arange(column, column + SHIFT_COLUMNS, dtype=np.int64)[None, :]
    return lanes + 0 * columns, columns + 0 * lanes


def shift(taddr: int, tmem: Sequence[Words]) -> None:
    """Execute a tcgen05.shift in the Tensor Memory of each CTA."""
    lanes, columns = shift_cells(taddr)
    for memory in tmem:
        shift_rows(memory, lanes[:, 0], columns[0])
