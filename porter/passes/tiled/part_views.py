# SPDX-License-Identifier: Apache-2.0
"""Views that may be of some tiles of an accumulator alone: by functions that take a part, pointers that are moved, and
layouts of their own; and macros, whose text is not followed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function
from porter.passes.full_rate.missing import Missing
from porter.passes.tiled.row_copies import RowCopies
from porter.passes.tiled.tile_uses import TileUses

_MOVED = "may lead to one tile of an accumulator, whose rows are not known then"
_PARTLY = "may be a part of an accumulator, and which rows that means is not known"
_MACRO = "is a macro that is handed registers of an accumulator, or names them"


@dataclass(eq=False)
class PartViews:
    """Asks about functions that kernels come to."""

    tiles: TileUses
    copies: RowCopies

    def missing(self) -> Iterator[Missing]:
        program = self.tiles.context.tiled.program
        named = {h.name for h in self.tiles.context.tiled.handles.values()}
        naming = {
            name
            for name, macros in program.macros.by_name.items()
            if any(named & set(re.findall(r"\w+", m.joined.decode("utf-8", "replace"))) for m in macros)
        }
        for function in self.tiles.functions:
            for call in self.tiles.own_nodes(function, "call_expression"):
                yield from self._of_call(function, call)
            for moved in self.tiles.own_nodes(
                function, "binary_expression", "assignment_expression", "update_expression"
            ):
                if any(self._leads(function, n) for n in self._moved(function, moved)):
                    yield self._at(function, moved, _MOVED)
            for name in self.tiles.own_nodes(function, "identifier"):
                if function.text(name) in naming and function.text(name) not in named:
                    yield self._at(function, name, _MACRO)

    def _at(self, function: Function, node: Node, what: str) -> Missing:
        text = " ".join(function.text(node).split())
        return Missing(function, function.span(node), f"`{text}` {what}")

    def _of_call(self, function: Function, call: Node) -> Iterator[Missing]:
        callee, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        given = [n for n in arguments.named_children if n.type != "comment"] if arguments is not None else []
        if callee is None or not given:
            return
        whole = [n for n in given if self.copies.is_whole(function, n)]
        if whole and function.text(callee) in self.tiles.context.tiled.program.macros.by_name:
            yield self._at(function, call, _MACRO)
            return
        found = self.tiles.library.named(function, call)
        if found is None or found[1]:
            return
        if whole and not self._is_of_all(function, call, found[0]):
            yield self._at(function, call, _PARTLY)
        if any(self._is_address(function, n) for n in given) and not any(self._is_layout(function, n) for n in given):
            yield self._at(function, call, _PARTLY)

    def _is_of_all(self, function: Function, call: Node, name: str) -> bool:
        """Whether a call does the same with all elements, or gives all of them."""
        library, word = self.tiles.library, name.rpartition("::")[2]
        are = self.tiles.context.tiled.program.vocabulary.spellings.are
        if are("taking_a_part", word):
            return False
        known = library.computes(function, call) or library.keeps(function, call, True) or are("giving_all", word)
        return known or self.tiles.context.tiled.tensors.makes_registers(function, call)

    def _is_address(self, function: Function, node: Node) -> bool:
        """Whether an argument is where the registers of an accumulator are."""
        callee = node.child_by_field_name("function") if node.type == "call_expression" else None
        base = callee.child_by_field_name("argument") if callee is not None else None
        return callee is not None and callee.type == "field_expression" and base is not None and (
            self._leads(function, base) and not self.tiles.library.asks_for_shape(function, node)
            and not self._is_layout(function, node)
        )  # fmt: skip

    def _is_layout(self, function: Function, node: Node) -> bool:
        """Whether an argument is made of the layout of an accumulator."""
        for call in find(node, "call_expression"):
            callee = call.child_by_field_name("function")
            named = self.tiles.library.named(function, call)
            are = self.tiles.context.tiled.program.vocabulary.spellings.are
            if named is None or callee is None or not are("layout_of_tensor", named[0].rpartition("::")[2]):
                continue
            if any(self._leads(function, n) for n in find(call, "identifier")):
                return True
        if node.type == "identifier":
            variable = self.tiles.variable(function, node)
            value = variable.declarator.child_by_field_name("value") if variable and variable.declarator else None
            return value is not None and variable is not None and self._is_layout(variable.function, value)
        return False

    def _moved(self, function: Function, node: Node) -> Iterator[Node]:
        sign = function.text(node.children[1]) if len(node.children) > 1 else ""
        if node.type == "binary_expression" and sign not in ("+", "-"):
            return
        if node.type == "assignment_expression" and sign == "=":
            return
        sides = ("left",) if node.type == "assignment_expression" else ("left", "right", "argument")
        for side in (node.child_by_field_name(s) for s in sides):
            if side is None:
                continue
            callee = side.child_by_field_name("function") if side.type == "call_expression" else None
            if side.type == "identifier":
                yield side
            elif callee is not None and callee.type == "field_expression":
                base = callee.child_by_field_name("argument")
                if base is not None and not self.tiles.library.asks_for_shape(function, side):
                    yield base

    def _leads(self, function: Function, name: Node) -> bool:
        variable = self.tiles.variable(function, name) if name.type == "identifier" else None
        return variable is not None and self.tiles.names.reaches(variable)
