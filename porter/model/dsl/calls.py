# SPDX-License-Identifier: Apache-2.0
"""A kernel and the helpers of its file that it calls: which function a call means, and which values its names have."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from porter.lang.cute_dsl import DslFile, walk
from porter.model.dsl.scope import Scope

_DEEPEST = 8
"""Calls in calls that are followed; recursion ends there."""


class CallGraph:
    """`functions` are the kernel and the functions and methods of its file that it reaches."""

    def __init__(self, file: DslFile, kernel: cst.FunctionDef) -> None:
        self.file = file
        self.kernel = Scope(file, kernel)
        self._by_name: dict[str, list[cst.FunctionDef]] = {}
        for function in file.functions():
            self._by_name.setdefault(function.name.value, []).append(function)
        self.functions = self._reached()

    def _reached(self) -> list[Scope]:
        found, todo = [self.kernel], [self.kernel]
        while todo:
            for call in todo.pop().calls():
                target = self.target(call)
                if target is not None and all(target is not s.function for s in found):
                    found.append(Scope(self.file, target))
                    todo.append(found[-1])
        return found

    def target(self, call: cst.Call) -> cst.FunctionDef | None:
        """The function of this file that `name(...)` or `object.name(...)` calls, where just one has the name."""
        func = call.func
        if isinstance(func, cst.Attribute) and not isinstance(func.value, cst.Name):
            return None
        name = func.attr if isinstance(func, cst.Attribute) else func
        candidates = self._by_name.get(name.value, []) if isinstance(name, cst.Name) else []
        return candidates[0] if len(candidates) == 1 else None

    def bound(self, function: cst.FunctionDef, call: cst.Call) -> dict[str, cst.BaseExpression]:
        """Parameters of a function by the arguments of a call."""
        params = [p.name.value for p in function.params.params]
        static = any(self.file.text(d.decorator) == "staticmethod" for d in function.decorators)
        if params and params[0] == "self" and not static:
            params = params[1:]
        found = {n: a.value for n, a in zip(params, (a for a in call.args if a.keyword is None), strict=False)}
        found.update({a.keyword.value: a.value for a in call.args if a.keyword is not None})
        return found

    def callers(self, function: cst.FunctionDef) -> list[tuple[Scope, cst.Call]]:
        return [(s, c) for s in self.functions for c in s.calls() if self.target(c) is function]

    def constant(self, node: cst.BaseExpression) -> str:
        """A literal without parentheses, or the only one that is assigned to an attribute or a name."""
        text = self.file.text(node)
        if isinstance(node, (cst.Attribute, cst.Name)):
            scopes = [Scope(self.file, f) for f in self.file.functions()]
            values = [self.file.text(v) for s in scopes for _, v in s.definitions(text)]
            text = values[0] if len(values) == 1 else text
        return ", ".join(part.strip() for part in text.strip("()").split(","))

    def reaches(self, node: cst.CSTNode, wanted: Collection[str], depth: int = 0) -> bool:
        """Whether one of these qualified names is called in a node or in what it calls."""
        for inner in walk(node):
            if isinstance(inner, cst.Call):
                if self.file.call_name(inner) in wanted:
                    return True
                target = self.target(inner)
                if target is not None and depth < _DEEPEST and self.reaches(target.body, wanted, depth + 1):
                    return True
        return False
