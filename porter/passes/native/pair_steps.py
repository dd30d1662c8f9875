# SPDX-License-Identifier: Apache-2.0
"""Whether both CTAs of a pair take the same steps: each has another tile, of half of the product."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import ARRAY_DECLARATORS, Function, declared_name
from porter.model.kernels import SHARED
from porter.model.pipeline.operations import Operation
from porter.model.scopes import resolve
from porter.passes.native.sites import Left, Place, path_of
from porter.passes.native.tile_places import asked_in_turn

Key = tuple[int, int, str]
_NAME = re.compile(r"[A-Za-z_]\w*")
_COORDINATES = 2


def _follows(name: str) -> str:
    return f"steps that do not follow from the tile: `{name}` does"


def check_turns(function: Function, operations: Iterable[Operation], halves: Collection[Key]) -> None:
    """That each tile has as many steps; `halves` are variables that are others for half of a product.

    Raises:
        Left: whether a load or an MMA is done, or how often, may follow from the tile.
    """
    for site in (s for o in operations for s in o.sites if s.frame.function is function):
        for name in (n for asked in asked_in_turn(function, site.node) for n in find(asked, "identifier")):
            variable = resolve(function, name, function.text(name))
            if variable is not None and variable.key in halves:
                raise Place(function, name).left(_follows(variable.name))


def check_part(copy: Operation, index: int, halves: Collection[Key]) -> None:
    """That a load is of the same part of the sum for each tile; `index` is the other coordinate.

    Raises:
        Left: that may follow from the tile.
    """
    names = {name for _, _, name in halves}
    for word in _NAME.findall(copy.coords[1 - index]) if len(copy.coords) == _COORDINATES else ():
        if word in names:
            raise path_of(copy)[0].left(_follows(word))


def computed(function: Function, name: str, region: Span) -> None:
    """That a tile's place is computed of its number: what memory says is about tiles of the whole product. `region` is
    what is done behind the MMAs.

    Raises:
        Left: memory is read for it.
    """
    todo, seen = [name], {name}
    sets = [n for n in find(function.body, "init_declarator", "assignment_expression")
            if not region.contains(function.span(n))]  # fmt: skip
    while todo:
        name = todo.pop()
        for node in sets:
            target = declared_name(node) if node.type == "init_declarator" else node.child_by_field_name("left")
            value = node.child_by_field_name("value") or node.child_by_field_name("right")
            if target is None or value is None or function.text(target) != name:
                continue
            for read in find(value, "subscript_expression", "pointer_expression"):
                if not (_is_own_array(function, read.children[0]) or function.text(read).startswith("&")):
                    text = " ".join(function.text(read).split())
                    raise Left(function, function.span(read), f"the place of a tile by its number alone: `{text}`")
            more = {function.text(n) for n in find(value, "identifier")} - seen
            seen |= more
            todo += more


def _is_own_array(function: Function, node: Node) -> bool:
    """Whether a name is that of an array which each thread has for itself."""
    variable = resolve(function, node, function.text(node)) if node.type == "identifier" else None
    if variable is None or variable.declaration is None or variable.declarator is None:
        return False
    named = variable.declarator.child_by_field_name("declarator") or variable.declarator
    is_shared = SHARED in function.text(variable.declaration)
    return not is_shared and ARRAY_DECLARATORS[0] in (named.type, variable.declarator.type)
