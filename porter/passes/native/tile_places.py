# SPDX-License-Identifier: Apache-2.0
"""What functions of a kernel call the place of a tile among the rows or columns of a product: where it is loaded, and
where it is stored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function
from porter.model.program import Program
from porter.passes.native.sites import Place


@dataclass(frozen=True)
class TilePlace:
    """An expression, `text`, that counts `factor` rows or columns each."""

    text: str
    root: Node
    factor: int

    def over(self, half: str) -> str:
        return half if self.factor == 1 else f"({half} / {self.factor})"

    def times(self, name: str) -> str:
        return name if self.factor == 1 else f"{name} * {self.factor}"


def place_of_tile(program: Program, place: Place, coordinate: Node) -> TilePlace:
    """The place that a coordinate of a load is a multiple of.

    Raises:
        Left: it is not one.
    """
    function = place.function
    constants = program.constants_in(function)
    node, factor = _plain(coordinate), 1
    if node.type == "binary_expression" and function.text(node.children[1]) == "*":
        sides = [s for s in (node.child_by_field_name("left"), node.child_by_field_name("right")) if s is not None]
        numbers = [constants.evaluate(function.text(s)) for s in sides]
        if len(sides) == 2 and (numbers[0] is None) != (numbers[1] is None):
            node, factor = _plain(sides[numbers[0] is not None]), numbers[0] or numbers[1] or 0
    root = _root(node)
    if root is None or factor <= 0:
        raise place.left(f"`{function.text(coordinate)}` as a multiple of the tile's place")
    return TilePlace(spelled(function, node), root, factor)


def mentions(function: Function, nodes: Sequence[Node], text: str) -> Iterator[Node]:
    """Where an expression stands below nodes."""
    for node in nodes:
        found = [n for n in find(node, "identifier", "call_expression", "field_expression")
                 if spelled(function, n) == text]  # fmt: skip
        yield from (n for n in found if _is_whole(n))


def spelled(function: Function, node: Node) -> str:
    return "".join(function.text(node).split())


def as_text(function: Function, start: int, end: int) -> str:
    return function.file.source[start + function.shift : end + function.shift].decode("utf-8", "replace")


def _plain(node: Node) -> Node:
    while node.type == "parenthesized_expression" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


def _root(node: Node) -> Node | None:
    """The variable that a place is, or is asked of: by a member, or by a method without arguments."""
    if node.type == "call_expression":
        called, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if called is None or called.type != "field_expression" or given is None or given.named_children:
            return None
        node = called
    if node.type == "field_expression":
        held = node.child_by_field_name("argument")
        return held if held is not None and held.type == "identifier" else None
    return node if node.type == "identifier" else None


def _is_whole(node: Node) -> bool:
    """Whether a name is not a part of a longer one."""
    above = node.parent
    if above is None:
        return True
    if above.type == "field_expression":
        held = above.child_by_field_name("argument")
        return held is None or held.id != node.id
    called = above.child_by_field_name("function")
    return above.type != "call_expression" or called is None or called.id != node.id


def summand(text: str) -> str:
    """An expression that something may be added to."""
    return f"({text})" if re.search(r"[?<>=&|^,]", text) else text
