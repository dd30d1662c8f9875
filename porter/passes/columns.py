# SPDX-License-Identifier: Apache-2.0
"""Columns of Tensor Memory for every accumulator."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from porter.diagnostics import Code
from porter.model.accumulators import Accumulator
from porter.model.functions import Style
from porter.model.kernels import Kernel
from porter.model.program import Program
from porter.passes.context import PortContext


@dataclass(eq=False)
class Columns:
    """`owned`: the accumulators that a kernel reaches. `first`: the first column of each of their tiles, counted from
    the warpgroup's own, as an expression behind the declaration."""

    owned: dict[Kernel, list[Accumulator]]
    first: dict[Accumulator, str] = field(default_factory=dict)


def assign_columns(context: PortContext) -> Columns:
    """Columns for every accumulator, kernel by kernel; a function that several kernels share keeps one place."""
    program, accumulators = context.program, context.accumulators.accumulators
    reaching = {a.function: program.reaching([a.function]) for a in accumulators}
    columns = Columns({k: [a for a in accumulators if id(k.function) in reaching[a.function]] for k in context.kernels})
    for accumulator in accumulators:
        earlier = [a for a in columns.first if a.function is accumulator.function]
        columns.first[accumulator] = " + ".join(_total(program, a) for a in earlier) or "0"
    for owned in columns.owned.values():
        _offset_by_function(owned, columns.first)
    _report_unreached(context, columns)
    return columns


def _offset_by_function(owned: list[Accumulator], first: dict[Accumulator, str]) -> None:
    """Accumulators of different functions of one kernel lie behind one another."""
    functions = list(dict.fromkeys(a.function for a in owned))
    for i, function in enumerate(functions[1:], 1):
        base = sum(a.size.columns for a in owned if a.function in functions[:i])
        for other in owned:
            if other.function is function:
                first[other] = str(base) if first[other] == "0" else f"{base} + {first[other]}"


def _total(program: Program, accumulator: Accumulator) -> str:
    """Columns of all its tiles: a number where it is known, which needs no name to be visible."""
    size = accumulator.size
    if size.certain:
        tiles = [program.constants.evaluate(e) for e in accumulator.home.tile_extents]
        if None not in tiles:
            return str(math.prod(t for t in tiles if t is not None) * size.columns)
    return accumulator.home.all_columns(size)


def _report_unreached(context: PortContext, columns: Columns) -> None:
    """Accumulators to which no kernel was seen to come."""
    reached = {a for owned in columns.owned.values() for a in owned}
    for accumulator in context.accumulators.accumulators:
        function = accumulator.function
        if accumulator in reached:
            continue
        at = function.span(function.body)
        if function.style is Style.KERNEL:
            what = f"how kernel `{function.name}` comes to its MMAs is not understood"
            context.report(Code.ACCUMULATOR_USE, function, at, what=what)
        else:
            context.report(Code.NO_KERNEL_REACHES, function, at, name=function.name)
