# SPDX-License-Identifier: Apache-2.0
"""Which conditions lanes of one warp may answer differently. A value that only the index of the warp decides is the
same in all its lanes."""

from __future__ import annotations

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.facts import Broadcast, Doubt, Index
from porter.model.functions import Function
from porter.model.program import Program
from porter.model.scopes import LOOPS, resolve
from porter.model.thread_values import ThreadValues
from porter.model.threads import Threads
from porter.ptx.arch import Limits

_BRANCHES = ("if_statement", "switch_statement", *LOOPS)
_MOST_STEPS = 16


class Warps:
    """Asks about one program."""

    def __init__(self, program: Program, threads: Threads) -> None:
        self.program = program
        self.threads = threads
        self.values = ThreadValues(program, Limits.threads_per_block)

    def returns_apart(self, function: Function, behind: int) -> list[Node]:
        """The returns of a function, behind a byte offset of its tree and outside of lambdas, that some lanes of a
        warp may take and others not."""
        leaving = self.threads.leaving(function)
        return [node for node in leaving if node.start_byte >= behind and self._parted(function, node)]

    def _parted(self, function: Function, node: Node) -> bool:
        if self.threads.asks(node):
            return True
        inner, current = node, node.parent
        while current is not None and inner.id != function.body.id:
            condition = current.child_by_field_name("condition") if current.type in _BRANCHES else None
            if condition is not None and self.differs(function, condition):
                return True
            inner, current = current, current.parent
        return False

    def differs(self, function: Function, node: Node, steps: int = _MOST_STEPS) -> bool:
        """Whether lanes of one warp may find different values."""
        if steps == 0:
            return True
        if not self.threads.differ(function, node):
            return False
        if None not in self.values.by_warp(function, node):
            return False
        if node.type == "call_expression":
            call = next((c for c in function.calls if c.node.id == node.id), None)
            fact = self.program.facts.of_call(call) if call is not None else None
            if isinstance(fact, Broadcast) and call is not None:
                lanes = [a for a in call.args if fact.lane and function.text(a).strip() == fact.lane]
                return any(self.differs(function, lane, steps - 1) for lane in lanes)
            if isinstance(fact, Index) and fact.uniform:
                return False
            if call is not None and (fact is not None or self.threads.call_differs(call)):
                return True
        if node.type == "identifier":
            return self._variable_differs(function, node, steps)
        if node.type == "field_expression" and isinstance(self.program.facts.of_name(function, node), Index | Doubt):
            return True
        return any(self.differs(function, child, steps) for child in node.named_children)

    def _variable_differs(self, function: Function, node: Node, steps: int) -> bool:
        value = self._only_value(function, node)
        return value is None or self.differs(function, value, steps - 1)

    def _only_value(self, function: Function, node: Node) -> Node | None:
        """What a local variable is initialized with, if nothing else is ever assigned to it."""
        name = function.text(node)
        variable = resolve(function, node, name)
        if variable is None or variable.declarator is None or variable.declarator.type != "init_declarator":
            return None
        for other in find(variable.function.body, "assignment_expression", "update_expression"):
            target = other.child_by_field_name("left") or other.child_by_field_name("argument")
            if target is not None and any(variable.function.text(n) == name for n in walk(target)):
                return None
        return variable.declarator.child_by_field_name("value")
