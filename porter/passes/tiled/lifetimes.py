# SPDX-License-Identifier: Apache-2.0
"""Which accumulators may be alive at the same time, so that they have columns of their own."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function
from porter.model.scopes import LOOPS
from porter.model.tiled.accumulators import Handle
from porter.passes.tiled.names import Names


def together(names: Names, first: Handle, second: Handle) -> bool:
    """Whether two accumulators of a function and its lambdas may be alive at the same time. They are not if their
    blocks part, or if the first is mentioned for the last time in front of the second's declaration, or of the lambda
    that has it."""
    common, one, other = _meeting(first, second)
    block: Node | None = one.parent
    if not _is_inside(other, block):
        return False
    if first.function is not common or next(find(common.body, "goto_statement"), None) is not None:
        return True
    last = _last(names, common, first)
    return last is None or last >= other.start_byte


def _meeting(first: Handle, second: Handle) -> tuple[Function, Node, Node]:
    """The innermost function around both declarations, and the statements of its own that they are or stand in."""
    around = [first.function]
    while (parent := around[-1].parent) is not None:
        around.append(parent)
    common = second.function
    at = second.declaration
    while common not in around and common.parent is not None:
        at, common = common.node, common.parent
    one = first.declaration
    if first.function is not common:
        one = around[around.index(common) - 1].node
    return common, _statement(one), at


def _statement(node: Node) -> Node:
    """The declaration that a lambda stands in, or what it is a part of."""
    current = node
    while current.parent is not None and not current.parent.type.startswith(("compound_statement", "for_", "if_")):
        current = current.parent
    return current


def _is_inside(node: Node, block: Node | None) -> bool:
    current: Node | None = node
    while current is not None:
        if block is not None and current.id == block.id:
            return True
        current = current.parent
    return False


def _is_called_there(function: Function) -> bool:
    """Whether a lambda is run where it stands, and nowhere else: a call whose callee is its text."""
    node = function.node
    while node.parent is not None and node.parent.type == "parenthesized_expression":
        node = node.parent
    call = node.parent
    callee = call.child_by_field_name("function") if call is not None and call.type == "call_expression" else None
    return callee is not None and callee.id == node.id


def _last(names: Names, function: Function, handle: Handle) -> int | None:
    """Where a function is done with an accumulator; None if a lambda that is kept uses it, or more is not known."""
    end = handle.declaration.end_byte
    for holder, name in names.of(handle):
        if names.context.tiled.only_asked(holder, name):
            continue
        while holder is not function and _is_called_there(holder) and holder.parent is not None:
            name, holder = holder.node, holder.parent
        if holder is not function:
            return None
        inner, current = name, name.parent
        while current is not None and current.id != function.body.id:
            if current.type in LOOPS and not current.start_byte <= handle.declaration.start_byte < current.end_byte:
                inner = current
            current = current.parent
        end = max(end, inner.end_byte)
    return end
