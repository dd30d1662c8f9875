# SPDX-License-Identifier: Apache-2.0
"""Accumulators move between Tensor Memory and their registers where threads use or change them."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.passes.context import PortContext, qualified

RULE = "PTR130"
RULE_STORE = "PTR131"


def insert_loads(context: PortContext, accumulator: Accumulator, anchors: list[Node]) -> None:
    """A `tcgen05.ld` of the whole accumulator in front of each anchor statement."""
    if not anchors:
        return
    function = accumulator.function
    mirror = context.helpers.mirror(accumulator.element, accumulator.packed)
    mirror.sizes |= accumulator.sizes
    mirror.loads = True
    for anchor in anchors:
        name = context.names.tile(accumulator)
        if accumulator.scalars:
            mirror.scalar_loads = True
            call = _call(f"load{mirror.suffix}_each", name, accumulator)
        else:
            call = f"{qualified(f'load{mirror.suffix}')}({accumulator.name}{accumulator.path}, {name});"
        span, text = context.statement_before(function, anchor, call)
        context.edit(RULE, function, span, text)


def _call(name: str, tile: str, accumulator: Accumulator) -> str:
    """The call for registers that are separate variables, sixteen a line."""
    names = accumulator.scalars
    rows = [", ".join(names[i : i + 16]) for i in range(0, len(names), 16)]
    head = f"{qualified(name)}({tile}, "
    if len(rows) == 1:
        return f"{head}{rows[0]});"
    return f"{head[:-1]}\n" + ",\n".join(f"    {row}" for row in rows) + ");"


def insert_stores(context: PortContext, accumulator: Accumulator, anchors: list[Node]) -> None:
    """A `tcgen05.st` of the whole accumulator behind each anchor statement."""
    if not anchors:
        return
    function = accumulator.function
    mirror = context.helpers.mirror(accumulator.element, accumulator.packed)
    mirror.sizes |= accumulator.sizes
    mirror.stores = True
    for anchor in anchors:
        name = context.names.tile(accumulator)
        if accumulator.scalars:
            mirror.scalar_stores = True
            call = _call(f"store{mirror.suffix}_each", name, accumulator).replace(
                "\n", "\n" + context.indent(function, function.span(anchor))
            )
        else:
            call = f"{qualified(f'store{mirror.suffix}')}({accumulator.name}{accumulator.path}, {name});"
        span = function.span(anchor)
        context.edit(RULE_STORE, function, Span(span.end, span.end), f"\n{context.indent(function, span)}{call}")
