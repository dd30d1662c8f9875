# SPDX-License-Identifier: Apache-2.0
"""Registers that are kept true go to Tensor Memory in front of MMAs and come back behind waits."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.tracking import Holder, Move
from porter.passes.context import PortContext, qualified

RULE = "PTR132"


def insert_moves(context: PortContext, moves: list[Move]) -> None:
    """All moves, those of one statement together, each with its helper requested."""
    statements: dict[tuple[str, int, int], list[Move]] = {}
    for move in moves:
        span = move.function.span(move.statement)
        statements.setdefault((move.function.file.path, span.start, span.end), []).append(move)
    for found in statements.values():
        function, statement = found[0].function, found[0].statement
        before = [_call(context, m.holder, "to_tensor_memory") for m in found if not m.to_registers]
        behind = [_call(context, m.holder, "to_registers") for m in found if m.to_registers]
        if found[0].braceless:
            _in_braces(context, function, statement, before, behind)
            continue
        if before:
            span, text = context.statement_before(function, statement, "\n".join(before), behind_labels=True)
            context.edit(RULE, function, span, text)
        if behind:
            span = function.span(statement)
            pad = context.indent(function, span)
            text = "".join("\n" + call for call in behind).replace("\n", "\n" + pad)
            context.edit(RULE, function, Span(span.end, span.end), text)


def _in_braces(context: PortContext, function: Function, statement: Node, before: list[str], behind: list[str]) -> None:
    """The statement was the whole body of a branch or loop."""
    span = function.span(statement)
    parent = statement.parent
    pad = context.indent(function, function.span(parent if parent is not None else statement))
    inner = "\n" + pad + "    "
    context.edit(RULE, function, Span(span.start, span.start), "{" + "".join(inner + c for c in before) + inner)
    context.edit(RULE, function, Span(span.end, span.end), "".join(inner + c for c in behind) + f"\n{pad}}}")


def _call(context: PortContext, holder: Holder, operation: str) -> str:
    accumulator, param = holder.accumulator, holder.param
    mirror = context.helpers.mirror(accumulator.element, accumulator.packed)
    mirror.sizes |= accumulator.sizes
    helper = qualified(operation + mirror.suffix)
    if param is None:
        mirror.request_tracking(scalars=accumulator.home.is_separate)
        return accumulator.home.moved(operation, helper, context.names.tile(accumulator))
    mirror.request_tracking(scalars=param.is_scalars)
    return param.moved(helper, context.names.kept_tile(param))
