# SPDX-License-Identifier: Apache-2.0
"""Where lambdas go: whether every call of one that has to do with MMAs is seen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import enclosing
from porter.model.functions import Call, Function, Style
from porter.model.program import Program
from porter.model.registers import CASTS
from porter.model.scopes import resolve

_FUNCTIONS = ("function_definition", "lambda_expression")
_MANY = 8
"""Aliases of aliases, and functions that hand a lambda on, followed."""


class Lambdas:
    """Asks about the lambdas of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._by_node = {f.node.id: f for f in program.functions}

    def lost(self, function: Function) -> Node | None:
        """Where a lambda is kept, or handed to something that may call it at another time than this; None if all its
        calls are seen. Calls are seen where it is written, by its variable's name, by the name of an `auto` variable
        made of that, and by a function that it is handed to, as often as that likes."""
        holder = function.node.parent
        if holder is not None and holder.type == "init_declarator":
            return self._lost_variable(function, function, holder, 0)
        caller = function.parent
        if caller is None or self._is_taken(function, caller, function.node):
            return None
        return function.node

    def _lost_variable(self, function: Function, owner: Function, declarator: Node, depth: int) -> Node | None:
        """The same of a variable that a declarator of `owner`, or of the function around a lambda, makes."""
        around = owner.parent if owner is function else owner
        if around is None or depth > _MANY:
            return None if around is None else declarator
        name = self._declared(around, declarator)
        if not name:
            return declarator
        for node in around.named(name):
            inner = self._innermost(around, node)
            variable = resolve(inner, node, name)
            if variable is None or variable.declarator is None or variable.declarator.id != declarator.id:
                continue
            if _within(node, declarator) and not _within(node, declarator.child_by_field_name("value")):
                continue
            alias = _alias(node)
            if alias is not None and self.program.names.lambda_at(inner, node) is function:
                found = self._lost_variable(function, inner, alias, depth + 1)
                if found is not None or inner is not around:
                    return found or node
            elif not self._is_taken(function, inner, node):
                return node
        return self._in_macro(around, name)

    def _declared(self, function: Function, declarator: Node) -> str:
        inner = declarator.child_by_field_name("declarator")
        while inner is not None and inner.type == "reference_declarator":
            inner = inner.named_children[0] if inner.named_children else None
        return function.text(inner) if inner is not None and inner.type == "identifier" else ""

    def _in_macro(self, function: Function, name: str) -> Node | None:
        """A use of a macro whose text names a lambda."""
        word = re.compile(rb"\b" + re.escape(name.encode()) + rb"\b")
        for macro, definitions in self.program.macros.by_name.items():
            if any(word.search(m.joined) for m in definitions):
                for node in function.named(macro):
                    return node
        return None

    def _innermost(self, function: Function, node: Node) -> Function:
        """The function or lambda whose body a node of a function's stands in."""
        home: Node | None = enclosing(node, *_FUNCTIONS)
        while home is not None:
            found = self._by_node.get(home.id)
            if found is not None and _within(node, found.body):
                return found
            home = enclosing(home, *_FUNCTIONS)
        return function

    def _is_taken(self, function: Function, caller: Function, node: Node) -> bool:
        """Whether an expression that is a lambda is called there, or handed on to be called there."""
        parent = node.parent
        while parent is not None and parent.type == "parenthesized_expression":
            node, parent = parent, parent.parent
        if parent is None:
            return False
        if parent.type in ("decltype", "lambda_capture_specifier"):
            return True
        if parent.type == "cast_expression":
            return caller.text(parent).replace(" ", "").startswith("(void)")
        if parent.type == "field_expression" and parent.parent is not None:
            node, parent = parent, parent.parent
        if parent.type == "call_expression" and parent.child_by_field_name("function") == node:
            return node.type == "lambda_expression" or any(
                function in self.program.targets(c) for c in self._calls(parent)
            )
        if parent.type == "argument_list" and parent.parent is not None and parent.parent.type == "call_expression":
            return function.parent is caller and self._are_callers(parent.parent, node)
        return False

    def _calls(self, node: Node) -> list[Call]:
        return self.program.calls_by_node.get(node.id, [])

    def _are_callers(self, node: Node, argument: Node) -> bool:
        """Whether what a call reaches only calls what it is handed. A library's function is trusted to."""
        calls = self._calls(node)
        index = [a.id for a in calls[0].args].index(argument.id) if calls else -1
        return index >= 0 and all(self._only_calls(t, index, 0) for t in self.program.targets(calls[0]))

    def _only_calls(self, function: Function, index: int, depth: int) -> bool:
        if depth > _MANY or index >= len(function.params) or _is_constructor(function):
            return False
        return all(self._is_called(function, node, depth) for node in function.named(function.params[index].name))

    def _is_called(self, function: Function, node: Node, depth: int) -> bool:
        """Whether a parameter is called, or handed on to a function that calls it."""
        inner = enclosing(node, *_FUNCTIONS)
        if inner is not None and inner.id != function.node.id and not _is_argument(inner):
            return False
        parent = node.parent
        while parent is not None and (parent.type == "parenthesized_expression" or _forwards(function, parent)):
            node, parent = parent, parent.parent
        if parent is None:
            return False
        if parent.type in ("decltype", "type_descriptor"):
            return True
        if parent.type == "call_expression" and parent.child_by_field_name("function") == node:
            return True
        if parent.type != "argument_list" or parent.parent is None or parent.parent.type != "call_expression":
            return False
        if _forwards(function, parent.parent):
            return self._is_called(function, parent.parent, depth)
        calls = self._calls(parent.parent)
        index = [a.id for a in calls[0].args].index(node.id) if calls and node in calls[0].args else -1
        targets = self.program.targets(calls[0]) if calls else []
        return index >= 0 and all(t is function or self._only_calls(t, index, depth + 1) for t in targets)


