# SPDX-License-Identifier: Apache-2.0
"""The step from M=64 to M=128: taken for all kernels of a source set, or left out with the fact that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from porter.diagnostics import Code
from porter.lang.text import Edit, Span
from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.model.mentions import Mentions
from porter.model.thread_values import several_dimensions
from porter.passes.context import PortContext
from porter.passes.full_rate.joining import Consumers, Missing
from porter.passes.full_rate.permuting import RULE as PERMUTING
from porter.passes.full_rate.permuting import Boxes, Permuted, permute
from porter.passes.full_rate.renaming import rename, renamed
from porter.passes.full_rate.rows import Rows
from porter.passes.full_rate.stacking import TILES, Stack
from porter.passes.full_rate.turns import turns
from porter.passes.full_rate.waiting import Waiting
from porter.passes.moves import Moves
from porter.passes.needs import NOTHING, Common
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP

RULE = "PTR180"
ALONE = "one warpgroup runs its MMAs, and none of another can be joined with them"
"""What is said of a kernel whose one warpgroup has no two tiles below each other."""


@dataclass(frozen=True)
class HostSide:
    """What stands beside kernels: the `boxes` of tensor maps that host code makes, None where nobody reads it; whether
    the port is for `both_chips`, with one host code."""

    boxes: Boxes | None = None
    both_chips: bool = False


@dataclass
class _Found:
    """The edits with which one MMA does the work of two tiles; what is not known of the MMAs (`missing`), and of the
    rows that other warps then have (`rows`); the edits of these, which are not needed where rows stay."""

    stacked: bool
    edits: list[Edit] = field(default_factory=list)
    row_edits: list[Edit] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    rows: list[Missing] = field(default_factory=list)


def take(context: PortContext, common: Common, moves: Moves, host: HostSide | None = None) -> bool:
    """Whether the kernels run M=128 MMAs; what a fact is missing for stays as it is, and is named."""
    if not context.kernels:
        return False
    found = _stacked(context, common, moves) or _joined(context, common)
    missing = [*found.missing, *found.rows]
    permuted = Permuted()
    if found.rows and not found.missing and host is not None and host.boxes is not None:
        permuted = permute(context, host.boxes, host.both_chips)
        missing += [
            replace(m, what=f"nor can rows of A be loaded in another order: {m.what}") for m in permuted.missing
        ]
    names = ", ".join(k.function.name for k in context.kernels)
    if missing and not permuted.edits:
        for one in {(m.function.file.path, m.span, m.what): m for m in missing}.values():
            context.report(Code.FULL_RATE_LEFT, one.function, one.span, kernel=names, what=one.what)
        return False
    if permuted.edits:
        why = found.rows[0]
        context.report(Code.FULL_RATE_PERMUTED, why.function, why.span, kernel=names, what=why.what)
        context.edits.setdefault(PERMUTING, []).extend(permuted.edits)
        context.helpers.permuted = True
    edits = [*found.edits, *(() if permuted.edits else found.row_edits)]
    if edits or not permuted.edits:
        context.edits.setdefault(RULE, []).extend(edits)
    context.helpers.stacked, context.helpers.joined = found.stacked, not found.stacked
    if not found.stacked:
        context.helpers.issuer = context.kernels[0].roles.first * (WARPGROUP // WARP)
    return True


def _stacked(context: PortContext, common: Common, moves: Moves) -> _Found | None:
    """How one MMA makes both tiles of a warpgroup; None where its accumulators are no two tiles below each other."""
    program, owners = context.program, context.accumulators.accumulators
    homes = [a.home for a in owners]
    if not homes or any(h.depth != 1 or h.field_name or len(h.tile_extents) != 1 for h in homes):
        return None
    counts = {program.value(a.function, a.home.tile_extents[0]) for a in owners}
    if counts != {TILES} and (counts - {TILES, None} or any(k.roles.value != 1 for k in context.kernels)):
        # where the number is a template's, the tiles of two warpgroups may be what is below each other
        return None
    mentions = Mentions(program, context.accumulators)
    found = _Found(True, missing=[m for k in context.kernels if (m := _alone(context, common, k)) is not None])
    for accumulator in owners:
        kernels = [k for k in context.kernels if k.function is accumulator.function]
        at = accumulator.function.span(accumulator.variable.declaration or accumulator.function.body)
        if len(kernels) != 1 or sum(a.function is accumulator.function for a in owners) != 1:
            found.missing.append(Missing(accumulator.function, at, "its accumulator is not the only one of a kernel"))
            continue
        stack = Stack(program, accumulator)
        rows = Rows(program, context.flow.threads, kernels[0], stack)
        missing = list(stack.missing())
        found.rows += rows.missing(mentions.of(accumulator, context.flow.zeroing_of(accumulator)))
        if stack.same_a or rows.interleaved:
            return None
        if moves.stores[accumulator] or moves.tracked or context.kept_params:
            missing.append(Missing(accumulator.function, at, "its registers are written between MMAs"))
        if any(z.tile for z in context.flow.zeroing_of(accumulator)):
            missing.append(Missing(accumulator.function, at, "its tiles are set to zero one by one"))
        found.row_edits += rows.edits()
        found.missing += missing
    written = [e for all_of in context.edits.values() for e in all_of]
    for edit in found.row_edits:
        if any(e.path == edit.path and e.span.overlaps(edit.span) for e in written):
            what = "another step of the port writes the rows of a tile"
            found.rows.append(Missing(owners[0].function, edit.span, what))
    return found


def _alone(context: PortContext, common: Common, kernel: Kernel) -> Missing | None:
    """What keeps a kernel as a whole from it."""
    what = of_sources(context, common, kernel)
    if not what and kernel.roles.value is None:
        what = "how many warpgroups run its MMAs is not known"
    return Missing(kernel.function, title(kernel.function), what) if what else None


def title(function: Function) -> Span:
    return function.name_span or function.span(function.body)


def _joined(context: PortContext, common: Common) -> _Found:
    """How one MMA makes the tiles of two warpgroups."""
    found = _Found(False, missing=list(_missing(context, common)))
    if found.missing:
        return found
    dropped, found.missing = _without_turns(context)
    found.row_edits, found.rows = rename(context, [k.function for k in context.kernels], dropped, renamed())
    found.edits = dropped
    return found


def _without_turns(context: PortContext) -> tuple[list[Edit], list[Missing]]:
    """The edits that drop the named barriers on which consumers take turns."""
    edits, missing = [], []
    for kernel in context.kernels:
        sameness = Consumers(context.program, context.flow.threads, kernel).sameness
        lines, more = turns(context.program, sameness, kernel)
        edits += [Edit(function.file.path, span, b"") for function, span in lines]
        missing += more
    written = [e for found in context.edits.values() for e in found]
    for edit in edits:
        if any(e.path == edit.path and (e.span.overlaps(edit.span) or edit.span.start < e.span.start < edit.span.end)
               for e in written):  # fmt: skip
            function = context.kernels[0].function
            missing.append(Missing(function, edit.span, "another step of the port writes where consumers take turns"))
    return edits, missing


def _missing(context: PortContext, common: Common) -> Iterator[Missing]:
    for kernel in context.kernels:
        whole = of_sources(context, common, kernel) or of_kernel(context.kernels[0].roles.first, kernel)
        if whole:
            yield Missing(kernel.function, title(kernel.function), whole)
        else:
            consumers = Consumers(context.program, context.flow.threads, kernel)
            yield from consumers.missing()
            yield from Waiting(context.program, context.flow.threads, consumers.sameness, kernel).missing()


def of_sources(context: PortContext, common: Common, kernel: Kernel) -> str:
    """What keeps a kernel at M=64 whichever tiles could become one."""
    if common != NOTHING:
        return "its helpers stand in a header that kernels of other files share"
    if kernel.function.template_params and kernel.function.file.path != context.program.sources.root:
        return "it is a template in a header, which other files may instantiate"
    if not kernel.roles.exact:
        return "its block size is not known"
    return "its blocks have more than one dimension" if several_dimensions(context.program) else ""


def of_kernel(first: int, kernel: Kernel) -> str:
    """What keeps two warpgroups of a kernel from one MMA, where those of the file begin with `first`."""
    roles = kernel.roles
    if roles.first != first:
        return "another kernel of the file has its consumers in other warpgroups"
    if roles.value == 1:
        return ALONE
    if roles.value not in (None, 2):
        return f"{roles.value} warpgroups run its MMAs, not two"
    return ""
