# SPDX-License-Identifier: Apache-2.0
"""Addresses of elements that are written as sums: `full + s` is `full[s]` where `full` is a pointer or an array."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import ARRAY_DECLARATORS, Function, Style
from porter.model.pipeline.frames import Frame, Wording, first_value
from porter.model.program import Program
from porter.model.scopes import Variable, resolve

_POINTS = ("pointer_declarator", "abstract_pointer_declarator", *ARRAY_DECLARATORS)
_CHANGES = ("assignment_expression", "update_expression", "compound_statement")
_DEEPEST = 12


class Elements:
    """Asks about one program."""

    def __init__(self, program: Program, wording: Wording) -> None:
        self.program, self.wording = program, wording

    def of(self, frame: Frame, node: Node) -> str:
        """The object that an address is of, in the kernel's words; an element of several by its index."""
        found = self._sum(frame, node)
        if found is None:
            return self.wording.object(frame, node)
        inner, left, right = found
        base = self.wording.object(inner, left)
        return f"{base if base.isidentifier() else f'({base})'}[{self.wording.words(inner, right)}]"

    def _sum(self, frame: Frame, node: Node) -> tuple[Frame, Node, Node] | None:
        """The pointer and the index of a sum that an address is."""
        for _ in range(_DEEPEST):
            if node.type == "binary_expression":
                left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
                plus = frame.function.text(node.children[1]) == "+"
                if not plus or left is None or right is None or self._is_constant(frame.function, right):
                    return None
                return (frame, left, right) if self._points(frame, left, 0) else None
            further = self._further(frame, node)
            if further is None:
                return None
            frame, node = further
        return None

    def _further(self, frame: Frame, node: Node) -> tuple[Frame, Node] | None:
        """What an expression is that only names another one."""
        if node.type == "parenthesized_expression" and len(node.named_children) == 1:
            return frame, node.named_children[0]
        if node.type == "cast_expression":
            value = node.child_by_field_name("value")
            return None if value is None else (frame, value)
        if node.type == "call_expression":
            return self._called(frame, node)
        variable = resolve(frame.function, node, frame.function.text(node)) if node.type == "identifier" else None
        owner = next((f for f in frame.chain if variable is not None and f.function is variable.function), None)
        if variable is None or owner is None or self.wording.changes(variable.function, variable.name):
            return None
        if variable.param is not None:
            given = owner.bound.get(variable.name)
            return None if given is None or owner.outer is None else (owner.outer, given)
        value = first_value(variable)
        return None if value is None else (owner, value)

    def _called(self, frame: Frame, node: Node) -> tuple[Frame, Node] | None:
        inner = self.wording.addressed(frame, node)
        if inner is not None:
            return frame, inner
        for call in self.program.calls_by_node.get(node.id, ()):
            targets = self.program.targets(call)
            value = returned(targets[0]) if len(targets) == 1 else None
            if value is not None:
                return self.wording.enter(frame, call, targets[0]), value
        return None

    def _is_constant(self, function: Function, node: Node) -> bool:
        """Whether a number names one of several mbarriers, and not a stage of a ring."""
        return self.program.constants_in(function).evaluate(function.text(node)) is not None

    def _points(self, frame: Frame, node: Node, depth: int) -> bool:
        """Whether an expression is a pointer or an array."""
        function = frame.function
        if depth > _DEEPEST:
            return False
        if node.type == "binary_expression":
            left = node.child_by_field_name("left")
            return left is not None and self._points(frame, left, depth + 1)
        if node.type == "field_expression":
            named = node.child_by_field_name("field")
            return named is not None and self._is_member(function.text(named))
        if node.type == "parenthesized_expression" and len(node.named_children) == 1:
            return self._points(frame, node.named_children[0], depth + 1)
        if node.type != "identifier":
            return False
        name = function.text(node)
        variable = resolve(function, node, name)
        if variable is None:
            return function.style is Style.METHOD and self._is_member(name)
        declared = variable.param.node if variable.param is not None else _own(variable)
        if declared is not None and any(n.type in _POINTS for n in walk(declared)):
            return True
        value = first_value(variable) if variable.param is None else None
        return value is not None and self._points(frame, value, depth + 1)

    def _is_member(self, name: str) -> bool:
        """Whether every member of this name is a pointer or an array."""
        found = list(self._members(name))
        return bool(found) and all(any(n.type in _POINTS for n in walk(d)) for d in found)

    def _members(self, name: str) -> Iterator[Node]:
        for file in self.program.sources.files.values():
            for field in find(file.root, "field_declaration"):
                for declarator in field.children_by_field_name("declarator"):
                    names = (n for n in walk(declarator) if n.type == "field_identifier")
                    if any(file.text(n) == name for n in names):
                        yield declarator


def _own(variable: Variable) -> Node | None:
    """The part of a declaration that names the variable."""
    declarator = variable.declarator
    if declarator is not None and declarator.type == "init_declarator":
        return declarator.child_by_field_name("declarator")
    return declarator


def returned(function: Function) -> Node | None:
    """The expression that a function returns which does nothing else."""
    statements = [n for n in function.body.named_children if n.type != "comment"]
    if function.asm or len(statements) != 1 or statements[0].type != "return_statement":
        return None
    value = next((n for n in statements[0].named_children if n.type != "comment"), None)
    return None if value is None or any(True for _ in find(value, *_CHANGES)) else value
