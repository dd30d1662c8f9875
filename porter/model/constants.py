# SPDX-License-Identifier: Apache-2.0
"""Compile-time integers of CUDA sources: `constexpr`, `const`, `enum` and `#define`, evaluated where possible."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.asm import macro_definitions
from porter.lang.cuda import CudaFile, enclosing, find
from porter.lang.text import as_bytes
from porter.model.constant_expressions import evaluate
from porter.model.functions import Function, Style, declared_name

_MOST_CALLS = 32
"""Calls of constant functions inside of each other."""
_NO_INTEGERS = ("float", "double", "long double", "half", "__half", "__nv_bfloat16", "bfloat16_t", "half_t")


@dataclass(frozen=True)
class Meant:
    """What a name stands for: an expression, and what names mean in it; in a macro's, what they do where it is used.
    `params`: of a function that returns it."""

    text: str
    where: Constants | None
    params: tuple[str, ...] | None = None


class Constants:
    """What names mean at a place, as text, and evaluation of integer expressions over them.

    `definitions` are those of the place itself, empty where a name is hidden; they win over `macros`, which have no
    text where several hold, and those over `outside`, which says what a name means that is none of them.
    """

    def __init__(
        self,
        definitions: Mapping[str, str] | None = None,
        macros: Mapping[str, str | None] | None = None,
        outside: Callable[[str], Meant | None] | None = None,
    ) -> None:
        self._text = dict(definitions or {})
        self._macros = macros or {}
        self._outside = outside

    def meant(self, name: str) -> Meant | None:
        """What a name stands for, None if that is not known."""
        name = "".join(re.sub(r"\btemplate\b", "", name).split())
        if name in self._text:
            return Meant(self._text[name], self)
        if name in self._macros:
            return Meant(self._macros[name] or "", None)
        return self._outside(name) if self._outside is not None else None

    def text(self, name: str) -> str | None:
        meant = self.meant(name)
        return meant.text or None if meant is not None else None

    def agrees(self, other: Constants, name: str) -> bool:
        """Whether a name stands for the same constant at another place."""
        here, there = self.meant(name), other.meant(name)
        return here is not None and here == there and bool(here.text)

    def extended(self, definitions: Mapping[str, str]) -> Constants:
        """The constants of a place inside, whose `definitions` win over what is known here."""
        return Constants(definitions, outside=self.meant)

    def evaluate(self, expression: str) -> int | None:
        """The value of an integer constant expression, or None if any part of it that matters is not known."""
        try:
            return self._evaluate(expression, frozenset(), 0)
        except (RecursionError, MemoryError):
            return None

    def _evaluate(self, expression: str, seen: frozenset[tuple[int, str]], depth: int) -> int | None:
        known: dict[str, int | None] = {}

        def named(name: str) -> int | None:
            if name not in known:
                meant = self.meant(name)
                if meant is None or not meant.text or meant.params is not None:
                    return None
                where = meant.where or self
                key = id(where), name
                known[name] = None if key in seen else where._evaluate(meant.text, seen | {key}, depth)
            return known[name]

        def called(name: str, arguments: list[int | None]) -> int | None:
            meant = self.meant(name)
            if meant is None or meant.params is None or len(meant.params) != len(arguments) or depth > _MOST_CALLS:
                return None
            given = {n: "" if v is None else str(v) for n, v in zip(meant.params, arguments, strict=True)}
            return (meant.where or self).extended(given)._evaluate(meant.text, frozenset(), depth + 1)

        return evaluate(expression, named, called)


def definitions_in(file: CudaFile, node: Node) -> dict[str, tuple[str, int]]:
    """`const`/`constexpr` integers declared at or below `node`: name to (initializer text, byte offset). The text of
    a name that is defined twice, differently, is empty."""
    found: dict[str, tuple[str, int]] = {}

    def define(name: str, text: str, at: int) -> None:
        # which of two definitions holds depends on where it is asked for
        found[name] = (text if found.get(name, (text, at))[0] == text else "", at)

    for declaration in find(node, "declaration", "field_declaration"):
        qualifiers = {file.text(c) for c in declaration.children if c.type in ("type_qualifier", "constexpr")}
        if not qualifiers & {"const", "constexpr"}:
            continue
        for child in declaration.named_children:
            declarator, value = child, child.child_by_field_name("value")
            if child.type != "init_declarator" or value is None:
                value = default_of(declaration, child)
                if child.type != "field_identifier" or value is None:
                    continue
            name = declared_name(declarator)
            if name is not None and "(" not in file.text(declarator).split("=")[0]:
                define(file.text(name), file.text(value), declaration.start_byte)
    for item in find(node, "enumerator"):
        item_name, item_value = item.child_by_field_name("name"), item.child_by_field_name("value")
        if item_name is not None and item_value is not None:
            define(file.text(item_name), file.text(item_value), item.start_byte)
    return found


def macro_texts(files: Iterable[CudaFile]) -> dict[str, str | None]:
    """The object-like macros of files; None for one that has several bodies."""
    found: dict[str, str | None] = {}
    for file in files:
        for macro in macro_definitions(file):
            if macro.params is None:
                text = macro.joined.decode("utf-8", "replace")
                found[macro.name] = text if found.get(macro.name, text) == text else None
    return found


def default_of(declaration: Node, declarator: Node) -> Node | None:
    """What a member is initialized with, one of several that a declaration has."""
    found = False
    for index, child in enumerate(declaration.children):
        if declaration.field_name_for_child(index) == "declarator":
            found = child.id == declarator.id
        elif found and declaration.field_name_for_child(index) == "default_value":
            return child
    return None


def variable_text(node: Node, declarator: Node, text: Callable[[Node], str]) -> str:
    """What a declared integer constant is initialized with; empty for what is none. `node` is the declaration."""
    qualifiers = {text(c) for c in node.children if c.type in ("type_qualifier", "constexpr")}
    value = declarator.child_by_field_name("value")
    if declarator.type == "init_declarator":
        declarator = declarator.child_by_field_name("declarator") or declarator
    else:
        value = default_of(node, declarator)
    kind = node.child_by_field_name("type")
    if value is None or not qualifiers & {"const", "constexpr"} or not declarator.type.endswith("identifier"):
        return ""
    named = text(kind) if kind is not None else ""
    if named in _NO_INTEGERS:
        return ""
    return f"!!({text(value)})" if named == "bool" else text(value)


def enumerator_texts(node: Node, text: Callable[[Node], str]) -> dict[str, str]:
    """The values of an enumeration's names, as expressions."""
    found: dict[str, str] = {}
    base, step = "0", 0
    for item in find(node, "enumerator"):
        name, value = item.child_by_field_name("name"), item.child_by_field_name("value")
        if value is not None:
            base, step = text(value), 0
        if name is not None:
            found[text(name)] = f"({base}) + {step}" if step else base
        step += 1
    return found


