# SPDX-License-Identifier: Apache-2.0
"""Lambdas that list what they capture are given the tiles of registers that they capture by reference."""

from __future__ import annotations

import re

from porter.diagnostics import Code
from porter.lang.text import Span, as_text
from porter.model.accumulators import Accumulator
from porter.model.functions import Function, Style
from porter.passes.context import PortContext

RULE = "PTR100"


def capture_tiles(context: PortContext) -> None:
    """Goes by the texts that other passes wrote into the bodies of lambdas."""
    for function in context.program.functions:
        captures = function.node.child_by_field_name("captures") if function.style is Style.LAMBDA else None
        if captures is None or function.captures_all:
            continue
        inside = function.span(captures)
        listed = function.text(captures).strip("[]")
        for accumulator in context.accumulators.accumulators:
            if not _is_named(context, function, accumulator):
                continue
            if not any(re.search(rf"&\s*{n}\b", listed) for n in accumulator.home.names):
                what = f"`{accumulator.name}` is added to in a lambda that has a copy of it"
                context.report(Code.ACCUMULATOR_COPIED, function, inside, what=what)
                continue
            at = inside.end - 1
            context.edit(RULE, function, Span(at, at), f", &{context.names.tile(accumulator)}")


def _is_named(context: PortContext, function: Function, accumulator: Accumulator) -> bool:
    """Whether the body of a lambda names the tile that a function around it declares."""
    if accumulator.home.field_name:
        return False
    tile = context.names.tile(accumulator)
    inner: Function | None = function
    while inner is not accumulator.function:
        if inner is None or any(
            id(p) in context.kept_params and context.names.kept_tile(p) == tile
            for p in context.accumulators.params_of(inner)
        ):
            return False
        inner = inner.parent
    body, word = function.span(function.body), re.compile(rf"\b{tile}\b")
    declaration = accumulator.variable.declaration
    if declaration is not None and body.start <= accumulator.function.span(declaration).start < body.end:
        return False
    return any(
        edit.path == function.file.path
        and body.start <= edit.span.start < body.end
        and word.search(as_text(edit.replacement))
        for edits in context.edits.values()
        for edit in edits
    )
