# SPDX-License-Identifier: Apache-2.0
"""The helper namespace is written once, into the file that all files that use it include."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.lang.cuda import CudaFile
from porter.lang.text import Edit, Span
from porter.passes.context import PortContext

RULE = "PTR160"

_NEEDS = re.compile(rb"<\s*(?:cstdint|stdint\.h|cuda_bf16\.h|cuda_fp16\.h|cuda\.h|cuda_runtime\.h|cuda/barrier)\s*>")

_DEFINITIONS = (
    "function_definition",
    "template_declaration",
    "namespace_definition",
    "linkage_specification",
)


def insert_helpers(context: PortContext) -> None:
    """Add the namespace, and `<cstdint>` if nothing that the file includes brings it."""
    users = sorted({e.path for edits in context.edits.values() for e in edits})
    home = _home(context, users)
    file = context.program.sources.files[home]
    first_edit = min((e.span.start for edits in context.edits.values() for e in edits if e.path == home), default=0)
    at = _position(file, first_edit)
    text = context.helpers.text()
    if not any(_NEEDS.search(f.source) for f in context.program.sources.files.values()):
        text = "#include <cstdint>\n\n" + text
    before = file.source[:at]
    lead = "" if before.endswith(b"\n\n") or not before else "\n" if before.endswith(b"\n") else "\n\n"
    tail = "" if file.source[at : at + 1] == b"\n" else "\n"
    newline = file.newline
    written = (lead + text + tail).replace("\n", newline)
    context.edits.setdefault(RULE, []).append(Edit(home, Span(at, at), written.encode()))


def _home(context: PortContext, users: list[str]) -> str:
    """The file among the users that every other one includes, directly or not; else the root."""
    sources = context.program.sources
    reach: dict[str, set[str]] = {}
    for path in sources.files:
        seen, work = set(), [path]
        while work:
            current = work.pop()
            for include in sources.includes:
                if include.path == current and include.resolved and include.resolved not in seen:
                    seen.add(include.resolved)
                    work.append(include.resolved)
        reach[path] = seen
    for candidate in users:
        if all(candidate == user or candidate in reach[user] for user in users):
            return candidate
    return sources.root


def _position(file: CudaFile, limit: int) -> int:
    """Behind the last top-level include before `limit`, else behind `#pragma once`, else behind the leading
    comments."""
    ends = [end for end in _leading(file.root) if end <= limit]
    if ends:
        return max(ends)
    match = re.search(rb"^[ \t]*#pragma\s+once[^\n]*\n", file.source, re.MULTILINE)
    if match:
        return match.end()
    end = 0
    for node in file.root.named_children:
        if node.type != "comment":
            break
        end = node.end_byte + 1
    return min(end, len(file.source))


def _leading(root: Node) -> list[int]:
    """Ends of the include lines that stand outside functions, before the first function."""
    ends = []
    stack = list(root.named_children)
    for node in stack:
        if node.type == "preproc_include":
            ends.append(node.end_byte)
        elif node.type in ("preproc_ifdef", "preproc_if") and not any(
            c.type in _DEFINITIONS for c in node.named_children
        ):
            if any(c.type == "preproc_include" for c in node.named_children):
                ends.append(node.end_byte)
        elif node.type == "preproc_ifdef":
            ends += _leading(node)
            break
        elif node.type in _DEFINITIONS:
            break
    return ends
