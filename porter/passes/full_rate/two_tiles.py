# SPDX-License-Identifier: Apache-2.0
"""One MMA makes both tiles of a warpgroup, which are below each other."""

from __future__ import annotations

from porter.model.kernels import Kernel
from porter.model.mentions import Mentions
from porter.passes.context import PortContext
from porter.passes.full_rate.proposing import Proposal, narrow, of_mmas, of_sources, written_over
from porter.passes.full_rate.tiles import TILES, Tiles
from porter.passes.native.sites import Left
from porter.passes.needs import Common


def two_tiles(context: PortContext, common: Common) -> Proposal | None:
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
    found = Proposal(True, missing=[m for k in context.kernels if (m := _alone(context, common, k)) is not None])
    for accumulator in owners:
        kernels = [k for k in context.kernels if k.function is accumulator.function]
        at = accumulator.function.span(accumulator.variable.declaration or accumulator.function.body)
        if len(kernels) != 1 or sum(a.function is accumulator.function for a in owners) != 1:
            found.missing.append(Left(accumulator.function, at, "its accumulator is not the only one of a kernel"))
            continue
        tiles = Tiles(program, kernels[0], accumulator)
        found.rows += tiles.rows(mentions.of(accumulator, context.flow.zeroing_of(accumulator)))
        if tiles.same_a() or tiles.interleaved:
            return None
        if not tiles.terms and not found.rows:
            found.rows.append(Left(accumulator.function, at, "nothing tells which rows of a tile a warp has"))
        found.row_edits += tiles.edits()
    for function, span, step, _ in of_mmas(program):
        found.missing += narrow(function, span, step)
        if step.a_registers:
            found.missing.append(Left(function, span, "A comes from registers, for each tile of a warpgroup"))
    if over := written_over(context, found.row_edits):
        found.rows.append(Left(owners[0].function, over, "another step of the port writes the rows of a tile"))
    return found


def _alone(context: PortContext, common: Common, kernel: Kernel) -> Left | None:
    """What keeps a kernel as a whole from it."""
    what = of_sources(context, common, kernel)
    if not what and kernel.roles.value is None:
        what = "how many warpgroups run its MMAs is not known"
    return Left(kernel.function, kernel.function.head, what) if what else None
