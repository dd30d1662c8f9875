# SPDX-License-Identifier: Apache-2.0
"""The m64 tiles of A and of an accumulator. Where one warpgroup is alone in a CTA, two tiles share columns: each is in
a half of the lanes, and an MMA reads A in the half that its accumulator's tile is in."""

from __future__ import annotations

from tree_sitter import Node

from porter.model.functions import Function
from porter.model.tiled.accumulators import Multiply
from porter.passes.tiled.context import TiledContext

TILE = 1
"""Which coordinate of a fragment (V, MMA_M, MMA_K) or of an accumulator (V, MMA_M, MMA_N) is that of its m64 tiles."""
_HALVES = 2


def is_crossed(context: TiledContext, multiply: Multiply) -> bool:
    """Whether the text says that an MMA takes a tile of A for a tile of the accumulator in the other half of the lanes,
    in every kernel of the program."""
    if any(k.roles is None or k.roles.value != 1 for k in context.kernels):
        return False
    a, d = (_tile(context, multiply.call.caller, n) for n in (multiply.a, multiply.d))
    return a is not None and d is not None and a % _HALVES != d % _HALVES


def _tile(context: TiledContext, function: Function, node: Node) -> int | None:
    """The number of the one tile that a part of a fragment is; None where that is not known."""
    arguments = node.child_by_field_name("arguments") if node.type == "call_expression" else None
    coordinates = arguments.named_children if arguments is not None else []
    if len(coordinates) <= TILE:
        return None
    return context.tiled.program.value(function, function.text(coordinates[TILE]))
