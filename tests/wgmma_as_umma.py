# SPDX-License-Identifier: Apache-2.0
"""What a wgmma is on Blackwell: its descriptors, its instruction descriptor, the accesses that move its fragments."""

from __future__ import annotations

from dataclasses import dataclass

from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.smem_desc import SM100_VERSION_BIT
from porter.ptx.swizzle import IntLike
from porter.ptx.tmem_access import Shape, TmemAccess
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind
from porter.ptx.wgmma import M, WgmmaOp, umma_kind


def sm90_to_sm100(word: int) -> int:
    """The SM100 descriptor of the same tile.

    The SM90 swizzle code at bits 62-63 and the SM100 code at bits 61-63 are the same bits for every mode
    they share, so that only the version is added.
    """
    return word | SM100_VERSION_BIT


def d_position_f16(thread: IntLike, register: IntLike, half: IntLike) -> tuple[IntLike, IntLike]:
    """(row, column) of the low (0) or high (1) half of a D register that holds two f16."""
    warp, group, quad = thread // 32, thread % 32 // 4, thread % 4
    return 16 * warp + group + 8 * (register % 2), 8 * (register // 2) + 2 * quad + half


def wgmma_to_umma(
    op: WgmmaOp,
    *,
    m: int = M,
    negate_a: bool = False,
    negate_b: bool = False,
    trans_a: bool = False,
    trans_b: bool = False,
) -> tuple[Kind, InstructionDescriptor]:
    """The tcgen05.mma kind and instruction descriptor of the same product.

    `m` is the row count of the tcgen05 tile (64, 128, or 256 over a CTA pair). The flags are the wgmma
    immediates: imm-scale of -1 and imm-trans of 1. Raises ValueError for b1, which tcgen05 does not have.
    """
    kind = umma_kind(op.a_type)
    return kind, InstructionDescriptor(
        kind=kind,
        m=m,
        n=op.n,
        d_type=op.d_type,
        a_type=op.a_type,
        b_type=op.b_type,
        negate_a=negate_a,
        negate_b=negate_b,
        a_mn_major=trans_a,
        b_mn_major=trans_b,
        saturate=op.satfinite,
        sparse=op.sparse,
    )


@dataclass(frozen=True)
class AccessPiece:
    """One ld or st of a fragment: registers `register` .. at `column` columns from the tile's address."""

    register: int
    registers: int
    column: int
    access: TmemAccess


def accumulator_pieces(
    n: int, d_type: ElementType, *, store: bool = False, max_registers: int = 128
) -> tuple[AccessPiece, ...]:
    """The accesses that move a wgmma D fragment of `n` columns from (to) an M=64 accumulator.

    The registers come in wgmma's order: 16x256b for 32-bit D, 16x128b with packing for f16. Counts are
    powers of two, largest first, and at most `max_registers` registers each.
    """
    shape = Shape.S16X128B if d_type is ElementType.F16 else Shape.S16X256B
    packed = d_type is ElementType.F16
    return _pieces(n // 8, 8, shape, packed, store, max_registers)


def a_fragment_pieces(k_blocks: int, *, max_registers: int = 128) -> tuple[AccessPiece, ...]:
    """The stores that write the A registers of `k_blocks` wgmmas, concatenated, as A in Tensor Memory.

    One block is 32 bytes of K for every type: four registers, eight columns.
    """
    return _pieces(2 * k_blocks, 4, Shape.S16X128B, False, True, max_registers)


def _pieces(
    repeats: int, columns: int, shape: Shape, packed: bool, store: bool, max_registers: int
) -> tuple[AccessPiece, ...]:
    pieces = []
    done = 0
    per_repeat = shape.registers_per_repeat
    limit = min(shape.max_count, max_registers // per_repeat)
    while done < repeats:
        count = 1 << (min(repeats - done, limit).bit_length() - 1)
        access = TmemAccess(store, shape, count, packed)
        pieces.append(AccessPiece(done * per_repeat, count * per_repeat, done * columns, access))
        done += count
    return tuple(pieces)
