# SPDX-License-Identifier: Apache-2.0
"""Lookup of names in scopes: unqualified, qualified, and of members, as [basic.lookup] of the C++ standard has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.constants import Constants
from porter.model.functions import (
    Alias,
    ClassScope,
    Component,
    Function,
    FunctionSymbol,
    Path,
    Scope,
    Style,
    TemplateParam,
)
from porter.model.names.index import CLASSES, Index, aliases_in, is_directive
from porter.model.names.paths import path_of, template_heads, template_params, using_paths

_DEPTH = 24
"""Aliases of aliases that are followed."""
MOST_SCOPES = 16
"""Specializations that a name may mean; where it may be one of more, it counts as not known."""


class Known(Enum):
    """How much is known of the scope that a qualifier names."""

    YES = "found"
    DEPENDENT = "depends on a template argument, or was not understood"
    OUTSIDE = "not declared in the sources"


@dataclass(frozen=True, eq=False)
class Site:
    """Where a name is used: the innermost scope, and the place in a function if it is in one."""

    scope: Scope
    function: Function | None = None
    node: Node | None = None


@dataclass(eq=False)
class Found:
    """What a name means in one scope."""

    functions: list[FunctionSymbol] = field(default_factory=list)
    classes: list[ClassScope] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    namespaces: list[Scope] = field(default_factory=list)
    constants: list[tuple[str, Scope]] = field(default_factory=list)
    """Variables and enumerators: the expression of each declaration, empty for what is no constant, and its scope."""
    outside: bool = False
    """Whether a using-declaration brings the name from where the sources do not declare it."""

    def __bool__(self) -> bool:
        return self.declared or self.outside

    @property
    def value(self) -> bool:
        return bool(self.constants)

    @property
    def declared(self) -> bool:
        """Whether the sources declare something of the name."""
        return bool(self.functions or self.classes or self.aliases or self.namespaces or self.value)

    def add(self, other: Found) -> None:
        if not other:
            return
        self.functions += [f for f in other.functions if f not in self.functions]
        self.classes += [c for c in other.classes if c not in self.classes]
        self.aliases += [a for a in other.aliases if a not in self.aliases]
        self.namespaces += [n for n in other.namespaces if n not in self.namespaces]
        self.constants += [c for c in other.constants if c not in self.constants]
        self.outside = self.outside or other.outside


@dataclass
class Local:
    """What a function's body declares beside variables, each with the block it is seen in."""

    directives: list[tuple[Node, Path]] = field(default_factory=list)
    using: list[tuple[Node, str, Path]] = field(default_factory=list)
    aliases: list[tuple[Node, Alias]] = field(default_factory=list)
    namespaces: list[tuple[Node, str, Path]] = field(default_factory=list)
    classes: list[tuple[Node, ClassScope]] = field(default_factory=list)


