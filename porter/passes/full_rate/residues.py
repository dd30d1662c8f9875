# SPDX-License-Identifier: Apache-2.0
"""Expressions as sums of multiples, up to multiples of a number: `tile * 256 + half * 64 + 3` is 64 times `half` and 3
where multiples of 128 do not count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.model.functions import Function
from porter.model.pipeline.frames import Frame, Wording, first_value
from porter.model.program import Program
from porter.model.registers import CASTS
from porter.model.scopes import resolve

_DEEPEST = 12
_INTEGERS = ("int", "unsigned", "uint32_t", "int32_t", "size_t", "int64_t", "uint64_t", "long")


@dataclass(frozen=True)
class Sum:
    """`constant`, and `factors` of terms by their text."""

    constant: int = 0
    factors: dict[str, int] = field(default_factory=dict)

    def times(self, factor: int, modulo: int) -> Sum:
        found = {name: by * factor % modulo for name, by in self.factors.items()}
        return Sum(self.constant * factor % modulo, {name: by for name, by in found.items() if by})

    def plus(self, other: Sum, modulo: int) -> Sum:
        names = [*self.factors, *(n for n in other.factors if n not in self.factors)]
        found = {n: (self.factors.get(n, 0) + other.factors.get(n, 0)) % modulo for n in names}
        return Sum((self.constant + other.constant) % modulo, {n: by for n, by in found.items() if by})


@dataclass(eq=False)
class Residues:
    """Asks about one program. `value` gives what a constant of a function comes to; multiples of `modulo` are none."""

    program: Program
    modulo: int
    value: Callable[[Frame, str], int | None]

    def of(self, frame: Frame, node: Node, depth: int = 0) -> Sum:
        """An integer expression, in words of the functions whose variables it is made of."""
        text = frame.function.text(node)
        known = self.value(frame, text)
        if known is not None:
            return Sum(known % self.modulo)
        if depth > _DEEPEST:
            return Sum(0, {text: 1})
        inner = _within(frame.function, node)
        if inner is not None:
            return self.of(frame, inner, depth + 1)
        if node.type == "binary_expression":
            return self._binary(frame, node, depth)
        if node.type == "identifier":
            return self._named(frame, node, depth)
        return Sum(0, {text: 1})

    def _binary(self, frame: Frame, node: Node, depth: int) -> Sum:
        function = frame.function
        sign, (left, right) = function.text(node.children[1]), (node.children[0], node.children[2])
        if sign in ("+", "-"):
            one, other = (self.of(frame, n, depth + 1) for n in (left, right))
            return one.plus(other.times(1 if sign == "+" else -1, self.modulo), self.modulo)
        values = [self.value(frame, function.text(n)) for n in (left, right)]
        if sign == "*" and values[1] is not None:
            return self.of(frame, left, depth + 1).times(values[1], self.modulo)
        if sign == "*" and values[0] is not None:
            return self.of(frame, right, depth + 1).times(values[0], self.modulo)
        if sign == "<<" and values[1] is not None:
            return self.of(frame, left, depth + 1).times(1 << values[1], self.modulo)
        return Sum(0, {function.text(node): 1})

    def _named(self, frame: Frame, node: Node, depth: int) -> Sum:
        function, name = frame.function, frame.function.text(node)
        variable = resolve(function, node, name)
        owner = next((f for f in frame.chain if variable is not None and f.function is variable.function), None)
        if variable is None or owner is None or Wording(self.program).changes(variable.function, name):
            return Sum(0, {name: 1})
        if variable.param is not None:
            given = owner.bound.get(name)
            return Sum(0, {name: 1}) if given is None or owner.outer is None else self.of(owner.outer, given, depth + 1)
        value = first_value(variable)
        found = self.of(owner, value, depth + 1) if value is not None else None
        # what is not understood goes by the name that it has
        return Sum(0, {name: 1}) if found is None or _is_opaque(found) else found


def _is_opaque(found: Sum) -> bool:
    return not found.constant and list(found.factors.values()) == [1]


def _within(function: Function, node: Node) -> Node | None:
    """What stands in parentheses, or in a cast."""
    if node.type == "parenthesized_expression" and len(node.named_children) == 1:
        return node.named_children[0]
    if node.type == "cast_expression":
        return node.child_by_field_name("value")
    callee = node.child_by_field_name("function") if node.type == "call_expression" else None
    listed = node.child_by_field_name("arguments")
    name = function.text(callee).split("<")[0].strip() if callee is not None else ""
    given = listed.named_children if listed is not None else []
    return given[0] if name in (*CASTS, *_INTEGERS) and len(given) == 1 else None
