# SPDX-License-Identifier: Apache-2.0
"""CTAs multiply in pairs, where MMAs are those of a tiled MMA of a library and stages those of its pipeline.

As for MMAs that the sources issue themselves, a pair does what one CTA did, for half the rows and half the columns of
the product. Types of the library stay: layouts, boxes and parts of threads are those of one CTA's tile. Sums of each
half of the columns are stored as those of a tile were, one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.facts import Commit, Pipeline, RegisterFence, Wait
from porter.model.functions import Function, Style
from porter.model.pipeline.facts import HostLaunch
from porter.model.pipeline.operations import Site
from porter.model.scopes import LOOPS, declared_names, resolve
from porter.passes.full_rate.renaming import reached
from porter.passes.native import mma_thread, release
from porter.passes.native.grids import in_pairs
from porter.passes.native.mainloop import in_loop, inside
from porter.passes.native.pair import BLOCK, CTAS, RULE, Pair, Side
from porter.passes.native.sites import Changes, Left, Place, path_of
from porter.passes.native.texts import indented, ported_text
from porter.passes.native.tile_edges import counts_parts
from porter.passes.native.tile_places import TilePlace, mentions, place_of_tile, same, summand
from porter.passes.native.tiled_loads import Load, Loads
from porter.passes.native.tiled_mainloop import TiledPipelined, barriers_of
from porter.passes.native.tiled_mma_thread import TiledMove
from porter.passes.native.tiled_pipeline import PipelineObject, change_class
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.text import cpp
from porter.ptx.tmem import LANES
from porter.ptx.umma import Kind, legal_n

_CLUSTER = re.compile(r"cluster", re.IGNORECASE)


def ahead(context: TiledContext, found: list[TiledPipelined], launch: HostLaunch | None) -> None:
    """Make the edits that other steps have to find: a kernel that is run for half of a product, by pairs.

    Raises:
        Left: a fact is missing.
    """
    changes = Changes(context.port, RULE)
    TiledPair(_only(found), changes, launch, tiled=context).ahead()
    changes.make()


def take(context: TiledContext, found: list[TiledPipelined], launch: HostLaunch | None) -> None:
    """Make the rest of the step's edits, behind that which gives MMAs a warp of their own.

    Raises:
        Left: a fact is missing.
    """
    changes = Changes(context.port, RULE)
    TiledPair(_only(found), changes, launch, tiled=context).take()
    changes.make()
    context.port.helpers.paired = True


def _only(found: list[TiledPipelined]) -> TiledPipelined:
    if len(found) != 1:
        raise found[0].begin.left("that the file has one kernel")
    return found[0]


@dataclass(eq=False)
class TiledPair(Pair):
    """The step for one kernel."""

    kernel: TiledPipelined
    tiled: TiledContext = field(kw_only=True)

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
        if not in_loop(kernel.first, self.function):
            raise kernel.begin.left("a loop over tiles: halves of a product are in whole tiles")

    def _alone(self) -> None:
        super()._alone()
        self.pipeline = self._pipeline()
        mine = [self.pipeline.arguments[-1]]
        for function in self._reached():
            for name in find(function.body, "identifier", "type_identifier", "field_identifier"):
                at_pipeline = function is self.function and any(inside(m, name) for m in mine)
                if _CLUSTER.search(function.text(name)) and not at_pipeline:
                    raise Place(function, name).left("a kernel whose CTAs know nothing of each other")

    def _pipeline(self) -> PipelineObject:
        """The pipeline whose stages both CTAs fill.

        Raises:
            Left: there is something else with mbarriers, or it begins where warps do different things.
        """
        kernel = self.kernel
        for operation in kernel.walk.operations:
            if operation.barrier and not barriers_of(operation):
                raise path_of(operation)[0].left("stages of a pipeline of the library, and no other mbarriers")
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
        self._drained()
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
        if not same(self.program, (load.frame, found.root), (self.function, self.move.range[0])):
            raise load.place.left(f"the same `{found.text}` where sums are stored")
        self._steps(load, index, found)
        return found

    def _steps(self, load: Load, index: int, place: TilePlace) -> None:
        """That each tile has the same steps, which both CTAs take together: none follows from the tile."""
        function, node = load.call.caller, load.call.node
        loops = [n for n in _around(function, node) if n.type in LOOPS]
        if not loops:
            raise load.place.left("loads in a loop over tiles")
        names = _following(function, loops[-1], function.text(place.root))
        asked = [n for i, n in enumerate(load.coords) if i != index]
        for above in _around(function, node):
            if above.id != loops[-1].id:
                asked += [c for part in ("condition", "initializer", "update", "value")
                          if (c := above.child_by_field_name(part)) is not None]  # fmt: skip
        for one in asked:
            for name in find(one, "identifier"):
                if function.text(name) in names:
                    raise Place(function, name).left(f"steps that do not follow from the tile: `{function.text(name)}` does")

    def _drained(self) -> None:
        """That no CTA ends before the commits of the other have arrived: who loads waits for all stages."""
        kernel = self.kernel
        loading = {kernel.runs(o) for o in kernel.walk.operations if o.kind == "arrive_tx"}
        for operation in kernel.walk.operations:
            site = operation.sites[-1]
            function = site.frame.function
            for call in kernel.program.calls_by_node.get(site.node.id, ()):
                fact = kernel.program.facts.of_call(call)
                of_tail = call.caller is function and isinstance(fact, Pipeline) and fact.op == "tail"
                once = not any(in_loop(s.node, s.frame.function) for s in operation.sites)
                last = all(o.sites[-1].node.start_byte <= site.node.start_byte for o in kernel.walk.operations
                           if o.kind == "arrive_tx" and o.sites[-1].frame.function is function)  # fmt: skip
                if of_tail and once and last and loading == {kernel.runs(operation)}:
                    return
        raise kernel.begin.left(f"that who loads waits for all stages of `{self.pipeline.name}` at its end")

    # --- The kernel, for half of a product

    def _waits(self) -> None:
        """Those of the library are for both CTAs as they are."""

    def _is_of_stores(self, node: Node) -> bool:
        return any(inside(declaration, node) for declaration in self.of_stores)

    @cached_property
    def of_stores(self) -> list[Node]:
        """Declarations ahead of the stores whose variables these alone ask for, and not as the place of a tile."""
        function, region = self.function, self._region_span()
        self._tiles_there = [n for p in self.places for n in mentions(function, self._region(), p.text)]
        found = [d for d in find(function.body, "declaration") if not region.contains(function.span(d))]
        while True:
            kept = [d for d in found if self._is_asked_by(d, found, region)]
            if len(kept) == len(found):
                return found
            found = kept

    def _is_asked_by(self, declaration: Node, others: list[Node], region: Span) -> bool:
        function = self.function
        names = [n for d in declaration.children_by_field_name("declarator") for n in declared_names(d)]
        uses = [
            use for name in names for use in function.named(function.text(name))
            if use.id != name.id and not inside(declaration, use)
            and (v := resolve(function, use, function.text(use))) is not None
            and v.declaration is not None and v.declaration.id == declaration.id
        ]  # fmt: skip
        return bool(uses) and all(
            (region.contains(function.span(u)) and not any(inside(t, u) for t in self._tiles_there))
            or any(inside(o, u) for o in others)
            for u in uses
        )

    # --- The two CTAs

    def take(self) -> None:
        self._of_pipeline()
        for (load,), place, side in zip(self.groups, self.places, self.sides, strict=True):
            self._loaded(load, place, side)
        self._epilogue()
        self._declared()
        in_pairs(self.program, self.function, self.changes)

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
        half = side.half if load.frame.outer is None else Loads(self.kernel, []).name_of(load, side.size)
        coordinate = load.coords[side.index]
        text = cpp("of_second_cta", coordinate=summand(ported_text(self.context, function, function.span(coordinate))),
                   half=half)  # fmt: skip
        self.changes.replace(function, function.span(load.callee), cpp("load_of_pair"))
        self.changes.whole(function, function.span(coordinate), text)

    # --- Sums of both halves of the columns

    def _region(self) -> list[Node]:
        """Statements of the consumers behind the MMAs of a tile, but those that give stages back, wait for MMAs or lead
        to the next tile."""
        kernel, move = self.kernel, self.move
        assert isinstance(move, TiledMove)
        block = move.range[0].parent
        assert block is not None
        nodes = [n for n in block.named_children if n.start_byte > move.range[-1].start_byte]
        going = {s.id for level in move.slice.levels for s in level.statements}
        while nodes and (nodes[0].id in going or nodes[0].type == "comment" or self._is_of_batches(nodes[0])):
            nodes.pop(0)
        while nodes and nodes[-1].id in going:
            nodes.pop()
        for node in nodes:
            if node.id in going:
                raise Place(self.function, node).left("that what leads to the next tile stands behind its stores")
        if not nodes:
            raise kernel.begin.left("what is done with the sums of a tile")
        return nodes

    def _is_of_batches(self, statement: Node) -> bool:
        """Whether a statement is a wait for MMAs, or says that registers may change."""
        call = statement.named_children[0] if statement.type == "expression_statement" else None
        facts = [self.program.facts.of_call(c) for c in self.program.calls_by_node.get(call.id, ())
                 if c.caller is self.function] if call is not None else []  # fmt: skip
        return bool(facts) and all(isinstance(f, Commit | RegisterFence | Wait) for f in facts)

    def _region_span(self) -> Span:
        """Whole lines from the first statement to the last one."""
        source, nodes = self.function.file.source, self._region()
        first, last = self.function.span(nodes[0]), self.function.span(nodes[-1])
        start, end = source.rfind(b"\n", 0, first.start), source.find(b"\n", last.end)
        if source[start : first.start].strip() or source[last.end : end].strip():
            raise Place(self.function, nodes[-1]).left("statements on lines of their own")
        return Span(start, end)

    def _epilogue(self) -> None:
        function, context = self.function, self.context
        nodes = self._region()
        self._all_stored(nodes)
        part, *names = (context.names.fresh(n) for n in ("part", "pair_row", "pair_column"))
        self._stores_by_place(nodes)
        renamed = Changes(context, RULE)
        for place, name in zip(self.places, names, strict=True):
            for node in mentions(function, nodes, place.text):
                renamed.replace(function, function.span(node), name)
        renamed.make()
        (row, column), (rows, columns) = self.places, self.sides
        opening = cpp(
            "pair_stores",
            ctas=CTAS,
            part=part,
            own_row=names[0],
            row=self._said(row),
            row_shift=row.over(rows.half),
            outside=self._outside(names),
            own_column=names[1],
            column=self._said(column),
            column_shift=column.over(columns.half),
            width=columns.tile,
            state=self.context.names.warpgroup,
            sums=self.kernel.handles[0].name,
        )
        pad = context.indent(function, function.span(nodes[0]))
        span = self._region_span()
        inner = ported_text(context, function, span).strip("\n")
        body = indented(inner, pad, pad + "    ")
        body[0] = pad + "    " + body[0].lstrip()
        text = "".join(f"\n{pad}{line}" for line in opening.splitlines()) + "".join(
            f"\n{line}" for line in body
        )
        self.changes.whole(function, span, text + f"\n{pad}}}")

    def _outside(self, names: list[str]) -> str:
        """Whether the kernel has no such tile."""
        found = []
        for place, name, side, parts in zip(self.places, names, self.sides, self.parts, strict=True):
            first = place.times(name)
            found.append(f"{first} >= {side.size}" if parts else f"{first} + {side.tile} > {side.size}")
        return " || ".join(found)

    def _said(self, place: TilePlace) -> str:
        """The place of a tile, as the kernel writes it."""
        node = next(mentions(self.function, self._region(), place.text))
        return self.function.text(node)

    def _stores_by_place(self, nodes: list[Node]) -> None:
        """That what is stored follows from the tile's place, and from nothing else that is another for half of a
        product.

        Raises:
            Left: it does not.
        """
        function, known = self.function, self._of_halves()
        mine = []
        for place in self.places:
            found = list(mentions(function, nodes, place.text))
            there = resolve(function, self.move.range[0], function.text(place.root)) if found else None
            for node in found:
                root = next(n for n in (node, *find(node, "identifier")) if n.type == "identifier")
                here = resolve(function, root, function.text(root))
                if here is None or there is None or here.key != there.key:
                    raise Place(function, node).left(f"one `{place.text}` of a tile")
            if not found:
                raise self.kernel.begin.left(f"that sums are stored by `{place.text}`, by which their operands are loaded")
            mine += found
        for node in (*nodes, *self.of_stores):
            for name in find(node, "identifier"):
                variable = resolve(function, name, function.text(name))
                if variable is None or variable.key not in known or any(inside(m, name) for m in mine):
                    continue
                if variable.declaration is not None and inside(variable.declaration, name):
                    continue
                what = f"that sums are stored by the place of their tile: `{variable.name}` is of half a product"
                raise Place(function, name).left(what)
            if BLOCK.search(function.text(node).encode()):
                raise Place(function, node).left("that sums are stored by the place of their tile")
        self._callees(nodes, mine)
        self._begins_anew(nodes, mine)

    def _callees(self, nodes: list[Node], mine: list[Node]) -> None:
        """That no function which stores asks for the CTA."""
        for call in self.function.calls:
            if not any(inside(n, call.node) for n in nodes) or any(inside(m, call.node) for m in mine):
                continue
            ids = reached(self.program, self.program.targets(call))
            for function in (f for f in self.program.functions if id(f) in ids):
                if BLOCK.search(function.text(function.node).encode()):
                    raise Place(self.function, call.node).left(f"that `{call.name}` knows nothing of the CTA")

    def _begins_anew(self, nodes: list[Node], mine: list[Node]) -> None:
        """That nothing which stores ask for goes on with tiles and not with their parts."""
        function, move = self.function, self.move
        region, kernel = self._region_span(), self.kernel
        whole = move.slice.loops[0]
        exempt = {h.name for h in kernel.handles} | {h.mma[0].text(h.mma[1]) for h in kernel.handles if h.mma is not None}
        names = {function.text(n) for node in nodes for n in find(node, "identifier") if not any(inside(m, n) for m in mine)}
        for name in sorted(names - exempt):
            for use in function.named(name):
                span = function.span(use)
                variable = resolve(function, use, name)
                if not inside(whole, use) or region.contains(span) or move.span.contains(span) or variable is None:
                    continue
                declared = variable.declarator is not None and inside(variable.declarator, use)
                if not declared and move.slice.gives(function, use, variable):
                    raise Place(function, use).left(f"`{name}` as it is for all stores of a tile")

    def _asks_halves(self, node: Node, sizes: set[str], found: set[tuple[int, int, str]]) -> bool:
        if self._is_of_stores(node) or self._is_of_loads(node):
            return False
        return super()._asks_halves(node, sizes, found)

    def _is_of_loads(self, node: Node) -> bool:
        """Whether a statement is for threads that load, who have variables for themselves."""
        kernel = self.kernel
        frame = kernel.multiplies[0].sites[0].frame
        there = kernel.who.runs((Site(frame, node),)).threads
        return there is not None and not there & kernel.consumers


def _around(function: Function, node: Node) -> Iterator[Node]:
    """What a node of a function stands in, the innermost first."""
    above = node.parent
    while above is not None and above.id != function.body.id:
        yield above
        above = above.parent


def _following(function: Function, loop: Node, root: str) -> set[str]:
    """Names of variables whose values in a loop may follow from that of one of them."""
    found = {root}
    parts = ("init_declarator", "assignment_expression")
    while True:
        more = {
            function.text(name)
            for part in find(loop, *parts)
            if found & {function.text(n) for n in find(part, "identifier")}
            for target in (part.child_by_field_name("declarator") or part.child_by_field_name("left"),)
            if target is not None
            for name in ([target] if target.type == "identifier" else find(target, "identifier"))
        }
        if more <= found:
            return found
        found |= more


__all__ = ["Left", "ahead", "take"]
