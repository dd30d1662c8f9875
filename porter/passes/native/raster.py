# SPDX-License-Identifier: Apache-2.0
"""Tiles in an order that L2 likes: those that run at a time share rows of A and columns of B. Which block does which
tile is another one; each tile is done once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import enclosing, find
from porter.lang.text import Span
from porter.model.counted import counted
from porter.model.functions import Function
from porter.model.pipeline.facts import HostLaunch
from porter.model.scopes import LOOPS, resolve
from porter.passes.context import PortContext, qualified
from porter.passes.native.alone import INDEX as BLOCK
from porter.passes.native.alone import check_alone
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Changes, OfFunction, Place
from porter.steps.step import Step

RULE = "PTR199"
NAME = "raster"
GROUP = 8
"""Rows of tiles in a group (CUTLASS `max_swizzle_size`, GROUP_SIZE_M of Triton's matmul)."""
INDEX = qualified("block_index") + "()"
"""What stands for `blockIdx` then, in a grid of two dimensions."""
_PARTS = {"/": "tile_quotient", "%": "tile_remainder"}
_ORDER = "a tile's row and column by the grid, or as quotient and remainder of its number"


def take(context: PortContext, found: list[Pipelined], launch: HostLaunch | None) -> Changes:
    """The edits of the step, for all kernels."""
    changes = Changes(context, RULE)
    for kernel in found:
        check_alone(kernel, launch)
        if _Raster(kernel.kernel.function, changes).take():
            context.helpers.raster_grid = True
        else:
            context.helpers.raster_numbers = True
    context.helpers.raster = GROUP
    return changes


@dataclass(eq=False)
class _Raster(OfFunction):
    function: Function
    changes: Changes

    def take(self) -> bool:
        """Gives whether the tiles are those of a grid."""
        axes = {axis for node in self.function.named(BLOCK) for axis in self._axes(node)}
        if not axes:
            raise self.lacks(_ORDER)
        if "z" in axes:
            raise self.lacks("a grid of at most two dimensions")
        if "y" in axes:
            self._grid()
        else:
            self._numbers()
        return "y" in axes

    def _axes(self, node: Node) -> str:
        above = node.parent
        text = self.function.text(above) if above is not None and above.type == "field_expression" else ""
        match = re.fullmatch(rf"{BLOCK}\s*\.\s*([xyz])", text)
        if match is None:
            raise Place(self.function, node).left(f"which dimension of `{BLOCK}` is asked for")
        return match[1]

    # --- A grid of tiles

    def _grid(self) -> None:
        """Another block's index in place of this one's, everywhere."""
        for node in self.function.named(BLOCK):
            self.changes.replace(self.function, self.function.span(node), INDEX)

    # --- Tiles that are numbered

    def _numbers(self) -> None:
        """Row and column of another number in place of those of this one."""
        parts, count = self._by_itself(), "gridDim.x"
        if not parts:
            name, count = self._number()
            parts = list(self._mentions(name))
        if {operator for _, operator in parts} != set(_PARTS):
            raise self.lacks(_ORDER)
        for node, operator in parts:
            whole = node.parent
            assert whole is not None
            right = whole.child_by_field_name("right")
            assert right is not None
            span, own, other = (self.function.span(n) for n in (whole, node, right))
            self.changes.replace(self.function, Span(span.start, span.start), qualified(_PARTS[operator]) + "(")
            self.changes.replace(self.function, Span(own.end, other.start), ", ")
            self.changes.replace(self.function, Span(span.end, span.end), f", {count})")

    def _by_itself(self) -> list[tuple[Node, str]]:
        """Quotients and remainders of the block's index, if that is all that is asked of it."""
        indices = [node.parent for node in self.function.named(BLOCK)]
        found = [(index, _part(index)) for index in indices if index is not None and enclosing(index, *LOOPS) is None]
        return found if len(found) == len(indices) and all(operator for _, operator in found) else []

    def _number(self) -> tuple[str, str]:
        """The variable that has the number of a tile, in each loop over tiles, and how many there are."""
        found = {self._of(node) for node in self.function.named(BLOCK)}
        if len(found) != 1:
            raise self.lacks(_ORDER)
        return found.pop()

    def _of(self, index: Node) -> tuple[str, str]:
        text = self.function.text
        declaration, declarator = enclosing(index, "declaration"), enclosing(index, "init_declarator")
        if declaration is None or declarator is None or len(declaration.children_by_field_name("declarator")) != 1:
            raise self.lacks(_ORDER)
        named, value = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("value")
        plain = re.compile(rf"(?:static_cast<[\w\s]+>\(|\(?\w*\)?\s*)?{BLOCK}\s*\.\s*x\)?")
        known = named is not None and named.type == "identifier" and value is not None and plain.fullmatch(text(value))
        if not known or named is None:
            raise self.lacks(_ORDER)
        name, loop = text(named), declaration.parent
        if loop is None or loop.type != "for_statement":
            return name, "gridDim.x"
        found = counted(self.function, loop)
        if found is None or found.sign != "<" or found.end.type != "identifier" or found.step != "gridDim.x":
            raise Place(self.function, loop).left(f"which numbers `{name}` has")
        return name, text(found.end)

    def _mentions(self, name: str) -> Iterator[tuple[Node, str]]:
        """Quotients and remainders of the number."""
        for node in self.function.named(name):
            variable, operator = resolve(self.function, node, name), _part(node)
            declared = variable.declaration if variable is not None else None
            if not operator or declared is None:
                continue
            if any(self.function.text(n) == BLOCK for n in find(declared, "identifier")):
                yield node, operator


def _part(node: Node) -> str:
    """The sign of what a number is divided by; empty where it is not."""
    whole = node.parent
    left, sign = (whole.child_by_field_name(n) if whole is not None else None for n in ("left", "operator"))
    return sign.type if left is not None and left.id == node.id and sign is not None and sign.type in _PARTS else ""


def reordered(text: str, instead: str) -> str:
    """A text with another place of a block, in place of `blockIdx` and of what this step writes for it."""
    return re.sub(rf"{re.escape(INDEX)}|\b{BLOCK}\b", instead, text)


STEP = Step(
    NAME, RULE, lambda taking: take(taking.context, taking.found, taking.launch).make(), follows=("release",), cost=True
)
