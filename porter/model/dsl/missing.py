# SPDX-License-Identifier: Apache-2.0
"""Modules of a CuTe DSL file that are not found, where a kernel may stand in them: what a class is derived from, what
decorates a function, what is called where kernels are made or compiled.

A name for which another import stands too, as in the branch for an `ImportError`, is found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from porter.diagnostics import Location
from porter.lang.cute_dsl import DslFile, Reference, statements, within
from porter.lang.dsl_modules import Closure, Module
from porter.model.dsl.names import Names

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class MissingName:
    """A full name that is not found, and where it is used first."""

    name: str
    module: str
    """What was looked for: the module, or the module that is there without the name."""
    where: Location
    there: bool
    """Whether the module is there, and does not have the name."""


def missing_names(closure: Closure, names: Names) -> list[MissingName]:
    """What is not found and may hold kernels, in the order of modules and places."""
    found: dict[str, MissingName] = {}
    own = [m for m in closure.open if m.own]
    absent = {name: how for m in own for name, how in _absent(closure, m)}
    for module in own:
        dynamic = module.mentions(b"import_module", b"__import__")
        context = _Context(closure, module, names) if absent or dynamic else None
        uses = _uses(closure, module, absent, context) if absent and context is not None else ()
        for one in (*uses, *(_chosen_bases(module, context) if dynamic and context is not None else ())):
            found.setdefault(one.name, one)
    return list(found.values())


def _chosen_bases(module: Module, context: _Context) -> Iterator[MissingName]:
    """Classes with kernels whose base comes from a module that is chosen where the program runs."""
    chosen = {
        target.id: statement.value
        for statement in statements(module.file.module.body)
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for node in statements(module.file.module.body):
        for base in node.bases if isinstance(node, ast.ClassDef) and context.speaks(node) else ():
            first = next((n.id for n in ast.walk(base) if isinstance(n, ast.Name)), "")
            value = chosen.get(first, base)
            calls = [n.func for n in ast.walk(value) if isinstance(n, ast.Call)]
            if any(getattr(f, "attr", getattr(f, "id", "")) in ("import_module", "__import__") for f in calls):
                where = module.file.location(module.file.span(base))
                yield MissingName(module.file.text(base), ast.unparse(value)[:80], where, False)


def _absent(closure: Closure, module: Module) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Full names that imports of a module take from nowhere, with the module that was looked for and whether it is
    there."""
    for statement in module.file.import_statements:
        if isinstance(statement, ast.Import):
            yield from ((a.name, (a.name, False)) for a in statement.names if a.name in module.absent)
            continue
        origin = module.file.origin(statement)
        for alias in statement.names:
            name = f"{origin}.{alias.name}"
            if origin in module.absent or name in module.absent:
                yield name, (name if name in module.absent else origin, False)
            elif alias.name != "*" and _lacks(closure, origin, alias.name):
                yield name, (origin, True)


def _lacks(closure: Closure, origin: str, name: str, depth: int = 8) -> bool:
    """Whether a module of the project does not have a name."""
    module = closure.modules.get(origin)
    if module is None or not module.own or f"{origin}.{name}" in closure.modules or not depth:
        return False
    if name in _defined(module.file) or "__getattr__" in _defined(module.file):
        return False
    return all(_lacks(closure, star, name, depth - 1) for star in module.file.stars) and not any(
        star not in closure.modules for star in module.file.stars
    )


def _defined(file: DslFile) -> set[str]:
    """The names that a module sets, outside of functions and classes."""
    found: set[str] = set()
    for statement in statements(file.module.body, nested=False):
        if isinstance(statement, (*_Function, ast.ClassDef)):
            found.add(statement.name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.alias):
                found.add(node.asname or node.name.partition(".")[0])
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "globals":
                found.add("__getattr__")
    return found


class _Context:
    """Where names of a module are used."""

    def __init__(self, closure: Closure, module: Module, names: Names) -> None:
        self.module, self.file = module, module.file
        tree = self.file.module
        self.parents = {id(c): n for n in ast.walk(tree) for c in ast.iter_child_nodes(n)}
        self._dialect = {id(r.chain.node) for r in self.file.all_references
                         if r.name.partition(".")[0] in self.file.dialect.packages}  # fmt: skip

        def is_mark(name: str) -> bool:
            return any(names.is_a(closure.canonical(name), of) for of in ("kernel", "host"))

        self._marked = {id(f) for f in self.file.decorated(is_mark)}

    def _above(self, node: ast.AST) -> Iterator[ast.AST]:
        at = self.parents.get(id(node))
        while at is not None:
            yield at
            at = self.parents.get(id(at))

    def speaks(self, node: ast.AST) -> bool:
        """Whether names of the dialect stand in something, or functions that are compiled by it."""
        return any(id(n) in self._dialect or id(n) in self._marked for n in ast.walk(node))

    def may_hide(self, reference: Reference, own: bool) -> bool:
        """Whether a kernel, or a part of one, may be what a use names. `own`: it is looked for in the project."""
        child: ast.AST = reference.chain.node
        for node in self._above(child):
            if isinstance(node, ast.arg) or (isinstance(node, ast.AnnAssign) and child is node.annotation):
                return False
            if isinstance(node, _Function) and child is node.returns:
                return False
            if isinstance(node, ast.ClassDef) and child in node.bases:
                return own or self.speaks(node) or self._is_used(node.name)
            if isinstance(node, _Function) and child in node.decorator_list:
                return own
            if isinstance(node, ast.Call) and node.func is not child and id(node.func) in self._dialect:
                return True
            if isinstance(node, _Function) and (id(node) in self._marked or (own and self.speaks(node))):
                return True
            if isinstance(node, ast.Module):
                return own and self.speaks(child)
            child = node
        return False

    def _is_used(self, name: str) -> bool:
        """Whether a class is named where the dialect is used."""
        for node in ast.walk(self.file.module):
            if isinstance(node, ast.Name) and node.id == name:
                above = list(self._above(node))
                outer = next((n for n in above if isinstance(n, _Function)), ([node, *above])[-2])
                if self.speaks(outer):
                    return True
        return False


def _uses(
    closure: Closure, module: Module, absent: dict[str, tuple[str, bool]], context: _Context
) -> Iterator[MissingName]:
    stars = {name.removesuffix(".*") for name in absent if name.endswith(".*")}
    by_node: dict[int, list[Reference]] = {}
    for reference in module.file.all_references:
        by_node.setdefault(id(reference.chain.node), []).append(reference)
    for references in by_node.values():
        missing = [(r, n) for r in references for n in [_missing(closure, r.name, absent, stars)] if n is not None]
        if len(missing) < len(references):
            continue
        reference, name = missing[0]
        looked_for, there = absent.get(name) or (name, False)
        if context.may_hide(reference, there or _is_own(module, looked_for)):
            where = module.file.location(module.file.span(reference.chain.node))
            yield MissingName(reference.name if name in stars else name, looked_for, where, there)


def _is_own(module: Module, name: str) -> bool:
    top = name.partition(".")[0]
    return not top or top in (module.name.partition(".")[0], module.file.package.partition(".")[0])


def _missing(closure: Closure, name: str, absent: dict[str, tuple[str, bool]], stars: set[str]) -> str | None:
    """The import that a name comes from, if that is not found: also where another module hands it on."""
    made = closure.canonical(name)
    for one in absent:
        if not one.endswith(".*") and (within(made, one) or within(name, one)):
            return one
    return next((star for star in stars if within(made, star)), None)
