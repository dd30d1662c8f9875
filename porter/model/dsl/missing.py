# SPDX-License-Identifier: Apache-2.0
"""Modules of a CuTe DSL file that are not found, where a kernel may stand in them: what a class is derived from, what
decorates a function, what is called where kernels are made or compiled.

A name for which another import stands too, as in the branch for an `ImportError`, is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from porter.diagnostics import Location
from porter.lang.cute_dsl import DslFile, Reference, listed, within
from porter.lang.dsl_modules import Closure, Module
from porter.lang.python import called, spelled, statements, walk
from porter.model.dsl.names import Names


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
        target.target.value: statement.value
        for statement in statements(module.file.module)
        if isinstance(statement, cst.Assign)
        for target in statement.targets
        if isinstance(target.target, cst.Name)
    }
    for node in statements(module.file.module):
        bases = node.bases if isinstance(node, cst.ClassDef) and context.speaks(node) else ()
        for base in (b.value for b in bases if not b.star):
            first = next((n.value for n in walk(base) if isinstance(n, cst.Name)), "")
            value = chosen.get(first, base)
            calls = [called(n) for n in walk(value) if isinstance(n, cst.Call)]
            if any(name in ("import_module", "__import__") for name in calls):
                where = module.file.location(module.file.span(base))
                yield MissingName(module.file.text(base), spelled(value)[:80], where, False)


def _absent(closure: Closure, module: Module) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Full names that imports of a module take from nowhere, with the module that was looked for and whether it is
    there."""
    for statement in module.file.import_statements:
        if isinstance(statement, cst.Import):
            yield from ((name, (name, False)) for name, _ in listed(statement) if name in module.absent)
            continue
        origin = module.file.origin(statement)
        for taken, _ in listed(statement):
            name = f"{origin}.{taken}"
            if origin in module.absent or name in module.absent:
                yield name, (name if name in module.absent else origin, False)
            elif taken != "*" and _lacks(closure, origin, taken):
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
    for statement in statements(file.module, nested=False):
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            found.add(statement.name.value)
            continue
        for node in walk(statement):
            if isinstance(node, cst.Name) and file.is_set(node):
                found.add(node.value)
            elif isinstance(node, (cst.Import, cst.ImportFrom)):
                found |= {local or name.partition(".")[0] for name, local in listed(node)}
            elif isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "globals":
                found.add("__getattr__")
    return found


class _Context:
    """Where names of a module are used."""

    def __init__(self, closure: Closure, module: Module, names: Names) -> None:
        self.module, self.file = module, module.file
        self._dialect = {r.chain.node for r in self.file.all_references
                         if r.name.partition(".")[0] in self.file.dialect.packages}  # fmt: skip

        def is_mark(name: str) -> bool:
            return any(names.is_a(closure.canonical(name), of) for of in ("kernel", "host"))

        self._marked = set(self.file.decorated(is_mark))

    def speaks(self, node: cst.CSTNode) -> bool:
        """Whether names of the dialect stand in something, or functions that are compiled by it."""
        return any(n in self._dialect or n in self._marked for n in walk(node))

    def may_hide(self, reference: Reference, own: bool) -> bool:
        """Whether a kernel, or a part of one, may be what a use names. `own`: it is looked for in the project."""
        child: cst.CSTNode = reference.chain.node
        for node in self.file.above(child):
            if isinstance(node, cst.Annotation):
                return False
            if isinstance(node, cst.ClassDef) and child in node.bases:
                return own or self.speaks(node) or self._is_used(node.name.value)
            if isinstance(node, cst.FunctionDef) and child in node.decorators:
                return own
            if isinstance(node, cst.Call) and node.func is not child and node.func in self._dialect:
                return True
            if isinstance(node, cst.FunctionDef) and (node in self._marked or (own and self.speaks(node))):
                return True
            if isinstance(node, cst.Module):
                return own and self.speaks(child)
            child = node
        return False

    def _is_used(self, name: str) -> bool:
        """Whether a class is named where the dialect is used."""
        for node in walk(self.file.module):
            if isinstance(node, cst.Name) and node.value == name:
                above = list(self.file.above(node))
                outer = next((n for n in above if isinstance(n, cst.FunctionDef)), ([node, *above])[-2])
                if self.speaks(outer):
                    return True
        return False


def _uses(
    closure: Closure, module: Module, absent: dict[str, tuple[str, bool]], context: _Context
) -> Iterator[MissingName]:
    stars = {name.removesuffix(".*") for name in absent if name.endswith(".*")}
    by_node: dict[cst.CSTNode, list[Reference]] = {}
    for reference in module.file.all_references:
        by_node.setdefault(reference.chain.node, []).append(reference)
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
