# SPDX-License-Identifier: Apache-2.0
"""Calls of a library that tell which thread this is, as rules say by their names. A function that the sources declare
themselves is none of them."""

from __future__ import annotations

from tree_sitter import Node

from porter.model.functions import Function
from porter.model.program import Program
from porter.model.scopes import resolve

_AROUND_NAMES = ("template_function", "template_method", "qualified_identifier", "dependent_name")


def asks_for_thread(program: Program, function: Function, node: Node) -> bool:
    """Whether a call is true in the thread of a number."""
    callee = whole = node.child_by_field_name("function")
    while callee is not None and callee.type in _AROUND_NAMES:
        callee = callee.child_by_field_name("name") or next(iter(callee.named_children), None)
    if callee is None or whole is None or callee.type != "identifier":
        return False
    name, start = function.text(callee), function.span(whole).start
    calls = [c for c in program.calls_by_node.get(node.id, ()) if c.caller.file is function.file]
    known = any(program.targets(c) for c in calls) or name in program.macros.by_name
    if known or resolve(function, callee, name) is not None:
        return False
    scope = "".join(function.file.source[start : function.span(callee).start].decode("utf-8", "replace").split())
    are = program.vocabulary.spellings.are
    return are("asking_for_thread", scope + name) or are("asking_for_thread", name)
