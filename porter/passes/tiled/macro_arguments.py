# SPDX-License-Identifier: Apache-2.0
"""Loads that would stand among the arguments of a macro which repeats them or makes them conditional."""

from __future__ import annotations

from porter.diagnostics import Code
from porter.passes.macro_arguments import WHAT, handed_to, turning_macros
from porter.passes.tiled.context import TiledContext


def refuse_loads_in_arguments(context: TiledContext) -> None:
    """Refuse uses of accumulators whose loads would be the macro's to run, for others to rely on."""
    turning = turning_macros(context.tiled.program)
    for function, node, _ in context.loads if turning else ():
        at = node.start_byte + function.shift
        for name, span in handed_to(function, turning):
            if span.start <= at < span.end:
                context.tiled.refuse(function, node, WHAT.format(name=name), Code.MACRO_NOT_FOLLOWED)
