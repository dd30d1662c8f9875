# SPDX-License-Identifier: Apache-2.0
"""An accumulator that a loop changes register by register goes through registers in pieces, so that only a piece of it
takes registers at a time: each is loaded, changed and stored ahead of the next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.functions import Function, Style
from porter.passes import epilogue
from porter.passes.context import PortContext, qualified
from porter.passes.moves import Moves
from porter.passes.native.sites import Changes

_LEAVES = ("break_statement", "continue_statement", "return_statement", "goto_statement", "labeled_statement",
           "gnu_asm_expression", "lambda_expression", "switch_statement")  # fmt: skip
_WRITES = ("assignment_expression", "update_expression", "pointer_expression")


@dataclass(frozen=True)
class _Loop:
    """`for (kind index = 0; index < extent; ++index) body`."""

    kind: str
    index: str
    extent: str
    body: Node


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
    loop = _loop(function, node)
    if loop is None or function.style is Style.MACRO or context.helpers.tracked or context.helpers.volatile_registers:
        return
    if home.depth or home.path or home.is_separate or home.field_name or home.extents != [loop.extent]:
        return
    if not _each_by_itself(function, accumulator.name, loop):
        return
    mirror = context.helpers.mirror(accumulator.element, accumulator.packed)
    for rule, span in epilogue.spans_of_moves(context, accumulator, node):
        changes.without(rule, function, span)
    mirror.updates = True
    call = f"{qualified('update' + mirror.suffix)}({accumulator.name}, {context.names.tile(accumulator)}"
    head = f"{call}, [&]({loop.kind} {loop.index}) "
    whole, body = function.span(node), function.span(loop.body)
    start = context.before(function, node).start
    pad = context.indent(function, whole) if function.file.source[start - 1 : start] == b"\n" else ""
    if loop.body.type == "compound_statement":
        changes.replace(function, Span(start, body.start), pad + head)
        changes.replace(function, Span(body.end, whole.end), ");")
    else:
        changes.replace(function, Span(start, body.start), pad + head + "{ ")
        changes.replace(function, Span(body.end, whole.end), " });")


def _loop(function: Function, node: Node) -> _Loop | None:
    """A loop from 0 upwards, one by one."""
    if node.type != "for_statement":
        return None
    begin, condition, update, body = (
        node.child_by_field_name(n) for n in ("initializer", "condition", "update", "body")
    )
    if begin is None or condition is None or update is None or body is None or begin.type != "declaration":
        return None
    first = re.fullmatch(r"([\w:]+(?:\s+\w+)*)\s+(\w+)\s*=\s*0[uU]?\s*;", function.text(begin).strip())
    if first is None:
        return None
    index = re.escape(first[2])
    last = re.fullmatch(rf"{index}\s*(?:<|!=)\s*(.+)", function.text(condition).strip(), re.DOTALL)
    if last is None or not re.fullmatch(rf"\+\+\s*{index}|{index}\s*\+\+|{index}\s*\+=\s*1", function.text(update)):
        return None
    return _Loop(first[1], first[2], last[1].strip(), body)


def _each_by_itself(function: Function, registers: str, loop: _Loop) -> bool:
    """Whether a turn of a loop names the registers only as that of its index, does not change the index, and cannot
    leave the loop."""
    body = loop.body
    if body.type not in ("compound_statement", "expression_statement") or any(_any(body, *_LEAVES)):
        return False
    for name in find(body, "identifier"):
        text = function.text(name)
        if text == loop.index and _is_written(name):
            return False
        if text == registers and not _is_its_own(function, name, loop.index):
            return False
    declared = [n for d in find(body, "declaration") for n in find(d, "identifier")]
    return not any(function.text(n) in (registers, loop.index) and _declares(n) for n in declared)


def _any(node: Node, *types: str) -> Iterator[Node]:
    yield from (n for n in walk(node) if n.type in types)


def _is_its_own(function: Function, name: Node, index: str) -> bool:
    above = name.parent
    if above is None or above.type != "subscript_expression":
        return False
    if re.fullmatch(rf"{re.escape(function.text(name))}\s*\[\s*{re.escape(index)}\s*\]", function.text(above)) is None:
        return False
    # its address may be taken to another one's
    return above.parent is None or above.parent.type != "pointer_expression"


def _is_written(name: Node) -> bool:
    above = name.parent
    if above is None or above.type not in _WRITES:
        return False
    left = above.child_by_field_name("left")
    return left is None or left.id == name.id


def _declares(name: Node) -> bool:
    above = name.parent
    if above is None:
        return False
    inner = above.child_by_field_name("declarator")
    return inner is not None and inner.id == name.id
