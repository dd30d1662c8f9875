# SPDX-License-Identifier: Apache-2.0
"""Columns of Tensor Memory for every accumulator: those that are never live at once share them, all others lie behind
one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from porter.diagnostics import Code
from porter.model.accumulators import Accumulator
from porter.model.functions import Function, Style
from porter.model.kernels import Kernel
from porter.model.lifetimes import Lifetimes
from porter.model.program import Program
from porter.passes.context import PortContext
from porter.passes.moves import Moves


@dataclass(eq=False)
class Columns:
    """`owned`: the accumulators that a kernel reaches. `first`: the first column of each of their tiles, counted from
    the warpgroup's own, as an expression behind the declaration. `total`: columns of a warpgroup, for kernels where the
    number is known; for others it is the sum of what each accumulator takes."""

    owned: dict[Kernel, list[Accumulator]]
    first: dict[Accumulator, str] = field(default_factory=dict)
    total: dict[Kernel, int] = field(default_factory=dict)


def assign_columns(context: PortContext, moves: Moves) -> Columns:
    """Columns for every accumulator. Kernels that share a function with accumulators are laid out together: what the
    function declares has one place in all of them."""
    program, accumulators = context.program, context.accumulators.accumulators
    reaching = {a.function: program.reaching([a.function]) for a in accumulators}
    columns = Columns({k: [a for a in accumulators if id(k.function) in reaching[a.function]] for k in context.kernels})
    columns.first = dict.fromkeys(accumulators, "0")
    lifetimes = Lifetimes(context.flow, {t.holder.accumulator for t in moves.tracked})
    for kernels in _joined(columns.owned):
        _lay_out(context, columns, kernels, lifetimes)
    _report_unreached(context, columns)
    return columns


def _joined(owned: dict[Kernel, list[Accumulator]]) -> list[list[Kernel]]:
    """The kernels in groups that have no accumulator in common."""
    groups: list[list[Kernel]] = []
    for kernel, own in owned.items():
        met = [g for g in groups if any(a in own for k in g for a in owned[k])]
        groups = [g for g in groups if g not in met] + [[k for g in met for k in g] + [kernel]]
    return groups


def _lay_out(context: PortContext, columns: Columns, kernels: list[Kernel], lifetimes: Lifetimes) -> None:
    """First columns of what a group of kernels owns, and how many each kernel needs."""
    program, owned = context.program, columns.owned
    functions = {
        f: [a for a in columns.first if a.function is f] for k in kernels for f in (a.function for a in owned[k])
    }
    ordered = [a for own in functions.values() for a in own]
    widths = {a: w for a in ordered if (w := _width(program, a)) is not None}
    certain = all(a.size.certain for a in ordered)
    # of these the numbers of tiles, or of columns of a tile, are for the compiler to know
    unknown = [
        f for f, own in functions.items() if not all(a in widths for a in own) or (len(functions) == 1 and not certain)
    ]

    def together(one: Accumulator, other: Accumulator) -> bool:
        users = [k for k in kernels if one in owned[k] and other in owned[k]]
        return not all(lifetimes.may_share(k.function, one, other) for k in users)

    first = _placed([a for a in ordered if a.function not in unknown], widths, together)
    for function, own in functions.items():
        base = first.get(own[0], 0)
        if function in unknown:
            met = [a for a in ordered if a.function is not function and any(together(a, o) for o in own)]
            if any(a.function in unknown for a in met) or (met and not certain):
                _report_unknown(context, own[0])
            base = max((first[a] + widths[a] for a in met if a in first), default=0)
        for i, accumulator in enumerate(own):
            behind = " + ".join([str(base)] * bool(base) + [_total(program, a) for a in own[:i]]) or "0"
            fits = accumulator not in first or program.value(accumulator.function, behind) == first[accumulator]
            columns.first[accumulator] = behind if fits else str(first[accumulator])
    for kernel in kernels:
        if all(a in first for a in owned[kernel]):
            columns.total[kernel] = max((first[a] + widths[a] for a in owned[kernel]), default=0)


def _placed(
    ordered: Sequence[Accumulator],
    widths: dict[Accumulator, int],
    together: Callable[[Accumulator, Accumulator], bool],
) -> dict[Accumulator, int]:
    """The lowest column for each at which it meets none of the earlier ones that live together with it."""
    first: dict[Accumulator, int] = {}
    for accumulator in ordered:
        taken = sorted((first[a], first[a] + widths[a]) for a in first if together(accumulator, a))
        at = 0
        for start, end in taken:
            if at + widths[accumulator] <= start:
                break
            at = max(at, end)
        first[accumulator] = at
    return first


def _width(program: Program, accumulator: Accumulator) -> int | None:
    """Columns of all its tiles, at most; None if their number is not known."""
    constants = program.constants_in(accumulator.function)
    tiles = [constants.evaluate(e) for e in accumulator.home.tile_extents]
    counts = [t for t in tiles if t is not None]
    return math.prod(counts) * accumulator.size.columns if len(counts) == len(tiles) else None


def _total(program: Program, accumulator: Accumulator) -> str:
    """Columns of all its tiles: a number where it is known, which needs no name to be visible."""
    size = accumulator.size
    if size.certain:
        width = _width(program, accumulator)
        if width is not None:
            return str(width)
    return accumulator.home.all_columns(size)


def _report_unknown(context: PortContext, accumulator: Accumulator) -> None:
    function: Function = accumulator.function
    what = f"how many tiles `{accumulator.name}` has is not known, and another function of the kernel has some too"
    context.report(Code.COLUMNS_UNKNOWN, function, function.head, what=what)


def _report_unreached(context: PortContext, columns: Columns) -> None:
    """Accumulators to which no kernel was seen to come."""
    reached = {a for owned in columns.owned.values() for a in owned}
    for accumulator in context.accumulators.accumulators:
        function = accumulator.function
        if accumulator in reached:
            continue
        at = function.head
        if function.style is Style.KERNEL:
            what = f"how kernel `{function.name}` comes to its MMAs is not understood"
            context.report(Code.CALL_NOT_FOLLOWED, function, at, what=what)
        else:
            context.report(Code.NO_KERNEL_REACHES, function, at, name=function.name)
