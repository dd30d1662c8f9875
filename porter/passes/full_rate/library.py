# SPDX-License-Identifier: Apache-2.0
"""What calls of a library do with what they are handed, as rules say by their names. A function that the sources
declare themselves is none of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.model.scopes import Variable, resolve

_DEEPEST = 6
_AROUND_NAMES = ("template_function", "template_method", "qualified_identifier", "dependent_name")


@dataclass(eq=False)
class LibraryCalls:
    """Asks about the calls of one program."""

    program: Program
    _known: dict[tuple[int, int], tuple[str, bool] | None] = field(default_factory=dict)

    def named(self, function: Function, node: Node) -> tuple[str, bool] | None:
        """The name of what a call calls, with the scopes in front, and whether it is a method; None of a function of
        the sources."""
        key = id(function.file), node.id
        if key not in self._known:
            self._known[key] = self._name(function, node)
        return self._known[key]

    def _name(self, function: Function, node: Node) -> tuple[str, bool] | None:
        callee = _compared(function, node) or node.child_by_field_name("function")
        method = callee is not None and callee.type == "field_expression"
        if callee is not None and method:
            callee = callee.child_by_field_name("field")
        whole = callee
        while callee is not None and callee.type in _AROUND_NAMES:
            callee = callee.child_by_field_name("name") or next(iter(callee.named_children), None)
        if callee is None or whole is None or callee.type not in ("identifier", "field_identifier"):
            return None
        name, start = function.text(callee), function.span(whole).start
        scope = function.file.source[start : function.span(callee).start].decode("utf-8", "replace")
        calls = [c for c in self.program.calls_by_node.get(node.id, ()) if c.caller.file is function.file]
        known = any(self.program.targets(c) for c in calls) or name in self.program.macros.by_name
        own = not method and callee.type == "identifier" and resolve(function, callee, name) is not None
        return None if known or own else ("".join(scope.split()) + name, method)

    def _is(self, function: Function, node: Node, of_function: str, of_method: str) -> bool:
        found = self.named(function, node)
        if found is None:
            return False
        name, method = found
        wanted = of_method if method else of_function
        are = self.program.vocabulary.spellings.are
        return bool(wanted) and (are(wanted, name) or are(wanted, name.rpartition("::")[2]))

    def computes(self, function: Function, node: Node) -> bool:
        """Whether what a call gives follows from its object and arguments, none of which it changes."""
        return (
            self._is(function, node, "computing_function", "computing_method")
            or self._is(function, node, "asking_for_shape", "asking_for_shape")
            or self.element_of(function, node) is not None
        )

    def keeps(self, function: Function, node: Node, shapes: bool) -> bool:
        """Whether a call changes none of its arguments, or no shape of one."""
        kept = self.computes(function, node) or self._is(function, node, "keeping_function", "keeping_method")
        return kept or (shapes and self._is(function, node, "filling_function", ""))

    def elects(self, function: Function, node: Node) -> bool:
        """Whether a call is true in one lane of a warp."""
        return self._is(function, node, "electing_function", "")

    def asks_for_thread(self, function: Function, node: Node) -> bool:
        """Whether a call is true in the thread of a number."""
        return self._is(function, node, "asking_for_thread", "")

    def asks_for_shape(self, function: Function, node: Node) -> bool:
        """Whether a call tells an extent of what it is handed."""
        return self._is(function, node, "asking_for_shape", "asking_for_shape")

    def element_of(self, function: Function, node: Node) -> Node | None:
        """The name of the tensor that a call gives elements of."""
        callee = node.child_by_field_name("function") if node.type == "call_expression" else None
        if callee is None or callee.type != "identifier":
            return None
        variable = resolve(function, callee, function.text(callee))
        return callee if variable is not None and self._is_tensor(variable, 0) else None

    def _is_tensor(self, variable: Variable, depth: int) -> bool:
        """Whether a variable is what a call of the library makes, wherever it is handed in from."""
        if depth > _DEEPEST or variable.ambiguous:
            return False
        if variable.param is not None:
            index = variable.param.index
            calls = self.program.callers(variable.function) if variable.function.style is not Style.KERNEL else []
            return bool(calls) and all(
                index < len(c.args) and self._makes_tensor(c.caller, c.args[index], depth + 1) for c in calls
            )
        declarator = variable.declarator
        value = declarator.child_by_field_name("value") if declarator is not None else None
        return value is not None and self._makes_tensor(variable.function, value, depth + 1)

    def _makes_tensor(self, function: Function, node: Node, depth: int) -> bool:
        if node.type == "identifier":
            variable = resolve(function, node, function.text(node))
            return variable is not None and self._is_tensor(variable, depth)
        if node.type != "call_expression":
            return False
        made = self._is(function, node, "computing_function", "computing_method")
        if made or depth > _DEEPEST:
            return made
        return self.element_of(function, node) is not None


def compared_with(function: Function, node: Node) -> Node | None:
    """The variable that is compared with what a call gives, where the two are read as one call."""
    callee = node.child_by_field_name("function")
    return callee.child_by_field_name("name") if callee is not None and _compared(function, node) is not None else None


def _compared(function: Function, node: Node) -> Node | None:
    """What is called in `i < size<0>(x)`, which is read as the call of `i<size<0>`: no variable is a template."""
    callee = node.child_by_field_name("function")
    if callee is None or callee.type != "template_function":
        return None
    name, inner = callee.child_by_field_name("name"), callee.child_by_field_name("arguments")
    if name is None or inner is None or resolve(function, name, function.text(name)) is None:
        return None
    first = next(iter(inner.named_children), None)
    left = first.child_by_field_name("left") if first is not None and first.type == "binary_expression" else None
    return left if left is not None and left.type in ("identifier", "qualified_identifier") else None
