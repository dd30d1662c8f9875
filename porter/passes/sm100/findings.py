# SPDX-License-Identifier: Apache-2.0
"""What checks of loads from Tensor Memory say, whatever language the load is written in."""

from __future__ import annotations

from dataclasses import dataclass

from porter.diagnostics import Code, Diagnostic, Location
from porter.ptx.arch import LIMITS, SM100A
from porter.ptx.tmem_access import Shape

NARROW = 1
"""Repetition of a load that moves as little as one can."""
WIDE = max(shape.max_count * shape.registers_per_repeat for shape in Shape)
"""Registers of the largest load."""
_REGISTER_STEP = 8
_PER_SM = LIMITS[SM100A.sm].registers_per_sm
_MOST = LIMITS[SM100A.sm].registers_per_thread


@dataclass(frozen=True)
class Load:
    """A load as it is written: the shape and repetition of its instruction, and how often it stands there."""

    name: str
    shape: Shape
    count: int
    where: Location
    times: int = 1


@dataclass(frozen=True)
class Budget:
    """Registers that a thread has, and what says so."""

    registers: int
    bound: str


def budget_of_block(threads: int, blocks: int) -> Budget:
    """What a block of so many threads leaves to each, with so many blocks on an SM."""
    each = _PER_SM // max(threads * blocks, 1) // _REGISTER_STEP * _REGISTER_STEP
    blocks_said = f", {blocks} blocks an SM" if blocks > 1 else ""
    return Budget(min(each, _MOST), f"{threads} threads a block{blocks_said}")


def load_findings(load: Load, budget: Budget | None) -> list[Diagnostic]:
    """What is to be said of a load's width."""
    registers = load.count * load.shape.registers_per_repeat
    shown = f"{registers} register{'s' * (registers != 1)}"
    times = f" ({load.times} times)" if load.times > 1 else ""
    values = {"name": load.name, "registers": shown, "times": times}
    found = []
    if load.count == NARROW:
        found.append(Diagnostic(Code.T2R_NARROW, load.where, values))
    if registers == WIDE:
        found.append(Diagnostic(Code.T2R_WIDE, load.where, values))
    if budget is not None and registers >= budget.registers:
        values = {**values, "budget": str(budget.registers), "bound": budget.bound}
        found.append(Diagnostic(Code.T2R_REGISTERS, load.where, values))
    return found
