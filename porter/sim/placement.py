# SPDX-License-Identifier: Apache-2.0
"""How many blocks of a launch run at the same time, and which of them share a multiprocessor (SM).

A launch's blocks are dealt out in turn: each SM gets one before any gets a second. Where blocks do not wait for each
other, it makes no difference to what they compute, and each has an SM to itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from porter.ptx.arch import Limits, limits
from porter.ptx.occupancy import Resident, resident
from porter.sim.block_waits import waits_for_blocks
from porter.sim.program import Program
from porter.sim.results import Launch, Options

_TAKEN_OVER = 3
"""A block of a kernel with clusterlaunchcontrol does as many blocks' work, on average."""
_ALONE = limits("sm_90").multiprocessors
"""Blocks that run at a time where none waits for another."""


@dataclass(frozen=True)
class Placement:
    """`at_once` blocks of a launch run at the same time, on as many SMs, 0 if each has one to itself. `refused`: why
    they cannot all be there at one time, as those of a cooperative launch have to be."""

    at_once: int
    multiprocessors: int = 0
    refused: str = ""


def placement(program: Program, launch: Launch, options: Options, shared: int) -> Placement:
    """Of a launch whose blocks take so many bytes of shared memory."""
    total = math.prod(launch.grid)
    chip = _chip(program)
    if launch.cooperative:
        most = options.multiprocessors or chip.multiprocessors
        if total <= most:
            return Placement(total)
        each = _each(program, launch, options, shared, chip)
        if each is not None and total > most * each.blocks:
            why = f"{most} multiprocessors take {each.blocks} each, by their {each.by}"
            what = f"{total:,} blocks of a cooperative launch cannot be there at one time"
            return Placement(total, most, f"{what}: {why}")
        return Placement(total, most)
    if options.resident is not None:
        return Placement(options.resident)
    if _takes_over(program):
        return Placement(min(_ALONE, -(-total // _TAKEN_OVER)))
    few = options.multiprocessors is not None and total > options.multiprocessors
    if (few or total > _ALONE) and waits_for_blocks(program) is not None:
        each = _each(program, launch, options, shared, chip)
        for most in (options.multiprocessors or chip.multiprocessors, chip.multiprocessors):
            if each is not None and most < total <= most * each.blocks:
                return Placement(total, most)
        if each is not None and total > chip.multiprocessors:
            return Placement(chip.multiprocessors * max(each.blocks, 1), chip.multiprocessors)
    return Placement(min(_ALONE, total))


def _chip(program: Program) -> Limits:
    try:
        return limits(program.module.target)
    except (KeyError, ValueError):
        return limits("sm_90")


def _each(program: Program, launch: Launch, options: Options, shared: int, chip: Limits) -> Resident | None:
    """The blocks that an SM takes besides what they allocate themselves; None if nobody knows their registers."""
    taken = options.taken() if options.taken is not None else None
    if taken is None:
        return None
    return resident(replace(taken, threads=math.prod(launch.block), shared=shared), chip)


@lru_cache(maxsize=16)
def _takes_over(program: Program) -> bool:
    """Whether blocks take over the work of blocks that have not begun."""
    return any(ins.opcode.startswith("clusterlaunchcontrol.try_cancel") for ins in program.code)