def returned(function: Function) -> tuple[tuple[str, ...], str] | None:
    """Parameters and expression of a function declared `constexpr` that does nothing but return one."""
    node = function.node
    words = {function.text(c) for c in node.children if c.type in ("type_qualifier", "constexpr")}
    inner = [c for c in function.body.named_children if c.type != "comment"]
    if "constexpr" not in words or len(inner) != 1 or inner[0].type != "return_statement":
        return None
    if not inner[0].named_children or not all(p.name for p in function.params) or function.variadic:
        return None
    return tuple(p.name for p in function.params), function.text(inner[0].named_children[0])


def local_definitions(function: Function) -> dict[str, tuple[str, int]]:
    """Constants declared inside a function, with where."""
    return definitions_in(function.file, function.body)


def visible(outer: Constants, function: Function, given: Mapping[str, str] | None = None) -> Constants:
    """What names mean inside a function: its constants win, and its parameters and variables hide what has their
    name outside. `outer`: what they mean around it. `given`: what parameters of its template stand for."""
    hidden = dict.fromkeys(function.template_params, "")
    if function.style is not Style.MACRO:
        hidden |= {p.name: "" for p in function.params}
    for declaration in find(function.body, "declaration", "for_range_loop"):
        for child in declaration.children_by_field_name("declarator"):
            hidden.update((function.text(name), "") for name in _names_declared(child))
    local = {}
    for name, (text, at) in local_definitions(function).items():
        inner = function.body.descendant_for_byte_range(at - function.shift, at - function.shift)
        nested = inner is not None and enclosing(inner, "compound_statement") not in (None, function.body)
        # outside of its block, and in front of it, the name is somebody else's
        early = re.search(rb"\b%b\b" % as_bytes(name), function.file.source[function.span(function.body).start : at])
        local[name] = "" if (nested or early) and outer.meant(name) is not None else text
    return outer.extended({**hidden, **(given or {}), **_asserted(function), **local})


def _names_declared(declarator: Node) -> list[Node]:
    if b"[" in (declarator.text or b"") and any(True for _ in find(declarator, "structured_binding_declarator")):
        return list(find(declarator, "identifier"))
    name = declared_name(declarator)
    return [name] if name is not None else []


def _asserted(function: Function) -> dict[str, str]:
    """Template parameters that a `static_assert` of the function's body holds to one value."""
    found = {}
    for node in function.body.named_children:
        condition = node.child_by_field_name("condition") if node.type == "static_assert_declaration" else None
        operator = condition.child_by_field_name("operator") if condition is not None else None
        if condition is None or operator is None or function.text(operator) != "==":
            continue
        left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
        for name, value in ((left, right), (right, left)):
            if name is not None and value is not None and function.text(name) in function.template_params:
                found[function.text(name)] = function.text(value)
    return found
