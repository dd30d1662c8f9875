# SPDX-License-Identifier: Apache-2.0
"""Copies of accumulators: an MMA that adds to a copy, or to what was copied, has no tile of its own; and a variable
that may hold a copy is no reason to load registers while MMAs write them."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.diagnostics import Code
from porter.model.functions import Function, Param
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import Handle, Origin
from porter.model.tiled.tensors import initializer
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.names import Names

_REFERENCES = ("reference_declarator", "pointer_declarator", "abstract_reference_declarator")


def refuse_copies(context: TiledContext) -> None:
    """Refuse parameters that copy an accumulator which the function adds to, and assignments of whole ones."""
    for handle in list(context.tiled.handles.values()):
        param = handle.variable.param
        if param is not None and handle.array is None and _is_value(param.node):
            _refuse_values(context, handle, param)
        if handle.origin is Origin.FRAGMENT and handle.array is None:
            _refuse_result(context, handle)
    for function in context.tiled.program.functions:
        if id(function) in context.reached:
            for left in _assigned(context, function):
                what = f"`{function.text(left)}` is assigned as a whole, which copies accumulators: copy its elements"
                context.tiled.refuse(function, left, what, Code.ACCUMULATOR_COPIED)


def _is_value(param: Node | None) -> bool:
    declarator = param.child_by_field_name("declarator") if param is not None else None
    return declarator is not None and declarator.type not in _REFERENCES


def _refuse_values(context: TiledContext, handle: Handle, param: Param) -> None:
    function = handle.function
    for call in context.tiled.program.callers(function):
        if param.index < len(call.args):
            given = whole(context, call.caller, call.args[param.index])
            if given is not None:
                what = f"`{handle.name}` of `{function.name or 'a lambda'}` copies accumulator `{given.name}`, and MMAs"
                what += " add to the copy: take a reference"
                context.tiled.refuse(function, param.node or function.body, what, Code.ACCUMULATOR_COPIED)


def _refuse_result(context: TiledContext, handle: Handle) -> None:
    """Refuse an accumulator that is what a function hands back which multiplies and is handed another one."""
    function, value = handle.function, handle.value
    call = context.tiled.tensors.call(function, value) if value is not None else None
    targets = context.tiled.program.targets(call) if call is not None else []
    if call is None or not any(id(t) in context.tiled.active for t in targets):
        return
    given = next((h for h in (whole(context, function, a) for a in call.args) if h is not None), None)
    if given is not None:
        what = f"`{handle.name}` is what `{call.name}` makes of accumulator `{given.name}`, and MMAs add to it"
        context.tiled.refuse(
            function, call.node, f"{what}: declare it with registers of its own", Code.ACCUMULATOR_COPIED
        )


def whole(context: TiledContext, function: Function, node: Node) -> Handle | None:
    """The accumulator that an expression names itself, or through a reference; None of a view."""
    while True:
        while node.type == "parenthesized_expression" and node.named_children:
            node = node.named_children[0]
        variable = resolve(function, node, function.text(node)) if node.type == "identifier" else None
        if variable is None:
            return None
        handle = context.tiled.handles.get(variable.key)
        if handle is not None and handle.origin is not Origin.VIEW:
            return handle if handle.array is None else None
        value = initializer(variable) if variable.is_reference else None
        if value is None:
            return None
        function, node = variable.function, value


def _assigned(context: TiledContext, function: Function) -> Iterator[Node]:
    """Left sides of assignments that are a whole accumulator, or what the function is handed for one."""
    for node in function.own_nodes("assignment_expression"):
        left = node.child_by_field_name("left")
        operator = node.child_by_field_name("operator")
        if left is None or left.type != "identifier" or operator is None or function.text(operator) != "=":
            continue
        handle = whole(context, function, left)
        variable = resolve(function, left, function.text(left))
        if handle is None and variable is not None and variable.param is not None and variable.function is function:
            if _is_value(variable.param.node):
                continue
            index = variable.param.index
            calls = [c for c in context.tiled.program.callers(function) if index < len(c.args)]
            found = (whole(context, c.caller, c.args[index]) for c in calls)
            handle = next((h for h in found if h is not None), None)
        if handle is not None:
            yield left


def is_in_flight(
    context: TiledContext, names: Names, function: Function, name: Node, statement: Node, handle: Handle
) -> bool:
    """Whether MMAs on an accumulator are in flight on all paths to a statement that has a name of it: there registers
    are not touched, and a load would come too early. Refused where that is not known of a copy's name, or where MMAs
    that write another part may be in flight: a load brings all parts."""
    ages = context.flight.ages(function, statement, handle)
    if not ages or ages == {None}:
        return False
    if context.flight.is_by_parts(handle):
        what = f"registers of `{handle.name}` are used where MMAs that write a part of them may be in flight"
        context.tiled.refuse(
            function,
            name,
            f"{what}: wait for all parts, or declare an accumulator for each",
            Code.ACCUMULATOR_IN_FLIGHT,
        )
        return True
    if handle.array is not None:
        return False
    if None not in ages:
        return True
    if names.may_be_copied(function, name):
        what = f"`{function.text(name)}` may be registers of `{handle.name}` or a copy, and MMAs may be in flight here"
        context.tiled.refuse(
            function, name, f"{what}: declare it by the type of a number, or as a reference", Code.ACCUMULATOR_IN_FLIGHT
        )
        return True
    return False
