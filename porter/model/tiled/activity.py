# SPDX-License-Identifier: Apache-2.0
"""Which statements issue MMAs or wait for them: a warpgroup comes to them as a whole, and accumulators move at them."""

from __future__ import annotations

from tree_sitter import Node

from porter.model.coherence import STATEMENT_LISTS
from porter.model.functions import Function, Style
from porter.model.scopes import LOOPS
from porter.model.tiled.accumulators import Tiled
from porter.model.tiled.tensors import lambdas_of

_LEAVES = ("return_statement", "break_statement", "continue_statement", "goto_statement")


class Activity:
    """Asks about one program."""

    def __init__(self, tiled: Tiled) -> None:
        self.lambdas = lambdas_of(tiled.program)
        self._calls: set[tuple[int, int]] = set()
        for call in tiled.calls:
            self._calls.add((id(call.caller.file), call.node.id))
        for function in tiled.program.functions:
            for call in function.calls:
                targets = tiled.program.targets(call)
                if any(id(t) in tiled.active and t.style is not Style.KERNEL for t in targets):
                    self._calls.add((id(function.file), call.node.id))

    def within(self, function: Function, node: Node) -> bool:
        """Whether a part of a function is active when it is run; what a lambda does counts where it is called."""
        stack = [node]
        while stack:
            current = stack.pop()
            if (id(function.file), current.id) in self._calls:
                return True
            if current.type == "init_declarator" and current is not node:
                value = current.child_by_field_name("value")
                if value is not None and value.type == "lambda_expression":
                    continue
            stack.extend(current.children)
        return False

    def may_follow(self, function: Function, node: Node) -> bool:
        """Whether something active may be run before a statement of a function: in front of it, or in a loop around."""
        inner, current = node, node.parent
        while current is not None and inner.id != function.body.id:
            if current.type in LOOPS and self.within(function, current):
                return True
            if current.type in STATEMENT_LISTS:
                for child in current.children:
                    if child.start_byte >= inner.start_byte:
                        break
                    if self.within(function, child):
                        return True
            inner, current = current, current.parent
        return False


def is_constant_branch(node: Node | None) -> bool:
    """Whether a statement is an `if constexpr`."""
    return node is not None and node.type == "if_statement" and any(c.type == "constexpr" for c in node.children)


def may_leave(node: Node) -> bool:
    """Whether a thread may go elsewhere from inside a statement."""
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type in _LEAVES:
            return True
        if current.type != "lambda_expression":
            stack.extend(current.children)
    return False
