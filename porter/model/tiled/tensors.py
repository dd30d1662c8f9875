# SPDX-License-Identifier: Apache-2.0
"""Which tensor of registers an expression is a view of, and what a mention of one does."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.facts import REGISTERS, Fragment, Tile, View
from porter.model.functions import Call, Function, Style
from porter.model.names.paths import is_whole
from porter.model.program import Program
from porter.model.scopes import Variable, resolve

Key = tuple[int, int, str]

_UNEVALUATED = (
    "decltype",
    "sizeof_expression",
    "template_argument_list",
    "static_assert_declaration",
    "type_descriptor",
)


class Tensors:
    """Asks about the expressions of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.arrays: dict[Key, int] = {}
        """Variables that are arrays of registers, or pointers into one, with how many subscripts an element has."""
        self._calls = {(id(f.file), c.node.id): c for f in program.functions for c in f.calls}

    def call(self, function: Function, node: Node) -> Call | None:
        return self._calls.get((id(function.file), node.id))

    def root(self, function: Function, node: Node) -> Variable | None:
        """The variable whose registers an expression names, itself or through views of it; None if it names none."""
        while True:
            if node.type == "parenthesized_expression" and node.named_children:
                node = node.named_children[0]
            elif node.type == "identifier":
                return resolve(function, node, function.text(node))
            elif node.type == "call_expression":
                inner = self._viewed(function, node)
                if inner is None:
                    return None
                node = inner
            elif (part := self._part(function, node)) is not None:
                node = part
            else:
                return None

    def _part(self, function: Function, node: Node) -> Node | None:
        """What an expression names a part of: an array of registers with a distance, by its address, or a row of it."""
        if node.type == "binary_expression":
            sides = (
                [node.child_by_field_name(s) for s in ("left", "right")]
                if function.text(node.children[1]) == "+"
                else []
            )
            return next((s for s in sides if s is not None and self._is_array(function, s)), None)
        inner = subscripted(node)
        if node.type == "pointer_expression" and function.text(node).startswith("&"):
            return inner if inner is not node and self._is_array(function, inner) else None
        name, subscripts = node, 0
        while name.type == "subscript_expression" and (of := name.child_by_field_name("argument")) is not None:
            name, subscripts = of, subscripts + 1
        if not subscripts or name.type != "identifier":
            return None
        variable = resolve(function, name, function.text(name))
        return inner if variable is not None and subscripts < self.arrays.get(variable.key, 0) else None

    def _is_array(self, function: Function, node: Node) -> bool:
        variable = self.root(function, node)
        return variable is not None and variable.key in self.arrays

    def _viewed(self, function: Function, node: Node) -> Node | None:
        """What a call gives a view of: the object that is called with whole modes, or an argument as a rule says."""
        callee = node.child_by_field_name("function")
        if callee is None:
            return None
        call = self.call(function, node)
        answer = self.program.facts.answer(call) if call is not None else None
        if answer is not None and isinstance(answer.fact, View) and answer.recognizer is not None:
            span = answer.captures[answer.recognizer.place_of("of")][1]
            assert call is not None
            return next((n for a in call.args for n in walk(a) if function.span(n) == span), None)
        arguments = node.child_by_field_name("arguments")
        named = arguments.named_children if arguments is not None else []
        if any(is_whole(function.text(a)) for a in named) and callee.type in ("identifier", "call_expression"):
            return callee
        return None

    def mma_of(self, function: Function, node: Node) -> Node | None:
        """The tiled MMA that a call which gives registers is handed, or is a method of; None if it has none."""
        call, callee = self.call(function, node), node.child_by_field_name("function")
        if callee is not None and callee.type == "field_expression":
            method, arguments = callee.child_by_field_name("field"), node.child_by_field_name("arguments")
            if method is None or arguments is None:
                return None
            fact = self.program.facts.of_member(function.text(method), function.text(arguments))
            return callee.child_by_field_name("argument") if isinstance(fact, Fragment) else None
        answer = self.program.facts.answer(call) if call is not None else None
        if call is None or answer is None or not isinstance(answer.fact, Fragment | Tile) or not answer.fact.mma:
            return None
        assert answer.recognizer is not None
        span = answer.captures[answer.recognizer.place_of("mma")][1]
        return next((n for a in call.args for n in walk(a) if function.span(n) == span), None)

    def makes_registers(self, function: Function, node: Node) -> bool:
        """Whether an expression is a call that a rule says gives registers of its own."""
        call = self.call(function, node)
        return call is not None and isinstance(self.program.facts.of_call(call), REGISTERS)


def subscripted(node: Node | None) -> Node:
    """What the outermost subscript of an expression, or of one whose address is taken, is of; else the expression."""
    assert node is not None
    inner = node.child_by_field_name("argument") if node.type == "pointer_expression" else node
    if inner is not None and inner.type == "subscript_expression":
        return inner.child_by_field_name("argument") or node
    return node


def initializer(variable: Variable) -> Node | None:
    """The value that a local variable is declared with."""
    declarator = variable.declarator
    if declarator is None or declarator.type != "init_declarator":
        return None
    return declarator.child_by_field_name("value")


def names_in(function: Function, node: Node) -> Iterator[Node]:
    """Identifiers of an expression that is evaluated."""
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type in _UNEVALUATED:
            continue
        if current.type == "identifier":
            yield current
        stack.extend(reversed(current.children))


def holder(functions: dict[int, Function], node: Node, root: Function) -> Function:
    """The innermost function, a lambda among them, that a node of `root` stands in."""
    current: Node | None = node
    while current is not None and current.id != root.body.id:
        if current.type == "lambda_expression" and current.id in functions:
            return functions[current.id]
        current = current.parent
    return root


def lambdas_of(program: Program) -> dict[int, Function]:
    """Lambdas by the id of their expression."""
    return {f.node.id: f for f in program.functions if f.style is Style.LAMBDA}
