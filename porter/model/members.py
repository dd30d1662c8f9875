# SPDX-License-Identifier: Apache-2.0
"""Accumulators that are data members of a class: the field, and the objects that hold one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import enclosing, find
from porter.lang.text import Span
from porter.model.functions import Function, Style, array_extents, declared_name
from porter.model.scopes import Variable

CLASSES = ("class_specifier", "struct_specifier")


@dataclass(frozen=True, eq=False)
class MemberField:
    """An array member `name` of class `owner`, declared at `declaration` in the file of `method`."""

    owner: str
    name: str
    method: Function = field(repr=False)
    """Some method of the class: stands for its file."""
    declaration: Node = field(repr=False)
    class_node: Node = field(repr=False)

    @property
    def stem(self) -> str:
        """The name without the underscore that marks it private."""
        return self.name.strip("_")

    @property
    def extents(self) -> list[str]:
        return [self.method.text(n) for n in array_extents(self.declaration)]


def find_field(method: Function, name: str) -> MemberField | None:
    """The array member that `name` means in a method, or None."""
    if method.style is not Style.METHOD:
        return None
    class_node = enclosing(method.node, *CLASSES)
    body = class_node.child_by_field_name("body") if class_node is not None else None
    if class_node is None or body is None:
        return None
    for declaration in body.named_children:
        if declaration.type != "field_declaration":
            continue
        declarators = declaration.children_by_field_name("declarator")
        if len(declarators) != 1 or declarators[0].type != "array_declarator":
            continue
        declared = declared_name(declarators[0])
        if declared is not None and method.text(declared) == name:
            return MemberField(method.owner, name, method, declaration, class_node)
    return None


def objects_of(functions: list[Function], owner: str) -> Iterator[Variable]:
    """Local variables of the class type, one for each declarator."""
    for function in functions:
        if function.style is Style.MACRO:
            continue
        for declaration in function.own_nodes("declaration"):
            if not _is_class(function, declaration, owner):
                continue
            for declarator in declaration.children_by_field_name("declarator"):
                name = declared_name(declarator)
                if name is not None:
                    yield Variable(function, function.text(name), declaration=declaration, declarator=declarator)


def passed_on(functions: list[Function], owner: str) -> Iterator[tuple[Function, Node]]:
    """Members, pointers and copies of the class type: objects that are neither local variables nor references to
    them."""
    for function in functions:
        for param in function.params:
            if param.node is not None and function.owner != owner and _is_class(function, param.node, owner):
                declarator = param.node.child_by_field_name("declarator")
                if declarator is None or "reference_declarator" not in declarator.type:
                    yield function, param.node
    files = {id(f.file): f for f in functions}
    for function in files.values():
        for declaration in find(function.file.root, "field_declaration"):
            if _is_class(function, declaration, owner):
                yield function, declaration


def class_name(type_name: str) -> str:
    """`Tile` of `ns::Tile<64, N>`."""
    return re.sub(r"<.*", "", type_name, flags=re.DOTALL).split("::")[-1].strip()


def _is_class(function: Function, declaration: Node, owner: str) -> bool:
    kind = declaration.child_by_field_name("type")
    if kind is None:
        return False
    return class_name(function.file.text(kind)) == owner


def _classes(functions: list[Function], type_name: str) -> Iterator[tuple[Function, Node]]:
    """Definitions of a class, each with some function of its file."""
    base = class_name(type_name)
    files = {id(f.file): f for f in functions}
    for function in files.values():
        for node in find(function.file.root, *CLASSES):
            name = node.child_by_field_name("name")
            if name is not None and node.child_by_field_name("body") is not None and function.file.text(name) == base:
                yield function, node


def field_extents(functions: list[Function], type_name: str, path: str) -> list[str]:
    """Extents of the array member `path` (`.d`) of a class that the sources define; empty if they do not."""
    for function, node in _classes(functions, type_name):
        body = node.child_by_field_name("body")
        for declaration in body.named_children if body is not None else ():
            if declaration.type != "field_declaration":
                continue
            for declarator in declaration.children_by_field_name("declarator"):
                declared = declared_name(declarator)
                if declared is not None and function.file.text(declared) == path.removeprefix("."):
                    return [function.file.text(n) for n in array_extents(declarator)]
    return []


def names_in_class(functions: list[Function], type_name: str, text: str) -> bool:
    """Whether an expression in a class uses names that mean nothing outside: template parameters, static members."""
    words = "|".join(re.findall(r"[A-Za-z_]\w*", text))
    for function, node in _classes(functions, type_name) if words else ():
        template = node.parent if node.parent is not None and node.parent.type == "template_declaration" else node
        head = function.file.text(Span(template.start_byte, node.start_byte))
        body = function.file.text(node)
        if re.search(rf"\b(?:{words})\b", head) or re.search(rf"\b(?:{words})\s*=[^=]", body):
            return True
    return False
