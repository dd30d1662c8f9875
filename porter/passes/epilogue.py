# SPDX-License-Identifier: Apache-2.0
"""Accumulators move between Tensor Memory and their registers where threads use or change them."""

from __future__ import annotations

from typing import Literal

from tree_sitter import Node

from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.passes.context import PortContext, qualified
from porter.passes.moves import Moves

RULE = "PTR130"
RULE_STORE = "PTR131"


def insert_moves(context: PortContext, moves: Moves) -> None:
    """Loads and stores of all accumulators."""
    for accumulator in context.accumulators.accumulators:
        insert_loads(context, accumulator, moves.loads[accumulator])
        insert_stores(context, accumulator, moves.stores[accumulator])


def insert_loads(context: PortContext, accumulator: Accumulator, anchors: list[Node]) -> None:
    """A `tcgen05.ld` of the whole accumulator in front of each anchor statement."""
    for anchor in anchors:
        move = _move(context, accumulator, "load")
        span, text = context.statement_before(accumulator.function, anchor, move, behind_labels=True)
        context.edit(RULE, accumulator.function, span, text)


def load_of(context: PortContext, accumulator: Accumulator) -> str:
    """The statement that loads the whole accumulator."""
    return _move(context, accumulator, "load")


def insert_stores(context: PortContext, accumulator: Accumulator, anchors: list[Node]) -> None:
    """A `tcgen05.st` of the whole accumulator behind each anchor statement."""
    function = accumulator.function
    for anchor in anchors:
        span = function.span(anchor)
        text = "\n" + _move(context, accumulator, "store")
        context.edit(
            RULE_STORE,
            function,
            Span(span.end, span.end),
            text.replace("\n", "\n" + context.indent(function, span)),
        )


def spans_of_moves(context: PortContext, accumulator: Accumulator, anchor: Node) -> list[tuple[str, Span]]:
    """Where the load in front of a statement is inserted, and the store behind it, each with its rule."""
    function = accumulator.function
    ahead, _ = context.statement_before(function, anchor, "", behind_labels=True)
    end = function.span(anchor).end
    return [(RULE, ahead), (RULE_STORE, Span(end, end))]


def _move(context: PortContext, accumulator: Accumulator, operation: Literal["load", "store"]) -> str:
    """The statement that moves the accumulator, with its helper requested."""
    mirror = context.helpers.mirror(accumulator.element, accumulator.packed)
    mirror.sizes |= accumulator.sizes
    mirror.request(operation, scalars=accumulator.home.is_separate)
    if accumulator.home.owner:
        context.member_moves.setdefault(accumulator.home.owner, set()).add(operation)
    helper = qualified(operation + mirror.suffix)
    return accumulator.home.moved(operation, helper, context.names.tile(accumulator))
