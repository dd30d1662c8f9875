# SPDX-License-Identifier: Apache-2.0
"""Columns of Tensor Memory for every accumulator: those that are never live at once share them, all others lie behind
one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from porter.diagnostics import Code
from porter.model.accumulators import Accumulator
from porter.model.functions import Function, Style, outermost
from porter.model.kernels import Kernel
from porter.model.lifetimes import Lifetimes
from porter.model.program import Program
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.widths import behind, columns_at, declared_at, may_be_given, names_it


@dataclass(frozen=True)
class End:
    """Columns in front of a place in Tensor Memory: a number, and those of some accumulators."""

    number: int
    behind: tuple[Accumulator, ...] = ()

    def within(self, other: End) -> bool:
        """Whether these are some of the columns in front of another."""
        return self.number <= other.number and set(self.behind) <= set(other.behind)


@dataclass(eq=False)
class Columns:
    """`owned`: the accumulators that a kernel reaches. `first`: the first column of each of their tiles, counted from
    the warpgroup's own, as an expression behind the declaration. `ends`: where they end. `total`: columns of a
    warpgroup, for kernels where the number is known; others take as many as the last of the ends."""

    owned: dict[Kernel, list[Accumulator]]
    first: dict[Accumulator, str] = field(default_factory=dict)
    ends: dict[Accumulator, End] = field(default_factory=dict)
    total: dict[Kernel, int] = field(default_factory=dict)

    def ends_of(self, kernel: Kernel) -> list[End]:
        """The ends of a kernel's accumulators of which no other is known to lie further behind."""
        ends = list(dict.fromkeys(self.ends[a] for a in self.owned[kernel]))
        return [e for e in ends if not any(e != o and e.within(o) for o in ends)]


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
    # a lambda sees what the function around it has
    homes = dict.fromkeys(outermost(a.function) for k in kernels for a in owned[k])
    functions = {f: [a for a in columns.first if outermost(a.function) is f] for f in homes}
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

    first = _placed([a for f, own in functions.items() if f not in unknown for a in own], widths, together)
    for function, own in functions.items():
        base = 0
        if function in unknown:
            met = [a for a in ordered if a not in own and any(together(a, o) for o in own)]
            if not all(a in first for a in met) or (met and not certain):
                _report_unknown(context, own[0])
            base = max((first[a] + widths[a] for a in met if a in first), default=0)
            numbered = [a for a in own if a.size.certain and a in widths]
            first |= {a: base + at for a, at in _placed(numbered, widths, together).items()}
        columns.ends |= {a: End(first[a] + widths[a]) for a in own if a in first}
        columns.first |= {a: str(first[a]) for a in own if a in first}
        _stack(context, columns, own, base, together)
    for kernel in kernels:
        if all(a in first for a in owned[kernel]):
            columns.total[kernel] = max((first[a] + widths[a] for a in owned[kernel]), default=0)


def _stack(
    context: PortContext,
    columns: Columns,
    own: list[Accumulator],
    base: int,
    together: Callable[[Accumulator, Accumulator], bool],
) -> None:
    """Lay accumulators of a function whose columns the compiler counts behind all that live together with them and
    have their place, in the order of their declarations: what a block declares lies behind what it stands in."""
    counted = [a for a in own if a not in columns.ends]
    for accumulator in sorted(counted, key=lambda a: behind(a).node.start_byte):
        met = [columns.ends[a] for a in own if a in columns.ends and together(a, accumulator)]
        number = max([base, *(e.number for e in met)])
        before = tuple(dict.fromkeys(a for e in met for a in e.behind))
        widths = [_width_text(context, a, accumulator) for a in before]
        columns.first[accumulator] = " + ".join([str(number)] * bool(number or not widths) + widths)
        columns.ends[accumulator] = End(number, (*before, accumulator))


def _width_text(context: PortContext, accumulator: Accumulator, other: Accumulator) -> str:
    """Columns of an accumulator as an expression behind the declaration of another one."""
    program, spot = context.program, behind(other)
    text = columns_at(program, accumulator, spot)
    if text is None and names_it(accumulator, spot):
        text = accumulator.home.all_columns(accumulator.size)
    if text is None and (width := _width(program, accumulator)) is not None:
        text = str(width)
    if text is None:
        at = declared_at(other)
        values = {"name": accumulator.home.title, "other": other.home.title}
        context.report(Code.COLUMNS_UNNAMED, at.function, at.function.span(at.node), **values)
    return text or "0"


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
    """Columns of all its tiles, at most; None if their number is not known, or may be another one."""
    function, extents = accumulator.function, accumulator.home.tile_extents
    tiles = [None if may_be_given(program, function, e) else program.value(function, e) for e in extents]
    counts = [t for t in tiles if t is not None]
    return math.prod(counts) * accumulator.size.columns if len(counts) == len(tiles) else None


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
