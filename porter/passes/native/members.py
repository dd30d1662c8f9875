# SPDX-License-Identifier: Apache-2.0
"""An mbarrier that is a private member of an object: the object's address stands for its own, where it is all that the
object has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import enclosing, find
from porter.model.functions import Function, Style, declared_name
from porter.model.pipeline.frames import Frame

_CLASSES = ("struct_specifier", "class_specifier")


def accessible(frame: Frame, address: str) -> str:
    """The address of a member, as a method of its class handed it on, or that of the object where the member is private
    and the only one."""
    for one in frame.chain:
        address = _accessible(one.function, address) if one.function.style is Style.METHOD else address
    return address


def _accessible(method: Function, address: str) -> str:
    match = re.fullmatch(r"\(?\s*(&.+)\s*\.\s*(\w+)\s*\)?", address, re.DOTALL)
    owner = enclosing(method.node, *_CLASSES)
    body = owner.child_by_field_name("body") if owner is not None else None
    if match is None or owner is None or body is None:
        return address
    members = dict(_members(method, owner, body))
    plain = not any(c.type == "base_class_clause" for c in owner.children) and not re.search(
        r"\bvirtual\b", method.text(body)
    )
    return match[1] if plain and list(members) == [match[2]] and not members[match[2]] else address


def _members(method: Function, owner: Node, body: Node) -> Iterator[tuple[str, bool]]:
    """Variables that each object has, and whether all may name them."""
    public = owner.type == "struct_specifier"
    for child in body.named_children:
        if child.type == "access_specifier":
            public = "public" in method.text(child)
        if child.type != "field_declaration" or any(method.text(c) == "static" for c in child.children):
            continue
        for declarator in child.children_by_field_name("declarator"):
            named = declared_name(declarator)
            if named is not None and not any(True for _ in find(declarator, "function_declarator")):
                yield method.text(named), public
