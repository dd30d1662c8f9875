# SPDX-License-Identifier: Apache-2.0
"""Two accumulators for each tile of a loop over tiles: MMAs of the next tile write one while threads store the other
one."""

from __future__ import annotations

from porter.passes.native.mainloop import in_loop
from porter.passes.native.mma_thread import OWN_THREAD, RULE
from porter.passes.native.taking import Taking
from porter.steps.step import Declared, Ring, Step

NAME = "double-buffer"
BUFFERS = 2


def _write(taking: Taking) -> None:
    """The helpers alone are others: a tile's accumulator is the one whose turn it is."""
    for kernel in taking.found:
        if not taking.context.helpers.tiles and not in_loop(kernel.first, kernel.function):
            raise kernel.begin.left("a next tile: a block has one")
    taking.context.helpers.buffers = BUFFERS


STEP = Step(
    NAME, RULE, _write, changes=Declared(rings=(Ring("accumulators", "tiles"),)), after={"mma-thread": OWN_THREAD},
    follows=("tiles",),
)  # fmt: skip
