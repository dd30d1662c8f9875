# SPDX-License-Identifier: Apache-2.0
"""CTAs multiply in pairs, where MMAs are those of a tiled MMA of a library and stages those of its pipeline.

As for MMAs that the sources issue themselves, a pair does what one CTA did, for half the rows and half the columns of
the product. Types of the library stay: layouts, boxes and parts of threads are those of one CTA's tile. Sums of each
half of the columns are stored as those of a tile were, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from porter.model.functions import Style
from porter.passes.native import mma_thread, release
from porter.passes.native.grids import in_pairs
from porter.passes.native.mainloop import in_loop
from porter.passes.native.pair import CTAS, Side
from porter.passes.native.sites import Changes, Place
from porter.passes.native.texts import ported_text
from porter.passes.native.tile_edges import counts_parts
from porter.passes.native.tile_places import TilePlace, place_of_tile, summand
from porter.passes.native.tiled_loads import Load, Loads
from porter.passes.native.tiled_mainloop import barriers_of
from porter.passes.native.tiled_mma_thread import TiledMove
from porter.passes.native.tiled_pair_stores import TiledStores
from porter.passes.native.tiled_pipeline import PipelineObject, change_class
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.text import cpp
from porter.ptx.tmem import LANES
from porter.ptx.umma import Kind, legal_n


@dataclass(eq=False)
class TiledPair(TiledStores):
    """The step for one kernel."""

    tiled: TiledContext = field(kw_only=True)
    of_tiles: ClassVar[bool] = False
    """Whether blocks have a tile each, by their place in a grid of two dimensions."""

    def _moved(self) -> TiledMove:
        move = TiledMove(self.kernel, Changes(self.context, mma_thread.RULE))
        move.find()
        return move

    @staticmethod
    def _helper(name: str) -> str:
        return f"porter::{name}"

    # --- What has to be known

    def _sums(self) -> None:
        kernel = self.kernel
        if not self.context.helpers.joined:
            raise kernel.begin.left(f"MMAs of {LANES} rows for two consumers")
        if self.function is not kernel.kernel.function or len(kernel.handles) != 1:
            raise kernel.begin.left("one accumulator in the kernel itself")
        self._in_loop()

    def _in_loop(self) -> None:
        if not in_loop(self.kernel.first, self.function):
            raise self.kernel.begin.left("a loop over tiles: halves of a product are in whole tiles")

    def _alone(self) -> None:
        super()._alone()
        self.pipeline = self._pipeline()

    def _pipeline(self) -> PipelineObject:
        """The pipeline whose stages both CTAs fill.

        Raises:
            Left: there is something else with mbarriers, or it begins where warps do different things.
        """
        kernel = self.kernel
        names = {n for o in kernel.walk.operations if (n := barriers_of(o))}
        if len(names) != 1:
            raise kernel.begin.left("stages of one pipeline of the library")
        found = PipelineObject(kernel.program, self.function, names.pop())
        statement = found.declaration
        while statement.type != "declaration" and statement.parent is not None:
            statement = statement.parent
        setup = next(k.setup for k in self.tiled.kernels if k.function is self.function)
        outermost = statement.parent is not None and statement.parent.id == self.function.body.id
        if not outermost or statement.end_byte > setup.start_byte:
            raise Place(self.function, statement).left("a pipeline that begins ahead of what warps do apart")
        return found

    @cached_property
    def boxes(self) -> list[Load]:
        return Loads(self.kernel, self._reached()).all()

    def _sides(self) -> tuple[Side, Side]:
        launch, kernel = self.launch, self.kernel
        assert launch is not None
        maps = {m.param: m for m in launch.maps}
        self.groups: list[list[Load]] = []
        for operand in ("a", "b"):
            memory = self._memory_of(operand)
            self.groups.append([load for load in self.boxes if {load.memory} == memory])
        if any(len(g) != 1 for g in self.groups) or len(self.boxes) != CTAS:
            raise kernel.begin.left("one load that brings A and one that brings B")
        dims = []
        for (load,) in self.groups:
            found = maps.get(load.map)
            if found is None or len(found.dims) != CTAS or len(found.box) != CTAS:
                raise load.place.left("the tensor map of what is loaded, of two dimensions")
            dims.append(found.dims)
        depth = set(dims[0]) & set(dims[1])
        if len(depth) != 1 or dims[0].index(next(iter(depth))) != dims[1].index(next(iter(depth))):
            raise kernel.begin.left("which dimension of A and B is that of the sum")
        index = 1 - dims[0].index(next(iter(depth)))
        given = {text: name for name, text in launch.sizes}
        sizes = [given.get(d[index], "") for d in dims]
        if not all(sizes) or sizes[0] == sizes[1]:
            raise kernel.begin.left("rows and columns of the product as parameters of the kernel")
        tiles = [maps[load.map].box[index] for (load,) in self.groups]
        widest = max(legal_n(Kind.F16, CTAS)) // CTAS
        if tiles[0] != str(LANES) or not tiles[1].isdigit() or int(tiles[1]) > widest:
            raise kernel.begin.left(f"boxes of {LANES} rows of A, and of at most {widest} of B")
        self.places = [self._place_of(load, index, int(tile)) for (load,), tile in zip(self.groups, tiles, strict=True)]
        rows, columns = (Side(s, index, (), int(t), self._half(s)) for s, t in zip(sizes, tiles, strict=True))
        self.parts = [self._counts_parts(side) for side in (rows, columns)]
        return rows, columns

    def _counts_parts(self, side: Side) -> bool:
        found = counts_parts(self.program, self.function, self._reached(), side.size)
        if found is None:
            raise self.kernel.begin.left(f"whether tiles that are not whole are counted, of `{side.size}` in tiles")
        return found

    def _memory_of(self, operand: str) -> set[str]:
        """The shared memory that MMAs read an operand from."""
        loads, kernel = Loads(self.kernel, self._reached()), self.kernel
        found: set[str] = set()
        for multiply in self.tiled.tiled.multiplies:
            frames = [s.frame for o in kernel.multiplies for s in o.sites
                      if s.frame.function is multiply.call.caller and s.node.id == multiply.call.node.id]  # fmt: skip
            for frame in frames:
                found |= loads.memory(frame, getattr(multiply, operand))
        return found

    def _place_of(self, load: Load, index: int, tile: int) -> TilePlace:
        found = place_of_tile(self.program, load.place, load.coords[index])
        if found.factor not in (1, tile):
            text = load.place.function.text(load.coords[index])
            raise load.place.left(f"tiles of {tile}, counted one by one or as what they hold: `{text}`")
        return found

    # --- The kernel, for half of a product

    def _waits(self) -> None:
        """Those of the library are for both CTAs as they are."""

    # --- The two CTAs

    def take(self) -> None:
        self._of_pipeline()
        for (load,), place, side in zip(self.groups, self.places, self.sides, strict=True):
            self._loaded(load, place, side)
        self._epilogue()
        self._declared()
        in_pairs(self.program, self.function, self.changes, tiles=self.of_tiles)

    def _of_pipeline(self) -> None:
        """Bytes of both CTAs count on the mbarriers of the first, and commits arrive on those of both."""
        given, text = self.pipeline.arguments, self.function.text
        span = self.function.span
        self.changes.replace(self.function, span(given[1]), cpp("params_of_pair", params=text(given[1])))
        self.changes.replace(self.function, span(given[2]), cpp("cluster_of_pair"))
        single = Changes(self.context, release.RULE)
        change_class(self.program, single, self.function)
        single.unmake()
        change_class(self.program, self.changes, self.function, pairs=True)

    def _loaded(self, load: Load, place: TilePlace, side: Side) -> None:
        function = load.call.caller
        if function.style is Style.MACRO:
            raise load.place.left("loads outside of macros")
        half = self._half_of_loads(load, place, side)
        coordinate = load.coords[side.index]
        text = cpp("of_second_cta", coordinate=summand(ported_text(self.context, function, function.span(coordinate))),
                   half=half)  # fmt: skip
        self.changes.replace(function, function.span(load.callee), cpp("load_of_pair"))
        self.changes.whole(function, function.span(coordinate), text)

    def _half_of_loads(self, load: Load, place: TilePlace, side: Side) -> str:
        """How far what the second CTA loads is from what the first one does."""
        return side.half if load.frame.outer is None else Loads(self.kernel, []).name_of(load, side.size)


__all__ = ["TiledPair"]
