# SPDX-License-Identifier: Apache-2.0
"""The state of the warpgroup where accumulators are declared and batches closed: the kernel has it, every accumulator
in sight leads to it, and other functions get it from their callers."""

from __future__ import annotations

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.text import Span
from porter.model.functions import Function, Style
from porter.passes.completion import add_first_parameter
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.sight import in_sight
from porter.passes.tiled.text import cpp

RULE = "PTR623"


def warpgroup_at(context: TiledContext, function: Function, node: Node, declared: str = "") -> str:
    """The state of the warpgroup as an expression at a place of a function; empty if there is none and none can be
    handed on. `declared`: the name that is declared there."""
    if context.sees_warpgroup(function, node):
        return context.port.names.warpgroup
    name = in_sight(context, function, node, declared)
    if name:
        return cpp("warpgroup_of", name=name)
    while function.style is Style.LAMBDA and function.captures_all and function.parent is not None:
        function = function.parent
    if function.style not in (Style.DEVICE, Style.METHOD):
        return ""
    context.handed.add(id(function))
    return context.port.names.warpgroup


def hand_on(context: TiledContext) -> None:
    """Give the state to every function that asks for it, and to its callers."""
    program, name = context.tiled.program, context.port.names.warpgroup
    if program.kernels and not any(id(k.function) in context.frames for k in context.kernels):
        for one in (f for f in program.functions if id(f) in context.handed):
            what = f"no kernel is seen to call `{one.name}`, which declares accumulators or waits for MMAs"
            context.tiled.refuse(one, one.body, what, Code.CALL_NOT_FOLLOWED)
    done: set[int] = set()
    while context.handed - done:
        function = next(f for f in program.functions if id(f) in context.handed - done)
        done.add(id(function))
        declaration = cpp("warpgroup_parameter", name=name)
        for one in (function, *program.declarations(function)):
            add_first_parameter(context.port, RULE, one, name, declaration)
        for call in program.callers(function):
            others = [t for t in program.targets(call) if id(t) not in context.handed]
            text = warpgroup_at(context, call.caller, call.node)
            if others or not text:
                what = f"`{function.name}` needs the state of the warpgroup, which this call cannot hand on"
                context.tiled.refuse(call.caller, call.node, what, Code.CALL_NOT_FOLLOWED)
                continue
            at = call.args_span.start
            context.port.edit_once(RULE, call.caller, Span(at, at), text + (", " if call.args else ""))
