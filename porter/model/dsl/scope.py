# SPDX-License-Identifier: Apache-2.0
"""Definitions and uses of names in one function of a CuTe DSL file."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import libcst as cst

from porter.lang.cute_dsl import DslFile, Statement, assigned, walk


class Unrecognized(Exception):
    """A statement does not have the form that the port knows. `node` is where."""

    def __init__(self, what: str, node: cst.CSTNode) -> None:
        super().__init__(what)
        self.what, self.node = what, node


class Scope:
    """The statements of a function, by what they define and use."""

    def __init__(self, file: DslFile, function: cst.FunctionDef) -> None:
        self.file, self.function = file, function

    @functools.cached_property
    def statements(self) -> list[Statement]:
        """All statements of the function, nested ones included, in source order."""
        kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        return [n for n in walk(self.function.body) if isinstance(n, kinds)]

    @functools.cached_property
    def _definitions(self) -> dict[str, list[tuple[Statement, cst.BaseExpression]]]:
        found: dict[str, list[tuple[Statement, cst.BaseExpression]]] = {}
        for statement in self.statements:
            pair = assigned(statement)
            if pair is not None:
                found.setdefault(self.file.text(pair[0]), []).append((statement, pair[1]))
        return found

    def definitions(self, target: str) -> list[tuple[Statement, cst.BaseExpression]]:
        """The assignments to a name or an attribute, as statement and value."""
        return self._definitions.get(target, [])

    def definition(self, target: str) -> tuple[Statement, cst.BaseExpression] | None:
        """The only assignment to a name, or None."""
        found = self.definitions(target)
        return found[0] if len(found) == 1 else None

    def values(self, name: str) -> list[cst.BaseExpression]:
        """Everything that a name is bound to: assigned alone or in a tuple, added to, or looped over."""
        return self._values.get(name, [])

    @functools.cached_property
    def _values(self) -> dict[str, list[cst.BaseExpression]]:
        found: dict[str, list[cst.BaseExpression]] = {}
        for node in walk(self.function.body):
            if isinstance(node, cst.Assign):
                targets, value = [t.target for t in node.targets], node.value
            elif isinstance(node, (cst.AnnAssign, cst.AugAssign)) and node.value is not None:
                targets, value = [node.target], node.value
            elif isinstance(node, cst.For):
                targets, value = [node.target], node.iter
            else:
                continue
            for name in (n for t in targets if isinstance(t, (cst.Name, cst.Tuple)) for n in walk(t)):
                if isinstance(name, cst.Name):
                    found.setdefault(name.value, []).append(value)
        return found

    def resolve(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """What a name was assigned, where it is a name that is assigned once; else the expression itself."""
        found = self.definition(self.file.text(node)) if isinstance(node, cst.Name) else None
        return found[1] if found is not None else node

    def uses(self, name: str) -> list[cst.Name]:
        """Every place where a local name is read."""
        return [n for n in self._names.get(name, ()) if not self._is_target(n)]

    @functools.cached_property
    def _names(self) -> dict[str, list[cst.Name]]:
        found: dict[str, list[cst.Name]] = {}
        for node in walk(self.function.body):
            if isinstance(node, cst.Name):
                parent = self.file.parent(node)
                if isinstance(parent, cst.Attribute) and parent.attr is node:
                    continue
                if isinstance(parent, cst.Arg) and parent.keyword is node:
                    continue
                found.setdefault(node.value, []).append(node)
        return found

    def _is_target(self, name: cst.Name) -> bool:
        parent = self.file.parent(name)
        return isinstance(parent, (cst.AssignTarget, cst.AnnAssign)) and parent.target is name

    def statement_of(self, node: cst.CSTNode) -> Statement:
        """The innermost statement around a node."""
        current: cst.CSTNode | None = node
        while not isinstance(current, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            assert current is not None
            current = self.file.parent(current)
        return current

    def ancestors(self, node: cst.CSTNode) -> list[cst.BaseCompoundStatement]:
        """The compound statements around a node inside the function, innermost first."""
        found: list[cst.BaseCompoundStatement] = []
        current = self.file.parent(node)
        while current is not None and current is not self.function:
            if isinstance(current, cst.BaseCompoundStatement):
                found.append(current)
            current = self.file.parent(current)
        return found

    def block(self, statement: Statement) -> list[Statement]:
        """The statements of the block that a statement stands in."""
        block = self.file.parent(statement)
        return [
            s for s in getattr(block, "body", ()) if isinstance(s, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
        ]

    def calls(self, within: cst.CSTNode | None = None) -> Iterator[cst.Call]:
        for node in walk(within or self.function.body):
            if isinstance(node, cst.Call):
                yield node

    def method_calls(self, receiver: str, method: str, within: cst.CSTNode | None = None) -> list[cst.Call]:
        """Calls `receiver.method(...)`."""
        found = []
        for call in self.calls(within):
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == method and self.file.text(func.value) == receiver:
                found.append(call)
        return found

    def calls_of(self, name: str, within: cst.CSTNode | None = None) -> list[cst.Call]:
        """Calls of a qualified name."""
        return [c for c in self.calls(within) if self.file.call_name(c) == name]
