# SPDX-License-Identifier: Apache-2.0
"""Shared memory of the mbarriers that a port adds to a kernel: static, which comes out of the same bytes as the
kernel's own, or by request a member of the class that the kernel takes its dynamic shared memory for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import CudaFile, walk
from porter.lang.text import Edit, Span, as_bytes
from porter.model.kernels import DYNAMIC_SHARED
from porter.model.names.resolver import CALL_OPERATOR
from porter.passes.obstacles import report_shared
from porter.passes.tiled.context import TiledContext, TiledKernel
from porter.passes.tiled.spelling import Place, Unnamed, spelled
from porter.passes.tiled.text import cpp
from porter.ptx.arch import SHARED_LIMIT

RULE = "PTR613"
MOST_WARPGROUPS = 4
"""Warpgroups for which there are mbarriers in a struct, where how many multiply is not known."""
_BYTES = re.compile(r"(?:unsigned\s+)?char\s*\*|(?:std::)?u?int8_t\s*\*")


@dataclass(frozen=True)
class Storage:
    """What a kernel takes its dynamic shared memory for: the type as it is written where Tensor Memory is set up, and
    the array."""

    kind: str
    array: str


def declare_slots(context: TiledContext, kernel: TiledKernel, count: str, ring: int) -> list[str]:
    """Lines that declare the mbarriers of a kernel, and ask whether they fit; none if they are refused."""
    name, wanted = context.port.names.shared, context.port.placement.storage
    if not wanted:
        lines = [cpp("slots_static", count=count, ring=ring, name=name)]
        storage = next(_storages(context, kernel), None)
        if storage is not None:
            return [*lines, _asked(storage, name)]
        if DYNAMIC_SHARED.search(kernel.function.text(kernel.function.body)):
            report_shared(context.port, kernel.function)
        return lines
    storage = next((s for s in _storages(context, kernel) if _last_name(s.kind) == wanted.rpartition("::")[2]), None)
    if storage is None:
        return _refused(context, kernel, f"`{kernel.function.name}` does not take its dynamic shared memory for it")
    found = _own(kernel, list(_classes(context, [w for w in wanted.split("::") if w])))
    if len(found) != 1:
        return _refused(context, kernel, "there is no such struct" if not found else "there are several of them")
    kind = cpp("slots_type", count=count, ring=ring)
    there = kind if count.isdigit() else cpp("slots_type", count=MOST_WARPGROUPS, ring=ring)
    file, body = found[0]
    if context.members.setdefault((file.path, body.start_byte), there) != there:
        return _refused(context, kernel, "kernels that use it differ in their warpgroups or batches")
    _add_member(context, file, body, f"{there} {name};")
    if there == kind:
        line = cpp("slots_member", kind=kind, name=name, storage=storage.kind, array=storage.array)
        return [line, _asked(storage)]
    line = cpp("slots_in_member", kind=kind, name=name, storage=storage.kind, array=storage.array)
    return [line, cpp("slots_suffice", count=count, most=MOST_WARPGROUPS), _asked(storage)]


def _asked(storage: Storage, beside: str = "") -> str:
    return cpp("shared_fits", storage=storage.kind, beside=beside, most=SHARED_LIMIT)


def _refused(context: TiledContext, kernel: TiledKernel, why: str) -> list[str]:
    what = f"`{context.port.placement.storage}` cannot take the port's mbarriers: {why}"
    context.tiled.refuse(kernel.function, kernel.setup, what, Code.STORAGE_TAKEN)
    return []


def _last_name(kind: str) -> str:
    words = re.findall(r"\w+", re.sub(r"<.*>", "", kind))
    return words[-1] if words else ""


def _storages(context: TiledContext, kernel: TiledKernel) -> Iterator[Storage]:
    """The types that a kernel casts its dynamic shared memory to, where Tensor Memory is set up behind the array."""
    function = kernel.function
    body = function.text(function.body)
    in_front = {
        m[1]: m.start() + function.body.start_byte < kernel.setup.start_byte for m in DYNAMIC_SHARED.finditer(body)
    }
    if function.name == CALL_OPERATOR:
        # what runs an object's call operator as a kernel hands it the array
        in_front |= {p.name: True for p in function.params if _BYTES.match(function.text(p.node) if p.node else "")}
    for cast in (n for n in walk(function.body) if n.type in ("call_expression", "cast_expression")):
        to = cast.child_by_field_name("function") or cast.child_by_field_name("type")
        value = cast.child_by_field_name("arguments") or cast.child_by_field_name("value")
        array = function.text(value).strip("()&[0] ") if value is not None else ""
        if to is None or not in_front.get(array, False):
            continue
        if cast.type == "call_expression" and not function.text(to).startswith("reinterpret_cast"):
            continue
        kind = next((n for n in walk(to) if n.type == "type_descriptor"), None)
        named = kind.child_by_field_name("type") if kind is not None else None
        if named is not None and named.type not in ("primitive_type", "sized_type_specifier"):
            try:
                yield Storage(spelled(function, named, Place(context.tiled.program, function, kernel.setup)), array)
            except Unnamed:
                continue


def _classes(context: TiledContext, words: Sequence[str]) -> Iterator[tuple[CudaFile, Node]]:
    """Bodies of structs of a name, which may have those of classes and namespaces around it in front."""
    for file in context.tiled.program.sources.files.values():
        for node in walk(file.root):
            body = node.child_by_field_name("body")
            if node.type != "struct_specifier" or body is None or _name(file, node) != words[-1]:
                continue
            around = [name for scope in _scopes(node) for name in reversed(_name(file, scope).split("::"))]
            if around[: len(words) - 1] == list(reversed(words[:-1])):
                yield file, body


def _own(kernel: TiledKernel, found: list[tuple[CudaFile, Node]]) -> list[tuple[CudaFile, Node]]:
    """Of several structs of a name, that which a kernel's own class has."""
    around = {scope.id for scope in _scopes(kernel.function.body)}
    inside = [(file, body) for file, body in found if any(s.id in around for s in list(_scopes(body))[1:2])]
    return inside if len(found) > 1 and inside else found


def _scopes(node: Node) -> Iterator[Node]:
    """Classes and namespaces around a node, the innermost first."""
    around = node.parent
    while around is not None:
        if around.type in ("class_specifier", "struct_specifier", "namespace_definition"):
            yield around
        around = around.parent


def _name(file: CudaFile, scope: Node) -> str:
    named = scope.child_by_field_name("name")
    return re.sub(r"\s|<.*>", "", file.source[named.start_byte : named.end_byte].decode()) if named is not None else ""


def _add_member(context: TiledContext, file: CudaFile, body: Node, member: str) -> None:
    """A last member, on a line of its own where there are several."""
    last = body.named_children[-1] if body.named_children else None
    at = last.end_byte if last is not None else body.start_byte + 1
    column = last.start_point[1] if last is not None else 0
    lead = f"{file.newline}{' ' * column}" if body.start_point[0] != body.end_point[0] else " "
    edit = Edit(file.path, Span(at, at), as_bytes(f"{lead}{member}"))
    edits = context.port.edits.setdefault(RULE, [])
    if edit not in edits:
        edits.append(edit)
