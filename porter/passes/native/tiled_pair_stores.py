# SPDX-License-Identifier: Apache-2.0
"""Where CTAs multiply in pairs, sums of each half of the columns are stored as those of a tile were, one after the
other: what is for these stores alone, and that they follow from the place of their tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find, inside
from porter.lang.text import Span
from porter.model.facts import Commit, RegisterFence, Wait
from porter.model.scopes import declared_names, resolve
from porter.passes.native.pair import CTAS, RULE, Pair
from porter.passes.native.sites import Changes, Place
from porter.passes.native.texts import indented, ported_text
from porter.passes.native.tile_places import TilePlace, mentions
from porter.passes.native.tiled_mainloop import TiledPipelined
from porter.passes.tiled.text import cpp


@dataclass(eq=False)
class TiledStores(Pair):
    """The part of the step that is about stores. `places` are those of a tile among rows and columns, and `parts` says
    of each whether tiles that are not whole are counted."""

    kernel: TiledPipelined
    places: list[TilePlace] = field(init=False)
    parts: list[bool] = field(init=False)

    def _is_of_stores(self, node: Node) -> bool:
        return any(inside(declaration, node) for declaration in self.of_stores)

    @cached_property
    def of_stores(self) -> list[Node]:
        """Declarations ahead of the stores whose variables these alone ask for, and not as the place of a tile."""
        function, region = self.function, self._region_span()
        self._tiles_there = [n for p in self.places for n in mentions(function, [function.body], p.text)]
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

    # --- Sums of both halves of the columns

    def _region(self) -> list[Node]:
        """Statements of the consumers behind the MMAs of a tile, but those that give stages back, wait for MMAs or lead
        to the next tile."""
        kernel, move = self.kernel, self.move
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
        part, *names = (context.names.fresh(n) for n in ("part", "pair_row", "pair_column"))
        again = self._for_each_part()
        for place in self.places:
            if next(mentions(function, [*nodes, *again], place.text), None) is None:
                what = f"that sums are stored by `{place.text}`, by which their operands are loaded"
                raise self.kernel.begin.left(what)
        renamed = Changes(context, RULE)
        for place, name in zip(self.places, names, strict=True):
            for node in mentions(function, [*nodes, *again], place.text):
                renamed.replace(function, function.span(node), name)
        renamed.make()
        (row, row_shift), (column, column_shift) = self._shifts()
        opening = cpp(
            "pair_stores",
            ctas=CTAS,
            part=part,
            own_row=names[0],
            row=row,
            row_shift=row_shift,
            outside=self._outside(names),
            own_column=names[1],
            column=column,
            column_shift=column_shift,
            width=self.sides[1].tile,
            state=self.context.names.warpgroup,
            sums=self.kernel.handles[0].name,
        )
        pad = context.indent(function, function.span(nodes[0]))
        span = self._region_span()
        inner = ported_text(context, function, span).strip("\n")
        body = indented(inner, pad, pad + "    ")
        body[0] = pad + "    " + body[0].lstrip()
        made = [line for node in again for line in self._remade(node, pad + "    ")]
        body = [*made, *body]
        text = "".join(f"\n{pad}{line}" for line in opening.splitlines()) + "".join(f"\n{line}" for line in body)
        self.changes.whole(function, span, text + f"\n{pad}}}")

    def _shifts(self) -> list[tuple[str, str]]:
        """Of rows and columns, the place of the first CTA's tile and how far that of the second is."""
        return [(self._said(p), p.over(s.half)) for p, s in zip(self.places, self.sides, strict=True)]

    def _for_each_part(self) -> list[Node]:
        """Declarations for stores alone that follow from the place of the tile."""
        function = self.function
        found: list[Node] = []
        names: set[str] = set()
        for declaration in sorted(self.of_stores, key=lambda n: n.start_byte):
            asked = {function.text(n) for n in find(declaration, "identifier")}
            if self._asks_place(declaration) or names & asked:
                found.append(declaration)
                named = (n for d in declaration.children_by_field_name("declarator") for n in declared_names(d))
                names |= {function.text(n) for n in named}
        return found

    def _asks_place(self, declaration: Node) -> bool:
        return any(next(mentions(self.function, [declaration], p.text), None) is not None for p in self.places)

    def _remade(self, declaration: Node, pad: str) -> Iterator[str]:
        function, context = self.function, self.context
        span = function.span(declaration)
        yield from indented(ported_text(context, function, span), context.indent(function, span), pad)
        self.changes.drop(Place(function, declaration))

    def _outside(self, names: list[str]) -> str:
        """Whether the kernel has no such tile."""
        found = []
        for place, name, side, parts in zip(self.places, names, self.sides, self.parts, strict=True):
            first = place.times(name)
            found.append(f"{first} >= {side.size}" if parts else f"{first} + {side.tile} > {side.size}")
        return " || ".join(found)

    def _said(self, place: TilePlace) -> str:
        """The place of a tile, as the kernel writes it."""
        node = next(mentions(self.function, [*self._region(), *self._for_each_part()], place.text))
        return self.function.text(node)
