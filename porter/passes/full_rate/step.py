# SPDX-License-Identifier: Apache-2.0
"""The step from M=64 to M=128: taken for all kernels of a source set, or left out with the fact that is missing."""

from __future__ import annotations

from collections.abc import Iterator

from porter.diagnostics import Code
from porter.lang.text import Edit, Span
from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.model.mentions import Mentions
from porter.model.thread_values import several_dimensions
from porter.passes.context import PortContext
from porter.passes.full_rate.joining import Consumers, Missing
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


def take(context: PortContext, common: Common, moves: Moves) -> bool:
    """Whether the kernels run M=128 MMAs; what a fact is missing for stays as it is, and is named."""
    if not context.kernels:
        return False
    edits, found = _stacked(context, common, moves)
    stacked = edits is not None and not found
    if edits is None:
        edits, found = _joined(context, common)
    names = ", ".join(k.function.name for k in context.kernels)
    for one in {(m.function.file.path, m.span, m.what): m for m in found}.values():
        context.report(Code.FULL_RATE_LEFT, one.function, one.span, kernel=names, what=one.what)
    if found:
        return False
    context.edits.setdefault(RULE, []).extend(edits)
    context.helpers.stacked, context.helpers.joined = stacked, not stacked
    if not stacked:
        context.helpers.issuer = context.kernels[0].roles.first * (WARPGROUP // WARP)
    return True


def _stacked(context: PortContext, common: Common, moves: Moves) -> tuple[list[Edit] | None, list[Missing]]:
    """The edits with which one MMA makes both tiles of a warpgroup, and what is not known for it; no edits where its
    accumulators are no two tiles below each other."""
    program, owners = context.program, context.accumulators.accumulators
    homes = [a.home for a in owners]
    if not homes or any(h.depth != 1 or h.field_name or len(h.tile_extents) != 1 for h in homes):
        return None, []
    counts = {program.value(a.function, a.home.tile_extents[0]) for a in owners}
    if counts != {TILES} and (counts - {TILES, None} or any(k.roles.value != 1 for k in context.kernels)):
        # where the number is a template's, the tiles of two warpgroups may be what is below each other
        return None, []
    mentions = Mentions(program, context.accumulators)
    found = [m for k in context.kernels if (m := _alone(context, common, k)) is not None]
    edits: list[Edit] = []
    for accumulator in owners:
        kernels = [k for k in context.kernels if k.function is accumulator.function]
        at = accumulator.function.span(accumulator.variable.declaration or accumulator.function.body)
        if len(kernels) != 1 or sum(a.function is accumulator.function for a in owners) != 1:
            found.append(Missing(accumulator.function, at, "its accumulator is not the only one of a kernel"))
            continue
        stack = Stack(program, accumulator)
        rows = Rows(program, context.flow.threads, kernels[0], stack)
        missing = [*stack.missing(), *rows.missing(mentions.of(accumulator, context.flow.zeroing_of(accumulator)))]
        if stack.same_a or rows.interleaved:
            return None, []
        if moves.stores[accumulator] or moves.tracked or context.kept_params:
            missing.append(Missing(accumulator.function, at, "its registers are written between MMAs"))
        if any(z.tile for z in context.flow.zeroing_of(accumulator)):
            missing.append(Missing(accumulator.function, at, "its tiles are set to zero one by one"))
        edits += rows.edits()
        found += missing
    written = [e for all_of in context.edits.values() for e in all_of]
    for edit in edits:
        if any(e.path == edit.path and e.span.overlaps(edit.span) for e in written):
            found.append(Missing(owners[0].function, edit.span, "another step of the port writes the rows of a tile"))
    return edits, found


def _alone(context: PortContext, common: Common, kernel: Kernel) -> Missing | None:
    """What keeps a kernel as a whole from it."""
    what = of_sources(context, common, kernel)
    if not what and kernel.roles.value is None:
        what = "how many warpgroups run its MMAs is not known"
    return Missing(kernel.function, title(kernel.function), what) if what else None


def title(function: Function) -> Span:
    return function.name_span or function.span(function.body)


def _joined(context: PortContext, common: Common) -> tuple[list[Edit], list[Missing]]:
    """The edits with which one MMA makes the tiles of two warpgroups, and what is not known for it."""
    found = list(_missing(context, common))
    if found:
        return [], found
    dropped, found = _without_turns(context)
    edits, more = rename(context, [k.function for k in context.kernels], dropped, renamed())
    return [*edits, *dropped], [*found, *more]


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
