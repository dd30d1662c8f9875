# SPDX-License-Identifier: Apache-2.0
"""Two accumulators for each tile of a loop over tiles: MMAs of the next tile write one while threads store the other
one."""

from __future__ import annotations

from porter.passes.context import PortContext
from porter.passes.native.mainloop import Pipelined, in_loop
from porter.passes.native.mma_thread import OWN_THREAD, RULE
from porter.passes.native.sites import Changes
from porter.steps.step import Declared, Ring, Step

NAME = "double-buffer"
BUFFERS = 2


def take(context: PortContext, found: list[Pipelined]) -> Changes:
    """The step for all kernels. The helpers alone are others: a tile's accumulator is the one whose turn it is."""
    for kernel in found:
        if not context.helpers.tiles and not in_loop(kernel.first, kernel.function):
            raise kernel.begin.left("a next tile: a block has one")
    context.helpers.buffers = BUFFERS
    return Changes(context, RULE)


STEP = Step(
    NAME, RULE, lambda taking: take(taking.context, taking.found).make(),
    changes=Declared(rings=(Ring("accumulators", "tiles"),)), after={"mma-thread": OWN_THREAD}, follows=("tiles",),
)  # fmt: skip
