# SPDX-License-Identifier: Apache-2.0
"""Pairs of CTAs whose MMAs have twice the columns: four tiles of the kernel's, two rows of two. Each CTA brings all
rows of B of one, and has the results of both in its rows: each of its two warpgroups those of one, whole."""

from __future__ import annotations

import re
from typing import Any

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function
from porter.passes.idiom.pairing import Load, Pairing
from porter.passes.idiom.site import inside
from porter.passes.idiom.text import cpp
from porter.passes.native.grids import half_grid

RULE = "PTR785"
_MEETS = re.compile(r"\b(?:__syncthreads|NamedBarrier\s*::\s*sync|cluster_sync)\b")
_MADE = ("init_declarator", "compound_literal_expression", "call_expression")


class WidePairing(Pairing):
    """Writes what CTAs of such a pair do. Raises Left, each of its functions."""

    OUTSIDE = "outside_of_wide"

    def of_columns(self) -> None:
        site, kernel = self.site, self.site.kernel
        value = site.handle.value
        tokens = [n for n in find(value, "identifier", "type_identifier") if kernel.text(n) == self.columns] \
            if value is not None else []  # fmt: skip
        if len(tokens) != 1:
            raise self.left("the columns of its tile by a name where the accumulator is declared")
        site.draft.replace(RULE, kernel, kernel.span(tokens[0]), site.of_mma(self.columns))
        text = kernel.text(kernel.body)[self.loop.last.end_byte - kernel.body.start_byte :]
        if met := _MEETS.search(text):
            raise self.left(f"warpgroups that do not meet behind MMAs: there is `{met[0]}`")

    def bytes_of_cta(self, text: str) -> str:
        return text

    def brings_b(self, load: Load, rank: str) -> None:
        self.load, self.index = load, self.brought(load, self.columns, "B", rank)
        self.axis_of_columns = None
        which = self.site.warpgroup_index
        if self.loop.turns:
            self.column = self.takes_its_own(self.index, load.function.text(self.index), "tile_column", which)
            return
        axes = set(re.findall(r"\bblockIdx\s*\.\s*([xy])\b", load.function.text(self.index)))
        if len(axes) != 1:
            raise self.left(
                "columns of a tile by a dimension of the grid where they are loaded", load.row, load.function
            )
        self.axis_of_columns = axes.pop()
        self.column = cpp("row_of_pair", row=f"int(blockIdx.{self.axis_of_columns})", rank=which)

    def beside(self, coordinates: Node | None) -> dict[str, Any]:
        given = coordinates.named_children if coordinates is not None else []
        if len(given) != 2 or not self._is_column(given[1 - self.extent]):
            raise self.left("the tile of results by its row and its column")
        column = self.column if self.axis_of_columns is None else f"({self.column})"
        return {"column": column, "columns": self.columns, "other": 1 - self.extent}

    def _is_column(self, node: Node) -> bool:
        kernel = self.site.kernel
        if self.axis_of_columns is None:
            return kernel.text(node) == self.load.function.text(self.index)
        return re.sub(r"\s", "", kernel.text(node)) in (
            f"blockIdx.{self.axis_of_columns}", f"int(blockIdx.{self.axis_of_columns})")  # fmt: skip

    def in_loop(self, extents: list[Node]) -> None:
        kernel, other = self.site.kernel, 1 - self.extent
        if len(extents) != 2 or extents[other].type != "identifier":
            raise self.left("the columns of results as a variable", self.result)
        self.halved(kernel.text(extents[other]), self.columns)

    def counts_tiles(self, function: Function, node: Node, extent: str) -> None:
        above = node.parent
        # `Tiles tiles(M, N);` may be read as the declaration of a function
        if extent == self.rows or above is None or node.type == "type_identifier":
            return
        made = above.parent if above.type in ("argument_list", "initializer_list") else None
        if made is not None and made.type in _MADE and not self._is_called(function, made):
            return
        while above is not None and above.type in ("binary_expression", "parenthesized_expression"):
            right = above.child_by_field_name("right")
            divides = right is not None and re.search(rf"\b{extent}\Z", function.text(right)) is not None
            if divides and function.text(above.children[1]) == "/" and not inside(right or node, node):
                return
            above = above.parent
        what = f"`{function.text(node)}` that alone says how many tiles there are"
        raise self.left(what, node, function)

    def _is_called(self, function: Function, node: Node) -> bool:
        """Whether something else than a loop over tiles, or a number of tiles, is made by a call."""
        callee = node.child_by_field_name("function") if node.type == "call_expression" else None
        above = node.parent
        is_value = above is not None and above.type == "init_declarator"
        return callee is not None and not is_value and not function.text(callee).endswith("ceil_div")

    def halves_grid(self) -> int | None:
        """Each place that asks for a tile's column asks for that of a warpgroup; the grid has half as many."""
        axis, kernel = self.axis_of_columns, self.site.kernel
        if axis is None:
            return None
        asked = re.compile(rf"(?:blockIdx|gridDim)\s*\.\s*{axis}\Z")
        for function in self.reached():
            for node in find(function.body, "field_expression"):
                if not asked.match(function.text(node)):
                    continue
                if function is self.load.function and inside(self.load.row, node):
                    continue
                of_results = inside(self.tile, node) or node.start_byte > self.loop.last.end_byte
                if function is not kernel or not of_results or "gridDim" in function.text(node):
                    raise self.left(f"`{function.text(node)}` where results leave alone", node, function)
                place = self._whole(node)
                alone = place.parent is not None and place.parent.type == "argument_list"
                text = self.column if alone else f"({self.column})"
                self.site.draft.replace(RULE, kernel, kernel.span(place), text)
        for caller, node, text in half_grid(self.site.program, kernel, "xy".index(axis)):
            self.site.draft.replace(RULE, caller, caller.span(node), text)
        return "xy".index(axis)

    def _whole(self, node: Node) -> Node:
        """A dimension of the grid with the conversion around it."""
        above = node.parent.parent if node.parent is not None and node.parent.type == "argument_list" else None
        return above if above is not None and self.site.kernel.text(above).startswith("int(") else node
