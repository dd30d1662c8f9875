# SPDX-License-Identifier: Apache-2.0
"""The namespaces and classes of a source set, with what each declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find, walk
from porter.model.constants import enumerator_texts, variable_text
from porter.model.functions import (
    Alias,
    ClassScope,
    Function,
    FunctionSymbol,
    Path,
    Scope,
    Style,
    TemplateParam,
    declared_name,
)
from porter.model.names.paths import path_of, template_heads, template_params, using_paths

CLASSES = ("class_specifier", "struct_specifier", "union_specifier")
PREPROCESSOR = ("preproc_if", "preproc_ifdef", "preproc_elif", "preproc_elifdef", "preproc_else")
_THROUGH = (*PREPROCESSOR, "ERROR")
"""Nodes that open no scope: what stands in a branch of the preprocessor counts as declared."""
_CONSTRAINTS = ("requires_clause",)


@dataclass(eq=False)
class Index:
    """Everything declared outside of functions, and what is declared inside one on demand."""

    top: Scope
    symbols: dict[int, FunctionSymbol] = field(default_factory=dict)
    """By id of the `Function`."""
    classes: list[ClassScope] = field(default_factory=list)
    by_node: dict[int, ClassScope] = field(default_factory=dict)
    """Classes by id of their node."""
    methods: dict[str, list[FunctionSymbol]] = field(default_factory=dict)
    """Member functions by name."""
    free: dict[str, list[FunctionSymbol]] = field(default_factory=dict)
    """Functions that are no members, by name."""
    unplaced: dict[str, list[FunctionSymbol]] = field(default_factory=dict)
    """Functions whose namespace is not known: of text that was not understood, or of a scope that is not declared."""
    scope_names: set[str] = field(default_factory=set)
    """Names of namespaces, classes and aliases."""


class Indexer:
    """Fills an index. Functions keep the class that they are a member of in `owner`."""

    def __init__(self, files: Iterable[CudaFile], functions: Iterable[Function], forward: Iterable[Function]) -> None:
        self.index = Index(Scope("", None))
        self._functions = {f.node.id: f for f in functions if f.style not in (Style.LAMBDA, Style.MACRO)}
        self._forward = {f.node.id: f for f in forward}
        self._outside: list[tuple[FunctionSymbol, Path, int]] = []
        self._file: CudaFile
        self._guards: set[int] = set()
        self._conditional = False
        for file in files:
            self._file = file
            top = file.root.named_children
            guards = (
                all(c.type.startswith(("comment", "preproc")) for c in top) and file.root.type == "translation_unit"
            )
            self._guards = {c.id for c in top} if guards else set()
            self._members(self.index.top, top, broken=False)
            self._local_classes(file)
        for symbol, path, heads in self._outside:
            self._place(symbol, path, heads)

    # --- declarations

    def _members(self, scope: Scope, nodes: Iterable[Node], broken: bool, friend: bool = False) -> None:
        for node in nodes:
            before, self._conditional = self._conditional, self._conditional or self._is_conditional(node)
            self._member(scope, node, broken, friend)
            self._conditional = before

    def _is_conditional(self, node: Node) -> bool:
        """Whether a branch of the preprocessor may leave out what it holds; the guard around a whole header does
        not."""
        return node.type in PREPROCESSOR and node.id not in self._guards

    def _member(self, scope: Scope, node: Node, broken: bool, friend: bool) -> None:
        kind = node.type
        if kind == "namespace_definition":
            self._namespace(scope, node, broken)
        elif kind == "template_declaration":
            self._members(scope, node.named_children, broken, friend)
        elif kind == "friend_declaration":
            self._members(scope, node.named_children, broken, True)
        elif kind == "linkage_specification":
            body = node.child_by_field_name("body")
            inner = body.named_children if body is not None and body.type == "declaration_list" else [body]
            self._members(scope, [n for n in inner if n is not None], broken)
        elif kind in CLASSES:
            if not friend:
                self._class(scope, node, broken)
        elif kind == "function_definition":
            self._function(scope, node, broken, True, friend)
        elif kind in ("declaration", "field_declaration"):
            self._declaration(scope, node, broken, friend)
        elif kind == "using_declaration":
            self._using(scope, node)
        elif kind == "namespace_alias_definition":
            self._namespace_alias(scope, node)
        elif kind in ("alias_declaration", "type_definition"):
            self._alias(scope, node, broken)
        elif kind == "enum_specifier":
            self._enum(scope, node)
        elif kind in _THROUGH:
            self._members(scope, node.named_children, broken or kind == "ERROR", friend)

    def _text(self, node: Node) -> str:
        return self._file.text(node)

    def _namespace(self, scope: Scope, node: Node, broken: bool) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        inner = scope
        if name is None:
            inner = next((s for s in scope.transparent if not s.name), None) or Scope("", scope)
            if inner not in scope.transparent:
                scope.transparent.append(inner)
        for step in path_of(name, self._text).steps if name is not None else ():
            self.index.scope_names.add(step.name)
            parent, known = inner, inner.namespaces.get(step.name)
            inner = known or Scope(step.name, parent)
            parent.namespaces[step.name] = inner
        inline = name is not None and any(c.type == "inline" for c in node.children)
        if inline and inner.parent is not None and inner not in inner.parent.transparent:
            inner.parent.transparent.append(inner)
        self._members(inner, body.named_children if body is not None else (), broken)

    def _class(self, scope: Scope, node: Node, broken: bool) -> ClassScope | None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        path = path_of(name, self._text) if name is not None else None
        heads = template_heads(node if node.parent is None or node.parent.type != "field_declaration" else node.parent)
        params = template_params(heads[0], self._text) if heads else ()
        if path is not None and len(path.steps) > 1:
            scope = self._scope_at(scope, path) or scope
        last = path.steps[-1] if path is not None and path.steps else None
        found = ClassScope(last.name if last else "", scope)
        found.file, found.params = self._file, params
        found.special = last.args if last is not None else None
        if last is not None:
            self.index.scope_names.add(last.name)
            if body is None:
                if last.name not in scope.classes:
                    scope.classes[last.name] = [found]
                return None
            known = scope.classes.setdefault(last.name, [])
            for forward in [k for k in known if k.node is None and k.special == found.special]:
                # defaults may stand at the first declaration only
                found.params = merged_defaults(found.params, forward.params)
                known.remove(forward)
            known.append(found)
        if body is None:
            return None
        found.node = node
        clause = next((c for c in node.named_children if c.type == "base_class_clause"), None)
        if clause is not None:
            self._bases(found, node, clause)
        self.index.classes.append(found)
        self.index.by_node[node.id] = found
        found.converts = any(_is_conversion(c) for c in body.named_children)
        self._members(found, body.named_children, broken)
        return found

    def _bases(self, found: ClassScope, node: Node, clause: Node) -> None:
        paths: list[Path] = []
        closed: set[int] = set()
        default = node.type == "class_specifier"
        hidden = default
        for child in clause.children:
            if child.type == ",":
                hidden = default
            elif child.type == "access_specifier":
                hidden = self._text(child).strip() != "public"
            elif child.is_named and child.type not in ("virtual", "comment"):
                if hidden:
                    closed.add(len(paths))
                paths.append(path_of(child, self._text))
        found.bases, found.closed = tuple(paths), frozenset(closed)

    def _declaration(self, scope: Scope, node: Node, broken: bool, friend: bool) -> None:
        kind = node.child_by_field_name("type")
        if kind is not None and kind.type in CLASSES and kind.child_by_field_name("body") is not None:
            inner = self._class(scope, kind, broken)
            if inner is not None and not inner.name and not node.children_by_field_name("declarator"):
                # members of an unnamed struct or union are members of what is around
                for member, texts in inner.values.items():
                    scope.values.setdefault(member, set()).update(texts)
        elif kind is not None and kind.type == "enum_specifier":
            self._enum(scope, kind)
        if node.id in self._forward:
            self._function(scope, node, broken, False, friend)
            return
        for declarator in node.children_by_field_name("declarator"):
            name = declared_name(declarator)
            if name is not None and declarator.type != "function_declarator":
                scope.values.setdefault(self._text(name), set()).add(variable_text(node, declarator, self._text))

    def _function(self, scope: Scope, node: Node, broken: bool, defined: bool, friend: bool) -> None:
        function = (self._functions if defined else self._forward).get(node.id)
        if function is None or not function.name:
            return
        heads = template_heads(node)
        params = template_params(heads[0], self._text) if heads else ()
        path = self._declared_path(node)
        special = path.steps[-1].args if path is not None and path.steps else None
        if heads and not params and special is None:
            # `template <> void f(float)`: the parameters tell what it specializes
            special = ()
        symbol = FunctionSymbol(function, scope, params, special, bool(heads), defined, hidden=friend)
        symbol.variadic, symbol.conditional = function.variadic, self._conditional
        symbol.constrained = any(c.type in _CONSTRAINTS for h in heads for c in h.named_children)
        head = (
            self._file.text(node)[: max(0, function.body.start_byte - node.start_byte)] if defined else self._text(node)
        )
        symbol.constrained = symbol.constrained or "enable_if" in head or "requires" in head.split()
        symbol.is_static = "static" in head.split("(")[0].split()
        self.index.symbols[id(function)] = symbol
        if path is not None and (len(path.steps) > 1 or path.rooted):
            self._outside.append((symbol, path, len(heads)))
            return
        if friend:
            # a friend is a member of the namespace around the class
            symbol.scope = next((s for s in scope.above() if not s.is_class), scope)
        self._add(symbol, broken)

    def _add(self, symbol: FunctionSymbol, broken: bool) -> None:
        function, scope = symbol.function, symbol.scope
        scope.functions.setdefault(function.name, []).append(symbol)
        index = self.index
        (index.methods if scope.is_class else index.free).setdefault(function.name, []).append(symbol)
        if broken:
            index.unplaced.setdefault(function.name, []).append(symbol)
        if isinstance(scope, ClassScope):
            function.owner, function.owner_class = scope.qualified, scope
            if function.style is not Style.KERNEL:
                function.style = Style.METHOD

    def _declared_path(self, node: Node) -> Path | None:
        declarator = node.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator") or next(
                (c for c in declarator.named_children if c.type.endswith("declarator")), None
            )
        name = declarator.child_by_field_name("declarator") if declarator is not None else None
        return path_of(name, self._text) if name is not None else None

    def _place(self, symbol: FunctionSymbol, path: Path, heads: int) -> None:
        """A member that is defined outside of its class or namespace."""
        scope = self._scope_at(symbol.scope, path)
        if scope is None:
            self.index.unplaced.setdefault(symbol.function.name, []).append(symbol)
            self._add(symbol, False)
            return
        if isinstance(scope, ClassScope):
            declared = [s for s in scope.functions.get(symbol.function.name, ()) if not s.defined]
            templates = sum(1 for s in scope.above() if isinstance(s, ClassScope) and s.params)
            if heads <= templates:
                # the template head is the class's
                symbol.params, symbol.is_template, symbol.special = (), False, None
            same = [s for s in declared if len(s.function.params) == len(symbol.function.params)]
            symbol.is_static = any(s.is_static for s in same)
            for earlier in same:
                symbol.params = merged_defaults(symbol.params, earlier.params)
        symbol.scope = scope
        self._add(symbol, False)

    def _scope_at(self, scope: Scope, path: Path) -> Scope | None:
        """The scope that all but the last step of a declared name lead to."""
        starts = [self.index.top] if path.rooted else list(scope.above())
        for start in starts:
            found: Scope | None = start
            for step in path.steps[:-1]:
                found = _inner(found, step.name, step.args) if found is not None else None
            if found is not None and found is not start:
                return found
        return self.index.top if path.rooted and len(path.steps) == 1 else None

    # --- the rest

    def _using(self, scope: Scope, node: Node) -> None:
        named = next((c for c in node.named_children if c.type != "comment"), None)
        if named is None:
            return
        if is_directive(node):
            scope.directives.append(path_of(named, self._text))
            return
        for path in using_paths(node, self._text):
            if path.steps:
                scope.declared.setdefault(path.steps[-1].name, []).append(path)

    def _namespace_alias(self, scope: Scope, node: Node) -> None:
        name = node.child_by_field_name("name")
        target = node.named_children[-1] if node.named_children else None
        if name is not None and target is not None:
            self.index.scope_names.add(self._text(name))
            scope.namespace_aliases.setdefault(self._text(name), []).append(path_of(target, self._text))

    def _alias(self, scope: Scope, node: Node, broken: bool) -> None:
        kind = node.child_by_field_name("type")
        if kind is not None and kind.type in CLASSES and kind.child_by_field_name("body") is not None:
            inner = self._class(scope, kind, broken)
            declarator = node.child_by_field_name("declarator")
            if inner is not None and not inner.name and declarator is not None and declarator.type == "type_identifier":
                inner.name = self._text(declarator)
                self.index.scope_names.add(inner.name)
                scope.classes.setdefault(inner.name, []).append(inner)
                return
        for alias in aliases_in(self._file, node, scope):
            self.index.scope_names.add(alias.name)
            scope.aliases.setdefault(alias.name, []).append(alias)

    def _enum(self, scope: Scope, node: Node) -> None:
        name = node.child_by_field_name("name")
        inner = Scope(self._text(name) if name is not None else "", scope, is_enumeration=True)
        inner.values = {n: {text} for n, text in enumerator_texts(node, self._text).items()}
        if name is not None and inner.values:
            scope.enumerations[inner.name] = inner
        if not any(c.type in ("class", "struct") for c in node.children):
            for enumerator, texts in inner.values.items():
                scope.values.setdefault(enumerator, set()).update(texts)

    def _local_classes(self, file: CudaFile) -> None:
        """Classes inside functions; their methods see what the function's namespace declares."""
        for node in find(file.root, *CLASSES):
            if node.id in self.index.by_node or node.child_by_field_name("body") is None:
                continue
            outer = enclosing(node, "function_definition", *CLASSES)
            if outer is None or outer.type != "function_definition" or outer.id not in self._functions:
                continue
            home = self.index.symbols.get(id(self._functions[outer.id]))
            # a scope of its own: nothing outside of the function sees the name
            self._class(Scope("", home.scope if home is not None else self.index.top), node, False)


