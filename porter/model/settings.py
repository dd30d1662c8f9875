# SPDX-License-Identifier: Apache-2.0
"""What sets a local variable: its declaration, assignments, and whatever else may write to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import inside
from porter.model.functions import Function
from porter.model.program import Program
from porter.model.pure import is_pure
from porter.model.registers import CASTS
from porter.model.scopes import Variable, resolve


@dataclass(frozen=True)
class Setting:
    """`node` sets a variable to `value`, by `sign` (`=`, `+=`, `++`). An empty sign: nobody knows to what."""

    node: Node
    sign: str
    value: Node | None


def settings_of(program: Program, variable: Variable) -> Iterator[Setting]:
    """Everything in a variable's function that sets it or a part of it, or may do so."""
    function, name = variable.function, variable.name
    is_array = program.names.expressions.variable(variable).is_array
    first = variable.declarator.child_by_field_name("value") if variable.declarator is not None else None
    if first is not None:
        yield Setting(first, "=", first)
    for node in function.named(name):
        found = resolve(function, node, name)
        if found is None or found.key != variable.key:
            continue
        node = _whole(node)
        above = node.parent
        if above is None:
            continue
        target = above.child_by_field_name("left") or above.child_by_field_name("argument")
        is_target = target is not None and target.id == node.id
        sign = above.child_by_field_name("operator")
        if above.type == "assignment_expression" and is_target:
            yield Setting(above, function.text(sign) if sign is not None else "", above.child_by_field_name("right"))
        elif above.type == "update_expression":
            yield Setting(above, "++", None)
        elif _escapes(program, function, above, node, is_array):
            yield Setting(above, "", None)


def _whole(node: Node) -> Node:
    """The element or member of a variable that its name stands in."""
    while node.parent is not None and node.parent.type in ("subscript_expression", "field_expression"):
        argument = node.parent.child_by_field_name("argument")
        if argument is None or argument.id != node.id:
            break
        node = node.parent
    return node


def _escapes(program: Program, function: Function, above: Node, node: Node, is_array: bool) -> bool:
    """Whether what a variable is handed to may write to it."""
    if above.type == "pointer_expression":
        return above.children[0].type == "&"
    around: Node | None = above
    while around is not None and around.id != function.body.id:
        if around.type == "gnu_asm_expression":
            return any(
                o.is_output and o.expr_node is not None and inside(o.expr_node, node)
                for s in function.asm
                for o in s.operands
            )
        if around.type == "lambda_expression":
            return True
        around = around.parent
    if above.type == "call_expression":
        return node.type == "field_expression"
    if above.type == "init_declarator":
        declared, value = above.child_by_field_name("declarator"), above.child_by_field_name("value")
        refers = declared is not None and declared.type == "reference_declarator"
        return refers and value is not None and value.id == node.id
    if above.type != "argument_list" or above.parent is None or above.parent.type != "call_expression":
        return False
    return _may_write(program, function, above.parent, node, is_array and node.type == "identifier")


def _may_write(program: Program, function: Function, call: Node, node: Node, is_array: bool) -> bool:
    """Whether a call may write to an argument."""
    callee = call.child_by_field_name("function")
    name = function.text(callee) if callee is not None else ""
    if callee is None or callee.type == "primitive_type" or name.split("<")[0].strip() in CASTS:
        return False
    calls = program.calls_by_node.get(call.id, ())
    targets = [(c, t) for c in calls for t in program.targets(c)]
    for one, target in targets:
        index = next((i for i, a in enumerate(one.args) if a.id == node.id), None)
        if index is None or index >= len(target.params):
            return True
        if is_array or program.names.type_of_param(target, target.params[index]).reference:
            return True
    return (not targets and name in program.macros.by_name) or (bool(calls) and not targets and not is_pure(name))
