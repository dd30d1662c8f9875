# SPDX-License-Identifier: Apache-2.0
"""What a conversion does with the register that it is made of. `(name)(x)` and `name(x)` are one where the name is a
type's: the sources declare it, or use it where nothing but a type may stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.functions import ClassScope, Function, Param, Path, Scope, Style
from porter.model.names.lookup import Found, Known, Site
from porter.model.names.types import Type, builtin
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.model.uses import Use

_DEPTH = 8
"""Macros, aliases and classes that lead to each other."""
_LOOSE = re.compile(r"[&*]|\b(?:decltype|\w*_reference(?:_t|_wrapper)?)\b")
"""What the text of a type may have that is a reference to its operand."""
_NAME = re.compile(r"(?:::\s*)?\w+(?:\s*::\s*\w+)*")
_TYPES = ("type_identifier", "qualified_identifier", "template_type", "dependent_type")


class Casts:
    """Asks about one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = program.names

    def of(self, function: Function, at: Node, written: str, is_type: bool) -> Use | None:
        """What making a value of the type `written` at a place of a function does with a register that is given to
        it; None where the text may name something else. `is_type`: it stands where only a type may."""
        return self._of(self.names.lookup.site(function, at), written, is_type, 0)

    def _of(self, site: Site, written: str, is_type: bool, depth: int) -> Use | None:
        written = written.strip()
        while written.startswith("(") and written.endswith(")"):
            written = written[1:-1].strip()
        bodies = self.program.macros.by_name.get(written, ()) if depth < _DEPTH else ()
        if any(m.params is not None for m in bodies):
            return None
        if bodies:
            found = {self._of(site, m.joined.decode("utf-8", "replace"), is_type, depth + 1) for m in bodies}
            return found.pop() if len(found) == 1 else None
        path = self.names.declared.path_from_text(written)
        if not is_type and not (self._is_type(path, site) if path is not None else builtin(written) is not None):
            return None
        return Use.READ if self._copies(site, written, path) else Use.UNKNOWN

    # --- whether a name is a type's

    def _is_type(self, path: Path, site: Site) -> bool:
        lookup, last = self.names.lookup, path.steps[-1]
        if len(path.steps) == 1 and not path.rooted:
            if site.function is None or site.node is None or resolve(site.function, site.node, last.name) is not None:
                return False
            if last.name in lookup.template_names(site):
                kinds = [p.kind for p in lookup.template_parameters(site) if p.name == last.name]
                return kinds[:1] == ["type"]
            found = lookup.unqualified(site, last.name)
        else:
            scopes, known = lookup.scopes(Path(path.steps[:-1], path.rooted or len(path.steps) == 1), site)
            if known is Known.DEPENDENT:
                # without `typename` it is a value's or a function's
                return False
            found = Found()
            for scope in scopes:
                found.add(lookup.member_of_namespace(scope, last.name))
        if found.declared:
            return bool(found.classes or found.aliases) and not (found.functions or found.value)
        return self._is_toolkit(path) or (last.args is None and self._is_used_as_type(path, site))

    def _is_toolkit(self, path: Path) -> bool:
        written = "::".join(s.name for s in path.steps)
        return all(s.args is None for s in path.steps) and builtin(written) is not None

    def _is_used_as_type(self, path: Path, site: Site) -> bool:
        """Whether the functions of the same scope use the name, which no file declares, as a type's."""
        function, name = site.function, _joined(path)
        if function is None or self._is_apart(function, path):
            return False
        scope: Scope | None = site.scope
        while scope is not None and name not in self._used.get(id(scope), ()):
            if not isinstance(scope, ClassScope) or not self.names.lookup.bases_known(scope):
                return False
            scope = scope.parent
        return scope is not None

    @cached_property
    def _used(self) -> dict[int, set[str]]:
        """By id of a scope: names that its functions, or its classes' members, use as types and no file declares."""
        found: dict[int, set[str]] = {}
        for site, text, node in self._type_places():
            path = self.names.declared.path_from_text(text(node))
            path = self.names.lookup.expanded(path) if path is not None else None
            if path is None or path.opaque or not self._is_undeclared(path, site):
                continue
            if site.function is None or not self._is_apart(site.function, path):
                space = next(s for s in site.scope.above() if site.function is not None or not s.is_class)
                found.setdefault(id(space), set()).add(_joined(path))
        return found

    def _type_places(self) -> Iterator[tuple[Site, Callable[[Node], str], Node]]:
        lookup = self.names.lookup
        for function in self.program.functions:
            if function.style is not Style.MACRO:
                site = lookup.site(function, function.body)
                yield from ((site, function.text, n) for n in _types_of_function(function))
        for scope in lookup.index.classes:
            # what the class does not declare is a name of the scope around it
            for field in _fields(scope) if scope.file is not None and lookup.bases_known(scope) else ():
                kind = field.child_by_field_name("type")
                if kind is not None and kind.type in _TYPES and scope.file is not None:
                    yield Site(scope), scope.file.text, kind

    def _is_undeclared(self, path: Path, site: Site) -> bool:
        if any(s.args is not None for s in path.steps) or not path.steps:
            return False
        if len(path.steps) > 1 or path.rooted:
            return True
        name = path.steps[0].name
        return name not in self.names.lookup.template_names(site) and not (
            self.names.lookup.unqualified(site, name).declared
        )

    def _is_apart(self, function: Function, path: Path) -> bool:
        """Whether a function may see a name that others of its scope do not: by a using-directive or -declaration."""
        inner: Function | None = function
        while inner is not None:
            local = self.names.lookup.declared_in(inner)
            if local.directives or any(name == path.steps[0].name for _, name, _ in (*local.using, *local.namespaces)):
                return True
            inner = inner.parent
        return False

    # --- whether a value of a type is a copy

    def _copies(self, site: Site, written: str, path: Path | None) -> bool:
        """Whether a value of a type keeps no reference to a number that it is made of."""
        declared = self.names.declared
        if path is not None and _NAME.fullmatch(written):
            kind = declared.path(path, site, written)
        else:
            kind = declared.from_text(written, site)
        if kind.reference or kind.pointers or kind.extents:
            return False
        if kind.kind == "class":
            return all(self.made_of_copies(c, kind) for c in kind.classes)
        if kind.kind == "name":
            # a class template of another's may be one of references
            return not kind.name.endswith(">")
        return kind.kind != "unknown" or not self._may_refer(site, written, 0)

    def _may_refer(self, site: Site, written: str, depth: int) -> bool:
        """Whether the text of a type, or of an alias that it names, has something of a reference in it."""
        path = self.names.declared.path_from_text(written)
        if _LOOSE.search(written) or depth > _DEPTH:
            return True
        if path is None or len(path.steps) > 1 or path.rooted:
            return False
        aliases = self.names.lookup.unqualified(site, path.steps[0].name).aliases
        return any(
            self._may_refer(self.names.lookup.alias_site(a), a.file.text(a.type_node), depth + 1) for a in aliases
        )

    def copies_number(self, function: Function, param: Param, depth: int = 0) -> bool:
        """Whether a number that is given to a parameter is copied: it is taken by value, or becomes an object that
        keeps no reference to it."""
        kind = self.names.type_of_param(function, param)
        if kind.pointers or kind.extents:
            # no number becomes a pointer
            return kind.kind not in ("param", "name", "unknown")
        if kind.kind == "param":
            return not kind.reference and kind.name in function.template_params
        if kind.kind == "arithmetic":
            return not kind.reference
        if kind.kind == "class":
            return all(self.made_of_copies(c, kind, depth + 1) for c in kind.classes)
        return kind.kind == "toolkit"

    def made_of_copies(self, scope: ClassScope, kind: Type, depth: int = 0) -> bool:
        """Whether no constructor of a class can refer to the number that an object is made from, and no member."""
        if scope.node is None or scope.bases or depth > _DEPTH:
            return False
        if any(n.type.endswith("reference_declarator") for field in _fields(scope) for n in walk(field)):
            return False
        own = {p.name for p in scope.params} if kind.args and not any("&" in a for a in kind.args) else set()
        for function in (s.function for s in scope.functions.get(scope.name, ())):
            for param in function.params:
                given = self.names.type_of_param(function, param)
                is_own = given.kind == "param" and given.name in own and given.is_plain and not given.reference
                if scope not in given.classes and not is_own and not self.copies_number(function, param, depth):
                    return False
        return True


def _fields(scope: ClassScope) -> Iterator[Node]:
    body = scope.node.child_by_field_name("body") if scope.node is not None else None
    for node in body.named_children if body is not None else ():
        declarators = node.children_by_field_name("declarator")
        if node.type == "field_declaration" and all(d.type != "function_declarator" for d in declarators):
            yield node


def _joined(path: Path) -> str:
    return ("::" if path.rooted else "") + "::".join(s.name for s in path.steps)


def _types_of_function(function: Function) -> Iterator[Node]:
    """The names that stand in a function, or its head, where only a type may: two words in a row, or an initializer
    behind. `a * b;` may be a product."""
    for param in function.params:
        kind = param.node.child_by_field_name("type") if param.node is not None else None
        if kind is not None and kind.type in _TYPES:
            yield kind
    for node in function.own_nodes("declaration"):
        kind = node.child_by_field_name("type")
        declarators = node.children_by_field_name("declarator")
        if kind is None or kind.type not in _TYPES or not declarators:
            continue
        if declarators[0].type in ("identifier", "array_declarator", "init_declarator"):
            yield kind
