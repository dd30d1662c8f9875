# SPDX-License-Identifier: Apache-2.0
"""Accumulators are read back into their registers in front of the code that uses them."""

from __future__ import annotations

from tree_sitter import Node

from porter.model.accumulators import Accumulator
from porter.passes.context import PortContext, qualified

RULE = "PTR130"


def insert_loads(context: PortContext, accumulator: Accumulator, anchors: list[Node]) -> None:
    """A `tcgen05.ld` of the whole accumulator in front of each anchor statement."""
    function = accumulator.function
    for anchor in anchors:
        name = context.names.tile(accumulator)
        if accumulator.scalars:
            context.helpers.scalar_loads = True
            call = f"{qualified('load_each')}({name}, {', '.join(accumulator.scalars)});"
        else:
            call = f"{qualified('load')}({accumulator.name}{accumulator.path}, {name});"
        span, text = context.statement_before(function, anchor, call)
        context.edit(RULE, function, span, text)
    if anchors:
        context.helpers.load_elements.add(accumulator.element)
        context.helpers.columns |= accumulator.sizes
