# SPDX-License-Identifier: Apache-2.0
"""Types as declarations and type names write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tree_sitter import Node

from porter.lang.cuda import parse_tree
from porter.lang.text import as_bytes
from porter.model.constants import Constants
from porter.model.functions import Alias, ClassScope, Path
from porter.model.names.index import CLASSES
from porter.model.names.lookup import MOST_SCOPES, Lookup, Site
from porter.model.names.paths import path_of
from porter.model.names.types import UNKNOWN, Type, builtin

_DEPTH = 16
_OUTER = ("init_declarator", "optional_parameter_declaration")
_REFERENCES = ("reference_declarator", "abstract_reference_declarator")
_POINTERS = ("pointer_declarator", "abstract_pointer_declarator")
_ARRAYS = ("array_declarator", "abstract_array_declarator")
_PARENTHESES = ("parenthesized_declarator", "abstract_parenthesized_declarator")


class Declared:
    """Reads types. A name that the sources do not define gives a type of kind `name`."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self._texts: dict[str, tuple[Node, bytes] | None] = {}

    def declaration(
        self, holder: Node, declarator: Node | None, site: Site, text: Callable[[Node], str], depth: int = 0
    ) -> Type:
        """The type of one declarator of a declaration or parameter (`holder`)."""
        kind = holder.child_by_field_name("type")
        if kind is None:
            return UNKNOWN
        constants = self.lookup.constants_in(site.function)
        base = self.named(kind, site, text, depth)
        const = any(c.type == "type_qualifier" and text(c) == "const" for c in holder.children)
        if const and base.is_plain:
            base = replace(base, const=True)
        return self._declare(base, declarator, text, constants)

    def descriptor(self, node: Node, site: Site, text: Callable[[Node], str], depth: int = 0) -> Type:
        """The type that a type name gives: `const float*` of a cast, or a template argument."""
        if node.type != "type_descriptor":
            return self.named(node, site, text, depth)
        return self.declaration(node, node.child_by_field_name("declarator"), site, text, depth)

    def from_text(self, written: str, site: Site) -> Type:
        """The type that a text names; unknown if it is no type."""
        known = builtin(written)
        if known is not None:
            return replace(known, const="const" in written.split())
        parsed = self._parsed(written)
        if parsed is None:
            return UNKNOWN
        kind, source = parsed
        return self.descriptor(kind, site, lambda n: source[n.start_byte : n.end_byte].decode())

    def path_from_text(self, written: str) -> Path | None:
        """The name that the text of a type is; None if it is more than a name."""
        parsed = self._parsed(written)
        if parsed is None:
            return None
        kind, source = parsed
        named = kind.child_by_field_name("type") if kind.type == "type_descriptor" else kind
        path = path_of(named or kind, lambda n: source[n.start_byte : n.end_byte].decode())
        return None if path.opaque or not path.steps else path

    def _parsed(self, written: str) -> tuple[Node, bytes] | None:
        """The type in a text, and the source that it was parsed in."""
        if written not in self._texts:
            source = as_bytes(f"using x = {written};")
            root = parse_tree(source).root_node
            node = root.named_children[0] if root.named_children and not root.has_error else None
            kind = node.child_by_field_name("type") if node is not None else None
            self._texts[written] = (kind, source) if kind is not None else None
        return self._texts[written]

    # --- the base of a declaration

    def named(self, node: Node, site: Site, text: Callable[[Node], str], depth: int = 0) -> Type:
        if node.type in ("placeholder_type_specifier", "auto", "decltype") or depth > _DEPTH:
            return UNKNOWN
        if node.type == "type_descriptor":
            return self.descriptor(node, site, text, depth)
        if node.type in ("primitive_type", "sized_type_specifier"):
            return builtin(text(node)) or UNKNOWN
        if node.type in CLASSES:
            found = self.lookup.index.by_node.get(node.id)
            if found is not None:
                return class_type([found], None)
            name = node.child_by_field_name("name")
            return self.named(name, site, text, depth) if name is not None else UNKNOWN
        path = path_of(node, text)
        if path.opaque or not path.steps:
            return UNKNOWN
        return self.path(path, site, text(node), depth)

    def path(self, path: Path, site: Site, written: str, depth: int = 0) -> Type:
        """The type that a name means at a place."""
        path = self.lookup.expanded(path)
        if path.opaque:
            return UNKNOWN
        last = path.steps[-1]
        if len(path.steps) == 1 and not path.rooted:
            if last.args is None and last.name in self.lookup.template_names(site):
                return Type("param", last.name)
            found = self.lookup.unqualified(site, last.name)
        else:
            scopes, known = self.lookup.scopes(Path(path.steps[:-1], path.rooted), site)
            if not scopes and known.name == "DEPENDENT":
                return UNKNOWN
            found = self.lookup.own(scopes[0], last.name) if scopes else self.lookup.unqualified(Site(site.scope), "")
            for scope in scopes[1:]:
                found.add(self.lookup.own(scope, last.name))
        if found.aliases:
            types = {self.alias(a, last.args, depth + 1) for a in found.aliases}
            return types.pop() if len(types) == 1 and not found.classes else UNKNOWN
        if found.classes:
            chosen = self.lookup.chosen(found.classes, last.args, site)
            if len(chosen) > MOST_SCOPES:
                return UNKNOWN
            return class_type(chosen, last.args)
        known_type = builtin(" ".join(written.split()))
        if known_type is not None:
            return known_type
        vector = re.fullmatch(r"(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]", last.name)
        if vector is not None:
            return Type("toolkit", last.name)
        if len(path.steps) > 1 and found.value:
            return UNKNOWN
        return Type("name", "".join(written.split()))

    def alias(self, alias: Alias, args: tuple[str, ...] | None, depth: int) -> Type:
        if depth > _DEPTH:
            return UNKNOWN
        site = self.lookup.alias_site(alias)
        node = alias.type_node
        if alias.params:
            path = self.lookup.alias_path(alias, args)
            if path is None:
                return UNKNOWN
            base = self.path(path, site, "", depth)
            declarator = node.child_by_field_name("declarator") if node.type == "type_descriptor" else None
            return base if declarator is None and base.kind != "param" else UNKNOWN
        base = self.descriptor(node, site, alias.file.text, depth)
        if alias.declarator is not None:
            base = self._declare(base, alias.declarator, alias.file.text, self.lookup.constants_in(None))
        return base if base.kind != "param" else UNKNOWN

    # --- declarators

    def _declare(self, base: Type, declarator: Node | None, text: Callable[[Node], str], constants: Constants) -> Type:
        """A declarator applied to a base type: from the outside in, as C++ writes it."""
        found = base
        while declarator is not None:
            kind = declarator.type
            inner = declarator.child_by_field_name("declarator")
            if kind in _REFERENCES:
                mark = "&&" if text(declarator).lstrip().startswith("&&") else "&"
                # a reference to a reference collapses
                found = replace(found, reference="&" if found.reference == "&" else mark)
                inner = inner or next((c for c in declarator.named_children if c.type != "type_qualifier"), None)
            elif kind in _POINTERS:
                if found.is_array and found.pointers:
                    return UNKNOWN
                found = replace(found, pointers=found.pointers + 1, to_array=bool(found.extents))
            elif kind in _ARRAYS:
                size = declarator.child_by_field_name("size")
                found = _array_of(found, self._extent(size, text, constants))
            elif kind in ("function_declarator", "abstract_function_declarator", "structured_binding_declarator"):
                return UNKNOWN
            elif kind in _PARENTHESES:
                inner = inner or next((c for c in declarator.named_children if c.type.endswith("declarator")), None)
            elif kind not in _OUTER and kind not in ("variadic_declarator", "attributed_declarator"):
                break
            declarator = inner
        return found

    def _extent(self, size: Node | None, text: Callable[[Node], str], constants: Constants) -> int | str:
        if size is None:
            return ""
        written = text(size)
        value = constants.evaluate(written)
        return value if value is not None else "".join(written.split())


def _array_of(element: Type, extent: int | str) -> Type:
    # `T d[A][B]`: the outer declarator is the inner dimension, and comes first
    if element.to_array or element.reference:
        return UNKNOWN
    return replace(element, extents=(extent, *element.extents))


def class_type(classes: list[ClassScope], args: tuple[str, ...] | None) -> Type:
    if not classes:
        return UNKNOWN
    first = classes[0]
    above = first.parent.qualified if first.parent is not None else ""
    name = f"{above}::{first.name}" if above else first.name
    if args is None and len(classes) == 1 and classes[0].special is not None:
        args = classes[0].special
    return Type("class", name, tuple(classes), args)


def adjusted(kind: Type) -> Type:
    """What a parameter that is declared as an array is: a pointer."""
    return kind.decayed() if kind.is_array and not kind.reference else kind
