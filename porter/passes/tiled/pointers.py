# SPDX-License-Identifier: Apache-2.0
"""Casts of an accumulator's iterator to a pointer of another type, as converters of registers write them, and pointers
whose type it gives: C++ has none from a class."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.functions import Function
from porter.model.tiled.tensors import initializer
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.text import cpp

RULE = "PTR610"
_VIEWS = 8
"""Views of views that are followed."""


def cast_pointers(context: TiledContext) -> None:
    """`reinterpret_cast<X*>(t.data())` where t is an accumulator or what a function is handed for one."""
    for function in context.tiled.program.functions:
        for node in walk(function.body):
            data = _data(function, node)
            if data is not None and _is_accumulator(context, function, data):
                context.port.edit_once(
                    RULE, function, function.span(data), cpp("raw_pointer", iterator=function.text(data))
                )


def _data(function: Function, node: Node) -> Node | None:
    """`t.data()` in a cast, or as the value of an `auto*`."""
    value = None
    if node.type == "cast_expression" or (node.type == "init_declarator" and _is_deduced_pointer(node)):
        value = node.child_by_field_name("value")
    elif node.type == "call_expression":
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if callee is not None and arguments is not None and len(arguments.named_children) == 1:
            value = arguments.named_children[0] if function.text(callee).startswith("reinterpret_cast<") else None
    method = value.child_by_field_name("function") if value is not None and value.type == "call_expression" else None
    field = method.child_by_field_name("field") if method is not None and method.type == "field_expression" else None
    return value if field is not None and function.text(field) == "data" else None


def _is_deduced_pointer(declarator: Node) -> bool:
    declared, declaration = declarator.child_by_field_name("declarator"), declarator.parent
    kind = declaration.child_by_field_name("type") if declaration is not None else None
    is_pointer = declared is not None and declared.type == "pointer_declarator"
    return is_pointer and kind is not None and kind.type == "placeholder_type_specifier"


def _is_accumulator(context: TiledContext, function: Function, data: Node) -> bool:
    method = data.child_by_field_name("function")
    of = method.child_by_field_name("argument") if method is not None else None
    if of is None:
        return False
    return any(_is_view(context, holder, node) for holder, node in context.tiled.handed_in(function, of))


def _is_view(context: TiledContext, function: Function, node: Node) -> bool:
    """Whether an expression names an accumulator, or a variable that is declared as a view of one."""
    tensors, handles = context.tiled.tensors, context.tiled.handles
    variable = tensors.root(function, node)
    for _ in range(_VIEWS):
        if variable is None or variable.key in handles:
            break
        value = initializer(variable)
        variable = tensors.root(variable.function, value) if value is not None else None
    return variable is not None and variable.key in handles
