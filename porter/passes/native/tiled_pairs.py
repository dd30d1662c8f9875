# SPDX-License-Identifier: Apache-2.0
"""The step in which CTAs of a kernel with tiled MMAs of a library multiply in pairs: of blocks that take one tile after
another, or of a grid whose blocks have a tile each."""

from __future__ import annotations

from dataclasses import replace

from porter.model.pipeline.facts import HostLaunch
from porter.passes.native import pair
from porter.passes.native.pair import RULE
from porter.passes.native.sites import Changes
from porter.passes.native.taking import Taking
from porter.passes.native.tiled_grid_pair import TiledGridPair
from porter.passes.native.tiled_mainloop import TiledPipelined
from porter.passes.native.tiled_pair import TiledPair
from porter.passes.tiled.context import TiledContext


def ahead(context: TiledContext, found: list[TiledPipelined], launch: HostLaunch | None) -> None:
    """Make the edits that other steps have to find: a kernel that is run for half of a product, by pairs.

    Raises:
        Left: a fact is missing.
    """
    changes = Changes(context.port, RULE)
    _pair(context, found, launch, changes).ahead()
    changes.make()


def take(context: TiledContext, found: list[TiledPipelined], launch: HostLaunch | None) -> None:
    """Make the rest of the step's edits, behind that which gives MMAs a warp of their own.

    Raises:
        Left: a fact is missing.
    """
    changes = Changes(context.port, RULE)
    _pair(context, found, launch, changes).take()
    changes.make()
    context.port.helpers.paired = True


def _write(taking: Taking) -> None:
    """Steps that move statements find those of a pair: they are taken again behind what a pair changes."""
    launch, found = taking.launch, taking.found
    ahead(taking.context, found, launch)
    taking.rebuild()
    take(taking.context, taking.found, launch)


def _pair(context: TiledContext, found: list[TiledPipelined], launch: HostLaunch | None, changes: Changes) -> TiledPair:
    if len(found) != 1:
        raise found[0].begin.left("that the file has one kernel")
    grid = launch.grid if launch is not None and launch.grid is not None else ()
    kind = TiledGridPair if len(grid) > 1 and grid[1] != "1" else TiledPair
    return kind(found[0], changes, launch, tiled=context)


STEP = replace(pair.STEP, write=_write, dialect="cute", beside={})
