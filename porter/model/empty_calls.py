# SPDX-License-Identifier: Apache-2.0
"""Calls that do nothing to accumulators: those that pin registers, and those that no thread gets to."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.model.facts import RegisterFence
from porter.model.functions import Call, Function
from porter.model.program import Program

ABORTS = re.compile(r"\w*INVALID_CONTROL_PATH|__trap|abort|__assert_fail|__builtin_unreachable|\w*UNREACHABLE\w*")
"""What stands where a build for another architecture must not come."""


def is_register_fence(function: Function) -> bool:
    """Whether a function only pins registers with empty asm statements (CUTLASS's `warpgroup_fence_operand`)."""
    if not function.asm or any(s.template.strip() for s in function.asm):
        return False
    return all(ABORTS.fullmatch(c.name) for c in function.calls) and not any(
        True for n in function.own_nodes("assignment_expression") if n.parent and n.parent.type != "for_statement"
    )


def is_register_fence_call(program: Program, call: Call) -> bool:
    """Whether a call only pins registers: of such functions of the sources, or of a library."""
    targets = program.targets(call)
    if targets:
        return all(is_register_fence(t) for t in targets)
    return isinstance(program.facts.of_call(call), RegisterFence)


def only_aborts(function: Function, arm: Node) -> bool:
    """Whether a preprocessor branch only says that no thread gets there."""
    inner = [c for c in arm.named_children if c.type != "comment"]
    calls = [c.named_children[0] if c.type == "expression_statement" and c.named_children else c for c in inner]
    called = [c.child_by_field_name("function") if c.type == "call_expression" else None for c in calls]
    names = [function.text(c) if c is not None else "" for c in called]
    return bool(names) and all(names) and any(ABORTS.fullmatch(n) for n in names)
