# SPDX-License-Identifier: Apache-2.0
"""Where the registers of an accumulator are brought up to date: in front of statements that touch them. A load whose
registers are up to date does nothing, so that one too many is no mistake; it is done by a warp together, so that none
stands where single threads may not come by."""

from __future__ import annotations

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.text import Span
from porter.model.coherence import STATEMENT_LISTS
from porter.model.functions import Function
from porter.model.tiled.accumulators import Handle, Origin
from porter.model.tiled.activity import is_constant_branch, may_leave
from porter.passes.tiled.atoms import is_whole
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.copies import is_in_flight
from porter.passes.tiled.names import Names
from porter.passes.tiled.text import cpp

RULE = "PTR612"


def insert_loads(context: TiledContext, names: Names) -> None:
    """Load every accumulator in front of what touches its registers."""
    placed: dict[tuple[int, str], tuple[Node, Handle]] = {}
    owner: dict[int, Function] = {}
    for function, node, key in names.mentions():
        handle = context.tiled.handles[key]
        statement = _anchor(context, function, node, handle)
        if statement is None:
            what = f"registers of `{handle.name}` are used in a statement that also issues MMAs or waits for them"
            context.tiled.refuse(function, node, what, Code.ACCUMULATOR_MOVES)
            continue
        if handle.array is not None and not is_whole(context, handle):
            what = f"registers of `{handle.name}` are used in `{function.name}`, which is handed a pointer to them"
            context.tiled.refuse(function, node, what, Code.ACCUMULATOR_MOVES)
            continue
        if is_in_flight(context, names, function, node, statement, handle):
            continue
        is_local = handle.function is function and handle.origin is Origin.FRAGMENT
        if is_local and not context.activity.may_follow(function, statement):
            continue
        placed.setdefault((statement.id, handle.name), (statement, handle))
        owner[statement.id] = function
    kept: list[tuple[Node, str]] = []
    for (_, name), (statement, handle) in sorted(placed.items(), key=lambda p: p[1][0].start_byte):
        function = owner[statement.id]
        if any(n == name and _covers(context, function, s, statement) for s, n in kept):
            continue
        kept.append((statement, name))
        context.loads.append((function, statement, handle))
        at, text = _in_front(context, function, statement, cpp("load", name=name))
        context.port.edit(RULE, function, at, text)


def _in_front(context: TiledContext, function: Function, statement: Node, text: str) -> tuple[Span, str]:
    """Where a statement is put in front of another: on the line of a block that is one line, else on one of its own."""
    block, span = statement.parent, function.span(statement)
    if block is not None and block.type == "compound_statement" and block.start_point[0] == block.end_point[0]:
        return Span(span.start, span.start), f"{text} "
    return context.port.statement_before(function, statement, text)


def _anchor(context: TiledContext, function: Function, node: Node, handle: Handle) -> Node | None:
    """The statement that a load stands in front of: outside of all branches and loops without MMAs and waits, which
    single threads may not take, and in front of what lets threads leave."""
    statement = _statement(node)
    if statement is None:
        return None
    declared = handle.variable.declaration if handle.function is function else None
    while True:
        block = statement.parent
        assert block is not None
        around = block if block.type in STATEMENT_LISTS and block.type != "compound_statement" else block.parent
        if declared is not None and declared.parent is not None and declared.parent.id == block.id:
            break
        if block.id == function.body.id or around is None:
            break
        above = _statement(block)
        if is_constant_branch(above):
            # all threads take it or none
            break
        if above is None or context.activity.within(function, above):
            break
        statement = above
    if context.activity.within(function, statement):
        return statement if _reads_first(context, function, statement, node) else None
    return _before_leaving(context, function, statement, declared)


def _reads_first(context: TiledContext, function: Function, statement: Node, node: Node) -> bool:
    """Whether a statement that is active touches registers in front of all that it issues: its condition does."""
    condition = statement.child_by_field_name("condition")
    if condition is None or statement.type != "if_statement":
        return False
    inside = condition.start_byte <= node.start_byte < condition.end_byte
    return inside and not context.activity.within(function, condition)


def _before_leaving(context: TiledContext, function: Function, statement: Node, declared: Node | None) -> Node:
    """The statement, or one in front of it that lets threads leave, behind whatever is active."""
    first = statement
    previous = statement.prev_named_sibling
    while previous is not None and not context.activity.within(function, previous):
        if declared is not None and previous.id == declared.id:
            break
        if may_leave(previous):
            first = previous
        previous = previous.prev_named_sibling
    return first


def _statement(node: Node) -> Node | None:
    """The statement of a list of statements that a node stands in."""
    current = node
    while current.parent is not None:
        if current.parent.type in STATEMENT_LISTS and current.is_named:
            return current
        current = current.parent
    return None


def _covers(context: TiledContext, function: Function, first: Node, second: Node) -> bool:
    """Whether a load in front of one statement is still good in front of another: in the same list of statements, or in
    something that stands there, with nothing active on the way."""
    inner = second
    while first.parent is not None and inner.parent is not None and inner.parent.id != first.parent.id:
        inner = inner.parent
        if inner.type == "lambda_expression":
            # it is run where it is called
            return False
    if inner.parent is None or first.parent is None:
        return False
    if inner.id != second.id and context.activity.within(function, inner):
        return False
    current: Node | None = first
    while current is not None and current.id != inner.id:
        if context.activity.within(function, current):
            return False
        current = current.next_named_sibling
    return current is not None
