# SPDX-License-Identifier: Apache-2.0
"""Text of a port as the passes so far have it, for statements that move to another place."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups, as_text
from porter.model.accumulators import Accumulator
from porter.model.functions import Function
from porter.passes.context import PortContext
from porter.passes.residency import RULE as TILES


def ported_text(context: PortContext, function: Function, span: Span) -> str:
    """What a part of a function becomes. Insertions at its very ends are those of what is around it."""
    path, whole = function.file.path, function.file.source[span.start : span.end]
    groups = []
    for rule, edits in context.edits.items():
        inside = tuple(
            Edit(path, Span(e.span.start - span.start, e.span.end - span.start), e.replacement)
            for e in edits
            if e.path == path and span.contains(e.span) and (len(e.span) or span.start < e.span.start < span.end)
        )
        groups.append(EditGroup(rule, "", Safety.SAFE, inside))
    return as_text(apply_groups({path: whole}, groups)[path])


def tile_lines(context: PortContext, accumulator: Accumulator) -> list[str]:
    """The lines that declare an accumulator in Tensor Memory where its registers are declared."""
    function = accumulator.function
    at = function.span(accumulator.home.end_of_declaration()).end
    written = (e for e in context.edits.get(TILES, ()) if e.path == function.file.path and e.span == Span(at, at))
    return [line.strip() for edit in written for line in edit.replacement.decode().strip().splitlines()]


def lines_at(context: PortContext, function: Function, node: Node, pad: str = "") -> list[str]:
    """The lines of what a statement becomes, behind the white space `pad`."""
    span = function.span(node)
    return indented(ported_text(context, function, span), context.indent(function, span), pad)


def indented(text: str, before: str, after: str) -> list[str]:
    """Lines whose first stands behind the white space `before`, with `after` in its place."""
    lines = text.replace("\r\n", "\n").split("\n")
    found = []
    for index, line in enumerate(lines):
        if not line.strip():
            found.append("")
        elif index == 0 or line.startswith("#"):
            found.append((after if not line.startswith("#") else "") + line)
        else:
            found.append(after + (line[len(before) :] if line.startswith(before) else line.lstrip()))
    return found
