# SPDX-License-Identifier: Apache-2.0
"""Objects that hold registers: the object an expression reaches into by its methods, and what these may change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tree_sitter import Node

from porter.lang.asm import read_as_code
from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.function_reader import called_name
from porter.model.functions import Function
from porter.model.names.resolver import CALL_OPERATOR
from porter.model.program import Program

_INWARDS = {
    "call_expression": "function",
    "field_expression": "argument",
    "subscript_expression": "argument",
    "pointer_expression": "argument",
}


def object_root(node: Node | None) -> Node | None:
    """The name of the object that `acc.at(i)`, `acc(m, n)[1]` or `*acc.data()` reach into; None if there is none."""
    while node is not None and node.type != "identifier":
        if node.type == "parenthesized_expression":
            node = node.named_children[0] if node.named_children else None
        elif node.type in _INWARDS:
            node = node.child_by_field_name(_INWARDS[node.type])
        else:
            return None
    return node


def is_const(method: Function) -> bool:
    """Whether a method is declared to leave its object as it is."""
    at = method.params_span.end if method.params_span is not None else method.node.start_byte
    return "const" in re.findall(r"\w+", method.file.text(Span(at, method.body.start_byte)))


def is_unnamed(function: Function) -> bool:
    """Whether calls of a function do not name it: operators by their signs, constructors and destructors. Those of a
    call operator look like any other."""
    name = function.name
    sign = re.match(r"operator\b", name) is not None and name != CALL_OPERATOR
    return sign or name.startswith("~") or (name != "" and name == function.class_name)


def calls_outside_bodies(program: Program, named: Mapping[str, Function]) -> Iterator[tuple[str, Function, str, Node]]:
    """Calls by one of some names that stand in no function's body: the name and whose it is, the file, the node."""
    for path, file in program.sources.files.items():
        for node in read_as_code(file, find(file.root, "call_expression")):
            callee = node.child_by_field_name("function")
            name_node = called_name(callee) if callee is not None else None
            name = file.text(name_node) if name_node is not None else ""
            if name in named and node.id not in program.calls_by_node:
                yield name, named[name], path, node


def returns_pointer(function: Function) -> bool:
    """Whether the declared return type is a pointer."""
    at = function.name_span.start if function.name_span is not None else function.body.start_byte
    return "*" in function.file.text(Span(function.node.start_byte, at))


def constructors(program: Program, function: Function, node: Node, type_name: str) -> list[Function]:
    """Constructors of the class that a type's text means at a node of a function, and of its bases, in the sources."""
    found: list[Function] = []
    work = list(program.names.classes_named(function, node, type_name)) if type_name else []
    for scope in work:
        found += [s.function for s in scope.functions.get(scope.name, ()) if s.defined]
        work += [b for b, _ in program.names.lookup.bases(scope) if b not in work]
    return found
