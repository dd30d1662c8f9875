# SPDX-License-Identifier: Apache-2.0
"""tcgen05.ld and tcgen05.st: which Tensor Memory cell each register of each thread is.

Sources: PTX ISA 9.0 §9.7.16.8 tables 49-50 (shapes and counts), §9.7.16.2 (lanes of a warp); CUTLASS
include/cute/atom/copy_traits_sm100.hpp for the maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from numpy.typing import NDArray

from porter.ptx.forms.grammar import Modifiers
from porter.ptx.swizzle import IntLike
from porter.ptx.tmem import LANES, WARP_LANES


class Shape(StrEnum):
    """Access shapes; the first number is lanes, the second bits per lane and repetition."""

    S32X32B = "32x32b"
    S16X64B = "16x64b"
    S16X128B = "16x128b"
    S16X256B = "16x256b"
    S16X32BX2 = "16x32bx2"

    @property
    def registers_per_repeat(self) -> int:
        return {Shape.S16X128B: 2, Shape.S16X256B: 4}.get(self, 1)

    @property
    def columns_per_repeat(self) -> int:
        """Packed columns that one repetition covers (for 16x32bx2, in each half)."""
        return {Shape.S16X64B: 2, Shape.S16X128B: 4, Shape.S16X256B: 8}.get(self, 1)

    @property
    def max_count(self) -> int:
        return 128 // self.registers_per_repeat

    @property
    def lane_alignment(self) -> int:
        """The lane of the address, modulo a warp's 32, is a multiple of this."""
        return 32 if self is Shape.S32X32B else 16


@dataclass(frozen=True)
class LoadReduction:
    """The reduction of a tcgen05.ld.red: of u32, s32 or f32, for f32 of magnitudes (.abs) and with NaN as result of
    any NaN (.NaN) instead of leaving NaNs out."""

    largest: bool
    kind: str
    absolute: bool = False
    propagate_nan: bool = False


@dataclass(frozen=True)
class TmemAccess:
    """What a tcgen05.ld or tcgen05.st opcode says; `packed` is pack::16b or unpack::16b. A tcgen05.ld.red also gives
    the `reduction` of what each thread loads."""

    store: bool
    shape: Shape
    count: int
    packed: bool = False
    reduction: LoadReduction | None = None

    @property
    def registers(self) -> int:
        """32-bit registers of each thread."""
        return self.count * self.shape.registers_per_repeat

    @property
    def columns(self) -> int:
        """Tensor Memory columns covered (for 16x32bx2, in each half)."""
        return self.count * self.shape.columns_per_repeat * (2 if self.packed else 1)

    @staticmethod
    def of(given: Modifiers) -> TmemAccess:
        """From the modifiers of an instruction."""
        reduction = None
        if "red" in given:
            reduction = LoadReduction(given["op"] == "max", given["type"], "abs" in given, "NaN" in given)
        packed = "pack_16b" in given or "unpack_16b" in given
        return TmemAccess("st" in given, Shape(given["shape"]), int(given["num"][1:]), packed, reduction)


def is_legal_count(shape: Shape, count: int) -> bool:
    return 1 <= count <= shape.max_count and count & (count - 1) == 0


def cell(shape: Shape, thread: IntLike, register: IntLike) -> tuple[IntLike, IntLike]:
    """(lane, column) of a thread's register, relative to the address.

    With pack::16b / unpack::16b the column counts packed cells, see `unpacked_columns`. For 16x32bx2 it is
    relative to the half's first column, which is immHalfSplitoff higher for threads 16 to 31.
    """
    if shape is Shape.S32X32B:
        return thread + 0 * register, register + 0 * thread
    if shape is Shape.S16X64B:
        return thread // 4 + 8 * (thread % 2) + 0 * register, thread // 2 % 2 + 2 * register
    if shape is Shape.S16X128B:
        return thread // 4 + 8 * (register % 2), thread % 4 + 4 * (register // 2)
    if shape is Shape.S16X256B:
        lane = thread // 4 + 8 * (register // 2 % 2)
        return lane, 2 * (thread % 4) + register % 2 + 8 * (register // 4)
    return thread % 16 + 0 * register, register + 0 * thread


def unpacked_columns(packed_column: IntLike) -> tuple[IntLike, IntLike]:
    """The two columns whose low halves make up a packed cell: its low half, its high half."""
    return 2 * packed_column, 2 * packed_column + 1


def leaves_quarter_out(lane: int | NDArray[Any], warp_rank: int | NDArray[Any]) -> Any:
    """Whether bits 5-6 of a lane are zero where the warp reaches another quarter of the lanes than the first: a bool,
    or an array of them. The text gives lanes 0 to 31 to one warp of four (§9.7.16.8.1); that hardware takes the warp's
    own quarter is practice.
    """
    return (lane < WARP_LANES) & (warp_rank % 4 != 0)


def lane_of_block(lane: int | NDArray[Any], cta_rank: int | NDArray[Any]) -> Any:
    """The lane within a block's own Tensor Memory of one that counts over the blocks of a pair or cluster: 128 times
    the block's rank there is left out. Any other lane stays as it is. An int, or an array of them.

    The text has 128 lanes a block (§9.7.16.1); that hardware takes these is practice (docs/rulings.md, lane-field).
    """
    block = lane // LANES
    return lane - block * LANES * ((block == cta_rank) | (block == cta_rank % 2))


def lane_problem(lane: int, shape: Shape, warp_rank: int) -> str | None:
    """Why a warp cannot access Tensor Memory from this lane, or None.

    A warp reaches the 32 lanes of its rank modulo 4. Bits 5-6 of the lane say so, as CuTe asserts, or are left out, as
    DeepGEMM does.
    """
    if lane >= LANES:
        return f"lane {lane} is not one of the {LANES} of Tensor Memory"
    if lane // WARP_LANES != warp_rank % 4 and not leaves_quarter_out(lane, warp_rank):
        first = warp_rank % 4 * WARP_LANES
        return f"warp {warp_rank} reaches lanes {first} to {first + WARP_LANES - 1}, not lane {lane}"
    if lane % shape.lane_alignment:
        return f"the lane of a .{shape.value} access is a multiple of {shape.lane_alignment}, not {lane}"
    return None