def aliases_in(file: CudaFile, node: Node, scope: Scope) -> Iterator[Alias]:
    """The names that an alias declaration or a typedef declares."""
    kind = node.child_by_field_name("type")
    if kind is None:
        return
    if node.type == "alias_declaration":
        name = node.child_by_field_name("name")
        heads = template_heads(node)
        params = template_params(heads[0], file.text) if heads else ()
        if name is not None:
            yield Alias(file.text(name), scope, file, kind, None, params)
        return
    for declarator in node.children_by_field_name("declarator"):
        names = [n for n in walk(declarator) if n.type == "type_identifier"]
        if names:
            yield Alias(file.text(names[0]), scope, file, kind, declarator)


def is_directive(node: Node) -> bool:
    """Whether a using-declaration is `using namespace …`."""
    return any(c.type == "namespace" for c in node.children)


def merged_defaults(params: tuple[TemplateParam, ...], earlier: tuple[TemplateParam, ...]) -> tuple[TemplateParam, ...]:
    """Parameters with the defaults that another declaration of the same template gives."""
    if len(params) != len(earlier):
        return params
    return tuple(
        p if p.default is not None else TemplateParam(p.name, p.kind, e.default, p.pack, p.dependent)
        for p, e in zip(params, earlier, strict=True)
    )


def _inner(scope: Scope, name: str, args: tuple[str, ...] | None) -> Scope | None:
    for place in [scope, *scope.transparent]:
        if name in place.namespaces:
            return place.namespaces[name]
        known = place.classes.get(name)
        if known:
            exact = [c for c in known if c.special is not None and c.special == args]
            primary = [c for c in known if c.special is None]
            return (exact or primary or known)[0]
    return None


def _is_conversion(node: Node) -> bool:
    if node.type == "template_declaration":
        return any(_is_conversion(c) for c in node.named_children)
    if any(c.text == b"operator" for c in node.children):
        # behind several specifiers the grammar takes the type for the name of a function
        return True
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type in ("pointer_declarator", "reference_declarator"):
        declarator = declarator.child_by_field_name("declarator")
    return declarator is not None and declarator.type == "operator_cast"
