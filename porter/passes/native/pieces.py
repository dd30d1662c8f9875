# SPDX-License-Identifier: Apache-2.0
"""An accumulator that a loop changes register by register goes through registers in pieces, so that only a piece of it
takes registers at a time: each is loaded, changed and stored ahead of the next."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.counted import counted_from_zero, turns_inside
from porter.model.functions import Function, Style
from porter.passes import epilogue
from porter.passes.context import PortContext, qualified
from porter.passes.moves import Moves
from porter.passes.native.sites import Changes

_LEAVES = ("break_statement", "continue_statement", "return_statement", "goto_statement", "labeled_statement",
           "gnu_asm_expression", "lambda_expression", "switch_statement")  # fmt: skip


def take(context: PortContext, moves: Moves, changes: Changes) -> None:
    """The edits for every loop of which the text shows that it changes each register by itself."""
    for accumulator in context.accumulators.accumulators:
        stored = {n.id for n in moves.stores[accumulator]}
        for node in moves.loads[accumulator]:
            if node.id in stored and _alone(context, moves, accumulator, node):
                _rewrite(context, accumulator, node, changes)


def _alone(context: PortContext, moves: Moves, accumulator: Accumulator, node: Node) -> bool:
    """Whether nothing but this accumulator moves at a statement."""
    return not any(
        n.id == node.id
        for other in context.accumulators.accumulators
        if other is not accumulator and other.function is accumulator.function
        for n in (*moves.loads[other], *moves.stores[other])
    )


def _rewrite(context: PortContext, accumulator: Accumulator, node: Node, changes: Changes) -> None:
    function, home = accumulator.function, accumulator.home
    loop = counted_from_zero(function, node)
    body, begin = node.child_by_field_name("body"), node.child_by_field_name("initializer")
    if loop is None or body is None or begin is None or function.style is Style.MACRO:
        return
    if context.helpers.tracked or context.helpers.volatile_registers:
        return
    if home.depth or home.path or home.is_separate or home.field_name or home.extents != [function.text(loop.end)]:
        return
    kind = begin.child_by_field_name("type")
    if kind is None or turns_inside(function, node, loop.name):
        return
    if not _each_by_itself(function, accumulator.name, loop.name, body):
        return
    mirror = context.helpers.mirror(accumulator.element, accumulator.packed)
    for rule, span in epilogue.spans_of_moves(context, accumulator, node):
        changes.without(rule, function, span)
    mirror.updates = True
    call = f"{qualified('update' + mirror.suffix)}({accumulator.name}, {context.names.tile(accumulator)}"
    head = f"{call}, [&]({function.text(kind)} {loop.name}) "
    whole, inner = function.span(node), function.span(body)
    start = context.before(function, node).start
    pad = context.indent(function, whole) if function.file.source[start - 1 : start] == b"\n" else ""
    if body.type == "compound_statement":
        changes.replace(function, Span(start, inner.start), pad + head)
        changes.replace(function, Span(inner.end, whole.end), ");")
    else:
        changes.replace(function, Span(start, inner.start), pad + head + "{ ")
        changes.replace(function, Span(inner.end, whole.end), " });")


def _each_by_itself(function: Function, registers: str, index: str, body: Node) -> bool:
    """Whether a turn of a loop names registers as that of its index alone, and stays in the loop."""
    if body.type not in ("compound_statement", "expression_statement") or any(n.type in _LEAVES for n in walk(body)):
        return False
    named = (n.parent for n in find(body, "identifier") if function.text(n) == registers)
    return all(n is not None and "".join(function.text(n).split()) == f"{registers}[{index}]" for n in named)
