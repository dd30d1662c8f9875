# SPDX-License-Identifier: Apache-2.0
"""How emulated code stops: the codes of `Trap` in device/state.cuh, worded as the simulator's findings are."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from porter.diagnostics import Code
from porter.ptx.tmem import COLUMNS, MIN_ALLOCATION


@dataclass(frozen=True)
class Trap:
    """`text` is a format over the values `{0}`, `{1}`, `{2}` that the device leaves."""

    code: Code
    text: str


TRAPS: dict[int, Trap] = {
    1: Trap(
        Code.SIM_TMEM_ALLOCATION,
        f"tcgen05.alloc of {{0}} columns; the size is a power of two, {MIN_ALLOCATION} to {COLUMNS}",
    ),
    2: Trap(
        Code.SIM_TMEM_ALLOCATION,
        "tcgen05.alloc of {0} columns waits forever: no such run of columns is freed (units of 32 held: {1:#x})",
    ),
    3: Trap(Code.SIM_TMEM_ALLOCATION, "tcgen05.alloc after tcgen05.relinquish_alloc_permit"),
    4: Trap(
        Code.SIM_TMEM_ALLOCATION,
        "tcgen05.dealloc of {1} columns at {0:#x}: no such allocation (units of 32 held: {2:#x})",
    ),
    5: Trap(
        Code.SIM_TMEM_ALLOCATION,
        "tcgen05.dealloc while {0} tensor-core operations of the CTA have not completed",
    ),
    6: Trap(
        Code.SIM_TMEM_UNALLOCATED,
        "{1} columns from column {0} of Tensor Memory are not all allocated (units of 32 held: {2:#x})",
    ),
    7: Trap(Code.SIM_TMEM_ACCESS, "lane {0} is not one that warp {1} can access with this shape"),
    8: Trap(Code.SIM_TMEM_ACCESS, "the threads of the warp give different addresses ({0:#x})"),
    9: Trap(Code.SIM_DESCRIPTOR, "shared-memory descriptor {1:#010x}{0:08x} is not one of SM100"),
    10: Trap(Code.SIM_DESCRIPTOR, "instruction descriptor {0:#010x} is not valid, or not one Porter emulates"),
    11: Trap(Code.SIM_TMEM_ACCESS, "lane {0} of an operand does not go with the shape of the product ({1})"),
    12: Trap(
        Code.SIM_DEADLOCK,
        "a thread waits for an mbarrier that does not complete ({0} tensor-core operations issued, {1} done)",
    ),
    13: Trap(Code.SIM_LAUNCH, "CTA {0} of a grid that was prepared for {1}"),
    14: Trap(Code.SIM_COLLECTIVE, "cta_group::2 needs a cluster of an even number of CTAs, not {0}"),
    15: Trap(Code.SIM_TMEM_ALLOCATION, "the CTAs of a pair ask for {0} and {1} columns"),
    16: Trap(
        Code.SIM_TMEM_ALLOCATION,
        "tcgen05.alloc.cta_group::2 of {0} columns waits forever for the other CTA of the pair",
    ),
    17: Trap(Code.SIM_TENSOR_MAP, "a tensor map whose box cannot be read (flags {0:#010x})"),
    18: Trap(Code.SIM_TMEM_ALLOCATION, "cta_group::{0} after cta_group::{1} in one kernel"),
}

_REPORT = struct.Struct("<10I")


@dataclass(frozen=True)
class TrapReport:
    """What a stopped kernel left in host memory: `struct Report` of device/state.cuh."""

    code: int
    site: int
    block: tuple[int, int, int]
    thread: int
    values: tuple[int, ...]

    @staticmethod
    def size() -> int:
        return _REPORT.size

    @staticmethod
    def decode(data: bytes) -> TrapReport | None:
        """None if nothing was reported."""
        words = _REPORT.unpack(data[: _REPORT.size])
        if not words[0]:
            return None
        return TrapReport(words[0], words[1], (words[2], words[3], words[4]), words[5], tuple(words[6:10]))


def describe(code: int, values: Sequence[int]) -> tuple[Code, str]:
    """The diagnostic and its wording."""
    trap = TRAPS.get(code)
    if trap is None:
        return Code.SIM_TRAP, f"the emulation stopped with code {code:#x}"
    return trap.code, trap.text.format(*values)
