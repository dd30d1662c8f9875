# SPDX-License-Identifier: Apache-2.0
"""Whether a name that the sources do not declare is that of one library's function or constant.

The library's headers are not read, so that lookup does not find the name: what may bring it, the namespaces around the
place, using-declarations and using-directives, tells. Where a header of the project is not at hand either, a name may
be one that the header declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum

from tree_sitter import Node

from porter.model.functions import Alias, ClassScope, Function, Path, Scope, Style
from porter.model.names.lookup import Local, Lookup, Site, sees
from porter.model.names.paths import path_of
from porter.model.scopes import resolve

_DEPTH = 8
"""Aliases and using-declarations that lead to each other."""


class Verdict(Enum):
    YES = "it is the library's"
    NO = "it is something else"
    MAYBE = "the sources do not tell"


@dataclass(frozen=True, eq=False)
class _Home:
    """A namespace that a prefix names. `scope` is None if the sources do not open it."""

    path: tuple[str, ...]
    scope: Scope | None


class Outside:
    """Asks about one source set. `macros` has every body of each macro without parameters, `called` the names of those
    with some; `complete` says that every header of the project was read. `declared`: what the sources declare in the
    library's namespace is the library's, too."""

    def __init__(
        self,
        lookup: Lookup,
        macros: Mapping[str, Sequence[str]],
        called: frozenset[str],
        complete: bool,
        declared: bool = False,
    ) -> None:
        self.lookup = lookup
        self.macros = macros
        self.called = called
        self.complete = complete
        self.declared = declared
        self._named_by: dict[tuple[int, int], frozenset[tuple[str, ...]]] = {}

    def paths(self, function: Function, node: Node) -> list[Path]:
        """What a written name is with the macro that it begins with expanded, one for each of the macro's bodies."""
        path = path_of(node, function.text)
        first = path.steps[0].name if path.steps and not path.rooted else ""
        found: list[Path] = []
        for body in self.macros.get(first, ())[:_DEPTH]:
            expanded = self.lookup.expanded(path, {first: body})
            found += [p for p in [expanded] if p not in found]
        return found or [path]

    def means(self, function: Function, node: Node, target: tuple[str, ...], unfit: bool = False) -> Verdict:
        """Whether the name at a node, which names nothing of the sources, is `target`. `unfit`: functions of the
        sources with the name do not take the arguments; what a using-directive brings stands beside those of the
        global scope.
        """
        site = self.lookup.site(function, node)
        paths = self.paths(function, node)
        if unfit and all(len(p.steps) == 1 and not p.rooted for p in paths):
            found = self.lookup.unqualified(site, target[-1])
            top = self.lookup.index.top
            unfit = bool(found.functions) and all(f.scope is top for f in found.functions)
            if unfit and not (found.classes or found.aliases or found.namespaces or found.value or found.outside):
                return Verdict.YES if target[:-1] in self._directives(top, 0) else Verdict.NO
        verdicts = {self._path(p, target, site, 0) for p in paths}
        return verdicts.pop() if len(verdicts) == 1 else Verdict.MAYBE

    def of_path(self, path: Path, target: tuple[str, ...], site: Site) -> Verdict:
        """Whether a name that is used at a site, which names nothing of the sources, is `target`."""
        return self._path(self.lookup.expanded(path), target, site, 0)

    def at_top(self, path: Path, target: tuple[str, ...]) -> Verdict:
        """The same of a name that stands outside of all functions."""
        return self._path(self.lookup.expanded(path), target, Site(self.lookup.index.top), 0)

    def _path(self, path: Path, target: tuple[str, ...], site: Site, depth: int) -> Verdict:
        if not path.steps or path.steps[-1].name != target[-1]:
            return Verdict.NO
        if path.opaque or depth > _DEPTH or any(s.name in self.macros for s in path.steps[1:]):
            return Verdict.MAYBE
        if path.steps[-1].name in self.called:
            # a macro takes its place wherever parentheses follow
            return Verdict.MAYBE
        if len(path.steps) == 1 and not path.rooted:
            return self._bare(target, site, depth)
        if len(target) == 1 and len(path.steps) > 1:
            # it names what is in a namespace or class
            return Verdict.NO
        prefix = Path(path.steps[:-1], path.rooted)
        homes = self._homes(prefix, site, depth)
        found = _joined([self._member(h, target, depth) for h in homes]) if homes is not None else Verdict.NO
        if found is Verdict.NO and homes and homes[0].scope is None and self._brings(prefix, target, site, depth):
            return Verdict.MAYBE
        return found

    def _brings(self, prefix: Path, target: tuple[str, ...], site: Site, depth: int) -> bool:
        """Whether a namespace that a directive names may have the class that a name is a member of."""
        steps = tuple(s.name for s in prefix.steps)
        front = target[: len(target) - 1 - len(steps)]
        if prefix.rooted or not front or target[len(front) : -1] != steps:
            return False
        paths = [p for local, _ in self._locals(site) for _, p in local.directives]
        brought: list[Set[tuple[str, ...]]] = [self._nominated(p, Site(site.scope), depth) for p in paths]
        brought += [self._directives(scope, depth) for scope in site.scope.above()]
        return any(front in names for names in brought)

    def _member(self, home: _Home, target: tuple[str, ...], depth: int) -> Verdict:
        """Whether a member of a namespace with the target's last name is the target."""
        scope = home.scope
        known = self.declared or scope is None or not self.lookup.own(scope, target[-1]).declared
        if home.path == target[:-1] and known:
            return Verdict.YES
        # a header that is not at hand may give a namespace another name, or bring the target into it
        unknown = Verdict.NO if self.complete else Verdict.MAYBE
        if scope is None:
            return unknown
        own = self.lookup.own(scope, target[-1])
        if own.declared:
            return Verdict.MAYBE if own.outside else Verdict.NO
        declared = self._declared(scope, target[-1])
        if declared:
            return _joined([self._path(p, target, Site(scope), depth + 1) for p in declared])
        return Verdict.YES if target[:-1] in self._directives(scope, depth) else unknown

    def _bare(self, target: tuple[str, ...], site: Site, depth: int) -> Verdict:
        name = target[-1]
        if site.function is not None and site.node is not None and resolve(site.function, site.node, name) is not None:
            return Verdict.NO
        found = self.lookup.unqualified(site, name)
        if found.declared and not self.declared:
            return Verdict.MAYBE if found.outside else Verdict.NO
        brought: set[tuple[str, ...]] = set()
        for local, node in self._locals(site):
            paths = _innermost([(b, p) for b, n, p in local.using if n == name], node)
            if paths:
                return _joined([self._path(p, target, Site(site.scope), depth + 1) for p in paths])
            for block, path in local.directives:
                if sees(block, node):
                    brought |= self._nominated(path, Site(site.scope), depth)
        hidden = False
        for scope in site.scope.above():
            declared = self._declared(scope, name)
            if declared:
                return _joined([self._path(p, target, Site(scope), depth + 1) for p in declared])
            if qualified(scope) == target[:-1]:
                # names of the language's own are not looked for in headers of a project
                return Verdict.MAYBE if hidden and target[1:] else Verdict.YES
            if self.declared and self.lookup.own(scope, name).declared:
                return Verdict.NO
            brought |= self._directives(scope, depth)
            if isinstance(scope, ClassScope):
                hidden = hidden or not self.lookup.bases_known(scope)
            else:
                # what a header that is not at hand declares in a namespace around hides what a directive brings
                hidden = hidden or bool(scope.name and not self.complete)
        certain = target[:-1] in brought and not hidden and not found.outside
        return Verdict.YES if certain else Verdict.MAYBE

    def _locals(self, site: Site) -> Iterator[tuple[Local, Node]]:
        """What the functions around a place declare in their blocks, innermost first."""
        function = site.function
        while function is not None and site.node is not None and function.style is not Style.MACRO:
            yield self.lookup.declared_in(function), site.node
            function = function.parent

    def _declared(self, scope: Scope, name: str) -> list[Path]:
        """Using-declarations of a name in a namespace or class."""
        scopes = [scope, *scope.transparent]
        return [p for s in scopes for p in s.declared.get(name, ())]

    def _directives(self, scope: Scope, depth: int) -> frozenset[tuple[str, ...]]:
        """The namespaces that the directives of a scope name, and those that theirs name."""
        key = (id(scope), depth)
        if key not in self._named_by:
            found: set[tuple[str, ...]] = set()
            for holder in (scope, *scope.transparent):
                for path in holder.directives:
                    found |= self._nominated(path, Site(holder), depth)
            self._named_by[key] = frozenset(found)
        return self._named_by[key]

    def _nominated(self, path: Path, site: Site, depth: int) -> set[tuple[str, ...]]:
        if depth > _DEPTH:
            return set()
        found: set[tuple[str, ...]] = set()
        for home in self._homes(path, site, depth) or ():
            found.add(home.path)
            if home.scope is not None:
                found |= self._directives(home.scope, depth + 1)
        return found

    def _homes(self, path: Path, site: Site, depth: int) -> list[_Home] | None:
        """The namespaces that a whole path names; None for a class."""
        if path.rooted or not path.steps:
            current, rest = [_Home((), self.lookup.index.top)], list(path.steps)
        else:
            first, rest = path.steps[0].name, list(path.steps[1:])
            found = self.lookup.type_or_namespace(site, first)
            if found.aliases and not found.classes and depth <= _DEPTH:
                return self._of_alias(found.aliases, path, depth)
            if found.classes or found.aliases or first in self.lookup.template_names(site):
                return None
            current = [_Home(qualified(s), s) for s in found.namespaces]
            if not current:
                aliased = list(self._aliased(first, site)) if depth <= _DEPTH else []
                current = [h for p, at in aliased for h in self._homes(p, at, depth + 1) or ()]
                current = current or [_Home((first,), None)]
        for step in rest:
            inner: list[_Home] = []
            for home in current:
                inner += self._into(home, step.name, depth)
            if not inner:
                return None
            current = inner
        return current

    def _of_alias(self, aliases: Sequence[Alias], path: Path, depth: int) -> list[_Home] | None:
        """What a path is that begins with another name of a class."""
        found: list[_Home] = []
        for alias in aliases:
            meant = self.lookup.alias_path(alias, path.steps[0].args)
            if meant is not None:
                whole = Path((*meant.steps, *path.steps[1:]), meant.rooted)
                found += self._homes(whole, self.lookup.alias_site(alias), depth + 1) or ()
        return found or None

    def unaliased(self, function: Function, node: Node, path: Path) -> Path:
        """A path that begins with another name of a class as the one that it stands for."""
        for _ in range(_DEPTH):
            if path.rooted or len(path.steps) < 2:
                break
            found = self.lookup.type_or_namespace(self.lookup.site(function, node), path.steps[0].name)
            if found.classes or len(found.aliases) != 1:
                break
            meant = self.lookup.alias_path(found.aliases[0], path.steps[0].args)
            if meant is None:
                break
            path = Path((*meant.steps, *path.steps[1:]), meant.rooted)
        return path

    def is_dependent(self, function: Function, node: Node, path: Path) -> bool:
        """Whether a path begins with a parameter of a template around it."""
        names = self.lookup.template_names(self.lookup.site(function, node))
        return not path.rooted and len(path.steps) > 1 and path.steps[0].name in names

    def _into(self, home: _Home, name: str, depth: int) -> list[_Home]:
        if home.scope is None:
            return [_Home((*home.path, name), None)]
        own = self.lookup.own(home.scope, name)
        if own.classes or own.aliases:
            return []
        if own.namespaces:
            return [_Home(qualified(s), s) for s in own.namespaces]
        paths = home.scope.namespace_aliases.get(name, ()) if depth <= _DEPTH else ()
        found = [h for p in paths for h in self._homes(p, Site(home.scope), depth + 1) or ()]
        return found or [_Home((*home.path, name), None)]

    def _aliased(self, name: str, site: Site) -> Iterator[tuple[Path, Site]]:
        """What namespace aliases of this name stand for, at the innermost place that has one."""
        for local, node in self._locals(site):
            paths = _innermost([(b, p) for b, n, p in local.namespaces if n == name], node)
            if paths:
                yield from ((p, Site(site.scope)) for p in paths)
                return
        for scope in site.scope.above():
            if name in scope.namespace_aliases:
                yield from ((p, Site(scope)) for p in scope.namespace_aliases[name])
                return


def _innermost(declared: list[tuple[Node, Path]], node: Node) -> list[Path]:
    """What is declared in the innermost block around a place that declares something."""
    seen = [(block.start_byte, path) for block, path in declared if sees(block, node)]
    return [path for at, path in seen if at == max(start for start, _ in seen)]


def _joined(verdicts: list[Verdict]) -> Verdict:
    return verdicts[0] if verdicts and all(v is verdicts[0] for v in verdicts) else Verdict.MAYBE


def qualified(scope: Scope) -> tuple[str, ...]:
    """Names of a namespace from the outside in; inline and unnamed ones add nothing."""
    steps: list[str] = []
    for inner in scope.above():
        parent = inner.parent
        if inner.name and (parent is None or inner not in parent.transparent):
            steps.append(inner.name)
    return tuple(reversed(steps))