class Lookup:
    """Lookup in one index. `constants_in` says what constants mean inside a function (None: at file scope)."""

    def __init__(
        self, index: Index, constants_in: Callable[[Function | None], Constants], macros: dict[str, str]
    ) -> None:
        self.index = index
        self.constants_in = constants_in
        self.macros = macros
        self._locals: dict[int, Local] = {}
        self._homes: dict[int, Scope] = {}
        self._named: dict[int, list[Scope]] = {}
        """By id of a scope: the namespaces that its directives name."""
        self._bringing: set[Path] = set()
        self._open = 0
        """Directives, using-declarations and bases that are being found out: answers may lack something meanwhile."""
        self._seen_from: dict[tuple[int, str], Found] = {}
        self._types_seen_from: dict[tuple[int, str], Found] = {}
        self._members: dict[tuple[int, str], Found] = {}
        self._based: dict[int, list[tuple[ClassScope, bool]]] = {}
        self._closed: set[tuple[int, int]] = set()
        """ids of a class and a base of it that is not public."""

    # --- places

    def site(self, function: Function, node: Node) -> Site:
        return Site(self.home(function), function, node)

    def home(self, function: Function) -> Scope:
        """The namespace or class whose names a function sees first."""
        known = self._homes.get(id(function))
        if known is None:
            known = self._homes[id(function)] = self._home(function)
        return known

    def _home(self, function: Function) -> Scope:
        symbol = self.index.symbols.get(id(function))
        if symbol is not None and not symbol.hidden:
            return symbol.scope
        current = function.node.parent if function.style is not Style.MACRO else None
        while current is not None:
            if current.id in self.index.by_node:
                return self.index.by_node[current.id]
            if function.parent is not None and current.id == function.parent.node.id:
                return self.home(function.parent)
            current = current.parent
        return symbol.scope if symbol is not None else self.index.top

    def template_names(self, site: Site) -> set[str]:
        """Names of the template parameters around a place."""
        names = {p.name for p in self.template_parameters(site)}
        function = site.function
        while function is not None:
            names.update(function.template_params)
            function = function.parent
        return names

    def template_parameters(self, site: Site) -> list[TemplateParam]:
        """The template parameters around a place, innermost first."""
        found: list[TemplateParam] = []
        function = site.function
        while function is not None:
            for head in template_heads(function.node) if function.style is not Style.MACRO else ():
                found += template_params(head, function.file.text)
            function = function.parent
        for scope in site.scope.above():
            if isinstance(scope, ClassScope):
                found += scope.params
        return found

    # --- names

    def expanded(self, path: Path, chosen: Mapping[str, str] | None = None) -> Path:
        """A path whose first step is a macro that stands for a name is that name. `chosen` has bodies of macros that
        have several."""
        bodies = {**self.macros, **chosen} if chosen else self.macros
        for _ in range(_DEPTH):
            text = bodies.get(path.steps[0].name) if path.steps else None
            if text is None or path.rooted:
                return path
            match = re.fullmatch(r"\s*(::)?\s*(\w+(?:\s*::\s*\w+)*)\s*(<[\w\s,:]*>)?\s*", text)
            if match is None:
                return Path(path.steps, path.rooted, True)
            steps = [Component(s.strip()) for s in match.group(2).split("::")]
            if match.group(3):
                inner = match.group(3).strip("<> \t")
                steps[-1] = Component(steps[-1].name, tuple(a.strip() for a in inner.split(",")))
            elif path.steps[0].args is not None:
                steps[-1] = Component(steps[-1].name, path.steps[0].args)
            path = Path((*steps, *path.steps[1:]), bool(match.group(1)), path.opaque)
        return path

    def unqualified(self, site: Site, name: str) -> Found:
        """What a name means at a place, apart from local variables: that of the innermost scope that has it."""
        pending: list[tuple[Scope, Scope]] = []
        if site.function is not None and site.node is not None:
            found = self._local(site, name, pending)
            if found:
                return found
        key = (id(site.scope), name)
        if pending or self._open:
            return self._around_of(site.scope, name, pending)
        if key not in self._seen_from:
            self._seen_from[key] = self._around_of(site.scope, name, pending)
        return self._seen_from[key]

    def _around_of(self, start: Scope, name: str, pending: list[tuple[Scope, Scope]]) -> Found:
        """What a name means in the innermost of the scopes around `start` that has it. Bases that depend on a template
        argument do not count."""
        result = Found()
        for scope in start.above():
            self._nominate(scope, self._nominated(scope), pending)
            found = Found()
            found.add(self.own(scope, name, []))
            for anchor, nominated in pending:
                if anchor is scope:
                    found.add(self.own(nominated, name))
            result.add(found)
            if found and not all(f.conditional for f in found.functions):
                return result
            if found and not found.functions:
                return result
        return result

    def own(self, scope: Scope, name: str, dependent: list[ClassScope] | None = None) -> Found:
        """What a name means as a member of a scope, its transparent namespaces and its bases. Bases that depend on
        a template argument are put into `dependent` if it is given, and searched otherwise."""
        if dependent is not None or self._open:
            return self._own(scope, name, set(), dependent)
        key = (id(scope), name)
        if key not in self._members:
            self._members[key] = self._own(scope, name, set())
        copy = Found()
        copy.add(self._members[key])
        return copy

    def _own(self, scope: Scope, name: str, seen: set[int], dependent: list[ClassScope] | None = None) -> Found:
        found = Found()
        if id(scope) in seen:
            return found
        seen.add(id(scope))
        found.functions += [f for f in scope.functions.get(name, ()) if not f.hidden]
        found.classes += scope.classes.get(name, ())
        found.aliases += scope.aliases.get(name, ())
        found.constants += [(text, scope) for text in sorted(scope.values.get(name, ()))]
        if name in scope.namespaces:
            found.namespaces.append(scope.namespaces[name])
        for path in scope.namespace_aliases.get(name, ()):
            found.namespaces += [s for s in self.scopes(path, Site(scope))[0] if not s.is_class]
        for path in scope.declared.get(name, ()):
            found.add(self._brought(path, Site(scope), seen))
        for inner in scope.transparent:
            found.add(self._own(inner, name, seen))
        if isinstance(scope, ClassScope):
            if scope.name == name:
                found.classes += [c for c in (scope,) if c not in found.classes]
            if not found:
                for base, depends in self.bases(scope):
                    if depends and dependent is not None:
                        dependent.append(base)
                    else:
                        found.add(self._own(base, name, seen, dependent))
        return found

    def _brought(self, path: Path, site: Site, seen: set[int] | None = None) -> Found:
        """What a using-declaration brings in."""
        found = Found()
        if path in self._bringing:
            # the name that is asked for is needed to find where it comes from
            return found
        name = path.steps[-1].name
        self._bringing.add(path)
        self._open += 1
        try:
            homes = self.scopes(Path(path.steps[:-1], path.rooted or len(path.steps) == 1), site)[0]
        finally:
            self._bringing.discard(path)
            self._open -= 1
        for scope in homes:
            found.add(self._own(scope, name, set(seen or ())))
        found.outside = found.outside or not found
        return found

    def bases(self, scope: ClassScope) -> list[tuple[ClassScope, bool]]:
        """Base classes that the sources define, and whether each depends on a template parameter."""
        known = self._based.get(id(scope))
        if known is None:
            # while it is being found out there are none: a base may be named through the class itself
            self._based[id(scope)] = []
            self._open += 1
            known = self._based[id(scope)] = self._bases(scope)
            self._open -= 1
        return known

    def _bases(self, scope: ClassScope) -> list[tuple[ClassScope, bool]]:
        result: list[tuple[ClassScope, bool]] = []
        outer = scope.parent or self.index.top
        own = {p.name for p in scope.params}
        for index, path in enumerate(scope.bases):
            found, sure = self.scopes(path, Site(outer))
            words = {w for s in path.steps for a in (s.name, *(s.args or ())) for w in re.findall(r"\w+", a)}
            depends = bool(words & own) or sure is Known.DEPENDENT
            own_bases = [b for b in found if isinstance(b, ClassScope) and b is not scope]
            result += [(b, depends) for b in own_bases]
            if index in scope.closed:
                self._closed.update((id(scope), id(b)) for b in own_bases)
        return result

    def derives(self, scope: ClassScope, base: ClassScope, openly: bool = False) -> bool:
        """Whether a class is, or may be, derived from another; with `openly` by public bases only."""
        seen: set[int] = set()
        work = [scope]
        while work:
            current = work.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            for above, _ in self.bases(current):
                if openly and (id(current), id(above)) in self._closed:
                    continue
                if above is base:
                    return True
                work.append(above)
        return False

    def bases_known(self, scope: ClassScope, depth: int = 0) -> bool:
        """Whether the sources define every base, however far up."""
        found = self.bases(scope)
        return (
            depth < _DEPTH and len(found) >= len(scope.bases) and all(self.bases_known(b, depth + 1) for b, _ in found)
        )

    # --- qualified names

    def scopes(self, path: Path, site: Site, depth: int = 0) -> tuple[list[Scope], Known]:
        """The namespaces or classes that a whole path names."""
        path = self.expanded(path)
        if path.opaque or depth > _DEPTH:
            return [], Known.DEPENDENT
        if not path.steps:
            return [self.index.top], Known.YES
        current: list[Scope] = [self.index.top] if path.rooted else []
        for number, step in enumerate(path.steps):
            if number == 0 and not path.rooted:
                found = self.type_or_namespace(site, step.name)
                if not found and step.name in self.template_names(site):
                    return [], Known.DEPENDENT
            else:
                found = Found()
                for scope in current:
                    found.add(self.member_of_namespace(scope, step.name))
                if not found and any(s.is_class for s in current):
                    return [], Known.DEPENDENT
            current, known = self._entered(found, step, site, depth)
            if known is not Known.YES:
                return [], known
            if len(current) > MOST_SCOPES:
                return [], Known.DEPENDENT
        return current, Known.YES

    def _entered(self, found: Found, step: Component, site: Site, depth: int) -> tuple[list[Scope], Known]:
        scopes: list[Scope] = [*found.namespaces, *self.chosen(found.classes, step.args, site)]
        known = Known.OUTSIDE
        for alias in found.aliases:
            inner, sure = self.alias_scopes(alias, step.args, depth + 1)
            scopes += [s for s in inner if s not in scopes]
            if sure is Known.DEPENDENT:
                return [], sure
        return scopes, Known.YES if scopes else known

    def member_of_namespace(self, scope: Scope, name: str) -> Found:
        found = self.own(scope, name)
        if not (found.namespaces or found.classes or found.aliases) and not scope.is_class:
            for nominated in self._nominated(scope):
                found.add(self.own(nominated, name))
        return found

    def type_or_namespace(self, site: Site, name: str) -> Found:
        """Lookup in front of `::`, where functions and variables do not count."""
        pending: list[tuple[Scope, Scope]] = []
        if site.function is not None and site.node is not None:
            found = self._local(site, name, pending)
            if found.classes or found.aliases or found.namespaces:
                return found
        key = (id(site.scope), name)
        if pending or self._open:
            return self._types_around(site.scope, name, pending)
        if key not in self._types_seen_from:
            self._types_seen_from[key] = self._types_around(site.scope, name, pending)
        return self._types_seen_from[key]

    def _types_around(self, start: Scope, name: str, pending: list[tuple[Scope, Scope]]) -> Found:
        """What a name in front of `::` means in the innermost of the scopes around `start` that has it."""
        for scope in start.above():
            self._nominate(scope, self._nominated(scope), pending)
            found = self.own(scope, name)
            for anchor, nominated in pending:
                if anchor is scope:
                    found.add(self.own(nominated, name))
            if found.classes or found.aliases or found.namespaces:
                return found
        return Found()

    def alias_scopes(self, alias: Alias, args: tuple[str, ...] | None, depth: int) -> tuple[list[Scope], Known]:
        """The class that an alias names."""
        node: Node | None = alias.type_node
        if node is not None and node.type == "type_descriptor":
            if node.child_by_field_name("declarator") is not None:
                return [], Known.DEPENDENT
            node = node.child_by_field_name("type")
        if node is None or (alias.declarator is not None and alias.declarator.type != "type_identifier"):
            return [], Known.DEPENDENT
        if node.type in CLASSES and node.id in self.index.by_node:
            return [self.index.by_node[node.id]], Known.YES
        path = self.alias_path(alias, args)
        if path is None:
            return [], Known.DEPENDENT
        found, known = self.scopes(path, self.alias_site(alias), depth)
        if known is Known.OUTSIDE and any(s.args for s in path.steps):
            # a metafunction may yield one of its arguments
            return [], Known.DEPENDENT
        return found, known

    def alias_site(self, alias: Alias) -> Site:
        return Site(alias.scope, alias.holder, alias.type_node if alias.holder is not None else None)

    def alias_path(self, alias: Alias, args: tuple[str, ...] | None) -> Path | None:
        """What an alias stands for as a path, with the arguments of an alias template put in."""
        node: Node | None = alias.type_node
        if node is not None and node.type == "type_descriptor":
            node = node.child_by_field_name("type")
        if node is None:
            return None
        path = path_of(node, alias.file.text)
        if path.opaque or not alias.params:
            return None if path.opaque else path
        given = dict(zip((p.name for p in alias.params), args or (), strict=False))
        given = {p.name: given.get(p.name, p.default or "") for p in alias.params}
        if path.steps[0].name in given:
            return None
        return Path(tuple(Component(s.name, _put_in(s.args, given)) for s in path.steps), path.rooted)

    def chosen(self, classes: Iterable[ClassScope], args: tuple[str, ...] | None, site: Site) -> list[ClassScope]:
        """Of a class template and its specializations, those that the arguments may mean."""
        classes = list(classes)
        special = [c for c in classes if c.special is not None]
        if not special:
            return classes
        if args is None:
            # inside of the template its bare name is the template itself
            within = [c for c in site.scope.above() if c in classes]
            return [c for c in within if isinstance(c, ClassScope)] or classes
        constants = self.constants_in(site.function)
        maybe = []
        for candidate in special:
            match = self._matches(candidate, args, constants)
            if match is True and not candidate.params:
                return [candidate]
            if match is not False:
                maybe.append(candidate)
        sure = [c for c in maybe if self._matches(c, args, constants) is True]
        primary = [] if sure else [c for c in classes if c.special is None]
        return primary + maybe

    def _matches(self, candidate: ClassScope, args: tuple[str, ...], constants: Constants) -> bool | None:
        """Whether a specialization is for these arguments; None if that is not known."""
        names = {p.name for p in candidate.params}
        primary = (
            next((c for c in candidate.parent.classes.get(candidate.name, ()) if c.special is None), None)
            if (candidate.parent is not None)
            else None
        )
        defaults = [p.default for p in primary.params] if primary is not None else []
        special = candidate.special or ()
        full = list(args) + [d or "" for d in defaults[len(args) :]]
        if len(full) != len(special):
            return None
        sure: bool | None = True
        bound: dict[str, str] = {}
        for pattern, given in zip(special, full, strict=True):
            if pattern in names:
                if bound.setdefault(pattern, given) != given:
                    sure = None
                continue
            same = same_argument(pattern, given, constants)
            if same is False and not names & set(re.findall(r"\w+", pattern)):
                return False
            if same is not True:
                sure = None
        return sure

    # --- using directives

    def _nominate(self, scope: Scope, nominated: list[Scope], pending: list[tuple[Scope, Scope]]) -> None:
        """Names of nominated namespaces are seen as if they were in the innermost scope around both."""
        for reached in nominated:
            anchor = _common(scope, reached)
            if all(p[1] is not reached or p[0] is not anchor for p in pending):
                pending.append((anchor, reached))

    def _nominated(self, scope: Scope) -> list[Scope]:
        """The namespaces that the directives of a scope name, and those that theirs name."""
        found = list(self._named_by(scope))
        for reached in found:
            found += [n for n in self._named_by(reached) if n is not scope and n not in found]
        return found

    def _named_by(self, scope: Scope) -> list[Scope]:
        known = self._named.get(id(scope))
        if known is not None:
            # while it is being found out: a directive may need the others to be understood
            return known
        known = self._named[id(scope)] = []
        self._open += 1
        paths = [(scope, p) for p in scope.directives] + [(t, p) for t in scope.transparent for p in t.directives]
        for _ in range(2 if len(paths) > 1 else 1):
            for holder, path in paths:
                known += [s for s in self.scopes(path, Site(holder))[0] if s not in known and s is not scope]
        self._open -= 1
        return known

    # --- inside functions

    def _local(self, site: Site, name: str, pending: list[tuple[Scope, Scope]]) -> Found:
        """Names that the function's own blocks declare; its `using namespace` go to `pending`."""
        assert site.function is not None
        assert site.node is not None
        found = Found()
        function: Function | None = site.function
        node = site.node
        while function is not None and function.style is not Style.MACRO:
            known = self.declared_in(function)
            inside = Site(site.scope)
            for block, path in known.directives:
                if sees(block, node):
                    nominated = self.scopes(path, inside)[0]
                    further = [n for s in nominated for n in self._nominated(s)]
                    self._nominate(site.scope, [*nominated, *further], pending)
            hits: list[tuple[int, Found]] = []
            for block, declared, path in known.using:
                if declared == name and sees(block, node):
                    hits.append((block.start_byte, self._brought(path, inside)))
            for block, alias in known.aliases:
                if alias.name == name and sees(block, node) and alias.type_node.start_byte < node.start_byte:
                    hits.append((block.start_byte, Found(aliases=[alias])))
            for block, declared, path in known.namespaces:
                if declared == name and sees(block, node):
                    hits.append((block.start_byte, Found(namespaces=list(self.scopes(path, inside)[0]))))
            for block, local in known.classes:
                if local.name == name and sees(block, node):
                    hits.append((block.start_byte, Found(classes=[local])))
            if hits:
                innermost = max(at for at, _ in hits)
                for at, hit in hits:
                    if at == innermost:
                        found.add(hit)
                return found
            function = function.parent or self._around(function)
        return found

    def _around(self, function: Function) -> Function | None:
        """The function that a local class stands in, for one of its methods."""
        owner = function.owner_class
        if owner is None or owner.node is None or owner.parent is None or owner.parent.name or owner.parent.functions:
            return None
        current = owner.node.parent
        while current is not None and current.type != "function_definition":
            current = current.parent
        return next(
            (s.function for s in self.index.symbols.values() if current and s.function.node.id == current.id), None
        )

    def declared_in(self, function: Function) -> Local:
        """What the function's own blocks declare beside variables."""
        known = self._locals.get(id(function))
        if known is not None:
            return known
        known = self._locals[id(function)] = Local()
        text, home = function.file.text, self.home(function)
        kinds = ("using_declaration", "alias_declaration", "type_definition", "namespace_alias_definition", *CLASSES)
        for node in find(function.body, *kinds):
            block = node.parent
            while block is not None and block.type in ("template_declaration", "declaration"):
                block = block.parent
            named = next((c for c in node.named_children if c.type != "comment"), None)
            if block is None or named is None:
                continue
            if node.type == "using_declaration":
                if is_directive(node):
                    known.directives.append((block, path_of(named, text)))
                    continue
                for path in using_paths(node, text):
                    if path.steps:
                        known.using.append((block, path.steps[-1].name, path))
            elif node.type == "namespace_alias_definition":
                known.namespaces.append((block, text(named), path_of(node.named_children[-1], text)))
            elif node.type in CLASSES:
                if node.id in self.index.by_node:
                    known.classes.append((block, self.index.by_node[node.id]))
            else:
                for alias in aliases_in(function.file, node, home):
                    alias.holder = function
                    known.aliases.append((block, alias))
        return known


def same_argument(one: str, other: str, constants: Constants) -> bool | None:
    """Whether two template arguments are equal; None if that is not known."""
    one, other = "".join(one.split()), "".join(other.split())
    if one == other:
        return True
    first, second = constants.evaluate(one), constants.evaluate(other)
    if first is not None and second is not None:
        return first == second
    plain = ("float", "double", "int", "bool", "char", "half", "__half", "__nv_bfloat16")
    if one in plain and other in plain:
        return {one, other} <= {"half", "__half"}
    return None


def _put_in(args: tuple[str, ...] | None, given: dict[str, str]) -> tuple[str, ...] | None:
    if args is None:
        return None
    return tuple(re.sub(r"[A-Za-z_]\w*", lambda m: given.get(m[0], m[0]), a) for a in args)


def _common(one: Scope, other: Scope) -> Scope:
    """The innermost namespace around both."""
    above = list(other.above())
    return next((s for s in one.above() if any(s is a for a in above)), above[-1])


def sees(block: Node, node: Node) -> bool:
    return block.start_byte <= node.start_byte and node.end_byte <= block.end_byte
