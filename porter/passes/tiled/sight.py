# SPDX-License-Identifier: Apache-2.0
"""Which accumulators are in sight at a place of a function."""

from __future__ import annotations

from tree_sitter import Node

from porter.model.functions import Function, Style
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import Handle
from porter.passes.tiled.context import TiledContext


def is_visible(context: TiledContext, handle: Handle, function: Function, at: Node) -> bool:
    """Whether a name at a place of a function is that of the accumulator."""
    found = resolve(function, at, handle.name)
    return found is not None and found.key == handle.variable.key and captured(function, handle)


def captured(function: Function, handle: Handle) -> bool:
    """Whether lambdas between a function and the accumulator's take it by reference."""
    current: Function | None = function
    while current is not None and current is not handle.function:
        if current.style is not Style.LAMBDA or not current.captures_all:
            captures = current.node.child_by_field_name("captures") if current.style is Style.LAMBDA else None
            text = current.text(captures).replace(" ", "") if captures is not None else ""
            if f"&{handle.name}" not in text:
                return False
        current = current.parent
    return True


def in_sight(context: TiledContext, function: Function, node: Node, declared: str = "") -> str:
    """Name of an accumulator at a place: the one that was declared last; another than a name that is being declared
    there, and hides what is outside."""
    seen = [h for h in context.tiled.handles.values() if h.name != declared and is_visible(context, h, function, node)]
    seen.sort(key=lambda h: h.variable.declarator.start_byte if h.variable.declarator is not None else -1)
    return seen[-1].name if seen else ""
