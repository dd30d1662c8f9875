# SPDX-License-Identifier: Apache-2.0
"""A warpgroup's barrier between the stores of its warps to shared memory and the bulk store that one thread issues.

It stands where all threads of the warpgroup come: in the innermost list of statements that has both, in front of the
one with the bulk store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.text import Edit, EditGroup, Safety, Span
from porter.model.functions import Function
from porter.model.kernels import contains_tensor_core
from porter.model.program import Program
from porter.model.threads import Threads

ID = Code.STORE_NOT_READY.id
Unready = frozenset[tuple[str, str, int, int]]
"""(file, links followed, name of the kernel, line of the bulk store, line of what writes) of the kernel's own text."""
_REASON = "In the original nothing keeps the thread that issues the bulk store behind what other warps store."
_BARRIER = re.compile(rb"\b\w+::sync_warpgroup\(\)")


def stores_made_ready(program: Program, edits: Mapping[str, Sequence[Edit]], unready: Unready) -> list[EditGroup]:
    """The group for these stores, where the port has the barrier of a warpgroup and all of it comes there."""
    known = [e for some in edits.values() for e in some]
    call = next((m[0] for e in known if (m := _BARRIER.search(e.replacement))), None)
    if not unready or call is None:
        return []
    found: dict[int, Edit] = {}
    for kernel in program.kernels:
        for path, name, store, writer in unready:
            if (path, name) != (str(Path(kernel.file.path).resolve()), kernel.name):
                continue
            place = _place(kernel, store, writer)
            if place is None or not _is_joint(program, kernel, place):
                continue
            at = kernel.span(place).start
            if not any(e.path == kernel.file.path and e.span.start <= at < e.span.end for e in known):
                found[at] = _addition(kernel.file.path, kernel.file.source, at, call)
    if not found:
        return []
    title = "A warpgroup's stores to shared memory are ahead of the bulk store that reads them"
    return [EditGroup(ID, title, Safety.REVIEW, tuple(found.values()), _REASON, ("PTX ISA 9.7.9.25.2",))]


def _addition(path: str, source: bytes, at: int, call: bytes) -> Edit:
    start = source.rfind(b"\n", 0, at) + 1
    line = source[start:at]
    pad = line[: len(line) - len(line.lstrip(b" \t"))]
    end = b"\r\n" if source[:start].endswith(b"\r\n") else b"\n"
    return Edit(path, Span(at, at), call + b";" + end + pad)


def _place(kernel: Function, store: int, writer: int) -> Node | None:
    """The statement with the bulk store, in the innermost list that has what writes in another one ahead of it."""
    node: Node | None = kernel.body
    while node is not None:
        holding = [c for c in node.named_children if _has(kernel, c, store)]
        writing = [c for c in node.named_children if _has(kernel, c, writer)]
        if len(holding) != 1 or not writing:
            return None
        if holding[0] not in writing:
            ahead = node.type == "compound_statement" and writing[0].end_byte <= holding[0].start_byte
            return holding[0] if ahead else None
        node = holding[0]
    return None


def _has(kernel: Function, node: Node, line: int) -> bool:
    lines = kernel.file.lines
    first = lines.line_column(kernel.span(node).start)[0]
    return first <= line <= lines.line_column(kernel.span(node).end)[0]


def _is_joint(program: Program, kernel: Function, node: Node) -> bool:
    """Whether whole warpgroups come to a statement: branches around it that only some threads take have MMAs in them,
    which a warpgroup issues as a whole."""
    uses = set(program.uses_tensor_core())
    outer = node
    while outer.parent is not None and outer.id != kernel.body.id:
        if contains_tensor_core(program, kernel, outer.parent, uses):
            break
        outer = outer.parent
    threads = Threads(program)
    return not threads.splits(kernel, node, outer) and not threads.apart(kernel, node, node.start_byte, [])
