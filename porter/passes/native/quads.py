# SPDX-License-Identifier: Apache-2.0
"""Which values all lanes have alike that hold elements of one row of a sum: lanes 4q to 4q + 3 of a warp."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.affine import Affine, Scope
from porter.model.functions import Function
from porter.model.pipeline.frames import Wording
from porter.model.program import Program
from porter.model.registers import CASTS
from porter.model.scopes import LOOPS, Variable, resolve
from porter.model.threads import Threads

QUAD = 4
"""Lanes that hold a row of eight columns between them (PTX ISA 9.7.15.5.1, the layout of D)."""
_BRANCHES = ("if_statement", "switch_statement", "conditional_expression", *LOOPS)
_NAMES = ("type_identifier", "template_type", "primitive_type", "field_identifier", "type_descriptor",
          "sized_type_specifier", "qualified_identifier")  # fmt: skip


class Quads:
    """Asks about the kernel `function`, and threads `who` of blocks of `threads`."""

    def __init__(self, program: Program, function: Function, threads: int, who: frozenset[int]) -> None:
        self.program, self.function = program, function
        self._differ, self._wording = Threads(program), Wording(program)
        self._affine = Affine(program, threads, sorted(who))
        self._asked: set[tuple[int, int, str]] = set()

    def alike(self, node: Node) -> bool:
        """Whether the lanes of a row have one value of an expression. What memory holds at one place is one value."""
        function = self.function
        if any(True for _ in find(node, "lambda_expression", "update_expression", "assignment_expression")):
            return False
        if not self._differ.differ(function, node) or self._is_number(node):
            return True
        if node.type == "identifier":
            return self._variable(resolve(function, node, function.text(node)))
        if node.type == "call_expression":
            arguments = node.child_by_field_name("arguments")
            return self._is_function(node) and arguments is not None and self._all(arguments)
        return bool(node.named_children) and not self._differ.tells(function, node) and self._all(node)

    def _all(self, node: Node) -> bool:
        return all(self.alike(c) for c in node.named_children if c.type not in _NAMES and c.type != "comment")

    def _is_number(self, node: Node) -> bool:
        """Whether an integer is known to be the same in the lanes of a row."""
        found = self._affine.value(Scope(self.function), node)
        return found is not None and all(
            all(v == vector[at // QUAD * QUAD] for at, v in enumerate(vector)) for vector in found.values()
        )

    def _is_function(self, node: Node) -> bool:
        """Whether a call gives all who hand it the same the same."""
        callee = node.child_by_field_name("function")
        name = self.function.text(callee) if callee is not None else ""
        if name.split("<")[0].strip() in CASTS or (callee is not None and callee.type == "primitive_type"):
            return True
        calls = self.program.calls_by_node.get(node.id, ())
        return bool(calls) and name not in self.program.macros.by_name and not any(map(self._differ.call_differs, calls))

    def _variable(self, variable: Variable | None) -> bool:
        if variable is None or variable.param is not None or variable.ambiguous or variable.function is not self.function:
            return False
        if variable.key in self._asked:
            return True
        self._asked.add(variable.key)
        try:
            values = list(self._set(variable))
            return bool(values) and all(v is not None and self.alike(v) and self._comes_alike(v) for v in values)
        finally:
            self._asked.discard(variable.key)

    def _set(self, variable: Variable) -> Iterator[Node | None]:
        """What a variable is set to; None for what is not followed."""
        function, name = self.function, variable.name
        first = variable.declarator.child_by_field_name("value") if variable.declarator is not None else None
        if first is not None:
            yield first
        if not self._wording.changes(function, name):
            return
        for node in find(function.body, "assignment_expression", "update_expression"):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            if target is not None and function.text(target) == name:
                yield node.child_by_field_name("right") or first
        outputs = [o for s in function.asm for o in s.operands if o.is_output and o.expr.strip() == name]
        handed = [a for c in function.calls for a in c.args if function.text(a).replace(" ", "") == f"&{name}"]
        if outputs or handed:
            yield None

    def _comes_alike(self, node: Node) -> bool:
        """Whether the lanes of a row come to a place together."""
        inner, above = node, node.parent
        while above is not None and inner.id != self.function.body.id:
            if above.type in _BRANCHES:
                condition = above.child_by_field_name("condition")
                if condition is not None and condition.id != inner.id and not self.alike(condition):
                    return False
            inner, above = above, above.parent
        return True
