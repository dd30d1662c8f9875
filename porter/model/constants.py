# SPDX-License-Identifier: Apache-2.0
"""Compile-time integers of CUDA sources: `constexpr`, `const`, `enum` and `#define`, evaluated where possible."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tree_sitter import Node

from porter.lang.asm import macro_definitions
from porter.lang.cuda import CudaFile, enclosing, find
from porter.model.constant_expressions import evaluate
from porter.model.functions import Function, Style, declared_name

_MOST_CALLS = 32
"""Calls of constant functions inside of each other."""


class Constants:
    """Named constants as text, and evaluation of integer expressions over them.

    A name defined twice with different text is unknown: which definition holds depends on context that is
    not modelled. A qualified name is one of the sources' if they declare all its `scopes`; without scopes, always.
    """

    def __init__(
        self,
        definitions: Mapping[str, str | None] | None = None,
        functions: Mapping[str, tuple[tuple[str, ...], str] | None] | None = None,
        scopes: frozenset[str] | None = None,
    ) -> None:
        self._scopes = scopes
        self._text: dict[str, str | None] = dict(definitions or {})
        self._functions: dict[str, tuple[tuple[str, ...], str] | None] = dict(functions or {})

    def define(self, name: str, text: str) -> None:
        known = self._text.get(name, text)
        self._text[name] = text if known == text else None

    def define_function(self, name: str, params: tuple[str, ...], result: str) -> None:
        """A function whose value is `result`, an expression over `params`."""
        known = self._functions.get(name, (params, result))
        self._functions[name] = (params, result) if known == (params, result) else None

    def text(self, name: str) -> str | None:
        return self._text.get(name)

    def extended(self, definitions: Mapping[str, str]) -> Constants:
        """A copy in which `definitions` win over what was known."""
        return Constants({**self._text, **definitions}, self._functions, self._scopes)

    def evaluate(self, expression: str) -> int | None:
        """The value of an integer constant expression, or None if any part of it that matters is not known."""
        try:
            return self._evaluate(expression, frozenset(), 0)
        except (RecursionError, MemoryError):
            return None

    def _evaluate(self, expression: str, seen: frozenset[str], depth: int) -> int | None:
        known: dict[str, int | None] = {}

        def named(name: str) -> int | None:
            key = self._own(name)
            inner = self._text.get(key)
            if inner is None or key in seen:
                return None
            if key not in known:
                known[key] = self._evaluate(inner, seen | {key}, depth)
            return known[key]

        def called(name: str, arguments: list[int | None]) -> int | None:
            function = self._functions.get(self._own(name))
            if function is None or len(function[0]) != len(arguments) or depth > _MOST_CALLS:
                return None
            given = {n: "" if v is None else str(v) for n, v in zip(function[0], arguments, strict=True)}
            return self.extended(given)._evaluate(function[1], frozenset(), depth + 1)

        return evaluate(expression, named, called)

    def _own(self, name: str) -> str:
        """The last part of a qualified name; empty if a scope of it is not one of the sources'."""
        *around, last = re.findall(r"[A-Za-z_]\w*", name)
        return last if self._scopes is None or self._scopes.issuperset(w for w in around if w != "template") else ""


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
                value = declaration.child_by_field_name("default_value")
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


_SCOPE = re.compile(
    rb"(?<!using )\b(?:namespace|class|struct|union|enum|using(?!\s+namespace\b)|typename)\b(?:\s*\.\.\.)?([\s\w:]*)"
    rb"|\btypedef\b([^;{}]*);"
)


def _scopes_in(file: CudaFile) -> Iterator[str]:
    """Words that a file may declare as namespaces or types, template parameters among them."""
    for declared, defined in _SCOPE.findall(file.lexed.code):
        for word in re.findall(rb"\w+", declared if declared.strip() else defined[-80:]):
            yield word.decode()


def file_constants(files: Mapping[str, CudaFile]) -> Constants:
    """Constants at file, namespace or class scope, and object-like macros, of a set of files."""
    constants = Constants(scopes=frozenset(w for file in files.values() for w in _scopes_in(file)))
    for file in files.values():
        for macro in macro_definitions(file):
            if macro.params is None:
                constants.define(macro.name, macro.joined.decode("utf-8", "replace"))
        for node in file.root.named_children:
            for name, (text, offset) in definitions_in(file, node).items():
                at = file.root.descendant_for_byte_range(offset, offset + 1)
                if at is not None and enclosing(at, "function_definition", "lambda_expression") is None:
                    constants.define(name, text)
        for name, params, result in _constant_functions(file):
            constants.define_function(name, params, result)
    return constants


def _constant_functions(file: CudaFile) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Functions declared `constexpr` that do nothing but return an expression: name, parameters, the expression."""
    for node in find(file.root, "function_definition"):
        body, declarator = node.child_by_field_name("body"), node.child_by_field_name("declarator")
        words = {file.text(c) for c in node.children if c.type in ("type_qualifier", "constexpr")}
        if body is None or declarator is None or "constexpr" not in words or declarator.type != "function_declarator":
            continue
        inner = [c for c in body.named_children if c.type != "comment"]
        name, listed = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("parameters")
        if len(inner) != 1 or inner[0].type != "return_statement" or name is None or listed is None:
            continue
        params = [declared_name(d) for c in listed.named_children if (d := c.child_by_field_name("declarator"))]
        if inner[0].named_children and name.type.endswith("identifier") and all(params):
            texts = tuple(file.text(p) for p in params if p is not None)
            yield file.text(name), texts, file.text(inner[0].named_children[0])


def local_definitions(function: Function) -> dict[str, tuple[str, int]]:
    """Constants declared inside a function, with where."""
    return definitions_in(function.file, function.body)


def visible(constants: Constants, function: Function) -> Constants:
    """What names mean inside a function: its constants win, and its parameters and variables hide what has their
    name outside."""
    outer = visible(constants, function.parent) if function.parent is not None else constants
    hidden = dict.fromkeys(function.template_params, "")
    if function.style is not Style.MACRO:
        hidden |= {p.name: "" for p in function.params}
    for declaration in find(function.body, "declaration"):
        for child in declaration.children_by_field_name("declarator"):
            name = declared_name(child)
            if name is not None:
                hidden[function.text(name)] = ""
    local = {n: t for n, (t, _) in local_definitions(function).items()}
    return outer.extended({**hidden, **_asserted(function), **local})


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
