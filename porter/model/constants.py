# SPDX-License-Identifier: Apache-2.0
"""Compile-time integers of CUDA sources: `constexpr`, `const`, `enum` and `#define`, evaluated where possible."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from tree_sitter import Node

from porter.lang.asm import macro_definitions
from porter.lang.cuda import CudaFile, enclosing, find
from porter.model.functions import Function, Style, declared_name

_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)(?:[uUlLzZ]+)\b")
_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")
_CAST = re.compile(
    r"\b(?:static_cast\s*<[^<>]*>|(?:u?int(?:8|16|32|64)?_t|size_t|unsigned|int|uint))\s*(?=\()"
    r"|\(\s*(?:u?int(?:8|16|32|64)?_t|size_t|unsigned(?:\s+int)?|int|long|uint)\s*\)"
)
_NAME = re.compile(r"(?<!\w)[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*")
_BINARY = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: _quotient(a, b),
    ast.Mod: lambda a, b: a - b * _quotient(a, b),
    ast.LShift: lambda a, b: a << _shift(b),
    ast.RShift: lambda a, b: a >> _shift(b),
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
}


def _quotient(a: int, b: int) -> int:
    """Rounded towards zero, as C++ does."""
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


def _shift(count: int) -> int:
    if not 0 <= count < 64:
        raise ValueError("no shift of any integer type")
    return count


class Constants:
    """Named constants as text, and evaluation of integer expressions over them.

    A name defined twice with different text is unknown: which definition holds depends on context that is
    not modelled.
    """

    def __init__(self, definitions: Mapping[str, str | None] | None = None) -> None:
        self._text: dict[str, str | None] = dict(definitions or {})

    def define(self, name: str, text: str) -> None:
        known = self._text.get(name, text)
        self._text[name] = text if known == text else None

    def text(self, name: str) -> str | None:
        return self._text.get(name)

    def extended(self, definitions: Mapping[str, str]) -> Constants:
        """A copy in which `definitions` win over what was known."""
        return Constants({**self._text, **definitions})

    def evaluate(self, expression: str) -> int | None:
        """The value of an integer constant expression, or None if any part of it is not known."""
        try:
            return self._evaluate(expression, frozenset())
        except (RecursionError, MemoryError):
            return None

    def _evaluate(self, expression: str, seen: frozenset[str]) -> int | None:
        text = _SUFFIX.sub(r"\1", _SEPARATOR.sub("", expression.strip()))
        text = _CAST.sub("", text)
        text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
        text = text.replace("/", "//").replace("////", "//")
        names: dict[str, int] = {}
        for match in _NAME.finditer(text):
            name = match.group()
            if name in names:
                continue
            key = name.replace(" ", "").rsplit("::", 1)[-1]
            inner = self._text.get(key)
            if inner is None or key in seen:
                return None
            value = self._evaluate(inner, seen | {key})
            if value is None:
                return None
            names[name] = value
        for name in sorted(names, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", f"({names[name]})", text)
        try:
            return _fold(ast.parse(text, mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, OverflowError):
            return None


def _fold(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_fold(node.left), _fold(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_fold(node.operand)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
        return _fold(node.operand)
    raise ValueError("not an integer constant expression")


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


def file_constants(files: Mapping[str, CudaFile]) -> Constants:
    """Constants at file, namespace or class scope, and object-like macros, of a set of files."""
    constants = Constants()
    for file in files.values():
        for macro in macro_definitions(file):
            if macro.params is None:
                constants.define(macro.name, macro.joined.decode("utf-8", "replace"))
        for node in file.root.named_children:
            for name, (text, offset) in definitions_in(file, node).items():
                at = file.root.descendant_for_byte_range(offset, offset + 1)
                if at is not None and enclosing(at, "function_definition", "lambda_expression") is None:
                    constants.define(name, text)
    return constants


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
    return outer.extended({**hidden, **{n: t for n, (t, _) in local_definitions(function).items()}})
