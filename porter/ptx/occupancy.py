# SPDX-License-Identifier: Apache-2.0
"""How many blocks share a multiprocessor (SM), by what one block takes of it.

Sources: CUDA C++ Programming Guide, technical specifications per compute capability; cuda_occupancy.h of the CUDA
toolkit for what is allocated together: registers of a warp in units of 256, in one of four parts of the SM, and shared
memory in units of 128 bytes. Tensor Memory: PTX ISA 9.0 §9.7.16.7.1; cuda_occupancy.h does not know of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from porter.ptx.arch import WARP, Limits
from porter.ptx.register_file import allocated
from porter.ptx.tmem import COLUMNS

_PARTS = 4
"""Of an SM, each with a register file of its own."""
_SHARED_UNIT = 128
"""Bytes of shared memory that are allocated together."""

REGISTERS, SHARED, THREADS, BARRIERS = "registers", "shared memory", "threads", "named barriers"
TENSOR_MEMORY, SLOTS = "Tensor Memory", "blocks"
"""What bounds how many blocks share an SM; the last one: no SM takes more."""


@dataclass(frozen=True)
class Taken:
    """What one block takes of an SM: `registers` of each thread, bytes of `shared` memory, static and dynamic,
    named `barriers`, `columns` of Tensor Memory. None for what is not known, which then bounds nothing."""

    threads: int | None = None
    registers: int | None = None
    shared: int | None = None
    barriers: int | None = None
    columns: int | None = None


@dataclass(frozen=True)
class Resident:
    """`blocks` share an SM, at most; `by` is what allows no more."""

    blocks: int
    by: str


def resident(taken: Taken, limits: Limits) -> Resident:
    """The blocks of a kernel that share an SM: 0 if it has no room for one. Of several bounds the first in the order of
    `Taken` is told."""
    found: list[Resident] = []
    if taken.threads:
        warps = -(-taken.threads // WARP)
        found.append(Resident(limits.warps_per_sm // warps, THREADS))
        if taken.registers:
            each = allocated(taken.registers) * WARP
            held = limits.registers_per_sm // _PARTS // each * _PARTS
            fits = each * -(-warps // _PARTS) * _PARTS <= limits.registers_per_sm
            found.append(Resident(held // warps if fits else 0, REGISTERS))
    if taken.shared is not None:
        each = -(-(taken.shared + limits.shared_reserved) // _SHARED_UNIT) * _SHARED_UNIT
        found.append(Resident(limits.shared_per_sm // each, SHARED))
    if taken.barriers:
        found.append(Resident(limits.barriers_per_sm // taken.barriers, BARRIERS))
    if taken.columns:
        found.append(Resident(COLUMNS // taken.columns, TENSOR_MEMORY))
    return min([*found, Resident(limits.blocks_per_sm, SLOTS)], key=lambda one: one.blocks)
