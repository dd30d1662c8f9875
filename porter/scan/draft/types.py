# SPDX-License-Identifier: Apache-2.0
"""Types of host code: what names of them stand for, and how many bytes an object takes."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from tree_sitter import Node

from porter.scan.draft import classes as cls
from porter.scan.draft import library_types as library
from porter.scan.draft import templates
from porter.scan.draft.numbers import Num
from porter.scan.draft.values import Scope

DEEPEST = 40
"""Calls, classes and constants inside of each other."""


class Types(ABC):
    """Types by the classes of a program. Extents and template arguments are expressions, which `value` knows."""

    def __init__(self, classes: cls.Classes) -> None:
        self.classes = classes
        self.depth = 0

    @abstractmethod
    def value(self, node: Node, scope: Scope) -> Any:
        """What an expression comes to."""

    def resolve(self, text: str, scope: Scope | None) -> str:
        """A type with the aliases and template parameters in it replaced."""
        text = self._injected(cls.plain_type(text), scope)
        for _ in range(8):
            if text.startswith("decltype") and (found := self._elements(text, scope)) is not None:
                return f"{library.LAYOUT}<{found}>"
            name, arguments = cls.template_id(text)
            head, last = cls.split_scope(text)
            if "<" in head:
                known = self._alias_in(head, last, scope)
                if known is None:
                    break
                text = cls.plain_type(known)
                continue
            if arguments or not re.fullmatch(r"[\w:\s]+", name):
                break
            known = scope.type_of(name) if scope is not None else None
            for level in scope.levels() if scope is not None and known is None else ():
                own = level.names.get("class")
                known = cls.alias_of(own, name) if own is not None and known is None else known
            if known is None and "::" in name:
                known = self._alias_in(*cls.split_scope(name), scope)
            last_name = name.split("::")[-1].strip()
            if known is None and last_name in self.classes.aliases and self.classes.find(last_name) is None:
                known = self._in_namespace(last_name, scope)
            if known is None or cls.plain_type(known) == text:
                break
            text = cls.plain_type(known)
        return text

    def _injected(self, text: str, scope: Scope | None) -> str:
        """In a class template its name means the class with the arguments that it has."""
        for level in scope.levels() if scope is not None else ():
            own = level.names.get("class")
            if own is not None and own.name == text and own.params:
                given = [level.types.get(param) for param, _ in own.params]
                return f"{text}<{', '.join(map(str, given))}>" if None not in given else text
        return text

    def _alias_in(self, holder: str, name: str, scope: Scope | None) -> str | None:
        template, inner = self._class(holder, scope)
        if template is None:
            return None
        known = cls.alias_of(template, name)
        # outside of the class its parameters are somebody else's
        return templates.filled(self.resolve(known, inner), inner) if known is not None else None

    def _in_namespace(self, alias: str, scope: Scope | None) -> str:
        """What an alias of a namespace stands for, with the values of constants of that namespace among its words."""
        text, space = self.classes.aliases[alias], self.classes.alias_spaces.get(alias, "")
        if not space or "<" not in text or scope is None:
            return text

        def instead(match: re.Match[str]) -> str:
            node = cls.expression(f"{space}::{match[0]}")
            value = self.value(node, scope) if node is not None else None
            known = value.known if isinstance(value, Num) else None
            return str(known) if type(known) is int else match[0]

        return re.sub(r"(?<![:.\w])(?<!->)[A-Za-z_]\w*(?!\w|\s*(?:::|<|\(|\{))", instead, text)

    def _elements(self, text: str, scope: Scope | None) -> int | None:
        """How many elements a layout takes."""
        return library.elements(text, lambda extent: self._count(extent, scope))

    def _count(self, text: str, scope: Scope | None) -> int | None:
        """What a constant expression comes to, or how many elements the layout takes that it asks for."""
        name, given = cls.template_id(text)
        if name.split("::")[-1].strip() == "cosize_v" and len(given) == 1:
            layout, size = cls.template_id(self.resolve(given[0], scope))
            return int(size[0]) if layout == library.LAYOUT else None
        node = cls.expression(text) if text.strip() else None
        value = self.value(node, scope) if node is not None and scope is not None else None
        return value.known if isinstance(value, Num) and type(value.known) is int else None

    def _class(self, text: str, scope: Scope | None) -> tuple[cls.Template | None, Scope]:
        """A class that a text names, and what its template parameters are."""
        text = self.resolve(text, scope)
        head, last = cls.split_scope(text)
        if head:
            holder, outer = self._class(head, scope)
            nested = cls.inner_class(holder, last) if holder is not None else None
            if nested is not None:
                return nested, Scope(outer, {"class": nested})
        own = next((s.names["class"] for s in scope.levels() if "class" in s.names), None) if scope else None
        nested = cls.inner_class(own, text) if own is not None else None
        if nested is not None:
            return nested, Scope(scope, {"class": nested})
        name, arguments = cls.template_id(text)
        template = self.classes.find(name)
        inner = Scope(function=scope.owner if scope is not None else None)
        if template is None:
            return None, inner
        for index, (param, default) in enumerate(template.params):
            given = arguments[index] if index < len(arguments) else default
            if given is not None:
                inner.types[param] = self.argument(given, scope if index < len(arguments) else inner)
        inner.names["class"] = template
        return template, inner

    def argument(self, text: str, scope: Scope | None) -> str:
        """A template argument as a number or a type."""
        node = cls.expression(text) if re.search(r"\w", text) else None
        found = self.value(node, scope) if node is not None and scope is not None else None
        if isinstance(found, Num) and found.known is not None and not self._is_enumerator(text, scope):
            return str(found.known).lower() if isinstance(found.known, bool) else str(found.known)
        known = self.resolve(text, scope)
        return templates.filled(known, scope) if scope is not None else known

    def _is_enumerator(self, text: str, scope: Scope | None) -> bool:
        """Whether a name may be of a scoped enumeration: no number stands for it."""
        head, _ = cls.split_scope(text)
        return bool(re.fullmatch(r"\w+(?:::\w+)*", head)) and self._class(head, scope)[0] is None

    def bytes_of(self, text: str, scope: Scope | None) -> tuple[int, int] | None:
        """Size and alignment of a type in bytes, None if that is not known."""
        text = self.resolve(text, scope)
        if text.endswith("*"):
            return cls.POINTER, cls.POINTER
        last = text.split("::")[-1].strip() if "<" not in text else text
        if last in cls.BYTES:
            return cls.BYTES[last], min(cls.BYTES[last], 64)
        if re.search(r"(?:^|::)barrier<", text) or re.search(r"\bCluster(?:Transaction)?Barrier\Z", text):
            return 8, 8
        if (mbarriers := self._mbarriers(text, scope)) is not None:
            return mbarriers
        template, inner = self._class(text, scope)
        if template is None:
            return self._elements_held(text, scope)
        if self.depth > DEEPEST:
            return None
        self.depth += 1
        try:
            return self._laid_out(template, inner)
        finally:
            self.depth -= 1

    def _mbarriers(self, text: str, scope: Scope | None) -> tuple[int, int] | None:
        """Size and alignment of the mbarriers of a library's pipeline."""
        head, last = cls.split_scope(text)
        kind, given = cls.template_id(self.resolve(head, scope)) if last == library.STORAGE else ("", [])
        if kind.split("::")[-1].strip() not in library.PIPELINES or not given:
            return None
        stages = library.number(given[0], lambda extent: self._count(extent, scope))
        return (2 * library.MBARRIER * stages, library.MBARRIER) if stages else None

    def _elements_held(self, text: str, scope: Scope | None) -> tuple[int, int] | None:
        """Size and alignment of a library's class that holds elements."""
        name, given = cls.template_id(text)
        kind = name.split("::")[-1].strip()
        if kind not in library.ARRAYS or len(given) != 2:
            return None
        one, count = self.bytes_of(given[0], scope), self._count(given[1], scope)
        if one is None or not count:
            return None
        align = max(one[1], library.ARRAYS[kind])
        return -(-one[0] * count // align) * align, align

    def _laid_out(self, template: cls.Template, scope: Scope) -> tuple[int, int] | None:
        body = template.node.child_by_field_name("body")
        head = cls.text_of(template.node)[: (body.start_byte - template.node.start_byte) if body is not None else 0]
        if any(c.type == "base_class_clause" for c in template.node.named_children) or cls.has_nameless(template):
            return None
        size, align = 0, self._aligned(head, scope)
        for _, kind, extents, pointer, whole in cls.fields(template):
            one = (cls.POINTER, cls.POINTER) if pointer else self.bytes_of(kind, scope)
            if one is None:
                return None
            count = 1
            for extent in extents:
                known = self._count(cls.text_of(extent), scope)
                if known is None:
                    return None
                count *= known
            own = max(one[1], self._aligned(whole, scope))
            align = max(align, own)
            if template.node.type == "union_specifier":
                size = max(size, one[0] * count)
            else:
                size = -(-size // own) * own + one[0] * count
        return max(-(-size // align) * align, 1), align

    def _aligned(self, text: str, scope: Scope) -> int:
        match = re.search(r"(?:alignas|__align__|aligned)\s*\(+([^()]*)\)", text)
        node = cls.expression(match.group(1)) if match else None
        value = self.value(node, scope) if node is not None else None
        return value.known if isinstance(value, Num) and isinstance(value.known, int) else 1
