# SPDX-License-Identifier: Apache-2.0
"""Calls that do nothing to accumulators: those that pin registers, and those that no thread gets to."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.model.facts import Abort, RegisterFence
from porter.model.functions import Call, Function
from porter.model.program import Program

_DEPTH = 4
_DO = re.compile(r"^\s*do\s*\{(.*)\}\s*while\s*\(\s*(?:0|false)\s*\)\s*;?\s*$", re.DOTALL)


def is_register_fence(program: Program, function: Function) -> bool:
    """Whether a function only pins registers with empty asm statements."""
    if not function.asm or any(s.template.strip() for s in function.asm):
        return False
    return all(aborts(program, c) for c in function.calls) and not any(
        True for n in function.own_nodes("assignment_expression") if n.parent and n.parent.type != "for_statement"
    )


def is_register_fence_call(program: Program, call: Call) -> bool:
    """Whether a call only pins registers: of such functions of the sources, or of a library."""
    targets = program.targets(call)
    if targets:
        return all(is_register_fence(program, t) for t in targets)
    return isinstance(program.facts.of_call(call), RegisterFence)


def only_aborts(program: Program, function: Function, arm: Node) -> bool:
    """Whether a preprocessor branch only says that no thread gets there."""
    inner = [c for c in arm.named_children if c.type != "comment"]
    nodes = [c.named_children[0] if c.type == "expression_statement" and c.named_children else c for c in inner]
    calls = [next((c for c in function.calls if c.node.id == n.id), None) for n in nodes]
    return bool(calls) and None not in calls and any(aborts(program, c) for c in calls if c is not None)


def aborts(program: Program, call: Call, depth: int = 0) -> bool:
    """Whether nobody comes back from a call: a rule says so, or the text of the function or macro that is called."""
    if isinstance(program.facts.of_call(call), Abort):
        return True
    if depth > _DEPTH:
        return False
    found = program.names.resolve(call)
    if found.symbols or found.targets:
        return bool(found.targets) and all(_ends(program, f, depth + 1) for f in found.targets)
    bodies = program.macro_bodies(call.name)
    return bool(bodies) and all(_stops(program, text, depth + 1) for text in bodies)


def _ends(program: Program, function: Function, depth: int) -> bool:
    """Whether a statement of a function's body that everybody comes to aborts."""
    calls = {c.node.id: c for c in function.calls}
    return any(
        inner.id in calls and aborts(program, calls[inner.id], depth)
        for statement in function.body.named_children
        if statement.type == "expression_statement"
        for inner in statement.named_children[:1]
    )


def _stops(program: Program, text: str, depth: int) -> bool:
    """Whether one of the statements of a macro's text aborts, and none stands behind a condition."""
    if re.search(r"\b(?:if|for|while|switch|return|goto)\b(?!\s*\(\s*(?:0|false)\s*\))|[?{]", _DO.sub(r"\1", text)):
        return False
    for piece in _DO.sub(r"\1", text).split(";"):
        name = re.match(r"\s*(\w+)\s*\(", piece)
        inner = program.macro_bodies(name[1]) if name is not None and depth <= _DEPTH else []
        if isinstance(program.facts.in_text(piece), Abort):
            return True
        if inner and all(_stops(program, t, depth + 1) for t in inner):
            return True
    return False
