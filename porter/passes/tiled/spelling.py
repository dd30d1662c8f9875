# SPDX-License-Identifier: Apache-2.0
"""Types of expressions at another place: variables that are not declared there are written as what they are made of."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.functions import ClassScope, Function, Style
from porter.model.scopes import Variable, resolve
from porter.model.tiled.tensors import initializer, is_deduced, names_in
from porter.passes.tiled.context import NAMESPACE

_LONGEST = 400
"""Characters of a type that a reader is asked to read."""


class Unnamed(Exception):
    """An expression that cannot be written at another place. The text says why."""


def spelled(function: Function, node: Node, at: Node) -> str:
    """The text of an expression, for its type, with names that are declared at `at`, a statement of the kernel.

    Raises:
        Unnamed: it depends on something that has no name there.
    """
    text = _spelled(function, node, at, 0)
    if len(text) > _LONGEST:
        raise Unnamed(f"the type of `{function.text(node)}` is too long to be written there")
    return text


def _spelled(function: Function, node: Node, at: Node, depth: int) -> str:
    if depth > 8 or any(n.type == "lambda_expression" for n in walk(node)):
        raise Unnamed(f"`{function.text(node)}` is too deep")
    source, start = function.text(node), node.start_byte
    raw = source.encode()
    pieces: list[bytes] = []
    end = 0
    for name in sorted((*names_in(function, node), *_types_in(node)), key=lambda n: n.start_byte):
        text = function.text(name)
        if name.type == "type_identifier":
            written = _type(function, name, text, at)
        else:
            written = _value(function, name, text, at, depth)
        if written != text:
            pieces += [raw[end : name.start_byte - start], written.encode()]
            end = name.end_byte - start
    return " ".join((b"".join(pieces) + raw[end:]).decode().split())


def _types_in(node: Node) -> list[Node]:
    return [n for n in walk(node) if n.type == "type_identifier"]


def _value(function: Function, name: Node, text: str, at: Node, depth: int) -> str:
    variable = resolve(function, name, text)
    if variable is None or _is_seen(variable, at):
        return text
    value, declaration = initializer(variable), variable.declaration
    if variable.param is not None or declaration is None:
        raise Unnamed(f"`{text}` is a parameter of `{variable.function.name}`")
    kind = declaration.child_by_field_name("type")
    if kind is not None and kind.type not in ("placeholder_type_specifier", "type_identifier"):
        return f"{NAMESPACE}::declval<{_type_text(variable.function, kind, at)}&>()"
    if value is None:
        if kind is None:
            raise Unnamed(f"`{text}` has no type that could be written there")
        return f"{NAMESPACE}::declval<{_type_text(variable.function, kind, at)}&>()"
    if not is_deduced(variable.function, declaration, ""):
        # a template's name whose arguments follow from the value, or the name of a type
        local = _local_type(variable.function, kind, at) if kind is not None else None
        if local is not None:
            return f"{NAMESPACE}::declval<{local}&>()"
    return f"({_spelled(variable.function, value, at, depth + 1)})"


def _is_seen(variable: Variable, at: Node) -> bool:
    """Whether a variable is declared in front of a statement, in a block around it."""
    if variable.declaration is None:
        return variable.param is not None and _is_inside(at, variable.function)
    block = variable.declaration.parent
    current: Node | None = at
    while current is not None:
        if block is not None and current.id == block.id:
            return variable.declaration.start_byte < at.start_byte
        current = current.parent
    return False


def _params(scope: ClassScope) -> set[str]:
    return {p.name for p in scope.params}


def _is_inside(at: Node, function: Function) -> bool:
    while function.style is Style.LAMBDA and function.parent is not None:
        function = function.parent
    inside = function.body.start_byte <= at.start_byte < function.body.end_byte
    return inside and function.shift == 0 and function.style is Style.KERNEL


def _type_text(function: Function, node: Node, at: Node) -> str:
    for name in _types_in(node):
        if _type(function, name, function.text(name), at) != function.text(name):
            raise Unnamed(f"type `{function.text(name)}` is declared further down")
    return function.text(node)


def _local_type(function: Function, node: Node, at: Node) -> str | None:
    """A type that a function declares, as it is written at `at`; None if it declares none of this name."""
    text = function.text(node)
    for alias in function.own_nodes("alias_declaration"):
        name = alias.child_by_field_name("name")
        if name is not None and function.text(name) == text:
            return _type(function, node, text, at)
    return None


def _type(function: Function, name: Node, text: str, at: Node) -> str:
    """The name of a type. Raises Unnamed if a function or class around it declares it, and not for `at`."""
    if not _is_inside(at, function):
        scope = function.owner_class
        own = scope is not None and (text in scope.aliases or text in scope.classes or text in _params(scope))
        if own or text in function.template_params:
            raise Unnamed(f"type `{text}` is one of `{function.name}` alone")
    for alias in function.own_nodes("alias_declaration"):
        declared, meant = alias.child_by_field_name("name"), alias.child_by_field_name("type")
        if declared is None or meant is None or function.text(declared) != text or declared.id == name.id:
            continue
        if alias.start_byte < at.start_byte and alias.parent is not None and alias.parent.id == function.body.id:
            return text
        raise Unnamed(f"type `{text}` is declared further down")
    return text
