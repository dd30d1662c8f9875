# SPDX-License-Identifier: Apache-2.0
"""Names that lost all their uses go with what they stand for."""

from __future__ import annotations

import re

import libcst as cst

from porter.passes.idiom_dsl.text import Draft, Statement, Text, assigned, found_in

RULE = "PTR587"


def remove_unused(text: Text, draft: Draft) -> None:
    """Assignments of values that nothing reads since the edits, and did before."""
    functions = found_in(text.module, cst.FunctionDef)
    while True:
        gone = [s for f in functions for s in found_in(f, cst.SimpleStatementLine) if _is_unused(text, draft, f, s)]
        if not gone:
            return
        for statement in gone:
            draft.remove(RULE, statement)


def _is_unused(text: Text, draft: Draft, function: cst.FunctionDef, statement: Statement) -> bool:
    bound = assigned(statement)
    if bound is None or "." in bound[0] or draft.is_gone(text.span(statement)):
        return False
    name = bound[0]
    if any(draft.is_gone(text.span(t.target)) for t in found_in(statement, cst.AssignTarget)):
        return False  # it goes by another name
    uses = [n for n in found_in(function, cst.Name) if n.value == name and not _is_target(text, n)]
    if not uses or not all(draft.is_gone(text.span(n)) for n in uses):
        return False
    word = re.compile(rf"\b{re.escape(name)}\b")
    own = text.span(statement)
    return not any(
        word.search(edit.replacement.decode())
        for _, edit in draft.edits
        if not own.contains(edit.span) or not len(edit.span)
    )


def _is_target(text: Text, node: cst.Name) -> bool:
    """Whether a name is bound, or is a keyword or an attribute, at its place."""
    parent = text.parent(node)
    if isinstance(parent, cst.AssignTarget):
        return True
    if isinstance(parent, cst.Arg) and parent.keyword is node:
        return True
    return isinstance(parent, cst.Attribute) and parent.attr is node
