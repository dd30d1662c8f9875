# SPDX-License-Identifier: Apache-2.0
"""What whole accumulators, and registers like theirs, are copied to and computed with: it has to be registers, or a
part that is asked for by the rows of a tiled MMA. Other copies say themselves which rows a thread has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function, Style
from porter.model.scopes import Variable
from porter.model.tiled.accumulators import Origin
from porter.passes.full_rate.missing import Missing
from porter.passes.tiled.derived import base_of
from porter.passes.tiled.tile_uses import ALL, TileUses, initial

_DEEPEST = 8
_VALUES = ("lambda_expression", "compound_literal_expression", "number_literal", "true", "false", "unary_expression")
_NUMBERS = ("primitive_type", "sized_type_specifier")


@dataclass(eq=False)
class RowCopies:
    """Asks about functions that kernels come to."""

    tiles: TileUses

    def missing(self) -> Iterator[Missing]:
        for function in self.tiles.functions:
            for call in self.tiles.own_nodes(function, "call_expression"):
                named = self.tiles.library.named(function, call)
                arguments = call.child_by_field_name("arguments")
                if named is None or named[1] or arguments is None or self._only_computes(function, call):
                    continue
                given = [n for n in arguments.named_children if n.type != "comment"]
                if not any(self.is_whole(function, n) for n in given):
                    continue
                # in front of a copy stands how it is made
                for node in given[1:] if len(given) > 2 else given:
                    if not self._has_rows(function, node, 0):
                        text = " ".join(function.text(node).split())
                        what = f"which rows `{text}` has beside those of an accumulator is not known"
                        yield Missing(function, function.span(node), what)

    def _only_computes(self, function: Function, call: Node) -> bool:
        library = self.tiles.library
        return library.computes(function, call) or library.asks_for_shape(function, call)

    def is_whole(self, function: Function, node: Node) -> bool:
        """Whether an argument is a tensor with elements of several tiles, or a part of one."""
        if node.type == "identifier":
            variable = self.tiles.variable(function, node)
            return variable is not None and self.tiles.has_tiles(function, variable)
        if node.type != "call_expression":
            return False
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        inside = list(find(arguments, "identifier")) if arguments is not None else []
        if callee is not None and callee.type == "identifier" and self.tiles.variable(function, callee) is not None:
            return any(function.text(n) == ALL for n in inside) and self.is_whole(function, callee)
        return any(self.is_whole(function, n) for n in inside) or (
            callee is not None and callee.type == "call_expression" and self.is_whole(function, callee)
        )

    def _has_rows(self, function: Function, node: Node, depth: int) -> bool:
        if depth > _DEEPEST:
            return False
        if node.type in _VALUES or self.tiles.context.tiled.program.value(function, function.text(node)) is not None:
            return True
        if node.type == "identifier":
            variable = self.tiles.variable(function, node)
            return variable is not None and self._is_of_rows(variable, depth)
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if node.type != "call_expression" or callee is None or arguments is None:
            return False
        if callee.type in ("identifier", "call_expression"):
            indexed = callee.type == "call_expression" or self.tiles.variable(function, callee) is not None
            if indexed:
                return self._has_rows(function, callee, depth + 1)
        named = self.tiles.library.named(function, node)
        if named is None:
            return False
        are = self.tiles.context.tiled.program.vocabulary.spellings.are
        name, is_method = named
        if self.tiles.context.tiled.tensors.makes_registers(function, node):
            return True
        if is_method and are("rows_by_object", name):
            return True
        if is_method and are("part_of_a_thread", name):
            base = base_of(callee)
            return self._asks(function, callee) or (base is not None and self._takes_rows(function, base, depth + 1))
        if is_method:
            base = callee.child_by_field_name("argument")
            return base is not None and self._has_rows(function, base, depth + 1)
        first = next((n for n in arguments.named_children if n.type != "comment"), None)
        return self._only_computes(function, node) and first is not None and self._has_rows(function, first, depth + 1)

    def _is_of_rows(self, variable: Variable, depth: int) -> bool:
        value = initial(variable)
        handle = self.tiles.context.tiled.handles.get(variable.key)
        if handle is not None and handle.origin is Origin.FRAGMENT:
            return True
        if variable.param is not None:
            if variable.function.style is Style.KERNEL:
                return variable.param.node is not None and "*" not in variable.function.text(variable.param.node)
            index, calls = variable.param.index, self.tiles.context.tiled.program.callers(variable.function)
            return bool(calls) and all(
                index < len(c.args) and self._has_rows(c.caller, c.args[index], depth + 1) for c in calls
            )
        kind = variable.declaration.child_by_field_name("type") if variable.declaration is not None else None
        if kind is not None and kind.type in _NUMBERS and not variable.is_reference:
            return True
        if value is None:
            return False
        return value.type == "lambda_expression" or self._has_rows(variable.function, value, depth + 1)

    def _takes_rows(self, function: Function, name: Node, depth: int) -> bool:
        """Whether a copy, or a thread's slice of one, is made of a tiled MMA that says which rows a thread has."""
        variable = self.tiles.variable(function, name)
        if variable is None or depth > _DEEPEST:
            return False
        if variable.param is not None:
            index, calls = variable.param.index, self.tiles.context.tiled.program.callers(variable.function)
            return bool(calls) and all(
                index < len(c.args)
                and (
                    self._asks(c.caller, c.args[index])
                    or ((base := base_of(c.args[index])) is not None and self._takes_rows(c.caller, base, depth + 1))
                )
                for c in calls
            )
        value = initial(variable)
        if value is None:
            return False
        if self._asks(variable.function, value):
            return True
        names = [n for n in find(value, "identifier") if self.tiles.variable(variable.function, n) is not None]
        return any(self._takes_rows(variable.function, n, depth + 1) for n in names)

    def _asks(self, function: Function, node: Node) -> bool:
        are = self.tiles.context.tiled.program.vocabulary.spellings.are
        return any(are("rows_by_argument", function.text(n)) for n in find(node, "identifier")) or any(
            are("rows_by_object", function.text(n)) for n in find(node, "field_identifier")
        )
