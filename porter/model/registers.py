# SPDX-License-Identifier: Apache-2.0
"""Which variable a list of register operands means: `d[0][0], d[0][1], …` is the array `d`, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from tree_sitter import Node

from porter.model.functions import Function

COMPONENTS = ("x", "y", "z", "w")
"""Members of CUDA's vector types."""
_VECTOR_OF_ZEROS = re.compile(
    r"make_u?(?:float|int)[234]\(\s*[0.]+[fFuU]*\s*(?:,\s*[0.]+[fFuU]*\s*)*\)|(?:float|int|uint)[234]\s*\{\s*\}"
)
_ZERO = re.compile(r"[-+]?0*\.?0*(?:[eE][-+]?\d+)?[fFuUlL]*|float\s*\(\s*0\s*\)|float\s*\{\s*\}|\{\s*\}")


@dataclass(frozen=True)
class Element:
    """One register expression taken apart: `acc[m][0][3]` is root `acc`, subscripts `m`, `0`, `3`; `c.reg[2]`
    has the path `.reg`, and `v[i].y` of a vector type the subscripts `i`, `1`."""

    root: Node
    name: str
    subscripts: tuple[str, ...]
    path: str = ""


@dataclass(frozen=True)
class RegisterList:
    """The registers of one accumulator tile, in fragment order.

    Array form: `name` is the array, `prefix` the leading subscripts that select the tile, `inner` the extents
    that the enumerated subscripts span. Scalar form: `scalars` holds the names, `name` the first.
    """

    name: str
    root: Node
    prefix: tuple[str, ...] = ()
    inner: tuple[int, ...] = ()
    scalars: tuple[str, ...] = ()
    path: str = ""
    """Member that holds the registers of an accumulator of class type."""
    is_cast: bool = False
    """Whether an argument was cast to another shape of array."""

    @property
    def is_scalars(self) -> bool:
        return bool(self.scalars)


CASTS = ("reinterpret_cast", "static_cast", "const_cast")


def without_casts(function: Function, node: Node) -> Node:
    """The expression inside pointer casts and the `&` and `*` around it."""
    while True:
        inner: Node | None = None
        if node.type == "call_expression":
            callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            is_cast = callee is not None and function.text(callee).split("<")[0].strip() in CASTS
            if is_cast and arguments is not None and len(arguments.named_children) == 1:
                inner = arguments.named_children[0]
        elif node.type == "cast_expression":
            inner = node.child_by_field_name("value")
        elif node.type in ("pointer_expression", "parenthesized_expression"):
            inner = node.child_by_field_name("argument") or (node.named_children[0] if node.named_children else None)
        if inner is None:
            return node
        node = inner


def take_apart(function: Function, node: Node) -> Element | None:
    """The variable and subscripts of an expression such as `d`, `d[m]`, `&d[0][0]`, `(d[1])`; else None."""
    subscripts: list[str] = []
    path = ""
    # subscripts behind an `&`: `(&d[0][0])[5]` counts from the first element
    flat = 0
    # subscripts behind the member
    behind = 0
    while True:
        if node.type == "subscript_expression":
            indices = node.child_by_field_name("indices")
            inner = node.child_by_field_name("argument")
            if indices is None or inner is None or len(indices.named_children) != 1:
                return None
            subscripts.append(function.text(indices.named_children[0]))
            node = inner
        elif node.type == "parenthesized_expression" and len(node.named_children) == 1:
            node = node.named_children[0]
        elif node.type == "pointer_expression" and function.text(node).startswith("&"):
            argument = node.child_by_field_name("argument")
            if argument is None:
                return None
            flat = len(subscripts)
            node = argument
        elif node.type == "field_expression" and function.text(node).startswith("this->"):
            member = node.child_by_field_name("field")
            if member is None or path or function.text(node.child_by_field_name("argument") or node) != "this":
                return None
            return Element(member, function.text(member), tuple(reversed(subscripts)))
        elif node.type == "field_expression" and "->" not in function.text(node):
            inner, member = node.child_by_field_name("argument"), node.child_by_field_name("field")
            if inner is None or member is None:
                return None
            name = function.text(member)
            if name in COMPONENTS and not subscripts and not path:
                # a component of float2 or float4
                subscripts.append(str(COMPONENTS.index(name)))
            elif path and len(subscripts) > behind:
                # members of an array that is a member itself
                return None
            else:
                path, behind = f".{name}{path}", len(subscripts)
            node = inner
        elif node.type == "identifier":
            written = tuple(reversed(subscripts))
            if flat:
                inner_part = written[: len(written) - flat]
                while inner_part and inner_part[-1].strip() == "0":
                    inner_part = inner_part[:-1]
                written = (*inner_part, *written[len(written) - flat :])
            return Element(node, function.text(node), written, path)
        else:
            return None


def register_list(function: Function, nodes: list[Node | None]) -> RegisterList | None:
    """What a D operand list denotes, or None if it is not one array in order, nor distinct scalars."""
    elements: list[Element] = []
    for node in nodes:
        element = take_apart(function, node) if node is not None else None
        if element is None:
            return None
        elements.append(element)
    if not elements:
        return None
    first = elements[0]
    if not any(e.subscripts for e in elements):
        if any(e.path for e in elements):
            return None
        names = tuple(e.name for e in elements)
        if len(set(names)) != len(names):
            return None
        return RegisterList(first.name, first.root, scalars=names)
    depth = len(first.subscripts)
    if any((e.name, e.path, len(e.subscripts)) != (first.name, first.path, depth) for e in elements):
        return None
    fixed = 0
    while fixed < depth and len({e.subscripts[fixed] for e in elements}) == 1 and len(elements) > 1:
        fixed += 1
    try:
        indices = [tuple(int(s, 0) for s in e.subscripts[fixed:]) for e in elements]
    except ValueError:
        return None
    extents = tuple(max(i[axis] for i in indices) + 1 for axis in range(depth - fixed))
    if len(indices) != prod(extents) or indices != _row_major(extents):
        return None
    return RegisterList(first.name, first.root, first.subscripts[:fixed], extents, path=first.path)


def _row_major(extents: tuple[int, ...]) -> list[tuple[int, ...]]:
    result: list[tuple[int, ...]] = [()]
    for extent in extents:
        result = [(*head, i) for head in result for i in range(extent)]
    return result


def is_zero(text: str) -> bool:
    """Whether an expression is a literal zero."""
    text = text.strip()
    if _VECTOR_OF_ZEROS.fullmatch(text):
        return True
    return bool(text) and any(c in text for c in "0{") and _ZERO.fullmatch(text) is not None
