# SPDX-License-Identifier: Apache-2.0
"""Whether a mention of a variable may give it another value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.facts import Index
from porter.model.functions import Call, Function, Style
from porter.model.program import Program
from porter.model.pure import is_pure, is_toolkit
from porter.model.scopes import Variable


@dataclass(frozen=True)
class Writes:
    """Asks about one program. `known` says of a function that is not at hand if it only computes; else
    `is_known` does."""

    program: Program
    known: Callable[[Call], bool] | None = None

    def gives(self, function: Function, name: Node, variable: Variable) -> bool:
        """Whether a mention may give a variable another value."""
        node, above = name, name.parent
        while above is not None and (
            above.type == "parenthesized_expression"
            or (
                above.type in ("field_expression", "subscript_expression")
                and _is(above.child_by_field_name("argument"), node)
            )
        ):
            node, above = above, above.parent
        if above is None:
            return True
        if variable.is_reference and node.id != name.id:
            # what it refers to is in memory that threads share, or a variable that is looked at by itself
            return False
        if above.type == "init_declarator":
            declared = above.child_by_field_name("declarator")
            return declared is not None and declared.type == "reference_declarator" and not variable.is_reference
        if above.type == "assignment_expression":
            return _is(above.child_by_field_name("left"), node)
        if above.type == "update_expression":
            return True
        if above.type in ("pointer_expression", "unary_expression"):
            return function.text(above).lstrip().startswith("&")
        if above.type == "call_expression" and node.type == "field_expression":
            # a method may change its object
            return True
        if above.type == "argument_list" and above.parent is not None:
            return self._handed(above, node, variable)
        return "gnu_asm" in above.type or above.type == "lambda_capture_specifier"

    def _handed(self, arguments: Node, node: Node, variable: Variable) -> bool:
        """Whether a function may write to what it is handed."""
        if _is_array(variable):
            return True
        call_node = arguments.parent
        assert call_node is not None
        index = next(i for i, a in enumerate(arguments.named_children) if a.id == node.id)
        calls = self.program.calls_by_node.get(call_node.id, ())
        if call_node.type != "call_expression" or not calls:
            return call_node.type != "init_declarator"
        for call in calls:
            targets = self.program.targets(call)
            if not targets and not (self.known or self.is_known)(call):
                return True
            for target in targets:
                if target.style is Style.MACRO or index >= len(target.params):
                    return True
                kind = self.program.names.type_of_param(target, target.params[index])
                if kind.reference and not kind.const:
                    return True
        return False

    def is_known(self, call: Call) -> bool:
        """Whether a function that is not at hand only computes from numbers: one of the toolkit, or a cast."""
        pure = is_pure(call.name) and is_toolkit(self.program, call) and call.name != "printf"
        return pure or call.name.endswith("_cast") or isinstance(self.program.facts.of_call(call), Index)


def _is(one: Node | None, other: Node) -> bool:
    return one is not None and one.id == other.id


def _is_array(variable: Variable) -> bool:
    node = variable.declarator
    return node is not None and any(True for _ in find(node, "array_declarator"))
