# SPDX-License-Identifier: Apache-2.0
"""Addresses of an accumulator's registers that a statement keeps in a variable: by an assignment, or by a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.model.functions import Call, Function
from porter.model.scopes import Variable, resolve

_INSIDE = ("parenthesized_expression", "cast_expression", "pointer_expression", "field_expression")
_NUMBERS = ("primitive_type", "sized_type_specifier")
Names = Callable[[Function, Node], bool]
"""Whether an expression mentions registers of an accumulator, and whether it is the name of a pointer to some."""


@dataclass(frozen=True)
class Kept:
    """`value` says which registers; `holder` is the variable, None where it is not one of the function's."""

    value: Node
    holder: Variable | None
    place: Node


def kept_by(function: Function, mentions: Names, points: Names) -> Iterator[Kept]:
    """What assignments and calls of a function keep."""
    for node in function.own_nodes("assignment_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None or not is_address(function, right, mentions, points):
            continue
        holder = base(function, left)
        if not _takes_number(function, left, holder):
            yield Kept(right, holder, node)
    for call in function.calls:
        for argument in call.args:
            if is_address(function, argument, mentions, points):
                yield from (Kept(argument, holder, call.node) for holder in _kept_in(function, call, argument))


def is_address(function: Function, node: Node, mentions: Names, points: Names) -> bool:
    """Whether an expression gives the address of registers, or may."""

    def inner(of: Node | None) -> bool:
        return of is not None and is_address(function, of, mentions, points)

    if node.type == "identifier":
        return points(function, node)
    if node.type == "pointer_expression":
        return function.text(node).startswith("&") and mentions(function, node)
    if node.type == "call_expression":
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if callee is not None and callee.type == "field_expression" and arguments is not None:
            return not arguments.named_children and mentions(function, callee)
        return arguments is not None and any(inner(a) for a in arguments.named_children)
    parts: dict[str, Sequence[Node | None]] = {
        "parenthesized_expression": node.named_children,
        "cast_expression": [node.child_by_field_name("value")],
        "binary_expression": [node.child_by_field_name("left"), node.child_by_field_name("right")],
        "conditional_expression": [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")],
    }
    return any(inner(part) for part in parts.get(node.type, ()))


def base(function: Function, node: Node) -> Variable | None:
    """The variable that an expression is, or is a member or an element of."""
    while node.type in (*_INSIDE, "subscript_expression", "call_expression"):
        of = node.child_by_field_name("argument") or node.child_by_field_name("function")
        of = of or node.child_by_field_name("value") or (node.named_children[0] if node.named_children else None)
        if of is None:
            return None
        node = of
    return resolve(function, node, function.text(node)) if node.type == "identifier" else None


def _takes_number(function: Function, left: Node, holder: Variable | None) -> bool:
    """Whether what is assigned to is a number: a variable of such a type, or an element of a tensor or a pointer."""
    if left.type == "call_expression":
        return True
    if holder is None:
        return False
    if left.type == "identifier":
        return is_number(holder)
    declared = holder.param.node if holder.param is not None else holder.declaration
    kind = declared.child_by_field_name("type") if declared is not None else None
    if declared is None or kind is None or kind.type not in _NUMBERS:
        return False
    text = holder.function.text(holder.declarator if holder.declarator is not None else declared)
    text = text.partition("=")[0]
    return _steps(left) >= text.count("*") + text.count("[")


def _steps(node: Node | None) -> int:
    """Subscripts and dereferences of an expression."""
    steps = 0
    while node is not None and node.type in ("subscript_expression", "pointer_expression"):
        node, steps = node.child_by_field_name("argument"), steps + 1
    return steps


def is_number(variable: Variable) -> bool:
    """Whether a variable is declared as a number."""
    kind = variable.declaration.child_by_field_name("type") if variable.declaration is not None else None
    return kind is not None and kind.type in _NUMBERS and not variable.is_reference


def _kept_in(function: Function, call: Call, argument: Node) -> Iterator[Variable]:
    """Variables that a call may keep an address in: its object, and what it is handed the address of."""
    callee = call.node.child_by_field_name("function")
    if callee is not None and callee.type == "field_expression":
        found = base(function, callee)
        if found is not None:
            yield found
    for other in call.args:
        if other.id != argument.id and other.type == "pointer_expression" and function.text(other).startswith("&"):
            found = base(function, other)
            if found is not None:
                yield found
