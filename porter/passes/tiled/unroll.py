# SPDX-License-Identifier: Apache-2.0
"""Loops over the registers of an accumulator. The compiler unrolls a long one or not by what else it sees, and where it
does not, all registers are in local memory; beside the state of an accumulator it sees more than in the original."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.facts import Layout
from porter.model.functions import Function, Style
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.text import cpp

RULE = "PTR627"
_TOLD = re.compile(rb"(?:\w*UNROLL\w*|#[ \t]*pragma\b[^\n]*|_Pragma\s*\([^)]*\))\s*\Z", re.IGNORECASE)
"""What says already how a loop behind it is unrolled."""
_LONGEST = 200


def unroll_loops(context: TiledContext) -> None:
    """Have loops unrolled that go over elements of an accumulator up to what a layout says."""
    for function in context.tiled.program.functions:
        if id(function) not in context.reached or function.style is Style.MACRO:
            continue
        for loop in function.own_nodes("for_statement"):
            start = function.span(loop).start
            told = _TOLD.search(function.file.source[max(start - _LONGEST, 0) : start])
            if told is None and _is_over_registers(context, function, loop):
                context.port.edit_once(RULE, function, Span(start, start + len("for")), cpp("unrolled"))


def _is_over_registers(context: TiledContext, function: Function, loop: Node) -> bool:
    condition, body = loop.child_by_field_name("condition"), loop.child_by_field_name("body")
    if condition is None or body is None or condition.type != "binary_expression":
        return False
    left, right = (condition.child_by_field_name(side) for side in ("left", "right"))
    call = context.tiled.tensors.call(function, right) if right is not None else None
    if left is None or left.type != "identifier" or call is None or context.activity.within(function, loop):
        return False
    if not isinstance(context.tiled.program.facts.of_call(call), Layout):
        return False
    names = [*call.args, *_indexed(function, body, function.text(left))]
    registers = [context.tiled.viewed(function, name) for name in names]
    return any(variable is not None and variable.key in context.tiled.handles for variable in registers)


def _indexed(function: Function, body: Node, index: str) -> Iterator[Node]:
    """Names that are called with an expression which has the index."""
    for node in walk(body):
        callee = node.child_by_field_name("function") if node.type == "call_expression" else None
        arguments = node.child_by_field_name("arguments")
        if callee is None or arguments is None or callee.type != "identifier":
            continue
        if any(n.type == "identifier" and function.text(n) == index for n in walk(arguments)):
            yield callee
