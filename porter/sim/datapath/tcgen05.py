# SPDX-License-Identifier: Apache-2.0
"""tcgen05.mma, tcgen05.shift, tcgen05.ld and tcgen05.st on the Tensor Memory of one CTA or a CTA pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from porter.ptx.block_scale import ScaleType
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.idesc_scaled import ScaledDescriptor
from porter.ptx.mma_cells import Indices, MmaArguments, a_cells, check_d, d_index, decode_idesc, layout_of, shift_cells
from porter.ptx.mma_numerics import Architecture, DotRule, Unit, dot_rule, four_bit_rule
from porter.ptx.operand_errors import OperandError
from porter.ptx.packing import operand_element_bits
from porter.ptx.tmem import (
    WARP_LANES,
    DLayout,
    lane_of,
)
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind, UmmaOp
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
from porter.sim.datapath.tcgen05_operands import read_a, read_b, read_metadata, read_scales

F16_UPPER_HALF = 0xFFFF0000
"""What the upper half of a cell holds after an f16 result, which the PTX ISA leaves open: a NaN pattern, so
that a program relying on it fails."""


@lru_cache(maxsize=128)
def _d_rows(layout: DLayout, n: int) -> Indices | None:
    """Lane of each row of D, relative to its address, if a row's columns follow each other in one lane."""
    lanes, columns = d_index(layout, n)
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
            lanes, columns = d_index(layout, n)
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

    `smem` and `tmem` hold one array, or with cta_group 2 those of the even and the odd CTA. Raises OperandError
    for invalid operands.
    """
    decoded = decode_idesc(op, idesc)
    _check_operands(op, args, smem, tmem)
    layout = layout_of(op, decoded.m)
    lane, column = check_d(op, decoded, args.d_addr)
    for name, address in (("A", args.a_tmem), ("the metadata", args.metadata)):
        if address is not None and lane_of(address) != lane:
            raise OperandError(f"{name} lies at lane {lane_of(address)} of Tensor Memory, the accumulator at {lane}")
    lanes = d_index(layout, decoded.n)[0]
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
        raise OperandError(f"cta_group::{op.cta_group} needs the memories of {op.cta_group} CTAs")
    if args.scale_d and op.kind.value not in ("f16", "tf32"):
        raise OperandError(f"kind::{op.kind.value} has no scale-input-d")
    if args.disable_lanes is not None and not op.has_disable_lanes:
        raise OperandError("disable-output-lane is not available with .ws and block scaling")
    if (args.metadata is not None) != op.sparse:
        raise OperandError("sparsity metadata goes with .sp")
    if (args.scale_a is not None and args.scale_b is not None) != op.block_scale:
        raise OperandError("scale factors go with .block_scale")
    if args.zero_columns is not None and not op.ws:
        raise OperandError("a zero-column mask goes with .ws")
    if op.ashift and args.a_tmem is None:
        raise OperandError(".ashift needs A in Tensor Memory")


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


def shift(taddr: int, tmem: Sequence[Words]) -> None:
    """Execute a tcgen05.shift in the Tensor Memory of each CTA."""
    lanes, columns = shift_cells(taddr)
    for memory in tmem:
        shift_rows(memory, lanes[:, 0], columns[0])
