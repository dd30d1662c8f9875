# SPDX-License-Identifier: Apache-2.0
"""A CTA goes on with tiles of CTAs that have not begun: `clusterlaunchcontrol` cancels their launch and says whose tile
it is. Whoever loads, issues MMAs or stores does so in a loop over the tiles that are handed out, each at its own pace.
The launch stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import above, inside
from porter.lang.text import Span
from porter.model.pipeline.operations import Operation
from porter.model.scopes import LOOPS
from porter.passes import emit
from porter.passes.context import qualified
from porter.passes.native import mma_thread
from porter.passes.native.alone import INDEX as BLOCK
from porter.passes.native.alone import check_alone, touches_shared
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.part import Part, Places
from porter.passes.native.raster import reordered
from porter.passes.native.sites import Changes, OfFunction, Place, is_in, prefix
from porter.passes.native.taking import Taking
from porter.passes.native.texts import lines_at
from porter.passes.native.wrapping import lines_of, wrap
from porter.steps.step import Declared, Ring, Step

RULE = "PTR198"
NAME = "tiles"
_LOADING = ("copy", "arrive", "arrive_tx", "expect_tx", "wait")


def _write(taking: Taking) -> None:
    """With the threads that issue the MMAs."""
    context, found = taking.context, taking.found
    if taking.port.helpers.shares:
        raise found[0].begin.left("stages of one CTA: those of a cluster are for tiles beside each other")
    launch, ahead = taking.launch, Changes(context, RULE)
    kernels = [_Tiled(kernel, mma_thread.moved(kernel), ahead) for kernel in found]
    for one in kernels:
        one.check_loops()
        check_alone(one.kernel, launch)
        one.find()
    if len({(one.asker, len(one.loaders), len(one.kernel.consumers)) for one in kernels}) != 1:
        raise found[-1].begin.left("the same threads that load, and that store, in all kernels of the file")
    for one in kernels:
        one.ahead()
    ahead.make()
    mma_thread.take(context, found, [one.issuing for one in kernels]).make()
    helpers = context.helpers
    helpers.tiles, helpers.tile_asker, helpers.tile_loaders = True, kernels[0].asker, len(kernels[0].loaders)
    helpers.tile_storing = len(kernels[0].kernel.consumers)
    for one in kernels:
        changes = Changes(context, RULE)
        one.take(changes)
        changes.make()
        one.wrap()


@dataclass(eq=False)
class _Tiled(OfFunction):
    """One kernel. `loading` are the statements of a tile by those who load, in `loading_block`, `storing` those that
    consumers run behind their MMAs."""

    kernel: Pipelined
    move: mma_thread.Move
    changes: Changes
    """Those in front of the step that gives the thread its part."""
    loaders: frozenset[int] = frozenset()
    asker: int = 0
    loading: list[Node] = field(default_factory=list)
    storing: list[Node] = field(default_factory=list)
    issuing: mma_thread.Tiles = field(init=False)

    def __post_init__(self) -> None:
        self.function = self.kernel.function
        self.context = self.kernel.context
        self.range = self.move.range
        self.slice = self.move.slice
        self.name = self.context.names.own("tiles")
        self.passed = self.context.names.own("passed")
        self.places = Places(self.kernel, self.slice)

    # --- What is known

    def check_loops(self) -> None:
        """Raises Left: a block has several tiles."""
        if self.slice.loops:
            raise self.left(self.slice.loops[0], "that a block has one tile: it takes several in a loop")

    def find(self) -> None:
        """Find whose statements are whose."""
        self._loads()
        self._stores()
        self.issued = [n for level in self.slice.levels for n in self.slice.shows(level)]
        self.loads = Part(self.places, self.loading, self.loading[0], self._mine(self.loading))
        self.mmas = Part(self.places, [*self.issued, *self.range], self.slice.at, self._mine(self.range))
        self.stores = Part(self.places, self.storing, self.range[0], [])
        for part in (self.loads, self.mmas, self.stores):
            part.follow()

    def _mine(self, nodes: Sequence[Node]) -> list[Operation]:
        return [o for o in self.kernel.walk.operations if is_in(o, self.function, nodes)]

    def _loads(self) -> None:
        """Where stages are loaded: a block of its own, whose statements from the first that waits or loads on are for
        a tile."""
        kernel = self.kernel
        others = [o for o in kernel.walk.operations if o.kind in _LOADING and not kernel.runs(o) & kernel.consumers]
        copies = [o for o in others if o.kind == "copy"]
        site = next(s for s in copies[0].sites if s.frame.function is self.function)
        top = [site.node, *(n for n in above(site.node, self.function.body) if n.type in LOOPS)][-1]
        while top.parent is not None and top.parent.type != "compound_statement":
            top = top.parent
        block = top.parent
        if block is None or block.id == self.function.body.id:
            raise self.left(site.node, "loads in a block of their own")
        loaders = kernel.who.runs(prefix(copies[0], self.function, top)).threads
        if loaders is None:
            raise self.left(top, "loads in a block of their own")
        first = next(n for n in block.named_children if any(is_in(o, self.function, [n]) for o in others))
        self.loading = [n for n in block.named_children if n.start_byte >= first.start_byte]
        self.loaders, self.asker = loaders, min(kernel.runs(copies[0]))

    def _stores(self) -> None:
        """What consumers do behind their MMAs, up to the end of the kernel."""
        block = self.range[0].parent
        assert block is not None
        self.storing = [n for n in block.named_children if n.start_byte >= self.range[-1].end_byte]
        if not self.storing:
            raise self.kernel.begin.left("where the sums are stored")

    # --- What is written

    def ahead(self) -> None:
        """What the thread's part is made of, and counts of stages that go on."""
        for part in (self.loads, self.mmas):
            part.count(self.changes, self.passed)
        carried = frozenset(n.id for n in self.mmas.carried)
        self.issuing = mma_thread.Tiles(self._opening(self.mmas), self._head(self.mmas), carried, self._issued)
        self.lines = (
            lines_of(self.function, self._first(self.loading[0]), self._block(self.loading[0])),
            lines_of(self.function, self.function.span(self.range[0]), self._block(self.range[0])),
        )
        self.heads = (
            [*self._opening(self.loads), *self._head(self.loads), f"    {self.name}.ask();"],
            self._head(self.stores),
        )
        if self.loads.carried:
            raise self.left(self.loads.carried[0], "what loads go on with ahead of what is done for a tile")

    def _issued(self, line: str) -> str:
        """A line of the part of the thread that issues MMAs."""
        return self.mmas.counted(reordered(line, f"{self.name}.index"), self.passed)

    def _first(self, node: Node) -> Span:
        whole = self.function.span(node)
        span, _ = self.context.statement_before(self.function, node, "", above_comments=True)
        return Span(min(span.start, whole.start), whole.end)

    def _block(self, node: Node) -> Span:
        assert node.parent is not None
        return self.function.span(node.parent)

    def _opening(self, part: Part) -> list[str]:
        """What goes on from tile to tile."""
        found = [] if part.counter is None else [f"{part.counter.kind} {self.passed} = 0;"]
        for node in part.carried:
            found += lines_at(self.context, self.function, node)
        return found

    def _head(self, part: Part) -> list[str]:
        """The loop over tiles, and what follows from the tile's place."""
        opening = emit.lines("tiles", tiles_type=qualified("Tiles"), tiles=self.name, tmem=self.context.names.tmem)
        found = opening.splitlines()
        for node in part.placed():
            lines = lines_at(self.context, self.function, node)
            found += ["    " + reordered(line, f"{self.name}.index") for line in lines]
        return found

    def take(self, changes: Changes) -> None:
        """Places of tiles follow the tile, and what they replace goes."""
        for node in self.function.named(BLOCK):
            if any(inside(n, node) for n in (*self.loading, *self.storing)):
                changes.whole(self.function, self.function.span(node), f"{self.name}.index")
        for node in self.loads.turned():
            changes.replace(self.function, self.function.span(node), self.passed)
        for node in self.places.outside([*self.loading, *self.storing, *self.range]):
            span = self.function.span(node)
            mine = (e for edits in self.context.edits.values() for e in edits if e.path == self.function.file.path)
            if not any(e.span.contains(span) for e in mine):
                changes.drop(Place(self.function, node))

    def wrap(self) -> None:
        meets = touches_shared(self.kernel, self.storing)
        self.context.helpers.tile_meets |= meets
        tails = ("", f"    {qualified('end_tile')}();\n" if meets else "")
        for lines, head, tail in zip(self.lines, self.heads, tails, strict=True):
            source = self.function.file.source
            line = source[lines.start : source.find(b"\n", lines.start)]
            pad = line[: len(line) - len(line.lstrip())].decode()
            text = "".join(f"{pad}{one}\n" if one else "\n" for one in head)
            end = (f"{pad}{tail}" if tail else "") + f"{pad}}}\n"
            wrap(self.context, RULE, self.function, lines, text, end)


STEP = Step(
    NAME, RULE, _write, changes=Declared(roles=True, rings=(Ring("requests", "others' tiles"),)),
    after={mma_thread.NAME: mma_thread.OWN_THREAD}, rebuilds=(mma_thread.NAME,), cost=True,
)  # fmt: skip