def lost_lambdas(program: Program) -> Iterator[tuple[Function, Function, Node]]:
    """The lambdas with MMAs, commits or waits of which not all calls are seen, each with the function around it and the
    place where it gets lost."""
    uses, lambdas = program.uses_tensor_core(), Lambdas(program)
    for function in program.functions:
        if id(function) in uses and function.node.type == "lambda_expression":
            node = lambdas.lost(function)
            if node is not None:
                yield function, function.parent or function, node


def _within(node: Node, outer: Node | None) -> bool:
    return outer is not None and outer.start_byte <= node.start_byte and node.end_byte <= outer.end_byte


def _alias(node: Node) -> Node | None:
    """The declarator of a variable that is initialized with just this name."""
    parent = node.parent
    if parent is None or parent.type != "init_declarator":
        return None
    value = parent.child_by_field_name("value")
    return parent if value is not None and value.id == node.id else None


def _is_argument(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "argument_list"


def _is_constructor(function: Function) -> bool:
    return bool(function.owner) and function.name == function.owner.rpartition("::")[2]


def _forwards(function: Function, node: Node) -> bool:
    """Whether a node is a cast or `std::forward` of what stands in it."""
    callee = node.child_by_field_name("function") if node.type == "call_expression" else None
    if callee is None:
        return False
    name = function.text(callee).split("<")[0].strip()
    return name in CASTS or name.rpartition("::")[2] in ("forward", "move")


_PASSING_ON = (
    "pointer_expression",
    "parenthesized_expression",
    "comma_expression",
    "conditional_expression",
    "cast_expression",
    "initializer_list",
    "template_function",
    "qualified_identifier",
)


def kept_by_address(program: Program, function: Function) -> Iterator[tuple[Function, Node]]:
    """Where a function's name is an operand rather than called or handed on: a variable keeps it, an expression chooses
    it. What calls it then is not seen."""
    for caller in program.functions:
        if caller.style is Style.MACRO or function.name not in caller.text(caller.body):
            continue
        for node in caller.own_nodes("identifier"):
            if caller.text(node) != function.name or resolve(caller, node, function.name) is not None:
                continue
            inner, around = node, node.parent
            while around is not None and around.type in _PASSING_ON:
                inner, around = around, around.parent
            if around is None:
                continue
            is_value = around.type == "init_declarator" and around.child_by_field_name("declarator") != inner
            is_chosen = inner.type == "parenthesized_expression" and inner.named_children[0].type != "identifier"
            if (
                is_value
                or around.type in ("assignment_expression", "return_statement")
                or (is_chosen and around.type == "call_expression")
            ):
                yield caller, node
